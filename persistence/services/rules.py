"""The values of requests and answers, the rules about them, and who may do what: values in, a decision or an error out.

A request is parsed once at the edge, without its body, and trusted below. An answer becomes status and headers there.

An access token is ``<payload>.<signature>``, both in URL-safe Base64 without padding (spec crud 6.6). The payload has
no secrets: two times in seconds since 1970 and the names of operations. Application, form, version and document are
part of the key that signs (HMAC-SHA-256), so that a token for another document has a wrong signature.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

import msgspec
from itsdangerous import BadData, Signer
from itsdangerous.encoding import base64_decode, base64_encode

from persistence import errors
from persistence.catalog import Definition
from persistence.dialect import Dialect
from persistence.limits import CHUNK, LONGEST_ACCESS_TOKEN
from persistence.model import permissions, versions
from persistence.model.addresses import Address, Collection, DocumentAddress, Form, TokenSubject
from persistence.model.permissions import (
    CREATE,
    DELETE,
    EVERYBODY,
    FINDING,
    NOBODY,
    READ,
    UPDATE,
    Bearer,
    Operations,
    Permissions,
    User,
)
from persistence.model.queries import DraftFilter, Drafts, Query, Scope, VisibleOwners
from persistence.model.sidecar import SCHEMA, ClientHash, Sidecar, fresh_id, json_tag, plain_tag, restoring, tombstone
from persistence.model.texts import Instant, next_after, reached_after, to_datetime
from persistence.properties.properties import FormProperties
from persistence.providers.router import Route, Router
from persistence.storage.stored_revision import UNKNOWN_SIZE, StoredRevision


@dataclass(frozen=True, slots=True)
class Origin:
    """The creation and the owner of a resource, from the headers of a proxy (spec crud 11)."""

    # Without ``created`` it is being created now.
    created: Instant | None
    owner: User


@dataclass(frozen=True, slots=True)
class Get(Bearer):
    """A GET, or with ``content`` false a HEAD."""

    # ``instant`` selects one revision (spec crud 4.8), or ``as_of`` the one that was current at an instant. ``decrypt``
    # asks for the plain content of an attachment (spec forms 4.3).
    version: versions.VersionRequest = versions.ABSENT
    instant: Instant | None = None
    as_of: Instant | None = None
    content: bool = True
    data_format: str | None = None
    decrypt: bool = False


@dataclass(frozen=True, slots=True)
class Put(Bearer):
    """A PUT; the fields from ``content_type`` on are kept with the revision (spec crud 4.4)."""

    # ``holder`` is the path of the element that holds an attachment (spec forms 4.2). Only a proxy sends ``origin`` and
    # ``is_singleton``. ``restores`` is the sidecar of the older revision that is brought back, with its ``origin``.
    version: versions.VersionRequest = versions.ABSENT
    precondition: versions.Precondition = versions.NO_PRECONDITION
    data_format: str | None = None
    content_type: str | None = None
    valid: bool | None = None
    stage: str | None = None
    source: str | None = None
    client_hash: ClientHash | None = None
    flat_view: bool = False
    holder: str | None = None
    origin: Origin | None = None
    is_singleton: bool = False
    restores: Sidecar | None = None

    @classmethod
    def of(cls, sidecar: Sidecar, user: User) -> Put:
        """Return the PUT that would store a revision again, by a user."""
        put = cls(user, version=versions.VersionRequest(number=sidecar.version), content_type=sidecar.content_type)
        plain = None if sidecar.sealed_hash is not None else sidecar.client_hash
        return replace(put, valid=sidecar.valid, stage=sidecar.stage, source=sidecar.source, client_hash=plain)


@dataclass(frozen=True, slots=True)
class Delete(Bearer):
    """A DELETE of one resource, or of all data of a form. Only a proxy sends ``origin``."""

    version: versions.VersionRequest = versions.ABSENT
    precondition: versions.Precondition = versions.NO_PRECONDITION
    origin: Origin | None = None


Decryption = Callable[[Iterable[bytes]], Iterator[bytes]]  # Turns stored form data into an answer


@dataclass(frozen=True, slots=True)
class Read:
    """A revision to send; ``operations`` is ``None`` for definitions, which have none (spec crud 4.2)."""

    # ``decryption`` is ``None`` where no value is encrypted. With ``is_decrypted`` an encrypted file is sent plain, and
    # with ``is_json`` data or the outline of a definition as JSON.
    address: Address
    found: StoredRevision
    operations: Operations | None
    decryption: Decryption | None = None
    is_decrypted: bool = False
    is_json: bool = False

    @property
    def etag(self) -> str:
        """The entity tag of the sent bytes; of what they are made from, it is another one (RFC 9110 8.8.3)."""
        if self.is_json:
            return json_tag(self.found.etag)
        return plain_tag(self.found.etag) if self.is_decrypted else self.found.etag

    @property
    def size(self) -> int | None:
        """The bytes of the content; ``None`` where another service does not say how many they are."""
        return None if self.found.size == UNKNOWN_SIZE else self.found.size

    def pieces(self) -> Iterator[bytes]:
        """Yield the open content as it is stored, and close it."""
        with self.found.opened as file, errors.disk_errors(f"reading {self.address}"):
            yield from iter(partial(file.read, CHUNK), b"")

    @property
    def has_exact_date(self) -> bool:
        """Return whether the date identifies the content: not after an edit by hand, nor for two forms of a file."""
        is_of_two = self.is_decrypted or (self.found.sidecar.encrypted and not self.address.is_main)
        return not (is_of_two or self.found.is_edited)


@dataclass(frozen=True, slots=True)
class Written:
    """A stored revision; ``created`` distinguishes 201 from 204."""

    address: Address
    sidecar: Sidecar
    created: bool
    operations: Operations | None


@dataclass(frozen=True, slots=True)
class Cleared:
    """The number of deleted documents, and of those that the user may not delete, with the reason for the first."""

    deleted: int
    refused: int
    refusal: str = ""


@dataclass(frozen=True, slots=True)
class Removed:
    """A resource that is gone; without a ``tombstone`` it left no trace (drafts)."""

    version: int
    tombstone: Sidecar | None
    operations: Operations | None


RAW = "raw"


def living(found: StoredRevision | None) -> StoredRevision | None:
    return None if found is None or found.sidecar.deleted else found


def must_live(found: StoredRevision | None, address: Address) -> StoredRevision:
    """The revision, which must be there (spec crud 4.1)."""
    if found is None:
        raise errors.NotFoundError(f"{address} does not exist")
    if found.sidecar.deleted:
        if not address.keeps_history:
            raise errors.NotFoundError(f"{address} does not exist")
        raise errors.DeletedError(f"{address} was deleted")
    return found


def check_precondition(
    precondition: versions.Precondition,
    address: Address,
    *stored: StoredRevision | None,
    may_read: Callable[[], bool] = lambda: True,
) -> None:
    """Compare the precondition of a write with the stored revision (spec crud 4.6)."""
    # For an attachment, whose document comes second, ``If-Match`` may mean either (spec crud 4.2), or the tag of its
    # decrypted content; for data, the tag of its JSON. Only where ``may_read`` returns true, the error says who has
    # saved, when, and under which tag.
    if precondition is versions.NO_PRECONDITION:
        return
    there = [found for found in stored if found is not None]
    reason = _reason(precondition, address, stored[0], [tag for found in there for tag in _tags(found)])
    if reason is not None and there and may_read():
        last, sidecar = there[0], there[0].sidecar
        by = "" if sidecar.modifier is None else f" by {sidecar.modifier}"
        edited = ", and edited by hand since" if last.is_edited else ""
        reason = f'current ETag "{last.etag}", saved at {sidecar.modified}{by}{edited}: {reason}'
    if reason is not None:
        raise errors.PreconditionError(reason)


def _reason(
    precondition: versions.Precondition, address: Address, own: StoredRevision | None, tags: Sequence[str]
) -> str | None:
    excluded, expected, since = precondition.excluded, precondition.expected, precondition.unmodified_since
    if expected is not None:
        if own is None and (not tags or expected.tags is None):
            missing = f"nothing is stored that If-Match could name; it may have been deleted: {address}"
            return missing if precondition.must_exist else None
        if not expected.match(*tags) and any(tag.startswith("W/") for tag in expected.tags or ()):
            return (
                "a weak tag (W/) never matches in If-Match (RFC 9110 13.1.1), and a proxy may have weakened it:"
                f" {address}"
            )
        if not expected.match(*tags):
            return f"If-Match does not name the current ETag, so somebody has saved since: {address}"
    elif (
        since is not None
        and own is not None
        and (own.is_edited or to_datetime(own.sidecar.modified).replace(microsecond=0) > since)
    ):
        return f"somebody has saved after the time of If-Unmodified-Since: {address}"
    if excluded is not None and own is not None and excluded.match(*_tags(own)):
        is_any = excluded.tags is None
        return f"{address} already exists" + (" (If-None-Match: *)" if is_any else ", as If-None-Match names it")
    return None


def _tags(found: StoredRevision) -> tuple[str, ...]:
    return found.etag, plain_tag(found.etag), json_tag(found.etag)


@dataclass(frozen=True, slots=True)
class Received:
    """The content received for a PUT; ``content_type`` is the type to keep."""

    # ``metadata`` is that of a form definition, which with ``has_marks`` may mark controls. Form data without encrypted
    # values ``is_plain``.
    id: str
    size: int
    digest: str
    content_type: str
    metadata: versions.FormMetadata | None = None
    is_plain: bool = False
    has_marks: bool = False


def next_revision(put: Put, received: Received, version: int, *, over: StoredRevision | None, owner: User) -> Sidecar:
    """The sidecar of an accepted PUT."""
    # Over nothing, or over a tombstone, it is a creation, and ``owner`` becomes the owner (spec crud 4.4). Headers of a
    # proxy take precedence. The stage is never inherited.
    modified = next_after(over.latest if over is not None else None)
    origin = put.origin
    if origin is None:
        there = living(over)
        origin = Origin(None, owner) if there is None else Origin(there.sidecar.created, there.sidecar.facts.owner)
    created = origin.created or modified
    if put.origin is not None and created > modified:
        raise errors.BadRequestError(f"a resource cannot have been created at {created}, which is in the future")
    sidecar = Sidecar(
        schema=SCHEMA,
        id=received.id,
        version=version,
        modified=modified,
        created=created,
        size=received.size,
        digest=received.digest,
        content_type=received.content_type,
        valid=put.valid,
        stage=put.stage,
        creator=origin.owner.name,
        group=origin.owner.group,
        organization=origin.owner.organization,
        modifier=put.user.name,
        source=put.source,
        client_hash=put.client_hash,
        metadata=received.metadata,
        encrypted=False if received.is_plain else None,
    )
    return sidecar if put.restores is None else restoring(sidecar, put.restores)


def tombstone_of(found: StoredRevision, user: User) -> Sidecar:
    """The tombstone that a DELETE by a user leaves of a revision."""
    # It is not ahead of the clock, so that an attachment that is saved after it has no earlier instant: only then a
    # purge of the tombstone keeps the document.
    return tombstone(found.sidecar, modified=reached_after(found.latest), modifier=user.name)


def tombstone_over(found: StoredRevision | None, version: int, delete: Delete) -> Sidecar:
    """The tombstone that a DELETE leaves, even if nothing is stored (spec crud 11)."""
    if found is not None:
        return tombstone_of(found, delete.user)
    modified = next_after(None)
    origin = delete.origin or Origin(None, delete.user)
    return Sidecar(
        schema=SCHEMA,
        id=fresh_id(),
        version=version,
        modified=modified,
        created=min(origin.created or modified, modified),
        size=0,
        creator=origin.owner.name,
        group=origin.owner.group,
        modifier=delete.user.name,
        deleted=True,
    )


_SHAPE = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]{43}", re.ASCII)


class TokenGrant(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The contents of a token: when it was issued, from when it has expired, both in seconds, and the operations."""

    issued: int
    expires: int
    operations: tuple[str, ...]


def sign_token(grant: TokenGrant, subject: TokenSubject, keys: Sequence[bytes]) -> str:
    """Return a token; the last of ``keys`` signs, of which there must be one."""
    return _token_signer(subject, keys).sign(base64_encode(msgspec.json.encode(grant))).decode("ascii")


def verify_token(token: str, subject: TokenSubject, keys: Sequence[bytes]) -> TokenGrant:
    """Return what a token grants on a document, signed by any of ``keys``; the caller compares times."""
    if not keys or len(token) > LONGEST_ACCESS_TOKEN or _SHAPE.fullmatch(token) is None:
        raise _token_refused()
    try:
        payload = base64_decode(_token_signer(subject, keys).unsign(token))
        signature = token.rpartition(".")[2].encode("ascii")
        # The last of 43 digits has two bits too many, which decoding ignores: four texts would be one signature.
        if base64_encode(base64_decode(signature)) != signature:
            raise _token_refused()
        return msgspec.json.decode(payload, type=TokenGrant)
    except (BadData, msgspec.DecodeError) as error:
        raise _token_refused() from error


def _token_refused() -> errors.ForbiddenError:
    """Return the same error for every reason, which would only help to guess tokens."""
    return errors.ForbiddenError("the access token is not valid here, or not any more")


def _token_signer(subject: TokenSubject, keys: Sequence[bytes]) -> Signer:
    form = subject.form
    salt = msgspec.json.encode(["access-token", form.app, form.name, subject.version, subject.document])
    return Signer(list(keys), salt=salt, key_derivation="hmac", digest_method=hashlib.sha256)


GRANTABLE = (READ, UPDATE, DELETE)  # The operations that a token can grant: they are about one document that exists


# The operations of a token count only as far as a permission for anyone-with-token has them.


@dataclass(frozen=True, slots=True)
class AccessTokens:
    """Issues and verifies tokens (spec crud 6.6)."""

    # ``keys`` returns the secrets that sign, the newest last; ``clock`` is in seconds.
    keys: Callable[[], Sequence[bytes]]
    clock: Callable[[], float] = time.time

    def issue(self, subject: TokenSubject, operations: Iterable[str], seconds: float, validity: int) -> str:
        """Return a token that expires in so many seconds; ``validity`` is the property, in minutes."""
        wanted = frozenset(operations)
        for name in sorted(wanted.difference(GRANTABLE)):
            raise errors.BadRequestError(f"a token cannot grant {name!r}, only {', '.join(GRANTABLE)}")
        if not wanted:
            raise errors.BadRequestError(f"a token needs operations: some of {', '.join(GRANTABLE)}")
        if not 0 < seconds <= validity * 60:
            allowed = f"are valid for at most {validity} minutes" if validity else "are not issued"
            raise errors.BadRequestError(
                f"access tokens of {subject.form} {allowed}: the property access-token.validity"
            )
        keys = self.keys()
        if not keys:
            raise errors.ConfigurationError(
                "there is no key that signs tokens: make one with persistence signing-key new"
            )
        now = int(self.clock())
        granted = tuple(name for name in GRANTABLE if name in wanted)
        return sign_token(TokenGrant(now, now + int(seconds), granted), subject, keys)

    def operations(self, token: str, subject: TokenSubject, validity: int) -> frozenset[str]:
        """Return the operations of a token for a document."""
        # It also expires ``validity`` minutes after it was issued: a property that was lowered counts at once. A token
        # from the future is refused, because it would outlive that.
        grant = verify_token(token, subject, self.keys())
        now = self.clock()
        if not grant.issued <= now < min(grant.expires, grant.issued + validity * 60):
            raise _token_refused()
        return frozenset(grant.operations).intersection(GRANTABLE)


@dataclass(frozen=True, slots=True)
class Issuing:
    """Issues tokens for documents that exist."""

    router: Router
    tokens: AccessTokens

    def issue(
        self, form: Form, document: str, asked: versions.VersionRequest, operations: Iterable[str], seconds: float
    ) -> str:
        """Return a token for a saved document in the version that it has."""
        address = DocumentAddress(form, Collection.DATA, document)
        route = self.router.of(form)
        number = versions.number_only(asked, "an access token")
        version = must_live(route.storage.read(address, content=False), address).sidecar.version
        versions.must_equal(number, version, address)
        subject = TokenSubject(form, version, document)
        return self.tokens.issue(subject, operations, seconds, route.properties.token_validity)


READING = (READ,)
PURGING = (DELETE,)  # The removal of a revision or attachment without a trace (spec crud 4.9)


def permissions_of(version: versions.PublishedVersion | Definition, configured: FormProperties) -> Permissions | None:
    """Return the permissions of a version: from its definition, else from the property (spec crud 6.3)."""
    if not configured.has_permissions:
        return None
    own = version.permissions
    return configured.permissions if own is None else own


@dataclass(frozen=True, slots=True)
class Subject:
    """The subject of a decision: a resource of a document, and the definition whose permissions hold for it."""

    # ``document`` is the sidecar of the living ``data.xml`` that decides, that of the saved document for a draft that
    # ``is_of_saved``. It is ``None`` where a document is being created.
    address: DocumentAddress
    document: Sidecar | None
    is_of_saved: bool
    definition: Definition
    configured: FormProperties


def subject_of(route: Route, address: DocumentAddress, document: Sidecar | None, version: int) -> Subject:
    """Return the facts that decide about a resource; ``version`` is for a document that is being created."""
    saved = route.storage.sidecar(address.main.moved(Collection.DATA)) if address.is_draft else None
    is_of_saved = saved is not None and not saved.deleted
    decides = saved if is_of_saved else document
    definition = route.catalog.of(address.form, version if decides is None else decides.version)
    return Subject(address, decides, is_of_saved, definition, route.properties)


@dataclass(frozen=True, slots=True)
class Access:
    """Decides about requests for documents, and returns all operations of the user on the document."""

    # A user who may save a document may write and discard its draft, no matter who began the draft. A wrong ``token``
    # is refused even if the user needs none (spec crud 6.6).
    dialect: Dialect
    tokens: AccessTokens

    def to_write(self, subject: Subject, caller: Bearer) -> Operations:
        """Decide about a PUT. A draft of a saved document needs the same operations as a save."""
        if subject.document is not None:
            return self.allow((UPDATE,), subject, caller)
        return self.allow((CREATE,) if subject.address.is_main else (CREATE, UPDATE), subject, caller)

    def to_delete(self, subject: Subject, caller: Bearer) -> Operations:
        if subject.is_of_saved:
            return self.allow((UPDATE, DELETE), subject, caller)
        return self.allow((DELETE,) if subject.address.is_main else (DELETE, UPDATE), subject, caller)

    def allow(self, any_of: tuple[str, ...], subject: Subject, caller: Bearer) -> Operations:
        defined, user = permissions_of(subject.definition, subject.configured), caller.user
        if defined is None:
            return permissions.UNRESTRICTED
        if subject.document is None:
            allowed = permissions.on_creation(defined, user)
        else:
            owner = subject.document.facts.owner
            allowed = permissions.on_data(defined, user, owner)
            if caller.token is not None:
                bound = TokenSubject(subject.address.form, subject.document.version, subject.address.document)
                granted = self.tokens.operations(caller.token, bound, subject.configured.token_validity)
                added = permissions.by_token(defined, user, owner, granted)
                allowed = permissions.in_order(added.union(allowed.allowed or ()))
        if not allowed.allows(*any_of):
            reason = ""
            missing = permissions.missing_headers(defined, user, any_of)
            if missing and user.is_nameless:
                reason = f": roles and groups count only together with a user name ({self.dialect.header('Username')})"
            elif missing:
                reason = f": the request was sent without {' or '.join(map(self.dialect.header, missing))}"
            raise errors.ForbiddenError(f"you may not {' or '.join(any_of)} {subject.address}{reason}")
        return allowed


@dataclass(frozen=True, slots=True)
class AdministratorAccess(Access):
    """Allows everything: a command's user may read and write the files."""

    tokens: AccessTokens = AccessTokens(list)

    def allow(self, any_of: tuple[str, ...], subject: Subject, caller: Bearer) -> Operations:  # noqa: ARG002 - inherited
        return permissions.UNRESTRICTED


@contextmanager
def only_document(route: Route, definition: Definition, user: User) -> Iterator[None]:
    """Let the creation of a user's only document of a form go on in the block, and of no other meanwhile."""
    # The documents count that the user would find (spec crud 4.12).
    form, version = definition.form, definition.version
    owners_of = permissions.owners_with if route.properties.restricts_searches else permissions.searchable_owners
    with route.data.storage.creating(form):
        owners = owners_of(permissions_of(definition, route.properties), user, FINDING)
        seen = frozenset({owners} - {EVERYBODY})
        scope = Scope((version,), DraftFilter(Drafts.EXCLUDE), VisibleOwners(lambda _: seen))
        try:
            exists = owners != NOBODY and route.data.index.search(form, scope, Query(size=1)).total > 0
        except (errors.BusyError, errors.DiskError):  # no PUT depends on an index
            names = route.data.storage.documents(form)
            saved = (route.storage.sidecar(DocumentAddress(form, Collection.DATA, name)) for name in names)
            exists = any(
                sidecar is not None
                and not sidecar.deleted
                and sidecar.version == version
                and owners.includes(sidecar.facts.owner)
                for sidecar in saved
            )
        if exists:
            raise errors.ConflictError(f"{form} version {version} has only one document, and it exists already")
        yield


def is_singleton(published: versions.PublishedVersion | None, configured: FormProperties) -> bool:
    own = published.metadata.singleton if published is not None else None
    return configured.is_singleton if own is None else own
