"""Whether a stored attachment is an encrypted file of its own place; no key is needed to see that."""

from __future__ import annotations

from persistence.crypto import frames
from persistence.model.addresses import Address, DocumentAddress


def is_encrypted_for(address: Address, path: str) -> bool:
    """Whether the file at a path is one that the service has encrypted for an address. Raises ``OSError``."""
    if not isinstance(address, DocumentAddress) or address.is_main:
        return False
    with open(path, "rb") as file:
        header = frames.read_header(file)
    return header is not None and header.address == address
