"""The time at which each API key was last used: noted in memory with each request, and in a file once a minute."""

from __future__ import annotations

import time
from typing import Self

import msgspec

from persistence.errors import PersistenceError
from persistence.limits import KEY_USE_NOTED
from persistence.storage.key_files import KeyFile
from persistence.storage.layout import PAGES, Layout


class _Uses(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Seconds since the epoch by the name of a key."""

    used: dict[str, float] = {}


_decode = msgspec.json.Decoder(_Uses).decode


class KeyUses:
    """The file, and the uses that this worker has not written yet. After a failure it tries again a minute later."""

    def __init__(self, path: str, *, tree: str) -> None:
        self._file: KeyFile[_Uses] = KeyFile(
            path, tree=tree, what="uses of keys", decode=lambda data, _: _decode(data), nothing=_Uses()
        )
        self._due: dict[str, float] = {}
        self._next = 0.0

    @classmethod
    def of(cls, home: str) -> Self:
        """Return the file of the service whose own directory is ``home``."""
        return cls(f"{Layout(home).own(PAGES)}/key-uses.json", tree=home)

    def use(self, name: str) -> None:
        self._due[name] = time.time()

    def note(self, known: frozenset[str]) -> None:
        """Write the uses if that is due; called about once a second. Only ``known`` keys are kept."""
        now = time.monotonic()
        if not self._due or now < self._next:
            return
        self._next = now + KEY_USE_NOTED
        due, self._due = self._due, {}
        try:
            with self._file.changing() as noted:
                newest = {name: max(at, noted.used.get(name, 0.0)) for name, at in due.items()}
                used = {**noted.used, **newest}
                self._file.write(_Uses({name: at for name, at in used.items() if name in known}))
        except PersistenceError:
            for name, at in due.items():
                self._due.setdefault(name, at)

    def last(self) -> dict[str, float]:
        """Return the last use of each key in seconds since the epoch, with those that this worker has not written."""
        return {**self._file.read().used, **self._due}
