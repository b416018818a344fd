"""Archives of the real system: without facts of this service, or with facts of a shape that is not published."""

from __future__ import annotations

import io
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from persistence.errors import BadRequestError
from persistence.model.addresses import DATA_XML, FORM_XHTML, Collection, DefinitionAddress, DocumentAddress, Form
from persistence.services.imports.revisions import ImportResult
from persistence.services.imports.sources import open_source
from persistence.storage.store import Store
from tests.forms.vectors import Form as FormDocument
from tests.imports.archives import tree, zipped
from tests.imports.importing import LARGEST, importer, lines_source, results, run, zip_source
from tests.imports.test_json_lines import T1, T2, line
from tests.initialised import initialised

FORM = Form("a", "f")
DATA = DocumentAddress(FORM, Collection.DATA, "d", DATA_XML)
METADATA = (
    b'<metadata xmlns="urn:other"><owner><username>anna</username><groupname>sales</groupname></owner>'
    b"<last-modified-by>berta</last-modified-by><workflow-stage>begun</workflow-stage><colour>red</colour></metadata>"
)
FILES = {
    "a/f/2/form/latest/form.xhtml": FormDocument("<form/>", "", "").document().encode(),
    "a/f/2/form/latest/logo.png": b"png",
    f"a/f/2/data/d/{T2}/data.xml": b"<two/>",
    f"a/f/2/data/d/{T1.replace('.089', '')}/data.xml": b"<one/>",
    "a/f/2/data/d/latest/scan.jpg": b"scan",
    f"a/f/2/data/d/{T2}/data.xml.metadata.xml": METADATA,
}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(initialised(tmp_path / "data"), lock_timeout=5) as store:
        yield store


def test_its_layout_gives_revisions_at_their_times(store: Store) -> None:
    outcomes = run(importer(store), zip_source(FILES))
    assert results(outcomes) == [("a/f/form/2", "imported"), ("a/f/data/d", "imported")]
    history = store.history(DATA)
    assert history is not None
    assert [history.instant(at) for at in range(history.total)] == [T2, T1.replace(".089", ".000")]
    newest = history.current
    assert (newest.version, newest.creator, newest.group) == (2, "anna", "sales")
    assert (newest.modifier, newest.stage, newest.created) == ("berta", "begun", T1.replace(".089", ".000"))
    scan = store.sidecar(DATA.moved(Collection.DATA, "scan.jpg"))
    assert scan is not None
    assert (scan.content_type, scan.modified) == ("image/jpeg", T1.replace(".089", ".000"))
    definition = store.sidecar(DefinitionAddress(FORM, 2, FORM_XHTML))
    assert definition is not None
    assert definition.metadata is not None
    assert "the fact <colour> is not understood, and left out" in outcomes[1].notes


def test_it_is_not_stored_twice(store: Store) -> None:
    run(importer(store), zip_source(FILES))
    before = tree(store.root)
    assert {each.result for each in run(importer(store), zip_source(FILES))} == {ImportResult.UNCHANGED}
    assert tree(store.root) == before


def test_an_archive_that_was_unpacked_is_a_folder(store: Store, tmp_path: Path) -> None:
    for name, content in FILES.items():
        path = tmp_path / "unpacked" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    outcomes = run(importer(store), open_source(str(tmp_path / "unpacked"), None, largest=LARGEST))
    assert {each.result for each in outcomes} == {ImportResult.IMPORTED}
    assert {each.result for each in run(importer(store), zip_source(FILES))} == {ImportResult.UNCHANGED}


@pytest.mark.parametrize("prefix", ["crud/", "fr/service/persistence/crud/"])
def test_paths_of_the_interface_are_understood(store: Store, prefix: str) -> None:
    files = {
        "a/f/form/form.xhtml": FILES["a/f/2/form/latest/form.xhtml"],
        "a/f/form/3/form.xhtml": FILES["a/f/2/form/latest/form.xhtml"],
        "a/f/data/d/data.xml": b"<d/>",
        "a/f/draft/d/data.xml": b"<e/>",
    }
    outcomes = run(importer(store), zip_source({prefix + name: content for name, content in files.items()}))
    assert sorted(results(outcomes)) == [
        ("a/f/data/d", "imported"),
        ("a/f/form/1", "imported"),
        ("a/f/form/3", "imported"),
    ]
    saved = store.sidecar(DATA)
    assert saved is not None
    assert saved.version == 3
    assert store.sidecar(DATA.moved(Collection.DRAFT)) is not None


def test_data_of_another_version_than_here_is_refused(store: Store) -> None:
    run(importer(store), lines_source(line(document="d", version=1, data="<d/>", modified=T1)))
    found = run(importer(store), lines_source(line(document="d", version=2, data="<e/>", modified=T2)))
    assert results(found) == [("line 1", "refused")]
    assert "version" in found[0].cause


def test_an_archive_with_any_bytes_changed_has_an_answer(store: Store) -> None:
    """Whatever is wrong with it, it is refused as a whole or in parts, and nothing else happens."""
    random.seed(15)
    archive = zipped(FILES)
    answered = set()
    into = importer(store)
    for _ in range(400):
        changed = bytearray(archive)
        for _ in range(random.choice((1, 2, 8))):
            changed[random.randrange(len(changed))] = random.randrange(256)
        if random.random() < 0.1:
            del changed[random.randrange(len(changed)) :]
        try:
            source = open_source("x", io.BytesIO(bytes(changed)), largest=LARGEST)
            answered |= {each.result for each in run(into, source, is_dry=True)}
        except BadRequestError:
            answered.add(None)
    assert {None, ImportResult.REFUSED, ImportResult.IMPORTED} <= answered
    assert tree(store.root) == {}
