"""The path map: reversible, and never outside its place."""

import os
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from persistence.errors import BadAddressError
from persistence.limits import LONGEST_NAME
from persistence.model.addresses import DATA_XML, Collection, DefinitionAddress, DocumentAddress, Form
from persistence.storage import layout
from persistence.storage.layout import (
    INDEX,
    JOURNAL,
    LONGEST_FILE,
    FilePaths,
    Layout,
    escape,
    is_escaped,
    is_file_name,
    is_shortened,
    unescape,
)

LAYOUT = Layout("/root")
FORM = Form("hr", "leave")
OWN_ENDINGS = (".json",)


def document(name: str, identifier: str = "D") -> FilePaths:
    return LAYOUT.paths(DocumentAddress(FORM, Collection.DATA, identifier, name))


def test_the_virtual_hierarchy_is_the_directory_tree() -> None:
    assert document("data.xml").content == "/root/hr/leave/data/D/data.xml"
    assert document("data.xml").sidecar == "/root/hr/leave/data/D/data.xml.json"
    assert LAYOUT.paths(DefinitionAddress(FORM, 3, "form.xhtml")).content == "/root/hr/leave/form/3/form.xhtml"
    draft = DocumentAddress(FORM, Collection.DRAFT, "D", "a.bin")
    assert LAYOUT.paths(draft).content == "/root/hr/leave/draft/D/a.bin"


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("a.bin", "a.bin"),
        ("Bericht für März.pdf", "Bericht für März.pdf"),
        ("50%.txt", "50%25.txt"),
        ("a:b", "a%3Ab"),
        ("dot.", "dot%2E"),
        ("blank ", "blank%20"),
        ("report.json", "report%2Ejson"),
        ("REPORT.JSON", "REPORT%2EJSON"),
        ("a%2Ejson", "a%252Ejson"),
    ],
)
def test_names_are_escaped_as_little_as_possible(name: str, file: str) -> None:
    assert escape(name) == file
    assert unescape(file) == name


@pytest.mark.parametrize(
    ("refused", "names"),
    [
        (escape, ["", ".", "..", ".history", ".data.xml.json", "a/b", "a\\b", "a\0b", "a\nb", "\x7f", "\ud800"]),
        (document, ["x" * 256, "é" * 128, ".", "..", "..."]),
        (lambda name: document("data.xml", name), ["x" * 256, "é" * 128, ".hidden", ".."]),
    ],
    ids=["any name", "file", "directory"],
)
def test_names_that_could_lead_elsewhere_or_that_no_path_can_have_are_refused(
    refused: Callable[[str], object], names: list[str]
) -> None:
    for name in names:
        with pytest.raises(BadAddressError):
            refused(name)


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("data.xml.json", "data.xml%2Ejson"),
        ("form.xhtml.JSON", "form.xhtml%2EJSON"),
        (".json", "%2Ejson"),
        (".hidden", "%2Ehidden"),
        ("..a.", "%2E.a%2E"),
        (".a.json", "%2Ea%2Ejson"),
    ],
)
def test_no_file_of_a_name_is_hidden_or_another_ones_sidecar(name: str, file: str) -> None:
    assert document(name).name == file
    assert unescape(file) == name
    assert is_file_name(file)


@pytest.mark.parametrize(
    "name", ["x" * 201, "x" * 255, "é" * 127, "a" + "é" * 127, "%" * 67, "<>" * 40, "x" * 149 + "%" * 50]
)
def test_a_long_name_has_a_file_that_stands_for_itself(name: str) -> None:
    file = document(name).name
    assert (is_shortened(file), is_file_name(file), len(file.encode()) <= LONGEST_FILE) == (True, True, True)
    assert document(file).name == unescape(file) == file
    assert document(name + "").name != document(name[:-1] + "y").name
    assert unescape(file.partition("%~")[0]) == name[: len(unescape(file.partition("%~")[0]))]


@given(st.text(min_size=1, max_size=60))
def test_every_name_is_refused_or_reversible_and_stays_in_its_directory(name: str) -> None:
    """No name is a path, a hidden file or another's sidecar."""
    try:
        file = escape(name)
    except BadAddressError:
        return
    assert unescape(file) == name
    assert os.path.basename(file) == file
    assert not file.startswith(".")
    assert not file.endswith(OWN_ENDINGS)


@given(st.text(min_size=1, max_size=12), st.text(min_size=1, max_size=12))
def test_two_names_never_share_a_file(one: str, other: str) -> None:
    """Content, sidecar, prepared sidecar and history of one name are not those of another."""
    try:
        mine, theirs = document(one), document(other)
    except BadAddressError:
        return
    if one == other:
        return
    identifier = "0" * 40

    def files(place: FilePaths) -> set[str]:
        return {place.content, place.sidecar, place.next_sidecar, place.next_content(identifier)}

    assert not files(mine) & files(theirs)


def test_what_is_indexed_of_a_form_lies_where_no_application_can() -> None:
    assert LAYOUT.index(Form("a:b", "x.json")) == "/root/.index/a%3Ab/x%2Ejson"
    assert LAYOUT.current_index(FORM) == "/root/.index/hr/leave/current"
    for name in (INDEX, JOURNAL.removeprefix(f"{INDEX}/")):
        with pytest.raises(BadAddressError):
            LAYOUT.application(name)


@pytest.mark.parametrize("name", ["a\x85b", "a\x9bb"])
def test_names_of_earlier_versions_with_control_characters_of_c1_are_those_of_resources(name: str) -> None:
    """Requests cannot name them any more (tests/http/test_bounds.py); commands go on to see what is stored."""
    assert (escape(name), is_escaped(name), is_file_name(name)) == (name, True, True)


def test_names_that_are_refused_are_not_kept() -> None:
    kept = [layout._directory.cache_info().currsize, layout._file.cache_info().currsize]  # noqa: SLF001 - what it keeps
    for number in range(50):
        with pytest.raises(BadAddressError, match="too long"):
            escape(f"{number}{':' * LONGEST_NAME}")
        with pytest.raises(BadAddressError, match="too long"):
            LAYOUT.paths(DocumentAddress(FORM, Collection.DATA, f"{number}{':' * LONGEST_NAME}", DATA_XML))
        with pytest.raises(BadAddressError, match="too long"):
            LAYOUT.paths(DocumentAddress(FORM, Collection.DATA, "D", f"{number}{':' * LONGEST_NAME}"))
    left = [layout._directory.cache_info().currsize, layout._file.cache_info().currsize]  # noqa: SLF001
    assert left[1] == kept[1]
    assert left[0] <= kept[0] + len({FORM.app, FORM.name, "D"})
