"""``persistence purge``: what goes, what stays, and that a purge that is killed leaves nothing half done."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from persistence.cli import commands
from tests.in_process import serving
from tests.maintenance import kills
from tests.maintenance.workshop import ATTACHMENT, DATA, DELETED, DOCUMENT, DRAFT, Workshop, copy_tree, furnished

ALL = ("--revisions", "--tombstones", "--drafts", "--orphans")
NOW = ("--older-than", "2099-01-01")
HISTORY = f"{DOCUMENT}/.history"
NAMING = f"<d><f>/fr/service/persistence/crud/{ATTACHMENT}</f></d>".encode()


def run(root: Path, *arguments: str) -> Result:
    return CliRunner().invoke(commands, ["purge", "--data", str(root), *arguments])


def purged(workshop: Workshop, *arguments: str, before: str = "") -> str:
    """Purge, and return the last line of the answer; ``before`` is the time before which things go, by default now."""
    workshop.close()
    done = run(workshop.root, *arguments, "--yes", "--older-than", before or after(workshop))
    assert done.exit_code == 0, (done.output, done.exception)
    assert workshop.check("--deep").kinds == []
    return done.stdout.splitlines()[-1].rpartition(", ")[0]


def after(workshop: Workshop) -> str:
    """Return a time after everything that was stored: that of one more save, some milliseconds later."""
    time.sleep(0.005)  # instants are whole milliseconds, and saves of two resources may have the same
    workshop.put("app/last/data/last/data.xml", b"<d/>")
    instant = workshop.head("app/last/data/last/data.xml")["Svc-Last-Modified"]
    workshop.close()
    return instant


def test_older_revisions_go_and_the_current_one_stays(workshop: Workshop) -> None:
    workshop.put(ATTACHMENT, b"again")
    workshop.delete(ATTACHMENT)
    workshop.put(ATTACHMENT, b"third")
    assert purged(workshop, "app/form", "--revisions") == "5 revisions"  # the deleted document had one, too
    assert not workshop.file(HISTORY).exists()
    assert workshop.get(DATA)[0] == workshop.get(ATTACHMENT)[0] == 200
    assert workshop.sidecar(DELETED)["deleted"] is True
    assert purged(workshop, "app/form", "--revisions") == "nothing"


def test_only_what_is_older_goes(workshop: Workshop) -> None:
    stored = [workshop.head(DATA)["Svc-Last-Modified"]]
    for number in range(4):
        workshop.put(DATA, b"<d>%d</d>" % number)
        stored.append(workshop.head(DATA)["Svc-Last-Modified"])
    assert purged(workshop, "app/form/document", "--revisions", before=stored[2]) == "3 revisions"
    assert [workshop.get(DATA, instant)[0] for instant in stored] == [404, 404, 200, 200, 200]


def test_deleted_documents_and_attachments_go_with_all_their_history(workshop: Workshop) -> None:
    workshop.delete(ATTACHMENT)
    assert purged(workshop, "--tombstones") == "1 deleted document, 1 attachment"
    assert workshop.get(DELETED)[0] == workshop.get(ATTACHMENT)[0] == 404
    assert not workshop.file(DELETED).parent.exists()
    assert len(workshop.history(DATA)) == 1
    workshop.put(DELETED, b"<d>again</d>")


def test_a_document_that_is_being_saved_again_stays(workshop: Workshop) -> None:
    """Its attachments come before its data: what was saved after the deletion decides, under the lock, too."""
    folder, instant = DELETED.rpartition("/")[0], after(workshop)
    workshop.put(f"{folder}/new.bin", b"acknowledged")
    assert purged(workshop, "--tombstones", before=instant) == "nothing"
    workshop.put(DELETED, b"<d>again</d>")
    assert workshop.get(f"{folder}/new.bin") == (200, b"acknowledged")
    workshop.delete(DELETED)
    assert purged(workshop, "--tombstones").startswith("1 deleted document")


@pytest.mark.parametrize("path", [DATA, ATTACHMENT])
@pytest.mark.parametrize("kinds", [("--revisions",), ("--tombstones",), ("--revisions", "--tombstones")])
def test_a_deletion_that_was_killed_leaves_nothing_after_a_purge(
    workshop: Workshop, path: str, kinds: tuple[str, ...]
) -> None:
    """Its content is known by its name in the history, which goes."""
    workshop.delete(path)
    instant = after(workshop)
    workshop.close()
    name = path.rpartition("/")[2]
    (older, *_) = sorted(workshop.file(HISTORY).glob(f"*.{name}"), reverse=True)
    workshop.file(path).hardlink_to(older)
    done = run(workshop.root, *kinds, "--yes", "--older-than", instant)
    assert done.exit_code == 0, done.output
    assert not workshop.file(path).exists()
    checked = workshop.check("--deep", "--repair", "--adopt", "--all")
    assert checked.findings == []
    assert workshop.get(path)[0] == 404


def test_drafts_go(workshop: Workshop) -> None:
    workshop.put("app/form/draft/attached/only.bin", b"abc")
    before = workshop.head(DRAFT)["Svc-Last-Modified"]
    assert purged(workshop, "--drafts", before=before) == "nothing"
    assert purged(workshop, "--drafts") == "2 drafts"
    assert workshop.get(DRAFT)[0] == 404


def test_attachments_that_nothing_names_go(workshop: Workshop) -> None:
    """As long as an older revision or a draft names one, it stays; so do those that are too new."""
    before = workshop.head(ATTACHMENT)["Svc-Last-Modified"]
    workshop.put(DATA, NAMING)
    workshop.put(DATA, b"<d/>")
    assert purged(workshop, "--orphans", before=before) == "nothing"
    assert purged(workshop, "--orphans") == "nothing"
    workshop.put(DRAFT.replace("draft/draft", "draft/document"), NAMING)
    assert purged(workshop, "--orphans", "--revisions", "app/form/document") == "3 revisions"
    assert purged(workshop, "--orphans", "--drafts", "app/form/document") == "1 draft"
    assert purged(workshop, "--orphans") == "1 attachment"
    assert (workshop.get(ATTACHMENT)[0], workshop.get(DATA)[0]) == (404, 200)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("ä b.png", "/x/%C3%A4%20b.png"),
        ("ä b.png", "/x/ä b.png"),
        ("a&b.png", "/x/a&amp;b.png"),
        ("a.png", '<a href="https://host/a.png?x=1"/>'),
        ("a.png", "/x/&#97;.p&#x6e;g"),
    ],
)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_an_attachment_is_named_in_any_spelling(workshop: Workshop, name: str, text: str, encoding: str) -> None:
    workshop.client.put(
        f"/crud/app/form/data/spelt/{name.replace('&', '%26')}", data=b"x", headers={"Svc-Form-Definition-Version": "1"}
    )
    declaration = f'<?xml version="1.0" encoding="{encoding}"?>'
    workshop.put("app/form/data/spelt/data.xml", f"{declaration}<d>{text}</d>".encode(encoding))
    assert purged(workshop, "app/form/spelt", "--orphans") == "nothing"


@pytest.mark.parametrize(
    ("name", "codec", "declaration"),
    [
        ("plain.png", "utf-16-le", ""),
        ("plain.png", "utf-16-be", ""),
        ("“1 €”.png", "windows-1252", '<?xml version="1.0" encoding="Windows-1252"?>'),
        ("документ.png", "koi8-r", "<?xml version='1.0' encoding='koi8-r' ?>"),
    ],
)
def test_an_attachment_is_named_in_any_encoding(workshop: Workshop, name: str, codec: str, declaration: str) -> None:
    workshop.put(f"app/form/data/spelt/{name}", b"x")
    workshop.put("app/form/data/spelt/data.xml", f"{declaration}<d>/x/{name}</d>".encode(codec))
    assert purged(workshop, "app/form/spelt", "--orphans") == "nothing"


@pytest.mark.parametrize("label", ['f:value-encrypted="true"', 'encrypted="true"'])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_attachments_stay_that_an_encrypted_value_may_name(workshop: Workshop, label: str, encoding: str) -> None:
    """The key may be a runtime's. Encrypted files have their names beside them, and a word in a text is not a label."""
    name, path = "app/form/data/sealed/1.bin", "app/form/data/sealed/data.xml"
    root = f'<?xml version="1.0" encoding="{encoding}"?><d xmlns:f="http://orbeon.org/oxf/xml/form-runner">'
    workshop.put(name, b"x")
    workshop.put(path, f"{root}<x {label}>c2VhbGVk</x></d>".encode(encoding))
    assert purged(workshop, "app/form/sealed", "--orphans") == "nothing"
    workshop.put(path, f'{root}<x f:attachment-encrypted="true">encrypted</x></d>'.encode(encoding))
    assert purged(workshop, "app/form/sealed", "--orphans") == "nothing", "an older revision stays"
    assert purged(workshop, "app/form/sealed", "--orphans", "--revisions") == "1 revision, 1 attachment"


def test_attachments_of_deleted_documents_and_those_never_saved_go(workshop: Workshop) -> None:
    workshop.put(DATA, NAMING)
    workshop.delete(DATA)
    workshop.put("app/form/data/unsaved/a.bin", b"a")
    assert purged(workshop, "--orphans") == "2 attachments"
    assert not workshop.file("app/form/data/unsaved").exists()
    assert workshop.sidecar(DATA)["deleted"] is True


def test_a_dry_run_changes_nothing_and_says_what_a_run_frees(workshop: Workshop) -> None:
    workshop.put(DATA, b"<d>third</d>")
    before = after(workshop)
    state = workshop.state()
    dry = run(workshop.root, *ALL, "--older-than", before)
    assert (dry.exit_code, workshop.state()) == (0, state)
    assert "nothing was changed: --yes does it" in dry.stderr
    real = run(workshop.root, *ALL, "--older-than", before, "--yes")
    said, done = dry.stdout.splitlines()[-1].rpartition(" would go")[0], real.stdout.splitlines()[-1]
    assert said == done.rpartition(" purged")[0]
    freed = sum(len(each[2]) for each in state.values()) - sum(len(each[2]) for each in workshop.state().values())
    assert f", {freed} bytes purged" in done
    assert workshop.check("--deep").kinds == []


def test_a_file_with_another_name_frees_nothing(workshop: Workshop, tmp_path: Path) -> None:
    before = after(workshop)
    [older] = workshop.history(DATA)
    sidecar = older.with_name(f"{older.name}.json").stat().st_size
    (tmp_path / "elsewhere").hardlink_to(older)
    said = run(workshop.root, "app/form/document", "--revisions", "--older-than", before).stdout
    assert f"1 revision, {sidecar} bytes would go" in said


def test_a_damaged_document_does_not_keep_others_from_being_purged(workshop: Workshop) -> None:
    before = after(workshop)
    workshop.file(f"{DATA}.json").write_bytes(b"{}")
    done = run(workshop.root, *ALL, "--older-than", before, "--yes")
    assert done.exit_code == 4
    assert "data.xml.json" in done.stderr
    assert not workshop.file(DELETED).parent.exists()
    assert workshop.history(DATA)


def test_searches_do_not_find_a_draft_that_was_purged(workshop: Workshop) -> None:
    """Its index hears of it, also where the service runs."""
    query = b"<search><drafts>only</drafts><query/><page-size>10</page-size><page-number>1</page-number></search>"
    before = workshop.head("app/form/data/document/data.xml")["Svc-Last-Modified"]
    workshop.put(DRAFT, b"<d>again</d>")
    workshop.put("app/last/data/last/data.xml", b"<d/>")
    before = workshop.head("app/last/data/last/data.xml")["Svc-Last-Modified"]
    headers = {"Svc-Username": "lea"}
    assert b'draft="true"' in workshop.client.post("/search/app/form", data=query, headers=headers).data
    assert run(workshop.root, "--drafts", "--yes", "--older-than", before).exit_code == 0
    assert b'draft="true"' not in workshop.client.post("/search/app/form", data=query, headers=headers).data


LEFTOVERS = {"unfinished-rewrite", "unfinished-write", "unfinished-commit", "empty-directory"}


@pytest.mark.parametrize("step", [9, pytest.param(2, marks=pytest.mark.long)])
def test_a_purge_that_is_killed_at_any_step_leaves_nothing_half_done(tmp_path: Path, step: int) -> None:
    """What a check finds is of interrupted writes, which the next purge removes as its own, or a repair."""
    workshop = furnished(tmp_path / "pristine")
    workshop.put(ATTACHMENT, b"again")
    workshop.delete(ATTACHMENT)
    arguments = (*ALL, "--older-than", after(workshop), "--yes")
    at, kinds = 0, set[str]()
    while True:
        at += step
        here = Workshop(tmp_path / f"killed-{at}")
        copy_tree(workshop.root, here.root)
        ended = kills.run(["purge", "--data", str(here.root), *arguments], tmp_path / "said", at=at)
        if not ended.struck:
            break
        kinds |= {kind for kind, _ in here.check("--deep").kinds}
        assert here.get(DATA)[0] == 200
        here.close()
        if at // step % 2:
            assert run(here.root, *arguments).exit_code == 0
        else:
            for _ in range(2):
                here.check("--deep", "--repair")
        assert here.check("--deep").kinds == []
        assert run(here.root, *arguments).exit_code == 0
        assert not here.file(HISTORY).exists()
        assert not here.file(DELETED).parent.exists()
        assert not here.file(f"{ATTACHMENT}.json").exists()
    assert at > 40
    assert kinds <= LEFTOVERS


def test_a_document_can_be_saved_while_it_is_purged(tmp_path: Path) -> None:
    """Nothing acknowledged is lost, and instants still increase."""
    workshop = furnished(tmp_path / "data")
    stored, is_over = [], threading.Event()

    def save() -> None:
        number = 0
        while not is_over.is_set():
            number += 1
            workshop.put(DATA, b"<d>%d</d>" % number)
            stored.append(workshop.head(DATA)["Svc-Last-Modified"])

    saving = threading.Thread(target=save)
    saving.start()
    try:
        for _ in range(10):
            cut = (stored or [workshop.head(DATA)["Svc-Last-Modified"]])[-1]
            done = run(workshop.root, "app/form/document", "--revisions", "--yes", "--older-than", cut)
            assert done.exit_code == 0, (done.output, done.exception)
    finally:
        is_over.set()
        saving.join()
    assert stored == sorted(set(stored))
    kept = [instant for instant in stored if instant >= cut]
    assert all(workshop.get(DATA, instant)[0] == 200 for instant in kept)
    assert not [instant for instant in stored if instant < cut and workshop.get(DATA, instant)[0] != 404]
    workshop.close()
    assert workshop.check("--deep").kinds == []


def configured(workshop: Workshop, text: str) -> Path:
    """Return a settings file with these properties."""
    file = workshop.root.parent / "settings.toml"
    file.write_text(text)
    return file


def test_properties_say_how_long_each_form_is_kept(workshop: Workshop) -> None:
    workshop.put("app/other/data/document/data.xml", b"<d/>")
    workshop.put("app/other/data/document/data.xml", b"<d/>")
    workshop.close()
    file = configured(
        workshop,
        '"svc.persistence.retention.history.*.*" = "2y"\n"svc.persistence.retention.history.app.form" = "none"\n'
        '"svc.persistence.retention.tombstones.*.*" = "1s"\n',
    )
    time.sleep(1.1)
    dry = run(workshop.root, "--retention", "--config", str(file))
    done = run(workshop.root, "--retention", "--yes", "--config", str(file))
    assert (dry.exit_code, done.exit_code) == (0, 0), done.output
    assert done.stdout.splitlines()[-1].startswith("1 revision, 1 deleted document, ")
    assert (workshop.history(DATA), len(workshop.history("app/other/data/document/data.xml"))) == ([], 1)
    assert workshop.get(DRAFT)[0] == 200
    assert run(workshop.root, "--retention", "--drafts", "--yes").exit_code == 2
    workshop.close()
    assert workshop.check("--deep").kinds == []


@pytest.mark.parametrize(
    "entry",
    ['"svc.persistence.retention.history.*.*" = "none"', '"svc.persistence.proxy.disable-version-history.*.*" = true'],
)
def test_a_form_without_history_keeps_none(tmp_path: Path, entry: str) -> None:
    """Neither a save nor a deletion keeps one; what is deleted is gone but for its tombstone."""
    file = tmp_path / "settings.toml"
    file.write_text(f"{entry}\n")
    with serving(tmp_path, options=("--config", str(file)), alone=True) as service:
        own = {"Form_Definition_Version": 1}
        for body in (b"<d>first secret</d>", b"<d>second secret</d>", b"<d>third secret</d>"):
            assert service.put("a/b/data/D/data.xml", body, **own).status in {201, 204}
            assert service.put("a/b/data/D/x.bin", body, **own).status in {201, 204}
        document = service.data / "a/b/data/D"
        assert sorted(path.name for path in document.iterdir()) == ["data.xml", "data.xml.json", "x.bin", "x.bin.json"]
        assert service.delete("a/b/data/D/x.bin", **own).status == 204
        assert service.delete("a/b/data/D/data.xml", **own).status == 204
        assert sorted(path.name for path in document.iterdir()) == ["data.xml.json", "x.bin.json"]
        assert service.put("a/b/data/D/data.xml", b"<d/>", **own).status == 201
        assert not (document / ".history").exists()
        definition = service.put("a/b/form/form.xhtml", b'<html xmlns="http://www.w3.org/1999/xhtml"/>', **own).status
        assert definition == 201
        service.put("a/b/form/form.xhtml", b'<html xmlns="http://www.w3.org/1999/xhtml"><head/></html>', **own)
        assert list((service.data / "a/b/form/1/.history").iterdir())
