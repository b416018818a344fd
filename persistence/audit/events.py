"""Events of the audit: the fields of its lines, and their JSON. No content of forms, no key and no token is in them."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from persistence.limits import LONGEST_AUDIT_EVENT
from persistence.model.texts import json_line

BEGIN = "begin"
"""The phase of a line that is written before a change, when changes need one."""

REPAIRED, DISCARDED = "repaired", "discarded"
"""Actions of the audit itself: it closed a line that a crash had torn; it removed an old file by the settings."""


class AuditEvent(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The facts of a line; those that do not apply are left out.

    Of a request there are its ``id``, the other end of the connection (``peer``), the address that a proxy names
    (``forwarded``, which nobody has verified), the name of the API key, the ``user`` that the caller names, and the
    ``status``. ``revision`` is the entity tag of what was read or stored. ``documents`` counts those of a request for
    many. Of a command there are its ``command``, the user of the system who runs it, ``outcome`` and ``details``.
    ``begun`` is the number of the line of the phase ``BEGIN``. ``lost`` counts lines that could not be written before.
    """

    action: str
    phase: str = ""
    begun: int = 0
    id: str = ""
    app: str = ""
    form: str = ""
    collection: str = ""
    document: str = ""
    name: str = ""
    version: int = 0
    revision: str = ""
    documents: int | None = None
    status: int = 0
    user: str = ""
    key: str = ""
    peer: str = ""
    forwarded: str = ""
    token: bool = False
    command: str = ""
    system_user: str = ""
    outcome: str = ""
    details: dict[str, object] = {}
    length: int = 0
    sha256: str = ""
    file: str = ""
    last: int = 0
    lost: int = 0

    def encoded(self) -> bytes:
        """Return it as JSON on one line that is safe for a terminal. Details that are too long are left out."""
        line = json_line(self)
        return line if len(line) <= LONGEST_AUDIT_EVENT else json_line(replace(self, details={"left_out": len(line)}))
