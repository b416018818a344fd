"""Real definitions, where there are some beside the project: each can be migrated and its controls listed."""

from pathlib import Path

from lxml import etree

from persistence.forms.controls import read_controls
from persistence.forms.migration import migrate
from persistence.model.versions import DATA_FORMATS

VIEW = "{http://www.w3.org/1999/xhtml}body"


def ids(document: bytes) -> list[str | None]:
    body = etree.fromstring(document).find(VIEW)
    assert body is not None
    return [element.get("id") for element in body.iter("*")]


def test_real_definitions_migrate_to_every_format_with_their_names(corpus: Path) -> None:
    for path in sorted(corpus.rglob("form.xhtml")):
        stored = path.read_bytes()
        controls = read_controls(stored)
        assert controls
        assert len({(control.name, control.path("2019.1.0")) for control in controls}) == len(controls)
        for target in DATA_FORMATS:
            result = migrate(stored, target, is_unpublished=False)
            assert ids(result) == ids(stored), path


def test_unpublished_definitions_migrate_too(corpus: Path) -> None:
    for path in sorted(corpus.glob("*/builder/data/*/data.xml")):
        stored = path.read_bytes()
        for target in DATA_FORMATS:
            assert ids(migrate(stored, target, is_unpublished=True)) == ids(stored), path


def test_the_inline_data_of_real_definitions_has_the_paths_of_their_controls(corpus: Path) -> None:
    """A repeat without iterations, or a section without data, has no values to find."""
    found = total = 0
    for path in sorted(corpus.rglob("form.xhtml")):
        for target in DATA_FORMATS:
            result = migrate(path.read_bytes(), target, is_unpublished=False)
            data = etree.fromstring(result).find(".//{*}instance[@id='fr-form-instance']/*")
            assert data is not None
            there = [data.find("/".join(control.path(target))) is not None for control in read_controls(result)]
            found, total = found + sum(there), total + len(there)
    assert found >= total * 0.9
