"""Trees as people, bad disks and other programs make them: nothing hangs, nothing ends with a traceback."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import pytest
from click.testing import CliRunner

from persistence.cli import commands
from persistence.errors import BusyError
from persistence.storage import root
from persistence.storage.layout import FilePaths, next_content_of, unfinished_of
from persistence.storage.locks import LockFile
from tests.encrypted_form import DEFINITION, UNMARKED, data
from tests.encrypted_form import path as held_at
from tests.maintenance import kills
from tests.maintenance.workshop import DATA, DOCUMENT, FORM, NEW, OLD, XHTML, Workshop
from tests.sidecars import resealed

SIDECAR = f"{DATA}.json"


@pytest.mark.parametrize(
    ("path", "kind", "after"),
    [(DATA, "not-a-file", (200, OLD)), (SIDECAR, "sidecar-unreadable", (200, NEW)), ("layout.json", "layout", None)],
)
@pytest.mark.parametrize("make", [os.mkfifo, Path.mkdir])
def test_what_is_no_file_is_found_and_goes_to_the_quarantine(
    workshop: Workshop, make: Callable[[Path], None], path: str, kind: str, after: tuple[int, bytes] | None
) -> None:
    """The service does not wait for somebody to write into a pipe, either."""
    workshop.file(path).unlink()
    make(workshop.file(path))
    if after is not None:
        assert workshop.get(DATA)[0] == 500
    assert workshop.check("--deep").kinds[0] == (kind, path)
    assert workshop.check("--repair", "--adopt", "--all").status == 3
    assert workshop.check("--deep").findings == []
    assert workshop.get(DATA) == (after or (200, NEW))
    workshop.put(DATA, b"<d>next</d>")


def test_links_are_not_followed_and_what_they_lead_to_is_not_changed(workshop: Workshop, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_bytes(b"<d>outside</d>")
    outside.chmod(0o666)
    before = outside.stat()
    revision = workshop.history(DATA)[0]
    revision.unlink()
    for path in (revision, workshop.file(f"{DOCUMENT}/link"), workshop.file("app/form/data/link"), workshop.file("a")):
        path.symlink_to(outside)
    workshop.file(DATA).unlink()
    workshop.file(DATA).symlink_to(outside)
    assert workshop.get(DATA)[0] == 500
    workshop.check("--repair", "--adopt", "--all", "--deep")
    after = outside.stat()
    assert (after.st_mode, after.st_mtime_ns, outside.read_bytes()) == (
        before.st_mode,
        before.st_mtime_ns,
        b"<d>outside</d>",
    )
    assert workshop.get(DATA)[0] == 404  # nothing of it was left but links, which are in the quarantine


def test_a_broken_link_is_no_content(workshop: Workshop) -> None:
    workshop.file(DATA).unlink()
    workshop.file(DATA).symlink_to("nowhere")
    assert [kind for kind, _ in workshop.check("--repair").kinds][:2] == ["not-a-file", "content-missing"]
    assert workshop.get(DATA) == (200, OLD)


def test_names_that_cannot_be_asked_for_are_not_taken_in(workshop: Workshop) -> None:
    names = (b"b" * 201, b"c" * 255, b"x.y%2Ejson%20", b"trail ", b"a%2Fb", b"a%FF", b"\xff", b"nl\n")
    for name in names:
        Path(os.fsdecode(os.fsencode(workshop.file(DOCUMENT)) + b"/" + name)).write_bytes(b"x")
    for number in (2**63, 10**30):
        directory = workshop.file(f"app/form/form/{number}")
        directory.mkdir(mode=0o750)
        (directory / "form.xhtml").write_bytes(XHTML)
    checked = workshop.check("--repair", "--adopt", "--all")
    assert (checked.status, [kind for kind, _ in checked.kinds]) == (0, ["foreign"] * (len(names) + 2))
    assert workshop.get(FORM) == (200, XHTML)


def test_documents_that_share_their_files_are_taken_in_each_for_itself(workshop: Workshop) -> None:
    document = workshop.file(DOCUMENT)
    shutil.copytree(document, document.with_name("twin"), copy_function=os.link)
    assert {kind for kind, _ in workshop.check("--deep").kinds} == {"misplaced"}
    assert workshop.check("--adopt", "app/form/data/twin").status == 3
    assert workshop.check("--deep").findings == []
    workshop.file(DATA).write_bytes(b"<d>edited</d>")
    assert workshop.check("--adopt", "--all").status == 3
    assert workshop.check("--deep").findings == []
    assert not workshop.file(DATA).samefile(document.with_name("twin") / "data.xml")


def test_a_draft_is_not_outdated_by_a_save_of_the_future(workshop: Workshop) -> None:
    """The clock was wrong when the data was saved: the draft may be the newer of the two."""
    workshop.put(f"{DOCUMENT.replace('/data/', '/draft/')}/data.xml", b"<d>draft</d>")
    resealed(workshop.file(SIDECAR), modified="2099-01-01T00:00:00.000Z")
    assert [kind for kind, _ in workshop.check("--repair").kinds] == ["times-lost"]
    assert workshop.get("app/form/draft/document/data.xml") == (200, b"<d>draft</d>")


def test_what_lies_under_a_second_name_in_the_history_is_not_deleted_if_it_differs(workshop: Workshop) -> None:
    modified = str(workshop.sidecar(DATA)["modified"]).replace(":", "-")
    second = workshop.file(f"{DOCUMENT}/.history/{modified}.data.xml")
    os.link(workshop.file(SIDECAR), second.with_name(f"{second.name}.json"))
    second.write_bytes(b"<d>what somebody wrote</d>")
    second.chmod(0o640)
    before = workshop.contents()
    assert workshop.check("--repair").status == 3
    assert before <= workshop.contents()


def test_finishing_a_commit_does_not_delete_what_was_put_in_its_place(workshop: Workshop) -> None:
    content = workshop.file(DATA)
    content.rename(content.with_name(f".data.xml.{workshop.sidecar(DATA)['id']}"))
    content.write_bytes(b"<d>put back by hand</d>")
    content.chmod(0o640)
    before = workshop.contents()
    assert workshop.check("--repair").status == 3
    assert workshop.get(DATA) == (200, NEW)
    assert before <= workshop.contents()


def test_a_pipe_among_the_services_own_files_stops_nobody(workshop: Workshop, tmp_path: Path) -> None:
    for path in (".spool/pipe", ".trash/pipe"):
        os.mkfifo(workshop.file(path))
    for command in (("check", "--repair"), ("backup", str(tmp_path / "backups"))):
        assert kills.run([*command, "--data", str(workshop.root)], tmp_path / "said").status == 0
    again = Workshop(workshop.root)
    assert again.get(DATA) == (200, NEW)
    assert not workshop.file(".trash/pipe").exists()


def test_a_list_of_digests_that_has_lost_its_end_is_said(workshop: Workshop, tmp_path: Path) -> None:
    """Cut within a line, nothing is changed; cut after one, what is not listed is named."""
    kills.run(["backup", f"{tmp_path}/backups", "--data", str(workshop.root)], tmp_path / "said")
    (saved,) = (tmp_path / "backups").glob("2*")
    lines = (saved / "SHA256SUMS").read_bytes().splitlines(keepends=True)
    restore = ["restore", str(saved), "--data", f"{tmp_path}/restored"]
    (saved / "SHA256SUMS").write_bytes(b"".join(lines)[:-9])
    assert kills.run(restore, tmp_path / "said").status == 1
    assert not (tmp_path / "restored").exists()
    assert lines[-1].endswith(b"  layout.json\n")  # which is restored from itself
    (saved / "SHA256SUMS").write_bytes(b"".join(lines[:-2]))
    done = kills.run(restore, tmp_path / "said")
    assert done.status == 4
    assert f"{os.fsdecode(lines[-2][66:-1])}: not in SHA256SUMS, and not restored" in done.said


def test_a_service_does_not_start_on_an_empty_directory_that_is_just_being_restored_to(tmp_path: Path) -> None:
    root.make_own(str(tmp_path))
    with LockFile(f"{tmp_path}/.locks/service").exclusive("in use"), pytest.raises(BusyError):
        Workshop(tmp_path).get(DATA)
    assert not (tmp_path / "layout.json").exists()


def test_a_repair_of_a_tree_without_locks_makes_them(workshop: Workshop) -> None:
    """Two repairs of one copy exclude each other."""
    shutil.rmtree(workshop.file(".locks"))
    workshop.file(DATA).unlink()
    assert workshop.check().status == 4
    assert not workshop.file(".locks").exists()
    assert workshop.check("--repair").status == 3
    assert workshop.file(".locks/service").exists()


# Every name that a PUT acknowledges is checked, saved, restored and served, however odd it is.

KEY = {"PERSISTENCE_ENCRYPTION_KEY": f"k1:{'ab' * 32}"}
SECRET = b"what nobody may read"
PARTS = (
    *("lost+found", "layout.json", "layout.json.1", "SHA256SUMS", "reasons.jsonl", "backup.json", "wrong", "current"),
    *("form", "data", "draft", "data.xml", "form.xhtml", "history", "locks", "service", "git", "1", "00", "README.md"),
    *(".json", ".JSON", "%2E", "%", "~", "#", "+", " ", ".", "-wal", ".sqlite", ".partial", ".lock", "é", "\U0001f600"),
    *("a" * 28, "f" * 40, ".tmp", ".orig", "2025-03-04T05-06-07.089Z", "x" * 150),
)
ODD = (
    *("lost+found", "lost+found2", "layout.json", "layout.json.old", "layout.json.12", "SHA256SUMS", "SHA256SUMS.0"),
    *("reasons.jsonl", "git", "form", "data", "draft", "current", "lock"),
)


def odd_names() -> list[str]:
    made = random.Random(12)
    return [*ODD, *("".join(made.sample(PARTS, made.randint(1, 3))) for _ in range(40))]


def run_command(*arguments: str, env: dict[str, str] | None = None) -> int:
    done = CliRunner().invoke(commands, arguments, env=env)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code


def test_what_was_acknowledged_is_checked_saved_restored_and_served(tmp_path: Path) -> None:
    stored = dict[str, bytes]()
    refused = set[str]()
    with Workshop(tmp_path / "data") as workshop:
        for number, odd in enumerate(odd_names()):
            body = f"<d>{number}</d>".encode()
            for url in (
                f"{quote(odd, safe='')}/form/data/d/data.xml",
                f"app/{quote(odd, safe='')}/data/d/data.xml",
                f"app/form/data/{quote(odd, safe='')}/data.xml",
                f"app/form/data/{quote(odd, safe='')}/{quote(odd, safe='')}",
            ):
                headers = {"Svc-Form-Definition-Version": "1"}
                answer = workshop.client.put(f"/crud/{url}", data=body, headers=headers)
                if answer.status_code in {201, 204}:
                    stored[url] = body
                else:
                    assert answer.status_code == 400, answer.text
                    refused.add(odd)
    assert len(stored) > 100
    assert refused < set(odd_names())
    assert {"lost%2Bfound2/form/data/d/data.xml", "SHA256SUMS/form/data/d/data.xml"} < stored.keys()
    assert "lost%2Bfound/form/data/d/data.xml" not in stored
    documents = {url.rpartition("/")[0] for url in stored}
    assert len(set(Workshop(tmp_path / "data").check("--deep").kinds)) == 0
    assert Workshop(tmp_path / "data").check("--deep").summary["folders"] == len(documents)
    assert run_command("backup", str(tmp_path / "backups"), "--data", str(tmp_path / "data"), "--verify") == 0
    assert run_command("restore", str(tmp_path / "backups"), "--data", str(tmp_path / "restored")) == 0
    with Workshop(tmp_path / "restored") as restored:
        assert {url: restored.client.get(f"/crud/{url}").data for url in stored} == stored


def test_what_is_taken_out_of_the_way_in_an_application_called_like_the_list_of_reasons(tmp_path: Path) -> None:
    with Workshop(tmp_path / "data") as workshop:
        workshop.put("reasons.jsonl/form/data/d/data.xml", b"<d/>")
        workshop.file("reasons.jsonl/form/data/d/data.xml").unlink()
        workshop.file("reasons.jsonl/form/data/d/data.xml").mkdir()
        assert workshop.check("--repair").status == 3
        assert workshop.check().findings == []


def test_older_revisions_under_the_longest_names_can_be_reencrypted(tmp_path: Path) -> None:
    """So the key before can retire. Names of 189 bytes and more left no room for an id beside them."""
    long = [f"{'n' * (length - 4)}.bin" for length in (188, 189, 200)]
    with Workshop(tmp_path / "data") as workshop:
        workshop.put("a/b/form/1/form.xhtml", UNMARKED)
        for document, name in enumerate(long):
            held = held_at("a/b", f"d{document}", name)
            for body in (SECRET, SECRET[::-1]):
                workshop.put(f"a/b/data/d{document}/{name}", body)
                workshop.put(f"a/b/data/d{document}/data.xml", data(scan=held))
        workshop.put("a/b/form/1/form.xhtml", DEFINITION)
    assert run_command("reencrypt", "--data", str(tmp_path / "data"), env=KEY) == 0
    contents = [each.read_bytes() for each in (tmp_path / "data").rglob("*.bin")]
    assert len(contents) == 2 * len(long)
    assert not any(SECRET in each or SECRET[::-1] in each for each in contents)
    assert Workshop(tmp_path / "data").check("--deep").findings == []


def test_every_file_beside_a_content_has_room_for_the_longest_name() -> None:
    place = FilePaths("/root/app/form/data/d", "n" * 200)
    older = FilePaths(place.history, f"2025-03-04T05-06-07.089Z.{place.name}")
    for each in (place, older, FilePaths(older.directory, f"2025-03-04T05-06-07.089Z.{'é' * 100}")):
        for path_of in (each.content, each.sidecar, each.next_sidecar, each.next_content("a" * 40)):
            assert len(path_of.rpartition("/")[2].encode()) <= 255
        pending = each.next_content("ab" * 20).rpartition("/")[2]
        assert unfinished_of(pending) == each.name
        said = next_content_of(pending)
        assert said[0] == each.name
        assert ("ab" * 20).startswith(said[1])
