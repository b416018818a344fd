"""API keys and passwords: the file that keeps their digests, and how one that is shown is found among them.

A key is 256 random bits, written as 64 hexadecimal digits so that no shell, URL or header has to escape it. The same
file has the keys that sign access tokens. They are secrets and no digests: to verify a signature takes the key itself.
And it has the passwords of administrators, and the secret that signs the sessions of the pages.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
import stat
import threading
from collections.abc import Collection, Iterable
from datetime import timedelta
from typing import Annotated, Literal, get_args

import msgspec
from msgspec.structs import replace

from persistence.errors import BadRequestError, ConflictError, ForbiddenError, NotFoundError
from persistence.limits import (
    LONGEST_PASSWORD_BYTES,
    LONGEST_SHOWN,
    SCRYPT_BLOCK,
    SCRYPT_COST,
    SCRYPT_MEMORY,
    SCRYPT_PARALLEL,
    SHORTEST_PASSWORD,
)
from persistence.model.texts import Instant, from_datetime, next_after, to_datetime
from persistence.storage.root import KeyFile

_SALT, _DIGEST = 16, 32
_comparing = threading.Lock()


# Passwords of administrators: how they are kept, and how one that is shown is compared.
#
# A person chooses a password, so it can be guessed, and its digest is slow (scrypt). One comparison takes some 100 ms
# and 16 MB, so each process makes one at a time.
class Password(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The password of an administrator, as the file of the keys has it; ``repr`` shows the name only."""

    name: str
    salt: Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{32}\Z")]
    scrypt: Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}\Z")]
    created: Instant

    def __repr__(self) -> str:
        return f"Password({self.name!r})"


def is_right_password(text: str, kept: Password | None) -> bool:
    """Return whether a text is the password that is kept; one comparison takes as long where there is none."""
    if len(_bytes(text)) > LONGEST_PASSWORD_BYTES:
        return False
    found = _password_digest(text, bytes(_SALT) if kept is None else bytes.fromhex(kept.salt))
    return kept is not None and hmac.compare_digest(found, kept.scrypt)


def _password_digest(text: str, salt: bytes) -> str:
    given, costs = _bytes(text), {"n": SCRYPT_COST, "r": SCRYPT_BLOCK, "p": SCRYPT_PARALLEL, "maxmem": SCRYPT_MEMORY}
    with _comparing:
        return hashlib.scrypt(given, salt=salt, dklen=_DIGEST, **costs).hex()


def _bytes(text: str) -> bytes:
    return text.encode(errors="surrogatepass")


TRUSTED = "trusted"  # Name of a caller in the log that needs no key; so no key may have it
WITHOUT_KEYS = "without keys, a service that was started without any is open again to everybody on its machine"
"""The consequence of retiring the last key."""

_BITS = 256
_MOST = 1000
_MOST_RETIRED = 100
_MOST_FORMS = 20
_OTHERS = 0o077
_MOST_SIGNING = 20  # A wrong token is compared with the signatures of all of them
_MOST_PASSWORDS = 100
_LONGEST_LIFETIME = 100 * 365 * 86_400.0
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}", re.ASCII)
_PART = r"[^/\\*\x00-\x1f\x7f-\x9f\ud800-\udfff]{1,255}"
_FORMS = re.compile(rf"{_PART}(/{_PART})?")

Scope = Literal["read"]  # The most that a key may do: `read` is what changes nothing
SCOPES: tuple[Scope, ...] = get_args(Scope)


class Key(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """An API key as its file has it. From the instant ``expires`` on it opens nothing; it stays until it is removed."""

    # With ``scopes`` it may do only that, and with ``forms``, which are ``APP`` or ``APP/FORM``, only with those. A
    # list that is there and empty is refused: taken for no list, it would open everything.
    #
    # Versions before keys that expire refuse a file with ``expires``, so it is left out where a key has none; so are
    # ``scopes`` and ``forms``.
    #
    # A slow digest, as for passwords, would make guessing slower; but 256 random bits cannot be guessed, and every
    # request would pay for it.
    name: Annotated[str, msgspec.Meta(pattern=rf"^{_NAME.pattern}\Z")]
    sha256: Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}\Z")]
    created: Instant
    expires: Instant | None = None
    scopes: Annotated[tuple[Scope, ...], msgspec.Meta(min_length=1)] = ()
    forms: Annotated[
        tuple[Annotated[str, msgspec.Meta(pattern=rf"^{_FORMS.pattern}\Z")], ...], msgspec.Meta(min_length=1)
    ] = ()

    @property
    def is_limited(self) -> bool:
        return bool(self.scopes or self.forms)

    @property
    def is_expired(self) -> bool:
        return self.expires is not None and self.expires <= next_after(None)


class SigningKey(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A key that signs access tokens: 64 hexadecimal digits, which ``repr`` does not show."""

    id: Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{8}\Z")]
    secret: Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}\Z")]
    created: Instant

    def __repr__(self) -> str:
        return f"SigningKey({self.id!r})"


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """All keys, of which those that sign are the oldest first."""

    # Versions before access tokens refuse a file with ``signing``, so it is left out where there are none. So are
    # ``passwords`` and ``sessions``, the secret of the pages' sessions, which versions before the pages refuse, and
    # ``retired``, the API keys that were retired last, each of which ``expires`` when it was.
    format: Literal[1]
    keys: tuple[Key, ...]
    signing: tuple[SigningKey, ...] = ()
    passwords: tuple[Password, ...] = ()
    sessions: Annotated[str, msgspec.Meta(pattern=r"^([0-9a-f]{64})?\Z")] = ""
    retired: tuple[Key, ...] = ()

    def __repr__(self) -> str:
        return "_File()"


_decode = msgspec.json.Decoder(_File).decode


def key_of(secret: str, keys: Iterable[Key]) -> Key | None:
    """Return the key that is ``secret`` and not expired. All are compared, each in constant time."""
    digest = _digest(secret)
    found = [key for key in keys if hmac.compare_digest(digest, key.sha256) and not key.is_expired]
    return found[-1] if found else None


def second_key_of(secret: str, keys: Iterable[Key], named: Collection[str], caller: str = "") -> str:
    """Return the name of a second key, with which revisions may be removed; the caller's own is not a second one."""
    found = key_of(secret, keys)
    if found is None or found.name not in named:
        raise ForbiddenError("the second key is not a key that the setting second_keys names")
    if found.name == caller:
        raise ForbiddenError(f"the second key must not be the key of the caller, {caller}")
    return found.name


def refusal_of(secret: str, keys: Iterable[Key], retired: Iterable[Key]) -> str:
    """Return why a secret opens nothing; who has one that was a key once is told its name and when it ended."""
    digest = _digest(secret)
    for end, every in (("expired", keys), ("was retired", retired)):
        for key in every:
            if hmac.compare_digest(digest, key.sha256) and key.expires is not None:
                return f"the API key {key.name} {end} on {key.expires[:10]}: ask an administrator for another one"
    return "the key that was sent is not, or no longer, a key of this service"


class Keys:
    """The keys of one file, as they are now; none where there is no file."""

    def __init__(self, path: str, *, tree: str) -> None:
        self._file: KeyFile[_File] = KeyFile(path, tree=tree, what="API keys", decode=_decoded, nothing=_File(1, ()))

    def read(self) -> tuple[Key, ...]:
        return self._file.read().keys

    def retired(self) -> tuple[Key, ...]:
        """Return the API keys that were retired last, each of which ``expires`` when it was."""
        return self._file.read().retired

    def next_expiry(self) -> Instant | None:
        return min((key.expires for key in self.read() if key.expires and not key.is_expired), default=None)

    def add(
        self, name: str, lifetime: float | None = None, scopes: Iterable[Scope] = (), forms: Iterable[str] = ()
    ) -> str:
        """Make a key, limited by ``scopes`` and ``forms``, and keep its digest; ``lifetime`` is in seconds."""
        require_name(name, "a key")
        limits = tuple(dict.fromkeys(scopes)), distinct_forms(forms)
        with self._file.changing() as known:
            if any(key.name == name for key in known.keys):
                raise ConflictError(f"there is a key {name} already: retire it first, or choose another name")
            if len(known.keys) >= _MOST:
                raise ConflictError(f"there are {_MOST} keys already")
            secret = secrets.token_hex(_BITS // 8)
            created = next_after(None)
            added = Key(name, _digest(secret), created, expires_after(created, lifetime), *limits)
            self._file.write(replace(known, keys=(*known.keys, added)))
        return secret

    def remove(self, name: str) -> None:
        with self._file.changing() as known:
            left = tuple(key for key in known.keys if key.name != name)
            gone = [replace(key, expires=next_after(None)) for key in known.keys if key.name == name]
            if not gone:
                raise NotFoundError(f"there is no key {name}")
            self._file.write(replace(known, keys=left, retired=(*known.retired, *gone)[-_MOST_RETIRED:]))

    def signing(self) -> tuple[SigningKey, ...]:
        """Return the keys that sign access tokens, oldest first; raises as ``KeyFile.read``."""
        return self._file.read().signing

    def signing_secrets(self) -> tuple[bytes, ...]:
        """Return the secrets of ``signing``, of which the last signs and all verify."""
        return tuple(bytes.fromhex(key.secret) for key in self.signing())

    def ensured_signing_secrets(self) -> tuple[bytes, ...]:
        """Return ``signing_secrets`` after making the first key if there is none; raises as ``add_signing``."""
        if not self.signing():
            self.add_signing(only_first=True)
        return self.signing_secrets()

    def add_signing(self, *, only_first: bool = False) -> str | None:
        """Make a key that signs access tokens from now on, and return its id; ``only_first`` if there is none yet."""
        with self._file.changing() as known:
            if only_first and known.signing:
                return None
            if len(known.signing) >= _MOST_SIGNING:
                raise ConflictError(f"there are {_MOST_SIGNING} signing keys already: remove one first")
            taken = {key.id for key in known.signing}
            free = next(each for each in iter(lambda: secrets.token_hex(4), "") if each not in taken)
            added = SigningKey(free, secrets.token_hex(_BITS // 8), next_after(None))
            self._file.write(replace(known, signing=(*known.signing, added)))
        return free

    def remove_signing(self, key_id: str) -> None:
        with self._file.changing() as known:
            if key_id not in {key.id for key in known.signing}:
                raise NotFoundError(f"there is no signing key {key_id}")
            self._file.write(replace(known, signing=tuple(key for key in known.signing if key.id != key_id)))

    def passwords(self) -> tuple[Password, ...]:
        return self._file.read().passwords

    def set_password(self, name: str, text: str) -> None:
        """Let an administrator log in with a password; another one of the name is replaced."""
        require_name(name, "an administrator")
        if len(text) < SHORTEST_PASSWORD:
            raise BadRequestError(f"a password has at least {SHORTEST_PASSWORD} characters")
        if len(_bytes(text)) > LONGEST_PASSWORD_BYTES:
            raise BadRequestError(f"a password has at most {LONGEST_PASSWORD_BYTES} bytes")
        salt = secrets.token_bytes(_SALT)
        made = Password(name, salt.hex(), _password_digest(text, salt), next_after(None))
        with self._file.changing() as known:
            others = tuple(each for each in known.passwords if each.name != name)
            if len(others) >= _MOST_PASSWORDS:
                raise ConflictError(f"there are {_MOST_PASSWORDS} passwords already")
            # The service need not be able to write the file, so the secret of sessions is made here, too.
            own = known.sessions or secrets.token_hex(_BITS // 8)
            self._file.write(replace(known, passwords=(*others, made), sessions=own))

    def remove_password(self, name: str) -> None:
        with self._file.changing() as known:
            if name not in {each.name for each in known.passwords}:
                raise NotFoundError(f"{name} has no password")
            self._file.write(replace(known, passwords=tuple(each for each in known.passwords if each.name != name)))

    def session_secret(self) -> bytes:
        """Return the secret that signs sessions, empty before the first login; raises as ``KeyFile.read``."""
        return bytes.fromhex(self._file.read().sessions)

    def ensured_session_secret(self) -> bytes:
        if not self.session_secret():
            with self._file.changing() as known:
                if not known.sessions:
                    self._file.write(replace(known, sessions=secrets.token_hex(_BITS // 8)))
        return self.session_secret()


def limited_administrators(keys: Iterable[Key], named: Collection[str]) -> str | None:
    found = sorted(key.name for key in keys if key.name in named and key.is_limited)
    effect = "they open no pages, and stay within their limits"
    return f"the setting administrators names limited API keys: {', '.join(found)}; {effect}" if found else None


SOON = timedelta(days=30)  # The time before its end in which a key is warned of


def warnings_of(keys: Keys, administrators: Collection[str], issuers: Collection[str]) -> list[str]:
    """Return warnings of API keys that expire soon, and of names in these settings that are not those of whole keys."""
    there, soon = keys.read(), from_datetime(to_datetime(next_after(None)) + SOON)
    limited, known = limited_administrators(there, administrators), {TRUSTED, *(key.name for key in there)}
    named = (("administrators", administrators), ("token_issuers", issuers))
    unknown = [(setting, ", ".join(sorted(set(names) - known))) for setting, names in named]
    found = [f"the setting {setting} names API keys that do not exist: {names}" for setting, names in unknown if names]
    found += [
        f"the API key {key.name} {'expired' if key.is_expired else 'expires'} on {key.expires[:10]}"
        for key in there
        if key.expires is not None and key.expires < soon
    ]
    return [limited, *found] if limited else found


def distinct_forms(forms: Iterable[str]) -> tuple[str, ...]:
    found = tuple(dict.fromkeys(forms))
    for each in found:
        if not _FORMS.fullmatch(each):
            raise BadRequestError(f"{each[:LONGEST_SHOWN]!r} is not APP or APP/FORM: a key is limited by whole names")
    if len(found) > _MOST_FORMS:
        raise BadRequestError(f"a key is limited to at most {_MOST_FORMS} forms or applications")
    return found


def expires_after(created: Instant, lifetime: float | None) -> Instant | None:
    """Return the instant at which a key expires; ``None`` without a lifetime, which is in seconds."""
    if lifetime is None:
        return None
    if not 0 < lifetime <= _LONGEST_LIFETIME:
        raise BadRequestError("a key lasts longer than no time, and at most a century")
    return from_datetime(to_datetime(created) + timedelta(seconds=lifetime))


def require_name(name: str, owner: str) -> None:
    """Make sure that a key, or whatever ``owner`` says, can have a name."""
    if not _NAME.fullmatch(name) or name == TRUSTED:
        raise BadRequestError(f"{name!r} cannot be the name of {owner}: 1 to 64 letters, digits or ._@-")


def _decoded(data: bytes, status: os.stat_result) -> _File:
    found = _decode(data)
    known = dict[str, Key]()
    for key in found.keys:
        first = known.setdefault(key.sha256, key)
        if first is not key:  # which of them a caller is would decide what the key may do
            raise ValueError(f"the keys {first.name} and {key.name} have the same digest: remove one from the file")
    if (found.signing or found.passwords or found.sessions) and stat.S_IMODE(status.st_mode) & _OTHERS:
        what = "the keys that sign access tokens" if found.signing else "the passwords of administrators"
        raise ValueError(f"others than their user may read {what}: chmod 600")
    return found


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
