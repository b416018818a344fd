"""The sidecars of imported revisions: facts of the source, and other facts as after a PUT."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from persistence.definitions.catalog import Definition
from persistence.model.addresses import DocumentAddress
from persistence.model.instants import next_after
from persistence.model.sidecar import SCHEMA, Sidecar, described, tombstone
from persistence.model.users import ANONYMOUS, User
from persistence.services.codec import EncodedContent
from persistence.services.imports.revisions import ImportedRevision
from persistence.services.rules import Put, Received, living, next_revision
from persistence.storage.stored_revision import StoredRevision
from persistence.storage.uploads import Upload


@dataclass(frozen=True, slots=True)
class ReceivedRevision:
    """A revision that was received and checked; ``encoded`` describes its encryption."""

    revision: ImportedRevision
    version: int
    upload: Upload | None = None
    content: Received | None = None
    encoded: EncodedContent | None = None
    definition: Definition | None = None


def stored_sidecar(received: ReceivedRevision, content: Received, over: StoredRevision | None) -> Sidecar:
    facts = received.revision.facts
    if facts.sidecar is None:
        return _composed_sidecar(received, content, over)
    own, is_main = described(facts.sidecar), received.revision.address.is_main
    is_edit = own.adopted and own.metadata is None
    sidecar = msgspec.structs.replace(
        own,
        schema=SCHEMA,
        version=received.version,
        size=content.size,
        digest=content.digest,
        metadata=None if is_edit else content.metadata,
        encrypted=None if own.encrypted is False and not content.is_plain else own.encrypted,
    )
    if not facts.is_decrypted and content.digest == own.digest:
        return sidecar
    is_plain = False if is_main and content.is_plain else None
    return msgspec.structs.replace(sidecar, id=content.id, tag=own.etag, encrypted=is_plain, sealed_hash=None)


def _composed_sidecar(received: ReceivedRevision, content: Received, over: StoredRevision | None) -> Sidecar:
    """Return a sidecar with the facts of the source; other facts are as after a PUT."""
    facts = received.revision.facts
    is_document = isinstance(received.revision.address, DocumentAddress)
    owner = User(name=facts.creator, group=facts.group, organization=facts.organization) if is_document else ANONYMOUS
    put = Put(user=User(name=facts.modifier), valid=facts.valid, stage=facts.stage, source=facts.source)
    sidecar = next_revision(put, content, received.version, over=over, owner=owner)
    modified = facts.modified or sidecar.modified
    is_new = living(over) is None
    created = facts.created or (modified if is_new else sidecar.created)
    if is_document and facts.creator is not None:
        sidecar = msgspec.structs.replace(
            sidecar, creator=owner.name, group=owner.group, organization=owner.organization
        )
    return msgspec.structs.replace(sidecar, modified=modified, created=min(created, modified), tag=facts.tag)


def deleted_sidecar(received: ReceivedRevision, over: StoredRevision | None) -> Sidecar:
    """Return the tombstone of a revision, which keeps the metadata of a definition."""
    facts = received.revision.facts
    if facts.sidecar is not None:
        metadata = facts.sidecar.metadata if over is None else over.sidecar.metadata
        return msgspec.structs.replace(facts.sidecar, schema=SCHEMA, version=received.version, metadata=metadata)
    modified = facts.modified or next_after(None if over is None else over.latest)
    if over is not None:
        return tombstone(over.sidecar, modified=modified, modifier=facts.modifier)
    nothing = Received("0" * 40, 0, "", "")
    before = next_revision(
        Put(), nothing, received.version, over=None, owner=User(name=facts.creator, group=facts.group)
    )
    before = msgspec.structs.replace(before, created=min(facts.created or modified, modified))
    return tombstone(before, modified=modified, modifier=facts.modifier)
