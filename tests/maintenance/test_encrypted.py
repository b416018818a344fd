"""``persistence check`` verifies the headers of encrypted attachments without any key."""

from __future__ import annotations

import pytest

from persistence.crypto import frames
from persistence.crypto.encryption_keys import KeyRing
from persistence.model.addresses import Collection, DocumentAddress, Form
from tests.maintenance.workshop import ATTACHMENT, Workshop
from tests.sidecars import resealed

RING = KeyRing("a", {"a": bytes(32)})


def encrypted(path: str) -> bytes:
    """Return a file encrypted for a place in the tree."""
    app, form, collection, document, name = path.split("/")
    address = DocumentAddress(Form(app, form), Collection(collection), document, name)
    return b"".join(frames.encrypted([b"content"], address, RING))


def test_an_attachment_that_is_said_to_be_encrypted_and_is_not_is_damage(workshop: Workshop) -> None:
    resealed(workshop.file(f"{ATTACHMENT}.json"), encrypted=True)
    checked = workshop.check()
    assert (checked.status, checked.kinds) == (4, [("encryption-wrong", ATTACHMENT)])


@pytest.mark.parametrize("is_own", [True, False])
def test_an_encrypted_file_that_is_taken_in_stays_encrypted_in_its_own_place(
    workshop: Workshop, *, is_own: bool
) -> None:
    workshop.file(ATTACHMENT).unlink()
    workshop.file(ATTACHMENT).write_bytes(encrypted(ATTACHMENT if is_own else f"{ATTACHMENT}x"))
    workshop.check("--adopt", ATTACHMENT)
    assert workshop.sidecar(ATTACHMENT).get("encrypted", False) is is_own
    assert workshop.check("--deep").status == 0
