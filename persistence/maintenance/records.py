"""Records beside what the pages keep: the last check and the last backup, and which encryption keys are needed."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import TypeVar

import msgspec

from persistence.crypto import EncryptionKeys
from persistence.errors import DiskError, PersistenceError, disk_errors
from persistence.model.texts import Instant
from persistence.storage import files, root
from persistence.storage.layout import PAGES, Layout

R = TypeVar("R", bound=msgspec.Struct)


# Records of the last check and the last backup, for those who look after the service: when, and what came of it.
#
# They are beside what the pages keep, in the directory of the default tree, or of this instance if that is a database.
# One that cannot be written costs only itself: what was done is done.


class CheckTotals(msgspec.Struct, frozen=True):
    """The totals of a check (``FindingTotals.numbers``). ``edits`` were made by hand and not adopted."""

    folders: int
    damage: int
    leftover: int
    notice: int
    mended: int
    remaining: int
    edits: int


class LastCheck(CheckTotals, frozen=True):
    """A check of everything."""

    at: Instant
    seconds: float
    is_deep: bool


class LastBackup(msgspec.Struct, frozen=True):
    """A backup, at ``path``: the documents, drafts and form versions in it, and damaged files or missing parts."""

    at: Instant
    path: str
    folders: int
    problems: int
    missing: int


def record(home: str, run: msgspec.Struct) -> None:
    with suppress(OSError, PersistenceError):
        root.ensure_pages(home)
        files.write_durably(_note_path(home, type(run)), msgspec.json.encode(run))


def last(home: str, kind: type[R]) -> R | None:
    """Return the record of a kind; ``None`` where there is none that can be read."""
    with disk_errors("looking for the last run"):
        try:
            return msgspec.json.decode(files.read_file(_note_path(home, kind)), type=kind)
        except (FileNotFoundError, NotADirectoryError, msgspec.DecodeError):
            return None


def _note_path(home: str, kind: type[msgspec.Struct]) -> str:
    return f"{Layout(home).own(PAGES)}/{kind.__name__}.json"


# The encryption keys that what is stored needs: the ids of all that the service has had, until they are retired.
#
# Only reading everything would show which key is needed for what. So the ids are noted when a service has a key, which
# is before it encrypts with it, and backups have them: a restore and a start then say which ones are missing.


class NeededKeys(msgspec.Struct, frozen=True):
    """The ids of the keys, in order."""

    ids: tuple[str, ...]


def needed(home: str) -> frozenset[str]:
    """Return the ids that are noted in a home directory; none where they cannot be read."""
    with suppress(DiskError):
        return _noted(home)
    return frozenset()


def _noted(home: str) -> frozenset[str]:
    found = last(home, NeededKeys)
    return frozenset(() if found is None else found.ids)


def note(home: str, ids: Iterable[str]) -> None:
    """Note that keys may be needed; where that cannot be written or read, nothing happens."""
    with suppress(DiskError):
        known, new = _noted(home), frozenset(ids)
        if not new <= known:
            record(home, NeededKeys(tuple(sorted(known | new))))


def note_all(home: str, keys: EncryptionKeys) -> None:
    """Note all keys that are there; none where they cannot be read."""
    with suppress(PersistenceError):
        note(home, keys.ring().keys)


def forget(home: str, key_id: str) -> None:
    record(home, NeededKeys(tuple(sorted(needed(home) - {key_id}))))


def missing(ids: Iterable[str], keys: EncryptionKeys) -> list[str]:
    """Return those of some ids whose keys are not there; none where the keys cannot be read, as others say then."""
    wanted = frozenset(ids)
    try:
        return sorted(wanted - keys.ring().keys.keys()) if wanted else []
    except PersistenceError:
        return []


def remark(home: str, path: str, keys: EncryptionKeys, wanted: Iterable[str] | None = None) -> str | None:
    """Return a line about keys, ``wanted`` or noted ones, that are missing from their file at a path, if any are."""
    ids = missing(needed(home) if wanted is None else wanted, keys)
    if not ids:
        return None
    what, it = (f"key {ids[0]} is", "it") if len(ids) == 1 else (f"keys {', '.join(ids)} are", "them")
    place = "the environment" if keys.are_given else path
    return f"the encryption {what} not in {place}: nobody can read what is encrypted with {it}"
