"""Access: tokens, the effective permissions, decisions about documents, and the scope of a search (spec crud 6).

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
from functools import cache

import msgspec
from itsdangerous import BadData, Signer
from itsdangerous.encoding import base64_decode, base64_encode

from persistence.catalog import Catalog, Definition
from persistence.dialect import Dialect
from persistence.errors import (
    BadRequestError,
    BusyError,
    ConfigurationError,
    ConflictError,
    DamagedError,
    DiskError,
    ForbiddenError,
)
from persistence.forms.controls import DESIGNER_KEYS
from persistence.limits import LONGEST_ACCESS_TOKEN
from persistence.model import permissions, versions
from persistence.model.addresses import DATA_XML, DESIGNER_VERSION, Collection, DocumentAddress, Form, TokenSubject
from persistence.model.permissions import (
    DELETE,
    EVERYBODY,
    FINDING,
    NOBODY,
    READ,
    UPDATE,
    Operations,
    OwnerSets,
    Permissions,
    User,
)
from persistence.model.queries import DraftFilter, Drafts, Hit, Query, Scope, VisibleOwners
from persistence.model.sidecar import Sidecar
from persistence.model.versions import PublishedVersion, Searched, VersionRequest, only_first
from persistence.properties.properties import FormProperties
from persistence.providers.router import Route, Router
from persistence.services.rules import must_live

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


def _token_refused() -> ForbiddenError:
    """Return the same error for every reason, which would only help to guess tokens."""
    return ForbiddenError("the access token is not valid here, or not any more")


def _token_signer(subject: TokenSubject, keys: Sequence[bytes]) -> Signer:
    form = subject.form
    salt = msgspec.json.encode(["access-token", form.app, form.name, subject.version, subject.document])
    return Signer(list(keys), salt=salt, key_derivation="hmac", digest_method=hashlib.sha256)


GRANTABLE = (READ, UPDATE, DELETE)  # The operations that a token can grant: they are about one document that exists


# The operations of a token count only as far as a permission for anyone-with-token has them.


@dataclass(frozen=True, slots=True)
class AccessTokens:
    """Issues and verifies tokens (spec crud 6.6).

    ``keys`` returns the secrets that sign, the newest last; ``clock`` is in seconds.
    """

    keys: Callable[[], Sequence[bytes]]
    clock: Callable[[], float] = time.time

    def issue(self, subject: TokenSubject, operations: Iterable[str], seconds: float, validity: int) -> str:
        """Return a token that expires in so many seconds; ``validity`` is the property, in minutes."""
        wanted = frozenset(operations)
        for name in sorted(wanted.difference(GRANTABLE)):
            raise BadRequestError(f"a token cannot grant {name!r}, only {', '.join(GRANTABLE)}")
        if not wanted:
            raise BadRequestError(f"a token needs operations: some of {', '.join(GRANTABLE)}")
        if not 0 < seconds <= validity * 60:
            allowed = f"are valid for at most {validity} minutes" if validity else "are not issued"
            raise BadRequestError(f"access tokens of {subject.form} {allowed}: the property access-token.validity")
        keys = self.keys()
        if not keys:
            raise ConfigurationError("there is no key that signs tokens: make one with persistence signing-key new")
        now = int(self.clock())
        granted = tuple(name for name in GRANTABLE if name in wanted)
        return sign_token(TokenGrant(now, now + int(seconds), granted), subject, keys)

    def operations(self, token: str, subject: TokenSubject, validity: int) -> frozenset[str]:
        """Return the operations of a token for a document.

        It also expires ``validity`` minutes after it was issued: a property that was lowered counts at once. A token
        from the future is refused, because it would outlive that.
        """
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

    def issue(self, form: Form, document: str, asked: VersionRequest, operations: Iterable[str], seconds: float) -> str:
        """Return a token for a saved document in the version that it has."""
        address = DocumentAddress(form, Collection.DATA, document, DATA_XML)
        route = self.router.of(form)
        number = versions.number_only(asked, "an access token")
        version = must_live(route.storage.read(address, content=False), address).sidecar.version
        versions.must_equal(number, version, address)
        subject = TokenSubject(form, version, document)
        return self.tokens.issue(subject, operations, seconds, route.properties.token_validity)


READING = (permissions.READ,)
PURGING = (permissions.DELETE,)  # The removal of a revision or attachment without a trace (spec crud 4.9)
_CREATE = (permissions.CREATE,)
_CREATE_ATTACHMENT = (permissions.CREATE, permissions.UPDATE)
_UPDATE = (permissions.UPDATE,)
_DELETE = (permissions.DELETE,)
_DELETE_ATTACHMENT = (permissions.DELETE, permissions.UPDATE)
_DISCARD = (permissions.UPDATE, permissions.DELETE)


# A search finds the documents that a GET by the same user shows, by the permissions of each version, where the property
# restricts searches; otherwise those of spec search 1.8, by the permissions of one version.


def permissions_of(version: PublishedVersion | Definition, configured: FormProperties) -> Permissions | None:
    """Return the permissions of a version: from its definition, else from the property (spec crud 6.3)."""
    if not configured.has_permissions:
        return None
    own = version.permissions
    return configured.permissions if own is None else own


@dataclass(frozen=True, slots=True)
class Subject:
    """The subject of a decision: a resource of a document, and the definition whose permissions hold for it.

    ``document`` is the sidecar of the living ``data.xml`` that decides, that of the saved document for a draft that
    ``is_of_saved``. It is ``None`` where a document is being created.
    """

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
    """Decides about requests for documents, and returns all operations of the user on the document.

    A user who may save a document may write and discard its draft, no matter who began the draft. A wrong ``token`` is
    refused even if the user needs none (spec crud 6.6).
    """

    dialect: Dialect
    tokens: AccessTokens

    def to_write(self, subject: Subject, user: User, token: str | None) -> Operations:
        """Decide about a PUT. A draft of a saved document needs the same operations as a save."""
        if subject.document is not None:
            return self.allow(_UPDATE, subject, user, token)
        return self.allow(_CREATE if subject.address.is_main else _CREATE_ATTACHMENT, subject, user, token)

    def to_delete(self, subject: Subject, user: User, token: str | None) -> Operations:
        if subject.is_of_saved:
            return self.allow(_DISCARD, subject, user, token)
        return self.allow(_DELETE if subject.address.is_main else _DELETE_ATTACHMENT, subject, user, token)

    def allow(self, any_of: tuple[str, ...], subject: Subject, user: User, token: str | None) -> Operations:
        defined = permissions_of(subject.definition, subject.configured)
        if defined is None:
            return permissions.UNRESTRICTED
        if subject.document is None:
            allowed = permissions.on_creation(defined, user)
        else:
            owner = subject.document.facts.owner
            allowed = permissions.on_data(defined, user, owner)
            if token is not None:
                bound = TokenSubject(subject.address.form, subject.document.version, subject.address.document)
                granted = self.tokens.operations(token, bound, subject.configured.token_validity)
                added = permissions.by_token(defined, user, owner, granted)
                allowed = permissions.in_order(added.union(allowed.allowed or ()))
        if not allowed.allows(*any_of):
            reason = ""
            missing = permissions.missing_headers(defined, user, any_of)
            if missing and user.is_nameless:
                reason = f": roles and groups count only together with a user name ({self.dialect.header('Username')})"
            elif missing:
                reason = f": the request was sent without {' or '.join(map(self.dialect.header, missing))}"
            raise ForbiddenError(f"you may not {' or '.join(any_of)} {subject.address}{reason}")
        return allowed


@dataclass(frozen=True, slots=True)
class AdministratorAccess(Access):
    """Allows everything: a command's user may read and write the files."""

    tokens: AccessTokens = AccessTokens(list)

    def allow(self, any_of: tuple[str, ...], subject: Subject, user: User, token: str | None) -> Operations:  # noqa: ARG002 - inherited
        return permissions.UNRESTRICTED


@dataclass(frozen=True, slots=True)
class SearchedVersions:
    """The versions of a form that a search looks at, all of them where ``numbers`` is ``None``.

    ``definition`` gives the permissions, ``indexed`` is the one by which the index reads data.
    """

    catalog: Catalog
    configured: FormProperties
    numbers: tuple[int, ...] | None
    definition: Definition
    indexed: Definition
    is_designer: bool

    @property
    def index_paths(self) -> tuple[str, ...] | None:
        """Return the paths of the indexed controls, in the order of the index; ``None`` where none is published."""
        if self.is_designer:
            return tuple(key.path for key in DESIGNER_KEYS)
        found = self.indexed.index_keys(self.configured.data_format)
        return tuple(key.path for key in found.keys) if found.is_published else None


def searched_versions(
    form: Form, configured: FormProperties, catalog: Catalog, asked: int | Searched, dialect: Dialect
) -> SearchedVersions:
    """Return the versions that a request means (spec search 1.4)."""
    is_designer = dialect.is_designer(form)

    def versions(numbers: tuple[int, ...] | None, number: int) -> SearchedVersions:
        definition = catalog.of(form, number)
        return SearchedVersions(catalog, configured, numbers, definition, definition, is_designer)

    if not is_designer and not configured.has_versions:
        if isinstance(asked, int):
            only_first(VersionRequest(number=asked))
        return versions((1,), 1)
    if isinstance(asked, int):
        return versions((asked,), asked)
    if is_designer:  # nothing is published of it
        return versions(None, DESIGNER_VERSION)
    latest = catalog.latest(form)
    if latest is None:
        # Deleted versions still have permissions: the highest counts, with all that have the same ones.
        same = catalog.same_permissions(form)
        return versions(same, same[0]) if same else versions(None, 1)
    numbers = None if asked is Searched.ALL else (latest.version,)
    return SearchedVersions(catalog, configured, numbers, latest, latest, is_designer)


def scope_of(searched: SearchedVersions, drafts: DraftFilter, user: User, any_of: tuple[str, ...] = FINDING) -> Scope:
    """Return the documents on which a user has one of the operations, as far as a search may show them."""
    configured, definition, indexed = searched.configured, searched.definition, searched.indexed
    defined = permissions_of(definition, configured)
    by_definition = (indexed.version, indexed.fingerprint)
    if not configured.restricts_searches:
        owners = frozenset({permissions.searchable_owners(defined, user, any_of)} - {EVERYBODY})
        return Scope(searched.numbers, drafts, VisibleOwners(lambda _: owners), any_of, by_definition)

    @cache  # each partition of an index asks
    def of_version(version: int) -> OwnerSets:
        if version == definition.version:
            return permissions.readable_owners(defined, user, any_of)
        try:
            own = permissions_of(_version(searched, version), configured)
        except DamagedError:
            return frozenset({NOBODY})
        return permissions.readable_owners(own, user, any_of)

    seen = VisibleOwners(of_version, is_by_saved=True)
    if not configured.has_drafts:  # a GET of one is refused
        seen = VisibleOwners(lambda _: frozenset({NOBODY})) if drafts.kind is Drafts.ONLY else seen
        drafts = replace(drafts, kind=Drafts.EXCLUDE)
    return Scope(searched.numbers, drafts, seen, any_of, by_definition)


def operations_on(searched: SearchedVersions, hits: Iterable[Hit], user: User) -> Callable[[Hit], Operations]:
    """Return the operations of a user on each of the documents that were found."""
    configured, on_data_of = searched.configured, permissions.on_data_of
    if not configured.restricts_searches:
        by_owner = on_data_of(permissions_of(searched.definition, configured), user)
        return lambda hit: by_owner(hit.facts.owner)
    by_version = {
        number: on_data_of(permissions_of(_version(searched, number), configured), user)
        for number in {hit.facts.version for hit in hits}
    }
    return lambda hit: by_version[hit.facts.version](hit.saved_owner or hit.facts.owner)


def _version(searched: SearchedVersions, number: int) -> Definition:
    definition = searched.definition
    if number in (0, definition.version):
        return definition
    return searched.catalog.of(definition.form, number)


@contextmanager
def only_document(route: Route, definition: Definition, user: User) -> Iterator[None]:
    """Let the creation of a user's only document of a form go on in the block, and of no other meanwhile.

    The documents count that the user would find (spec crud 4.12).
    """
    form, version = definition.form, definition.version
    owners_of = permissions.owners_with if route.properties.restricts_searches else permissions.searchable_owners
    with route.data.storage.creating(form):
        owners = owners_of(permissions_of(definition, route.properties), user, FINDING)
        seen = frozenset({owners} - {EVERYBODY})
        scope = Scope((version,), DraftFilter(Drafts.EXCLUDE), VisibleOwners(lambda _: seen))
        try:
            exists = owners != NOBODY and route.data.index.search(form, scope, Query(size=1)).total > 0
        except (BusyError, DiskError):  # no PUT depends on an index
            names = route.data.storage.documents(form)
            saved = (route.storage.sidecar(DocumentAddress(form, Collection.DATA, name, DATA_XML)) for name in names)
            exists = any(
                sidecar is not None
                and not sidecar.deleted
                and sidecar.version == version
                and owners.includes(sidecar.facts.owner)
                for sidecar in saved
            )
        if exists:
            raise ConflictError(f"{form} version {version} has only one document, and it exists already")
        yield


def is_singleton(published: PublishedVersion | None, configured: FormProperties) -> bool:
    """Return whether a version of a form is a singleton, by its definition, else by the property."""
    own = published.metadata.singleton if published is not None else None
    return configured.is_singleton if own is None else own
