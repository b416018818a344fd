"""Values in form data: which are encrypted, how they are marked, and how they come back (spec forms 4.2, 4.3)."""

import pytest
from lxml import etree

from persistence.errors import BadRequestError, BodyTooLargeError, MalformedXmlError
from persistence.forms.encryption import EncryptionSurvey, ValueDecrypter, ValueEncrypter
from persistence.limits import LONGEST_ENCRYPTED
from persistence.model.addresses import AttachmentRef
from persistence.model.versions import Place

FR = "http://orbeon.org/oxf/xml/form-runner"
PATHS = [("a",), ("s", "r", "c"), ("many",)]
FILE = "/fr/service/persistence/crud/hr/leave/data/1/x.bin"
UNKNOWN = "/fr/service/persistence/crud/hr/leave/data/1/unknown.bin"
PLAIN = "/fr/service/persistence/crud/hr/leave/data/1/plain.bin"


SEAL = b"<?encrypted-values s?>"


def shown(place: Place) -> str:
    return "/".join(name if number == 1 else f"{name}[{number}]" for name, number in place)


def seal(text: str, place: Place) -> tuple[str, str | None]:
    return f"<{shown(place)}={text[::-1]}>", "k:0f" if text == "findable" else None


def open_(value: str, place: Place) -> str:
    begin = f"<{shown(place)}="
    assert value.startswith(begin)
    assert value.endswith(">")
    return value[len(begin) : -1][::-1]


def is_encrypted(held: AttachmentRef, is_said: bool) -> bool:  # noqa: FBT001 - as it is called
    return held.name == "x.bin" or (held.name == "unknown.bin" and is_said)


def sealed(data: bytes, step: int = 50) -> bytes:
    with ValueEncrypter(PATHS, (), seal, lambda: "s", is_encrypted) as sealing:
        return b"".join(sealing.edited(pieces(data, step)))


def opened(data: bytes, step: int = 50) -> bytes:
    with ValueDecrypter(open_) as opening:
        return b"".join(opening.edited(pieces(data, step)))


def pieces(data: bytes, step: int) -> list[bytes]:
    return [data[at : at + step] for at in range(0, len(data), step)]


def form(content: str, attributes: str = f' xmlns:fr="{FR}"') -> bytes:
    return f"<form{attributes}>{content}</form>".encode()


SEALED = {
    "<a>findable</a>": '<a fr:value-encrypted="true" fr:value-encrypted-token="k:0f">&lt;a=elbadnif&gt;</a>',
    '<a fr:value-encrypted-token="x">secret</a>': '<a fr:value-encrypted="true">&lt;a=terces&gt;</a>',
    '<b fr:value-encrypted-token="x">open</b>': "<b>open</b>",
    "<a>secret</a>": '<a fr:value-encrypted="true">&lt;a=terces&gt;</a>',
    "<a x='1' >s</a >": "<a x='1' fr:value-encrypted=\"true\">&lt;a=s&gt;</a >",
    "<a> </a>": '<a fr:value-encrypted="true">&lt;a= &gt;</a>',
    "<a/><a></a>": "<a/><a></a>",
    "<b>open</b>": "<b>open</b>",
    "<a>1<!-- 2 -->3<![CDATA[<]]>&#13;</a>": '<a fr:value-encrypted="true">&lt;a=&#13;&lt;31&gt;</a>',
    "<s><r><c>1</c></r><r><c>2</c></r><c>3</c></s>": (
        '<s><r><c fr:value-encrypted="true">&lt;s/r/c=1&gt;</c></r>'
        '<r><c fr:value-encrypted="true">&lt;s/r[2]/c=2&gt;</c></r><c>3</c></s>'
    ),
    "<many>\n<_>v</_> <_ y='2'/></many>": (
        "<many>\n<_ fr:value-encrypted=\"true\">&lt;many/_=v&gt;</_> <_ y='2'/></many>"
    ),
    '<b fr:value-encrypted="true" encrypted="true">x</b>': "<b>x</b>",
    '<b encrypted="false" fr:other="1">x</b>': '<b encrypted="false" fr:other="1">x</b>',
    '<a fr:value-encrypted="true">x</a>': '<a fr:value-encrypted="true">&lt;a=x&gt;</a>',
    '<b xmlns:fr="urn:x" fr:value-encrypted="true">x</b>': '<b xmlns:fr="urn:x" fr:value-encrypted="true">x</b>',
    f"<f>{FILE}</f>": f'<f fr:attachment-encrypted="true">{FILE}</f>',
    f'<a fr:attachment-encrypted="false">\n{FILE}\n</a>': f'<a fr:attachment-encrypted="true">\n{FILE}\n</a>',
    f'<f fr:attachment-encrypted="true">{PLAIN}</f>': f"<f>{PLAIN}</f>",
    f"<many><_>{FILE}</_><_>{PLAIN}</_></many>": (
        f'<many><_ fr:attachment-encrypted="true">{FILE}</_><_>{PLAIN}</_></many>'
    ),
    f'<f fr:attachment-encrypted="true">{UNKNOWN}</f>': f'<f fr:attachment-encrypted="true">{UNKNOWN}</f>',
    f"<f>{UNKNOWN}</f>": f"<f>{UNKNOWN}</f>",
    '<f fr:attachment-encrypted="true" filename=""/>': '<f filename=""/>',
}


@pytest.mark.parametrize("plain", SEALED)
@pytest.mark.parametrize("step", [1, 7, 10_000])
def test_what_is_stored(plain: str, step: int) -> None:
    behind = SEAL if "&lt;" in SEALED[plain] else b""
    assert sealed(form(plain), step) == form(SEALED[plain]) + behind


@pytest.mark.parametrize(
    ("attributes", "element", "stored"),
    [
        ("", "<a>s</a>", f'<a xmlns:fr="{FR}" fr:value-encrypted="true">'),
        (f' xmlns:z="{FR}"', "<a>s</a>", '<a z:value-encrypted="true">'),
        (f' xmlns="" xmlns:z="{FR}"', '<b/><a xmlns:z="urn:x">s</a>', f'<a xmlns:z="urn:x" xmlns:fr="{FR}" fr:value-'),
        (' xmlns:fr="urn:x"', '<a fr:y="1">s</a>', f'<a fr:y="1" xmlns:fr1="{FR}" fr1:value-encrypted="true">'),
        ("", f'<b><c xmlns:fr="{FR}"/></b><a>s</a>', f'<a xmlns:fr="{FR}" fr:value-encrypted="true">'),
        ("", f'<a xmlns:q="{FR}" q:value-encrypted="true">s</a>', f'<a xmlns:q="{FR}" q:value-encrypted="true">'),
    ],
)
def test_the_mark_is_in_the_right_namespace_whatever_is_declared(attributes: str, element: str, stored: str) -> None:
    data = sealed(form(element, attributes))
    assert stored in data.decode()
    (marked,) = etree.fromstring(data).findall("a")
    assert marked.get(f"{{{FR}}}value-encrypted") == "true"
    assert etree.fromstring(opened(data)).findtext("a") == "s"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "iso-8859-1", "windows-1252", "us-ascii"])
def test_every_encoding_stays_what_it_is(encoding: str) -> None:
    name = "utf-8" if encoding == "utf-8-sig" else encoding
    text = f'<?xml version="1.0" encoding="{name}"?>\n<form><b>&#8364;</b><a x="&#228;">&#8364;&#228;&lt;</a></form>'
    data = text.encode(encoding)
    stored = sealed(data, 3)
    assert stored.decode(encoding).startswith(f'<?xml version="1.0" encoding="{name}"?>\n<form><b>&#8364;</b>')
    tree = etree.fromstring(opened(stored, 3))
    assert tree.findtext("a") == "\u20ac\u00e4<"
    assert tree.find("a").attrib == {"x": "\u00e4"}


@pytest.mark.parametrize("plain", SEALED)
def test_what_comes_back_is_what_was_sent(plain: str) -> None:
    back, sent = (etree.fromstring(data) for data in (opened(sealed(form(plain))), form(plain)))
    for element in sent.iter("*"):
        own = [f"{{{FR}}}{name}" for name in ("value-encrypted", "attachment-encrypted", "value-encrypted-token")]
        for name in (*own, "encrypted"):
            if element.get(name) in {"true", "x"}:
                del element.attrib[name]
    told, expected = (
        [
            (each.tag, "".join(each.xpath("text()")), {k: v for k, v in each.items() if "attachment" not in k})
            for each in tree.iter("*")
        ]
        for tree in (back, sent)
    )
    assert told == expected


def test_the_old_mark_is_read_too() -> None:
    data = form('<a encrypted="true">&lt;a=terces&gt;</a><b encrypted="yes">x</b>')
    assert opened(data) == form('<a>secret</a><b encrypted="yes">x</b>')


def test_text_beside_elements_in_a_marked_value_is_refused_and_what_is_not_well_formed() -> None:
    for text in ("<a>x<b/></a>", "<a><b/>x</a>", "<a><b/><b/>x</a>", "<a><b>1</b>x<b/></a>"):
        with pytest.raises(BadRequestError, match="text beside elements"):
            sealed(form(text))
    for text in ("<a>", "<a></b>", "<a x='<'/>", "<!DOCTYPE a><a/>"):
        with pytest.raises(MalformedXmlError):
            sealed(text.encode())


@pytest.mark.parametrize("step", [1, 7, 10_000])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_a_seal_is_behind_the_root_and_one_that_a_client_sends_is_dropped(step: int, encoding: str) -> None:
    """In the root, an instruction of that name is the client's own."""
    mark, own = SEAL.decode(), "<?encrypted-values of the client?>"
    plain = f"<?x?><form><a>s{own}</a><b>{own}</b></form>\n<!-- x --><?y encrypted-values ?>"
    sent = f"{own}{plain}{own}<?encrypted-values?>"
    stored = sealed(sent.encode(encoding), step).decode(encoding)
    assert stored.endswith(f"<?y encrypted-values ?>{mark}")
    assert (stored.startswith("<?x?><form>"), stored.count(own)) == (True, 1)
    with ValueDecrypter(open_) as opening:
        back = b"".join(opening.edited(pieces(stored.encode(encoding), step))).decode(encoding)
    assert opening.seal == "s"
    assert back == plain.replace(f"s{own}", "s").replace("<a>", f'<a xmlns:fr="{FR}">')


def test_a_value_may_be_long_but_not_endless() -> None:
    assert len(sealed(form(f"<a>{'x' * 1_000_000}</a>"), 1 << 18)) > 1_000_000
    with pytest.raises(BodyTooLargeError):
        sealed(form(f"<a>{'x' * (LONGEST_ENCRYPTED + 1)}</a>"), 1 << 18)


def test_text_that_is_not_to_be_encrypted_is_not_gathered() -> None:
    data = form(f"<b>{'x' * 3_000_000}</b>")
    with ValueEncrypter(PATHS, (), seal, lambda: "s", is_encrypted) as sealing:
        assert max(len(piece) for piece in sealing.edited(pieces(data, 1 << 16))) < 1 << 18


@pytest.mark.parametrize(
    ("content", "values", "stale", "plain", "wrong"),
    [
        ('<a fr:value-encrypted="true">new</a><b>x</b>', 1, 0, 0, 0),
        ('<a fr:value-encrypted="true">old</a>', 1, 1, 0, 0),
        ('<a fr:value-encrypted="true" fr:value-encrypted-token="k:0f">new</a>', 1, 1, 0, 0),
        ('<b fr:value-encrypted="true">new</b>', 1, 1, 0, 0),
        ("<a>x</a><a/><s><r><c>y</c></r></s>", 0, 0, 2, 0),
        (f'<f>{FILE}</f><f fr:attachment-encrypted="true">{FILE}</f><a>{PLAIN}</a>', 0, 0, 0, 1),
        (f'<f fr:attachment-encrypted="true">{PLAIN}</f>', 0, 0, 0, 1),
    ],
)
def test_what_is_left_to_do_is_seen(content: str, values: int, stale: int, plain: int, wrong: int) -> None:
    def is_current(value: str, token: str | None, path: tuple[str, ...]) -> bool:
        return value == "new" and token is None and path in {("a",), ("b",)}

    with EncryptionSurvey(PATHS, (), is_current, is_encrypted) as survey:
        survey.read([form(content)])
    assert (survey.values, survey.stale, survey.plain, survey.wrong) == (values, stale, plain, wrong)
    assert survey.is_done is not bool(stale or plain or wrong)
