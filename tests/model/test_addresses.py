"""The names in an archive: of every revision one, and every name read back (spec crud 8.4)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from persistence.errors import BadRequestError
from persistence.model.addresses import (
    METADATA_SUFFIX,
    Address,
    ArchiveEntry,
    Collection,
    DefinitionAddress,
    DocumentAddress,
    Form,
    entry_of,
    parse_entry,
)
from persistence.model.texts import Instant

FORM = Form("hr", "leave")
TIME = Instant("2025-03-04T05:06:07.089Z")
DATA = DocumentAddress(FORM, Collection.DATA, "d1", "data.xml")
DRAFT = DocumentAddress(FORM, Collection.DRAFT, "d1", "data.xml")
SCAN = DocumentAddress(FORM, Collection.DATA, "d1", "scan.pdf")
DEFINITION = DefinitionAddress(FORM, 3, "form.xhtml")

NAMES = st.one_of(
    st.text(st.characters(blacklist_characters="/", blacklist_categories=["Cs", "Cc"]), min_size=1),
    st.sampled_from(
        ["a.metadata.xml", "metadata.xml", "a.metadata.xml.attachment", "a.metadata.xml.attachment.attachment"]
    ),
).filter(lambda name: not name.startswith("."))


@pytest.mark.parametrize(
    ("address", "is_current", "path"),
    [
        (DEFINITION, True, "hr/leave/3/form/latest/form.xhtml"),
        (DEFINITION, False, f"hr/leave/3/form/{TIME}/form.xhtml"),
        (DATA, True, f"hr/leave/3/data/d1/{TIME}/data.xml"),
        (DATA, False, f"hr/leave/3/data/d1/{TIME}/data.xml"),
        (SCAN, True, "hr/leave/3/data/d1/latest/scan.pdf"),
        (SCAN, False, f"hr/leave/3/data/d1/{TIME}/scan.pdf"),
        (DRAFT, True, "hr/leave/3/draft/d1/latest/data.xml"),
    ],
)
def test_each_revision_has_its_entry(address: Address, *, is_current: bool, path: str) -> None:
    entry = entry_of(address, 3, TIME, is_current=is_current)
    assert entry.path == path
    assert parse_entry(path) == entry


def test_times_of_other_systems_are_read() -> None:
    assert parse_entry("a/b/1/data/d/2025-03-04T06:06:07+01:00/data.xml").instant == "2025-03-04T05:06:07.000Z"


@pytest.mark.parametrize("colon", ["_", "\uf022", "\uf03a"])
def test_an_instant_is_read_where_names_have_no_colons(colon: str) -> None:
    assert parse_entry(f"a/b/1/data/d/{TIME.replace(':', colon)}/data.xml").instant == TIME
    with pytest.raises(BadRequestError):
        parse_entry(f"a/b/1/data/d/2025-03-04T99{colon}06{colon}07.089Z/data.xml")


@given(document=NAMES, name=NAMES, is_metadata=st.booleans())
def test_no_two_entries_have_one_name(document: str, name: str, *, is_metadata: bool) -> None:
    """Also where an attachment is called as the metadata of another one."""
    address = DocumentAddress(FORM, Collection.DATA, document, name)
    entry = ArchiveEntry(address, 1, None, is_metadata)
    if len(entry.path) < 4096:
        assert parse_entry(entry.path) == entry
        assert entry.path.endswith(METADATA_SUFFIX) is is_metadata or name == "metadata.xml"


@pytest.mark.parametrize(
    "path",
    [
        "",
        "export-errors.txt",
        "hr/leave/3/form/latest",
        "hr/leave/0/form/latest/form.xhtml",
        "hr/leave/x/form/latest/form.xhtml",
        "hr/leave/1/forms/latest/form.xhtml",
        "hr/leave/1/data/latest/data.xml",
        "hr//1/form/latest/form.xhtml",
        "/hr/leave/1/form/latest/form.xhtml",
        "hr/leave/1/form/yesterday/form.xhtml",
        "hr/leave/1/form/2025-02-30/form.xhtml",
        "hr/leave/1/trash/d/latest/data.xml",
        "hr/leave/1/data/d/latest/" + "x" * 5000,
    ],
)
def test_other_names_are_refused(path: str) -> None:
    with pytest.raises(BadRequestError):
        parse_entry(path)
