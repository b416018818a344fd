"""Tags taken apart and edited: in linear time, and without a change to any other byte."""

import time

import pytest
from lxml import etree

from persistence import xml
from persistence.errors import MalformedXmlError
from persistence.forms.encryption import ValueDecrypter, ValueEncrypter
from persistence.model.addresses import AttachmentRef
from persistence.xml import ENCODINGS, Streaming

FR = "http://orbeon.org/oxf/xml/form-runner"
QUICK = 2.0
"""Seconds for a MB, on a busy machine; what is quadratic takes minutes."""


def sealed(document: bytes, *paths: tuple[str, ...], piece: int = 1 << 18) -> bytes:
    with ValueEncrypter(paths, (), lambda text, _: f"({text})", lambda: "s", _as_said) as sealing:
        return b"".join(sealing.edited(document[at : at + piece] for at in range(0, len(document), piece)))


def opened(document: bytes) -> bytes:
    with ValueDecrypter(lambda text, _: text[1:-1]) as opening:
        return b"".join(opening.edited([document]))


def _as_said(_held: AttachmentRef, is_said: bool) -> bool:  # noqa: FBT001 - as ``IsEncrypted`` has it
    return is_said


BLANKS = " " * 200_000
SLOW = {
    "blanks": f'<a encrypted="true"{BLANKS}>x</a>',
    "blanks before a sign": f'<a encrypted{BLANKS}={BLANKS}"true">x</a>',
    "line feeds in a value": '<a encrypted="true" b="{}">x</a>'.format("\n" * 200_000),
    "attributes": "<a {} encrypted='true'>x</a>".format(" ".join(f"a{number}='='" for number in range(999))) * 20,
    "quotes in quotes": """<a encrypted="true" b='{}' c="{}">x</a>""".format('"' * 100_000, "'" * 100_000),
}


@pytest.mark.parametrize("name", SLOW)
def test_a_mark_is_dropped_in_linear_time(name: str) -> None:
    """An attack: 80,000 blanks behind an attribute took 28 s, in which a worker did nothing else."""
    document = f"<r>{SLOW[name]}</r>"
    began = time.process_time()
    assert sealed(document.encode()).count(b"encrypted") == 0
    assert opened(document.encode()).count(b"encrypted") == 0
    assert time.process_time() - began < QUICK


def test_a_free_prefix_is_found_at_once() -> None:
    """An attack: with 18,000 declared prefixes and as many values, 40 s; the last of them is in the way at each."""
    declared = "".join(f' xmlns:fr{number or ""}="u"' for number in range(900))
    document = f"<f{declared}>{'<a>x</a>' * 10_000}</f>".encode()
    began = time.process_time()
    result = sealed(document, ("a",))
    assert time.process_time() - began < QUICK
    assert etree.fromstring(result)[0].attrib == {f"{{{FR}}}value-encrypted": "true"}
    assert opened(result).replace(f' xmlns:fr900="{FR}"'.encode(), b"") == document


@pytest.mark.parametrize("prefix", ["fr", "fr1", "fr01", "fr\u0663", "fr" + "9" * 5_000])
def test_a_prefix_that_is_declared_for_something_else_is_not_taken(prefix: str) -> None:
    others = "" if prefix == "fr" else ' xmlns:fr="u"'
    result = etree.fromstring(sealed(f'<f{others} xmlns:{prefix}="v"><a {prefix}:b="1">x</a></f>'.encode(), ("a",)))
    assert result[0].attrib == {"{v}b": "1", f"{{{FR}}}value-encrypted": "true"}


def test_a_sealed_element_is_found_whatever_its_depth() -> None:
    """The elements around each of many holders are not walked through again."""
    deep = "".join(f"<e{number}>" for number in range(240))
    path = "/fr/service/persistence/crud/a/b/data/d/x.bin"
    document = f"{deep}{f'<h>{path}</h>' * 5_000}{''.join(f'</e{number}>' for number in range(239, -1, -1))}".encode()
    began = time.process_time()
    assert sealed(document, ("e1",)) == document
    assert time.process_time() - began < QUICK


CODECS = ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "iso-8859-1", "windows-1252"]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("piece", [7, 1 << 18])
def test_nothing_but_marks_and_values_is_changed(codec: str, piece: int) -> None:
    """Letters whose bytes look like blanks (U+00E0 ends in A0, U+0445 in 85), and tags on the edge of a window."""
    declaration = f"<?xml version='1.0' encoding='{codec}'?>" if codec.startswith(("iso", "win")) else ""
    odd = "\u00e0" if declaration else "\u00e0\u0445\u4e0d\U0001f600"
    name = "e\u00e0" if declaration else "e\u00e0\u0445"
    root = f"{declaration}\n<r {name}='{odd}'  b = \"{odd}>\"\t>"
    holder = f"<{name}  c='1'{{mark}}\td='{odd * 700}'>{odd}</{name} >"
    document = f"{root}{holder}<v a='1' b='{odd}'{{added}}>{{text}}</v><!-- {odd} --></r>\r\n"

    def written(mark: str = "", added: str = "", text: str = "x") -> bytes:
        return document.format(mark=mark, added=added, text=text).encode(codec)

    declared, said = f' xmlns:fr="{FR}"', ' fr:value-encrypted="true"'
    seal = "<?encrypted-values s?>".encode({"utf-8-sig": "utf-8", "utf-16": "utf-16-le"}.get(codec, codec))
    assert sealed(written("\n encrypted='true'"), piece=piece) == written()
    assert sealed(written("\tencrypted = 'true'"), ("v",), piece=piece) == written("", declared + said, "(x)") + seal
    assert opened(written("", declared + said, "(x)")) == written("", declared)


@pytest.mark.parametrize(
    ("text", "names", "length"),
    [
        ("<a>x", [], 3),
        ("<a/>", [], 4),
        ("<a:b c:d='>' e = \"/>\" />", ["c:d", "e"], 24),
        ("<a\n\tb='1'\r\n>", ["b"], 12),
        ("<a b='1", [], None),
        ("<a b='1' c", ["b"], None),
        ("<!-- a='1' -->", [], None),
        ("<?a b='1'?>", [], None),
        ("</a>", [], None),
        ("", [], None),
    ],
)
def test_a_start_tag_is_taken_apart(text: str, names: list[str], length: int | None) -> None:
    assert [attribute[1] for attribute in xml.tag_attributes(text)] == names
    assert xml.end_of_tag(text) == length


@pytest.mark.parametrize("encoding", sorted(name for name in ENCODINGS if not name.startswith("utf")))
def test_two_parsers_read_the_same_in_each_encoding(encoding: str) -> None:
    """And Python's codec, by which values are written: otherwise what is stored would mean something else."""
    declaration = f"<?xml version='1.0' encoding='{encoding}'?>".encode()
    for byte in map(bytes, ((number,) for number in range(0x80, 0x100))):
        document, texts = declaration + b"<r>" + byte + b"</r>", list[str]()
        with Streaming() as parser:
            parser.parser.CharacterDataHandler = texts.append
            try:
                parser.read([document])
            except MalformedXmlError:
                continue
        assert [etree.fromstring(document).text] == [byte.decode(encoding)] == texts


@pytest.mark.parametrize(
    "encoding",
    [
        "unicode_escape",
        "raw_unicode_escape",
        "utf-7",
        "idna",
        "punycode",
        "rot13",
        "hex",
        "cp037",
        "utf8",
        "mbcs",
        "charmap",
    ],
)
def test_what_is_no_encoding_of_xml_is_refused(encoding: str) -> None:
    """An attack: with ``unicode_escape``, a stored document was not the one that was acknowledged."""
    document = f"<?xml version='1.0' encoding='{encoding}'?><city encrypted='true' a='\\u0041'>Paris</city>".encode()
    with pytest.raises(MalformedXmlError, match="encoding"):
        sealed(document)
