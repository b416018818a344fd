"""The XML of differences between revisions (spec crud 8.1)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from persistence.forms.data_tree import HeldValue
from persistence.forms.diffs import OTHER, Difference, DiffKind
from persistence.forms.messages import attribute, element, text
from persistence.limits import LARGEST_FOUND
from persistence.model.instants import Instant

_CUT = "\N{HORIZONTAL ELLIPSIS}"


@dataclass(slots=True)
class DiffsWriter:
    """A writer of the differences of one response, with labels in a language and values of ``truncation`` characters.

    Differences beyond ``LARGEST_FOUND`` are written as one of the kind ``other``.
    """

    language: str | None = None
    truncation: int | None = None
    left: int = LARGEST_FOUND

    def write(self, found: Iterable[Difference], older: Instant, newer: Instant | None = None) -> str:
        attributes = attribute("older-modified-time", older)
        if newer is not None:
            attributes += attribute("newer-modified-time", newer)
        content = []
        for each in found:
            if each.is_in_added:  # the real system has the count alone (spec runtime 8)
                continue
            written = self._written(each)
            self.left -= len(written)
            if self.left < 0:
                content.append(self._written(OTHER))
                break
            content.append(written)
        return element("diffs", attributes, "".join(content))

    def _written(self, each: Difference) -> str:
        attributes, content = attribute("type", each.kind.value), ""
        if each.node is not None:
            attributes += attribute("name", each.node.name) if each.node.name else ""
            content = self._label(each)
        if each.iterations:
            attributes += attribute("count", str(len(each.iterations)))
        if each.kind is DiffKind.VALUE_CHANGED:
            content += self._value("from", each.older) + self._value("to", each.newer)
        return element("diff", attributes, content)

    def _label(self, each: Difference) -> str:
        label = None if each.node is None else each.node.label
        if label is None:
            return ""
        attributes = attribute("mediatype", "text/html") if label.is_html else ""
        return element("label", attributes, text(label.in_language(self.language)))

    def _value(self, name: str, value: HeldValue) -> str:
        attributes = "".join(attribute(each, held) for each, held in value.attributes)
        return element(name, attributes, text(shortened(value.text, self.truncation)))


def shortened(value: str, size: int | None) -> str:
    """Return a text of at most so many characters, of which the last one shows that it was longer."""
    return value if size is None or len(value) <= size else value[: size - 1] + _CUT
