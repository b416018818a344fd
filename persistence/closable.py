"""Ownership of open resources: threads, descriptors, connections and processes have one owner each, which closes them.

The owner is a ``Closable``. The code that opens one closes it, with a ``with`` block or an ``ExitStack``, in the
opposite order. Closing twice does nothing the second time. A method that would have to open something again after
``close`` raises ``BusyError``: the service is stopping, and the client may come back.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Self

from persistence.errors import BusyError


class Closable(ABC):
    """An owner of open resources. It is closed at the end of a ``with`` block, or by ``close``."""

    __slots__ = ()

    @abstractmethod
    def close(self) -> None:
        """Close everything this object has opened; raise nothing, and do nothing the second time."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def closed(what: str) -> BusyError:
    """Return the error for the use of something that was closed."""
    return BusyError(f"{what} is closed: the service is stopping")
