"""Receiving a body: streamed to disk, counted and hashed, and checked on the way if it must be XML."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from persistence.errors import disk_errors
from persistence.forms.wellformed import WellFormedness
from persistence.model.addresses import Address
from persistence.store.store import Store
from persistence.store.uploads import Upload


@contextmanager
def receiving(store: Store, address: Address, chunks: Iterable[bytes]) -> Iterator[Upload]:
    """The whole body as an upload, for the length of a block; what is not committed by then is gone.

    Raises:
        MalformedXmlError: the address holds XML and the body is not.
        DiskError: the disk refused.
        PersistenceError: whatever ``chunks`` raises about the client.
    """
    doing = f"receiving {address}"
    check = WellFormedness() if address.is_main else None
    with store.upload() as upload:
        for chunk in chunks:
            with disk_errors(doing):
                upload.write(chunk)
            if check is not None:
                check.feed(chunk)
        if check is not None:
            check.close()
        with disk_errors(doing):
            upload.flush()
        yield upload
