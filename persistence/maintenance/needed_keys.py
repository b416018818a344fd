"""The encryption keys that what is stored needs: the ids of all that the service has had, until they are retired.

Only reading everything would show which key is needed for what. So the ids are noted when a service has a key, which is
before it encrypts with it, and backups have them: a restore and a start then say which ones are missing.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

import msgspec

from persistence.crypto.encryption_keys import EncryptionKeys
from persistence.errors import DiskError, PersistenceError
from persistence.maintenance.last_runs import last, record


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
    """Note that keys may be needed; like other records, it costs only itself where it cannot be written.

    Ids that cannot be read just now are not written over.
    """
    with suppress(DiskError):
        known, new = _noted(home), frozenset(ids)
        if not new <= known:
            record(home, NeededKeys(tuple(sorted(known | new))))


def note_all(home: str, keys: EncryptionKeys) -> None:
    """Note all keys that are there; none where they cannot be read."""
    with suppress(PersistenceError):
        note(home, keys.ring().keys)


def forget(home: str, key_id: str) -> None:
    """Forget a key with which nothing is encrypted any more."""
    record(home, NeededKeys(tuple(sorted(needed(home) - {key_id}))))


def missing(ids: Iterable[str], keys: EncryptionKeys) -> list[str]:
    """Return those of some ids whose keys are not there; none where the keys cannot be read, as others say then."""
    wanted = frozenset(ids)
    try:
        return sorted(wanted - keys.ring().keys.keys()) if wanted else []
    except PersistenceError:
        return []


def count_missing(home: str, keys: EncryptionKeys) -> int:
    """Return the number of noted keys that are missing."""
    return len(missing(needed(home), keys))


def remark(home: str, path: str, keys: EncryptionKeys, wanted: Iterable[str] | None = None) -> str | None:
    """Return a line about keys that are missing from their file at a path, if any are.

    It is about the ids that are ``wanted``, or else those that are noted.
    """
    ids = missing(needed(home) if wanted is None else wanted, keys)
    if not ids:
        return None
    what, it = (f"key {ids[0]} is", "it") if len(ids) == 1 else (f"keys {', '.join(ids)} are", "them")
    place = "the environment" if keys.are_given else path
    return f"the encryption {what} not in {place}: nobody can read what is encrypted with {it}"
