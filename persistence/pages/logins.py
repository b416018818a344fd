"""Failed logins and ended sessions, kept in one small file so that all workers know them."""

from __future__ import annotations

import time

import msgspec

from persistence.errors import PersistenceError
from persistence.limits import ENDED_SESSIONS, FAILED_LOGINS, FAILED_LOGINS_OF_ALL, LOGIN_WINDOW, LONGEST_SESSION
from persistence.storage.key_files import KeyFile


class TooManyLoginsError(PersistenceError):
    """Logins failed too often within a minute; the next one is looked at in ``seconds``."""

    def __init__(self, seconds: int) -> None:
        super().__init__(f"too many logins have failed; try again in {seconds} seconds")
        self.seconds = seconds


class _Failed(msgspec.Struct, frozen=True, array_like=True):
    at: float
    peer: str


class _Ended(msgspec.Struct, frozen=True, array_like=True):
    id: str
    at: float


class _Logins(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    failed: tuple[_Failed, ...] = ()
    ended: tuple[_Ended, ...] = ()


_decode = msgspec.json.Decoder(_Logins).decode


class LoginRecord:
    """The file. Methods raise ``DiskError``, ``DamagedError`` and ``BusyError`` as ``KeyFile``."""

    def __init__(self, path: str, *, tree: str) -> None:
        self._file: KeyFile[_Logins] = KeyFile(
            path, tree=tree, what="failed logins", decode=lambda data, _: _decode(data), nothing=_Logins()
        )

    def begin(self, peer: str) -> None:
        """Count a login as failed before it is looked at: many at once must not all be tried."""
        with self._file.changing() as known:
            now = time.time()  # read under the lock: an earlier login is not in the future
            recent = [each for each in known.failed if now - each.at < LOGIN_WINDOW]
            failed = tuple(_Failed(min(each.at, now), each.peer) for each in recent)
            own = [each.at for each in failed if each.peer == peer]
            for times, most in ((own, FAILED_LOGINS), ([each.at for each in failed], FAILED_LOGINS_OF_ALL)):
                if len(times) >= most:
                    if failed != known.failed:
                        self._file.write(msgspec.structs.replace(known, failed=failed))
                    raise TooManyLoginsError(max(1, round(LOGIN_WINDOW - (now - times[-most]))))
            self._file.write(msgspec.structs.replace(known, failed=(*failed, _Failed(now, peer))))

    def succeeded(self, peer: str) -> None:
        """Forget the failed logins of a peer that has logged in."""
        with self._file.changing() as known:
            failed = tuple(each for each in known.failed if each.peer != peer)
            self._file.write(msgspec.structs.replace(known, failed=failed))

    def end(self, session: str) -> None:
        """Remember that a session was ended: its cookie may still be somewhere."""
        now = time.time()
        with self._file.changing() as known:
            ended = tuple(each for each in known.ended if now - each.at < LONGEST_SESSION)
            kept = (*ended, _Ended(session, now))[-ENDED_SESSIONS:]
            self._file.write(msgspec.structs.replace(known, ended=kept))

    def has_ended(self, session: str) -> bool:
        return any(each.id == session for each in self._file.read().ended)
