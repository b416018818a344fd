"""The metadata beside an entry of an archive: every fact of a sidecar, and what other systems may say."""

from dataclasses import replace
from functools import partial
from xml.etree import ElementTree as ET

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from persistence.errors import BadRequestError, MalformedXmlError
from persistence.forms.archive_metadata import ImportFacts, read_metadata, write_metadata
from persistence.model.sidecar import SCHEMA, Body, ClientHash, Sidecar, fresh_id, tombstone
from persistence.model.texts import Instant
from persistence.model.versions import FormMetadata

TIME, LATER = Instant("2025-03-04T05:06:07.089Z"), Instant("2025-04-04T05:06:07.000Z")

UNKNOWN = "the element <{}> of the metadata is not known, and left out"

WHOLE = Sidecar(
    schema=SCHEMA,
    id=fresh_id(),
    version=3,
    modified=LATER,
    created=TIME,
    size=7,
    digest="sha256:" + "a" * 64,
    content_type='text/x; charset="utf-8"',
    valid=False,
    stage=" in <review> & more\r\n",
    creator="anna",
    group="null",
    organization=("acme", "true", ""),
    modifier="7",
    source="d7",
    client_hash=ClientHash("SHA-256", "abc="),
    metadata=FormMetadata(
        titles={"en": "Leave", "": "Ürlaub"},
        available=False,
        singleton=False,
        permissions="<permissions/>",
        encrypts=True,
    ),
    deleted=True,
    adopted=True,
    flat_view=True,
    encrypted=False,
    sealed_hash="x",
    tag=fresh_id(),
    restored=TIME,
    purged=True,
    name="x",
)


def test_every_fact_is_kept() -> None:
    written = write_metadata(WHOLE)
    assert read_metadata([written]).sidecar == WHOLE
    for name in Sidecar.__struct_fields__:
        value = getattr(WHOLE, name)
        assert name == "body" or value != next(
            (each.default for each in msgspec.structs.fields(Sidecar) if each.name == name), None
        ), f"{name} is to be in this test, and to be written"


TEXTS = st.text(st.characters(min_codepoint=32, max_codepoint=0xD7FF, blacklist_characters="\x7f"))


MAYBE = st.none() | TEXTS
METADATA = st.builds(
    FormMetadata,
    titles=st.dictionaries(TEXTS, TEXTS),
    available=st.booleans(),
    singleton=st.none() | st.booleans(),
    permissions=MAYBE,
)


@given(
    st.builds(
        partial(msgspec.structs.replace, WHOLE),
        **dict.fromkeys(("content_type", "stage", "creator", "group", "modifier"), MAYBE),
        **dict.fromkeys(("valid", "encrypted"), st.none() | st.booleans()),
        version=st.integers(1, (1 << 63) - 1),
        size=st.integers(0, 1 << 62),
        organization=st.lists(TEXTS).map(tuple),
        client_hash=st.none() | st.builds(ClientHash, TEXTS, TEXTS),
        metadata=st.none() | METADATA,
        deleted=st.booleans(),
    )
)
def test_any_sidecar_is_read_as_it_was_written(sidecar: Sidecar) -> None:
    assert read_metadata([write_metadata(sidecar)]).sidecar == sidecar


def test_of_a_body_elsewhere_the_body_is_described() -> None:
    record = msgspec.structs.replace(WHOLE, size=0, digest=None, body=Body(9, "sha256:" + "b" * 64))
    found = read_metadata([write_metadata(record)]).sidecar
    assert found == msgspec.structs.replace(WHOLE, size=9, digest="sha256:" + "b" * 64)


def test_what_the_real_system_reads_is_beside_the_own_facts() -> None:
    """Without these, its elements say the owner, also his organization, and the stage."""
    root = ET.fromstring(write_metadata(WHOLE))  # noqa: S314 - its own
    real = ("created-by", "last-modified-by", "workflow-stage", "organization-levels")
    for child in [each for each in root if each.tag not in real]:
        root.remove(child)
    del root.attrib["format"]
    found = read_metadata([ET.tostring(root)])
    stage = "in <review> & more"
    assert found == ImportFacts(creator="anna", group="null", organization=("acme", "true"), modifier="7", stage=stage)


def test_a_tombstone_and_a_decrypted_content_say_so() -> None:
    gone = tombstone(WHOLE, modified=LATER, modifier="bert")
    found = read_metadata([write_metadata(gone)])
    assert (found.sidecar, found.is_decrypted) == (gone, False)
    assert read_metadata([write_metadata(WHOLE, is_decrypted=True)]).is_decrypted


def test_unknown_elements_are_reported() -> None:
    written = write_metadata(WHOLE).replace(b"</metadata>", b"<color>red</color></metadata>")
    written = written.replace(b"<form-metadata ", b'<form-metadata size="9" ')
    found = read_metadata([written])
    assert found.sidecar == WHOLE
    assert found.notes == tuple(map(UNKNOWN.format, ("size", "color")))


@pytest.mark.parametrize(
    ("old", "new", "cause"),
    [
        (b'format="1"', b'format="2"', "format '2'"),
        (b"<form-version>3<", b"<form-version>-3<", "invalid value"),
        (b"<form-version>3<", b"<form-version>x<", "invalid value"),
        (b"<size>7</size>", b"", "size"),
        (b"<size>7<", b"<size>7</size><size>8<", "twice"),
        (b"<valid>false<", b"<valid>perhaps<", "invalid value"),
        (TIME.encode(), b"2025-02-30T00:00:00.000Z", "calendar"),
        (TIME.encode(), b"yesterday", "invalid value"),
    ],
)
def test_bad_values_are_refused_with_their_cause(old: bytes, new: bytes, cause: str) -> None:
    with pytest.raises(BadRequestError, match=cause):
        read_metadata([write_metadata(WHOLE).replace(old, new)])


@pytest.mark.parametrize(
    "body", [b"", b"owner: anna", b"<metadata", b"<!DOCTYPE x><metadata/>", b"<m>" + b"<x/>" * 20_000 + b"</m>"]
)
def test_malformed_documents_are_refused_and_too_large_ones_while_they_are_read(body: bytes) -> None:
    with pytest.raises(MalformedXmlError):
        read_metadata([body])
    pieces = iter([b"<metadata>"] + [b" " * (1 << 20)] * 100)
    with pytest.raises(BadRequestError, match="more than"):
        read_metadata(pieces)
    assert len(list(pieces)) > 90


@pytest.mark.parametrize(
    "body",
    [
        "<metadata><owner>anna</owner><last-modified-by>bert</last-modified-by><stage>open</stage><hue>1</hue></metadata>",
        '<document owner-username="anna" modified-username="bert" stage="open" hue="2"/>',
        (
            '<m xmlns="urn:x"><owner><username>anna</username></owner><modified-by> bert </modified-by>'
            "<workflow-stage>open</workflow-stage><hue/></m>"
        ),
    ],
)
def test_other_shapes_are_read_by_the_usual_names(body: str) -> None:
    found = read_metadata([body.encode()])
    assert replace(found, notes=()) == ImportFacts(creator="anna", modifier="bert", stage="open")
    assert UNKNOWN.format("hue") in found.notes
    for wrong in (b"<m><created>soon</created></m>", b"<m><form-version>last</form-version></m>"):
        with pytest.raises(BadRequestError):
            read_metadata([wrong])
