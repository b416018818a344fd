"""Every name that a PUT acknowledges is checked, saved, restored and served, however odd it is."""

from __future__ import annotations

import random
from pathlib import Path
from urllib.parse import quote

from click.testing import CliRunner

from persistence.cli import commands
from persistence.storage.layout import FilePaths, next_content_of, unfinished_of
from tests.encrypted_form import DEFINITION, UNMARKED, data, path
from tests.maintenance.workshop import Workshop

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


def names() -> list[str]:
    made = random.Random(12)
    return [*ODD, *("".join(made.sample(PARTS, made.randint(1, 3))) for _ in range(40))]


def run(*arguments: str, env: dict[str, str] | None = None) -> int:
    done = CliRunner().invoke(commands, arguments, env=env)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code


def test_what_was_acknowledged_is_checked_saved_restored_and_served(tmp_path: Path) -> None:
    stored = dict[str, bytes]()
    refused = set[str]()
    with Workshop(tmp_path / "data") as workshop:
        for number, odd in enumerate(names()):
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
    assert refused < set(names())
    assert {"lost%2Bfound2/form/data/d/data.xml", "SHA256SUMS/form/data/d/data.xml"} < stored.keys()
    assert "lost%2Bfound/form/data/d/data.xml" not in stored
    documents = {url.rpartition("/")[0] for url in stored}
    assert len(set(Workshop(tmp_path / "data").check("--deep").kinds)) == 0
    assert Workshop(tmp_path / "data").check("--deep").summary["folders"] == len(documents)
    assert run("backup", str(tmp_path / "backups"), "--data", str(tmp_path / "data"), "--verify") == 0
    assert run("restore", str(tmp_path / "backups"), "--data", str(tmp_path / "restored")) == 0
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
            held = path("a/b", f"d{document}", name)
            for body in (SECRET, SECRET[::-1]):
                workshop.put(f"a/b/data/d{document}/{name}", body)
                workshop.put(f"a/b/data/d{document}/data.xml", data(scan=held))
        workshop.put("a/b/form/1/form.xhtml", DEFINITION)
    assert run("reencrypt", "--data", str(tmp_path / "data"), env=KEY) == 0
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
