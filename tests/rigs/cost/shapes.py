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


def _many(genes: Genes, room: int) -> str:
    one = f"<name>{_value(genes)}</name>"
    return one * (room // len(one.encode()))


def _empty(genes: Genes, room: int) -> str:
    name = _NAMES[genes.other % len(_NAMES)]
    return f"<{name}/>" * (room // (len(name.encode()) + 3))


def _distinct(genes: Genes, room: int) -> str:
    space = "u" * (genes.length % 1_000 + 1)
    names = (f"<n:x{number}/>" for number in range(room // 12))
    return f'<w xmlns:n="{space}">{"".join(names)}</w>'


def _attributes(genes: Genes, room: int) -> str:
    value = "v" * (genes.other % 50)
    each = [f'x{number}="{value}"' for number in range(room // (len(value) + 11))]
    return f"<d {' '.join(each)}/>"


def _attributes_in_a_namespace(genes: Genes, room: int) -> str:
    space = "u" * (genes.length % 1_000 + 1)
    each = [f'n:x{number}=""' for number in range(room // 12)]
    return f'<d xmlns:n="{space}" {" ".join(each)}/>'


def _elements_with_attributes(genes: Genes, room: int) -> str:
    number = genes.other % 200 + 1
    said = " ".join(f'a{each}=""' for each in range(number))
    one = f"<d {said}/>"
    return one * (room // len(one))


def _deep(genes: Genes, room: int) -> str:
    depth = genes.other % 240 + 1
    one = "<name>" * depth + _value(genes) + "</name>" * depth
    return one * max(1, room // len(one.encode()))


def _prefixes(genes: Genes, room: int) -> str:
    number = genes.other % 400 + 1
    declared = " ".join(f'xmlns:p{each}="urn:{each}"' for each in range(number))
    one = f"<d {declared}><p0:name/></d>"
    return one * max(1, room // len(one))


def _all_prefixes(genes: Genes, room: int) -> str:
    number = room // 60 + 2
    declared = " ".join(f'xmlns:fr{each}="urn:x:{each}"' for each in range(number))
    one = f'<name encrypted="true" fr1:y="1">{_value(genes)[:20]}</name>'
    return f"<d {declared}>{one * number}</d>"


def _blank_tag(genes: Genes, room: int) -> str:
    blank = _BLANKS[genes.other % len(_BLANKS)]
    return f'<a encrypted="true"{blank * (room // len(blank))}>x</a>'


def _sealed(genes: Genes, room: int) -> str:
    one = f'<name encrypted="true">{_value(genes)}</name>'
    return one * max(1, room // len(one.encode()))


def _comments(genes: Genes, room: int) -> str:
    one = f"<!--{'x' * (genes.length % 2_000)}--><?p {'y' * (genes.other % 200)}?>"
    return one * max(1, room // len(one))


def _sections(genes: Genes, room: int) -> str:
    one = f"<![CDATA[{'x' * (genes.length % 2_000)}]]>"
    return f"<name>{one * max(1, room // len(one))}</name>"


def _holders(genes: Genes, room: int) -> str:
    path = "/fr/service/persistence/crud/cost/open/data/d/a.bin"
    said = "x" * (genes.length % 2_000)
    one = f'<photo filename="{said}" mediatype="a/b" size="1">{path}</photo>'
    return one * max(1, room // len(one))


SHAPES: tuple[Callable[[Genes, int], str], ...] = (
    _text,
    _many,
    _empty,
    _distinct,
    _attributes,
    _attributes_in_a_namespace,
    _elements_with_attributes,
    _deep,
    _prefixes,
    _all_prefixes,
    _blank_tag,
    _sealed,
    _comments,
    _sections,
    _holders,
)
