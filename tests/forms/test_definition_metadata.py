"""The metadata of a definition that is kept (spec forms 6.2, search 4.3), and marks that are refused."""

import gc
import tracemalloc

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
        *(("<x/>", False), ("<encrypt/>", False), ('<input class="fr-encrypted"/>', False)),
        ('<fr:encrypt xmlns:fr="http://orbeon.org/oxf/xml/form-runner"/>', True),
        ('<input class="a fr-encrypt b"/>', True),
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
        ("<available> false </available>", FormMetadata(available=False)),
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


@pytest.mark.parametrize(
    "inside",
    [
        *(f"<{name}>{'x' * MOST_METADATA}y</{name}>" for name in ("title", "permissions", "singleton")),
        '<title xml:lang="{}">x</title>'.format("l" * MOST_METADATA),
        "".join(f'<title xml:lang="l{number}"/>' for number in range(MOST_METADATA // 16)),
        "<title/>" * MOST_METADATA,
    ],
    ids=["a title", "permissions", "singleton", "one long language", "many languages", "many titles"],
)
def test_what_is_kept_is_bounded_titles_with_their_languages(inside: str) -> None:
    """The metadata must fit into the sidecar, which could not be read again otherwise."""
    with pytest.raises(BadRequestError, match="more than"):
        metadata(inside)


# Refusals of a definition when it is published: unknown marks of permissions and of encryption


CHECKED = """<xh:html xmlns:xh="http://www.w3.org/1999/xhtml" xmlns:xf="http://www.w3.org/2002/xforms"
 xmlns:fr="http://orbeon.org/oxf/xml/form-runner" xmlns:acme="urn:acme" xmlns:xbl="http://www.w3.org/ns/xbl"><xh:head>
<xf:model id="fr-form-model">
<xf:instance id="fr-form-instance"><form fr:data-format-version="4.0.0">{data}</form></xf:instance>
<xf:bind id="fr-form-binds">{bind}</xf:bind>
<xf:instance id="fr-form-metadata"><metadata>{metadata}</metadata></xf:instance></xf:model>
<xbl:xbl><xbl:binding><xbl:template>{template}</xbl:template></xbl:binding></xbl:xbl></xh:head>
<xh:body><fr:view><fr:body><fr:section><fr:grid><fr:c>{body}</fr:c></fr:grid></fr:section></fr:body></fr:view></xh:body>
</xh:html>"""


def check(**parts: str) -> None:
    said = {name: parts.get(name, "") for name in ("data", "bind", "metadata", "template", "body")}
    document = CHECKED.format(**said).encode()
    with MetadataReader() as reader:  # what is refused is well-formed, and was accepted
        reader.read([document])
    with MetadataReader(is_checked=True) as reader:
        reader.read([document])


@pytest.mark.parametrize(
    ("permissions", "cause"),
    [
        ('<permission operation="read"/>', r"attribute 'operation' of <permission>, .*known is operations"),
        ('<permission operations="read"><user-role name="a"/></permission>', r"'name' of <user-role>, .*is any-of"),
        ('<permission operations="read"><owner of="x"/></permission>', r"attribute 'of' of <owner>"),
        ('<permision operations="read"/>', r"element <permision>.*known is permission"),
        ('<permission operations="read"><owner><user-role any-of="a"/></owner></permission>', "in a condition"),
        ('<permission operations="read">owner</permission>', "have text in <permission>"),
        ('<permission operations="read"><owner/>and</permission>', "have text in <permission>"),
        ("read", "have text in <permissions>"),
        ('<permission fr:operations="read"/>', "attribute 'operations' in a namespace"),
        ('<permission operations="read"><user-role acme:any-of="a"/></permission>', "'any-of' in a namespace"),
        ('<permission operations="*"/>', "unknown operation"),
        ('<permission operations="read"><owner/><nobody/></permission>', "unknown condition"),
        ("<else><nobody/></else>", "element <else>"),
    ],
)
def test_misspelt_permissions_are_refused_with_the_name_that_is_known(permissions: str, cause: str) -> None:
    with pytest.raises(BadRequestError, match=cause):
        check(metadata=f"<permissions>{permissions}</permissions>")
    for attribute in ('operations="read"', 'fr:operations="read"'):
        with pytest.raises(BadRequestError, match="operations"):
            check(metadata=f"<permissions {attribute}/>")


@pytest.mark.parametrize(
    "permissions",
    [
        "",
        '<permission operations="read -list"/>',
        '<!-- everybody --><permission operations=""><user-role any-of="admin"/></permission>',
        '<permission operations="create"> <owner/> <group-member/> <any-authenticated-user/> </permission>',
        '<permission operations="read" xml:id="first"><anyone-with-token/><fr:owner/></permission>',
        "<permission/>",
    ],
)
def test_permissions_as_the_designer_writes_them_are_not(permissions: str) -> None:
    check(metadata=f"<permissions>{permissions}</permissions>")


@pytest.mark.parametrize(
    "metadata",
    [
        "<permissions/><permissions>{}</permissions>",
        "<p><permissions>{}</permissions></p>",
        '<permissions xmlns="u">{}</permissions>',
    ],
)
def test_permissions_that_count_for_nothing_are_not_either(metadata: str) -> None:
    check(metadata=metadata.format('<permission operations="fly"/>'))


INPUT = '<xf:input id="a-control" bind="a-bind"{}>{}</xf:input>'
MISSPELT = [
    (' fr:encrypt-at-rest="true"', "", "attribute 'encrypt-at-rest'"),
    (' fr:encrypt="true"', "", "attribute 'encrypt'"),
    (' encrypt="true"', "", "attribute 'encrypt'"),
    (' class="xforms fr-encrypted"', "", "class 'fr-encrypted'"),
    ("", "<fr:encrypted/>", "element <encrypted>"),
    ("", "<fr:Encrypt/>", "element <Encrypt>"),
    ("", "<fr:encypt/>", "element <encypt>"),
    ("", "<xf:encrypt/>", "element <encrypt>"),
    ("", "<encrypt/>", "element <encrypt>"),
    ("", '<fr:encrypt enabled="false"/>', "attribute 'enabled' of <fr:encrypt>"),
]


@pytest.mark.parametrize(("attributes", "inside", "cause"), MISSPELT)
@pytest.mark.parametrize("place", ["body", "template"])
def test_a_misspelt_mark_of_encryption_is_refused_wherever_controls_are(
    place: str, attributes: str, inside: str, cause: str
) -> None:
    with pytest.raises(BadRequestError, match=cause) as raised:
        check(**{place: INPUT.format(attributes, inside)})
    assert "the mark is <fr:encrypt/> in the control" in str(raised.value) or "has none" in str(raised.value)


def test_a_mark_on_a_bind_is_refused_and_what_is_behind_an_instance_is_looked_at_again() -> None:
    with pytest.raises(BadRequestError, match="attribute 'encrypt'"):
        check(bind='<xf:bind id="a-bind" ref="a" name="a" fr:encrypt="true"/>')
    with pytest.raises(BadRequestError, match="encrypted"):
        check(data="<a><b/></a>", bind="<fr:encrypted/>")


@pytest.mark.parametrize(
    "parts",
    [
        {"body": INPUT.format("", "<fr:encrypt/>")},
        {"body": INPUT.format(' class="fr-encrypt encrypted-by-me"', '<fr:index/><fr:encrypt xml:id="x"/>')},
        {"data": '<encrypted/><encrypt fr:value-encrypted="true" encrypted="true"/><fr:encrypted/>'},
        {"bind": '<xf:bind id="encrypt-bind" ref="encrypt" name="encrypt" relevant="xxf:encrypt(.)"/>'},
        {"metadata": '<title xml:lang="en">encrypt</title><encryption fr:encrypt="x"/>'},
        {"body": '<acme:encrypted-input id="a-control" bind="a-bind" encryption="strong"/>'},
        {"body": INPUT.format(' acme:encrypt="yes"', "<acme:encrypt/>")},
        {"body": INPUT.format("", "<fr:index><fr:summary-show/></fr:index><fr:currency/><fr:entry/>")},
    ],
)
def test_marks_that_are_known_and_names_of_others_are_not(parts: dict[str, str]) -> None:
    check(**parts)


def test_names_that_are_too_long_to_be_misspelt_are_not_kept() -> None:
    """A cache of a thousand of 10,000 characters would be 20 MB in each worker, for good."""
    check(body="<fr:explanation/>")
    gc.collect()
    tracemalloc.start()
    try:
        for number in range(200):
            check(body=f"<fr:x{number}{'y' * 9_000}/>")
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] < 200_000
    finally:
        tracemalloc.stop()
