"""The values of a request without its body: parsed once at the edge, trusted below."""

from __future__ import annotations

from dataclasses import dataclass

from persistence.model.instants import Instant
from persistence.model.preconditions import NO_PRECONDITION, Precondition
from persistence.model.sidecar import ClientHash
from persistence.model.users import ANONYMOUS, User
from persistence.model.versions import ABSENT, VersionRequest


@dataclass(frozen=True, slots=True)
class Origin:
    """When a resource was created and whose it is, as a proxy says that has looked (spec crud 11).

    Without ``created`` the proxy has found nothing: it is being created now.
    """

    created: Instant | None
    owner: User


@dataclass(frozen=True, slots=True)
class Get:
    """A GET, or with ``content`` false a HEAD; ``instant`` selects one revision (spec crud 4.8).

    ``decrypt`` asks for the plain content of an attachment (spec forms 4.3).
    """

    version: VersionRequest = ABSENT
    instant: Instant | None = None
    content: bool = True
    user: User = ANONYMOUS
    data_format: str | None = None
    decrypt: bool = False


@dataclass(frozen=True, slots=True)
class Put:
    """A PUT; the fields below ``user`` are kept with the revision (spec crud 4.4).

    ``flat_view`` asks for flat views of a definition (spec search 7.1). ``holder`` is the path of the element that
    holds an attachment (spec forms 4.2). Only a proxy says the ``origin``, and that the form ``is_singleton``.
    """

    version: VersionRequest = ABSENT
    precondition: Precondition = NO_PRECONDITION
    data_format: str | None = None
    user: User = ANONYMOUS
    content_type: str | None = None
    valid: bool | None = None
    stage: str | None = None
    source: str | None = None
    client_hash: ClientHash | None = None
    flat_view: bool = False
    holder: str | None = None
    origin: Origin | None = None
    is_singleton: bool = False


@dataclass(frozen=True, slots=True)
class Delete:
    """A DELETE of one resource, or of all data of a form. Only a proxy says the ``origin``."""

    version: VersionRequest = ABSENT
    precondition: Precondition = NO_PRECONDITION
    user: User = ANONYMOUS
    origin: Origin | None = None
