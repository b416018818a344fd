"""The body of LOCK, UNLOCK and 423, which names the holder of a lease (spec crud 7), by local names as in Orbeon."""

from __future__ import annotations

from collections.abc import Iterable

from persistence.forms.messages import element, text
from persistence.limits import LONGEST_TEXT, MOST_QUERY_ELEMENTS, MOST_QUERY_NAMES
from persistence.model.leases import LeaseHolder, holder_named
from persistence.xml.streaming import Streaming, local_name

_USER, _GROUP = (("lockinfo", "owner", name) for name in ("username", "groupname"))
_DAV = ' xmlns:d="DAV:"'
_FORM_RUNNER = ' xmlns:fr="http://orbeon.org/oxf/xml/form-runner"'
_SLACK = 4096
"""Blanks around a name after which it is too long in any case."""


class _LockReader(Streaming):
    """Collects the first user and the first group; ``found`` has their texts, by path."""

    most_elements = MOST_QUERY_ELEMENTS
    most_names = MOST_QUERY_NAMES

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[tuple[str, ...], str] = {}
        self._path: list[str] = []
        self._seen: set[tuple[str, ...]] = set()
        self.parser.CharacterDataHandler = self._text

    def start(self, name: str, attributes: dict[str, str]) -> None:
        super().start(name, attributes)
        self._path.append(local_name(name))

    def end(self, name: str) -> None:
        super().end(name)
        if len(self._path) == len(_USER):
            self._seen.add(tuple(self._path))
        self._path.pop()

    def _text(self, data: str) -> None:
        path = tuple(self._path)
        if path in (_USER, _GROUP) and path not in self._seen:
            self.found[path] = (self.found.get(path, "") + data)[: LONGEST_TEXT + _SLACK]


def read_lock(pieces: Iterable[bytes]) -> LeaseHolder:
    with _LockReader() as reader:
        found = reader.read(pieces).found
    return holder_named(found.get(_USER, ""), found.get(_GROUP, ""))


def write_lock(holder: LeaseHolder) -> bytes:
    names = element("fr:username", content=text(holder.user)) + element(
        "fr:groupname", content=text(holder.group or "")
    )
    scope = element("d:lockscope", content=element("d:exclusive"))
    kind = element("d:locktype", content=element("d:write"))
    return element("d:lockinfo", _DAV + _FORM_RUNNER, scope + kind + element("d:owner", content=names)).encode()
