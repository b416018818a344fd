"""The metadata of a definition that is kept: spec forms 6.2, spec search 4.3."""

import pytest

from persistence.errors import BadRequestError
from persistence.forms.definition_metadata import MetadataReader
from persistence.limits import MOST_METADATA
from persistence.model.versions import FormMetadata

ENVELOPE = """<xh:html xmlns:xh="http://www.w3.org/1999/xhtml" xmlns:xf="http://www.w3.org/2002/xforms"
 xmlns:fr="urn:x"><xh:head><xh:title>No</xh:title><xf:model id="fr-form-model">
 <xf:instance id="fr-form-instance"><form><metadata><title>No</title></metadata></form></xf:instance>
 {}</xf:model></xh:head><xh:body/></xh:html>"""
METADATA = '<xf:instance id="fr-form-metadata"><metadata>{}</metadata></xf:instance>'


def read(document: str) -> FormMetadata:
    with MetadataReader() as reader:
        for byte in document.encode():
            reader.feed(bytes([byte]))
        reader.finish()
        return reader.metadata


def metadata(inside: str) -> FormMetadata:
    return read(ENVELOPE.format(METADATA.format(inside)))


@pytest.mark.parametrize(
    ("mark", "encrypts"),
    [
        ("<x/>", False),
        ('<fr:encrypt xmlns:fr="http://orbeon.org/oxf/xml/form-runner"/>', True),
        ("<encrypt/>", False),
        ('<input class="a fr-encrypt b"/>', True),
        ('<input class="fr-encrypted"/>', False),
    ],
)
def test_whether_anything_is_marked_to_be_encrypted(mark: str, *, encrypts: bool) -> None:
    assert read(ENVELOPE.format(mark)).encrypts is encrypts


@pytest.mark.parametrize(
    ("inside", "found"),
    [
        ("", FormMetadata()),
        ("<title>A</title>", FormMetadata(titles={"": "A"})),
        (
            '<title xml:lang="en"> A\n  b </title><title xml:lang="de">Ä</title>',
            FormMetadata(titles={"en": "A b", "de": "Ä"}),
        ),
        ('<title xml:lang="en">A</title><title xml:lang="en">B</title>', FormMetadata(titles={"en": "B"})),
        ("<title>A<b>c</b>d</title>", FormMetadata(titles={"": "Acd"})),
        ("<title/>", FormMetadata(titles={"": ""})),
        ("<available>false</available>", FormMetadata(available=False)),
        ("<available> true </available>", FormMetadata()),
        ("<available/>", FormMetadata()),
        ("<singleton>true</singleton>", FormMetadata(singleton=True)),
        ("<singleton>no</singleton>", FormMetadata(singleton=False)),
        ("<permissions/>", FormMetadata(permissions="<permissions></permissions>")),
        (
            "<permissions/><permissions><permission/></permissions>",
            FormMetadata(permissions="<permissions></permissions>"),
        ),
        (
            (
                '<permissions a="&lt;"> <fr:permission operations="read" fr:b="c"><owner/>x &amp; y</fr:permission>'
                "</permissions>"
            ),
            FormMetadata(
                permissions='<permissions a="&lt;"> <permission operations="read"><owner></owner>x &amp; y</permission>'
                "</permissions>"
            ),
        ),
        ("<a><title>No</title><available>false</available></a>", FormMetadata()),
        ("<fr:title>No</fr:title><fr:permissions/>", FormMetadata()),
        ("<migration version='4.8.0'>{ no json</migration>", FormMetadata()),
    ],
)
def test_metadata(inside: str, found: FormMetadata) -> None:
    assert metadata(inside) == found


@pytest.mark.parametrize(
    "document",
    [
        "<html/>",
        ENVELOPE.format(""),
        ENVELOPE.format('<xf:instance id="other"><metadata><title>No</title></metadata></xf:instance>'),
        ENVELOPE.format(
            '<xf:instance id="fr-form-metadata"><fr:metadata><title>No</title></fr:metadata></xf:instance>'
        ),
        ENVELOPE.format(METADATA.format("<title>No</title>")).replace("fr-form-model", "my-model"),
        ENVELOPE.format(METADATA.format("<title>No</title>")).replace("www.w3.org/2002/xforms", "example.org/forms"),
        ENVELOPE.format("<xf:group>" + METADATA.format("<title>No</title>") + "</xf:group>"),
    ],
)
def test_metadata_elsewhere_is_none(document: str) -> None:
    """Search 4.3: one path, and no other."""
    assert read(document) == FormMetadata()


@pytest.mark.parametrize("inside", ["<title>{}</title>", "<permissions>{}</permissions>", "<singleton>{}</singleton>"])
def test_what_is_kept_is_bounded(inside: str) -> None:
    with pytest.raises(BadRequestError, match="more than"):
        metadata(inside.format("x" * MOST_METADATA + "y"))


@pytest.mark.parametrize(
    "titles",
    [
        '<title xml:lang="{}">x</title>'.format("l" * MOST_METADATA),
        "".join(f'<title xml:lang="l{number}"/>' for number in range(MOST_METADATA // 16)),
        "<title/>" * MOST_METADATA,
    ],
    ids=["one long language", "many languages", "many titles"],
)
def test_titles_count_with_their_languages(titles: str) -> None:
    """The metadata must fit into the sidecar, which could not be read again otherwise."""
    with pytest.raises(BadRequestError, match="more than"):
        metadata(titles)
