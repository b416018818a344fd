"""XML that may cost much: the shapes that a document can have, each drawn with a few numbers."""

from __future__ import annotations

from collections.abc import Callable

from tests.rigs.cost.genes import Genes

CHARACTERS = ("x", "&amp;", "é", "😀", "a ", "&#xa0;", "\t", "]", "İ")
"""What fills names, texts and blanks; the last grows where it is folded."""

_BLANKS = (" ", "\n", "\t", "\r\n")
_NAMES = ("d", "field", "é", "grid-iteration")


def content(genes: Genes, room: int) -> str:
    """What stands inside a root element, of up to some characters."""
    return SHAPES[genes.shape % len(SHAPES)](genes, room)


def _filled(genes: Genes, room: int) -> str:
    character = CHARACTERS[genes.character % len(CHARACTERS)]
    return character * (room // len(character.encode()))


def _value(genes: Genes) -> str:
    return _filled(genes, genes.length % 2_000)


def _text(genes: Genes, room: int) -> str:
    return f"<name>{_filled(genes, room)}</name>"


def _distinct(genes: Genes, room: int) -> str:
    space = "u" * (genes.length % 1_000 + 1)
    names = (f"<n:x{number}/>" for number in range(room // 12))
    return f'<w xmlns:n="{space}">{"".join(names)}</w>'


def _attributes(genes: Genes, room: int) -> str:
    value = "v" * (genes.other % 50)
    return "<d " + _numbered(f'x{{}}="{value}"', room // (len(value) + 11)) + "/>"


def _attributes_in_a_namespace(genes: Genes, room: int) -> str:
    space = "u" * (genes.length % 1_000 + 1)
    return f'<d xmlns:n="{space}" ' + _numbered('n:x{}=""', room // 12) + "/>"


def _all_prefixes(genes: Genes, room: int) -> str:
    number = room // 60 + 2
    declared = _numbered('xmlns:fr{0}="urn:x:{0}"', number)
    one = f'<name encrypted="true" fr1:y="1">{_value(genes)[:20]}</name>'
    return f"<d {declared}>{one * number}</d>"


def _blank_tag(genes: Genes, room: int) -> str:
    blank = _BLANKS[genes.other % len(_BLANKS)]
    return f'<a encrypted="true"{blank * (room // len(blank))}>x</a>'


def _sections(genes: Genes, room: int) -> str:
    one = f"<![CDATA[{'x' * (genes.length % 2_000)}]]>"
    return f"<name>{one * max(1, room // len(one))}</name>"


def _numbered(each: str, number: int) -> str:
    return " ".join(each.format(it) for it in range(number))


_PATH = "/fr/service/persistence/crud/cost/open/data/d/a.bin"
_REPEATED: tuple[Callable[[Genes], str], ...] = (
    lambda genes: f"<name>{_value(genes)}</name>",
    lambda genes: f"<{_NAMES[genes.other % len(_NAMES)]}/>",
    lambda genes: "<d " + _numbered('a{}=""', genes.other % 200 + 1) + "/>",
    lambda genes: "<name>" * (genes.other % 240 + 1) + _value(genes) + "</name>" * (genes.other % 240 + 1),
    lambda genes: "<d " + _numbered('xmlns:p{0}="urn:{0}"', genes.other % 400 + 1) + "><p0:name/></d>",
    lambda genes: f'<name encrypted="true">{_value(genes)}</name>',
    lambda genes: f"<!--{'x' * (genes.length % 2_000)}--><?p {'y' * (genes.other % 200)}?>",
    lambda genes: f'<photo filename="{"x" * (genes.length % 2_000)}" mediatype="a/b" size="1">{_PATH}</photo>',
)
"""What stands again and again, at least once."""


def _repeated(one: str, room: int) -> str:
    return one * max(1, room // len(one.encode()))


SHAPES: tuple[Callable[[Genes, int], str], ...] = (
    *(_text, _distinct, _attributes, _attributes_in_a_namespace, _all_prefixes, _blank_tag, _sections),
    *((lambda genes, room, of=each: _repeated(of(genes), room)) for each in _REPEATED),
)
