"""``persistence purge``: what goes, what stays, and that a purge that is killed leaves nothing half done."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from persistence.cli import commands
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


@pytest.mark.parametrize(
    ("name", "text", "codec", "declared"),
    [
        *(
            (name, text, codec, codec)
            for name, text in (
                ("ä b.png", "/x/%C3%A4%20b.png"),
                ("ä b.png", "/x/ä b.png"),
                ("a&b.png", "/x/a&amp;b.png"),
                ("a.png", '<a href="https://host/a.png?x=1"/>'),
                ("a.png", "/x/&#97;.p&#x6e;g"),
            )
            for codec in ("utf-8", "utf-16")
        ),
        ("plain.png", "/x/plain.png", "utf-16-le", ""),
        ("plain.png", "/x/plain.png", "utf-16-be", ""),
        ("“1 €”.png", "/x/“1 €”.png", "windows-1252", "Windows-1252"),
        ("документ.png", "/x/документ.png", "koi8-r", "koi8-r"),
    ],
)
def test_an_attachment_is_named_in_any_spelling(
    workshop: Workshop, name: str, text: str, codec: str, declared: str
) -> None:
    workshop.put(f"app/form/data/spelt/{name.replace('&', '%26')}", b"x")
    declaration = f'<?xml version="1.0" encoding="{declared}"?>' if declared else ""
    workshop.put("app/form/data/spelt/data.xml", f"{declaration}<d>{text}</d>".encode(codec))
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


def test_properties_say_how_long_each_form_is_kept(workshop: Workshop) -> None:
    for _ in range(2):
        workshop.put("app/other/data/document/data.xml", b"<d/>")
    workshop.close()
    file = workshop.root.parent / "settings.toml"
    file.write_text(
        '"svc.persistence.retention.history.*.*" = "2y"\n"svc.persistence.retention.history.app.form" = "none"\n'
        '"svc.persistence.retention.tombstones.*.*" = "1s"\n'
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
