"""The path map: the one place where names become paths.

::

    <root>/layout.json                                         format of the tree
    <root>/<app>/<form>/form/<version>/form.xhtml              + form.xhtml.json (sidecar)
                                       <attachment>            + <attachment>.json
                                       .history/<instant>.<name>   + .json
    <root>/<app>/<form>/data/<document>/data.xml               + data.xml.json
                                        <attachment>           + <attachment>.json
                                        .history/<instant>.<name>  + .json
    <root>/<app>/<form>/draft/<document>/...                   as data/, without history
    <root>/.locks/00 ... ff                                    striped locks
    <root>/.locks/creations/00 ... ff                          the same, for forms that have only one document
    <root>/.locks/elsewhere/00 ... ff                          the same, for documents that other services have
    <root>/.locks/leases/00 ... ff                             the same, for leases of documents
    <root>/.locks/service                                      locked shared by each user of the tree
    <root>/.locks/lease                                        which machine has the tree open, renewed while it has
    <root>/.locks/read-only                                    locked while nobody may write into the tree
    <root>/.leases/<xx>/<digest of the document's id>          who has leased a document (LOCK), and until when
                        <digest>.next                          the same, while it is being written
    <root>/.spool/<id>                                         uploads, where the file system has no unnamed files
    <root>/.trash/<id>                                         drafts and purged documents on their way out
    <root>/.serve/<hour>/<id>                                  links for nginx (X-Accel-Redirect)
    <root>/.bodies/<id>                                        objects elsewhere whose records are not committed yet
    <root>/.quarantine/<instant>/...                           what a repair moved out of the way, under its old path
    <root>/.arriving.json                                      forms that are being moved here, and from where
    <root>/.restored                                           the backup that was restored here, until all of it is
    <root>/.arrived-drafts                                     entity tags of the drafts that moves have stored here
    <root>/.checked.json                                       when each part was last looked at by a deep check
    <root>/.events/outbox-<number>.sqlite                      events of changes, until they were delivered and are old
    <root>/.pages/                                             what the pages for administrators keep: failed logins
    <root>/.index/<app>/<form>/...                             a cache: the index of the form's data
    <root>/.index/.pending/<id>                                documents still to be indexed, by process
    <root>/.index/.reindexing                                  how far an index is that is being rebuilt
    <root>/.index/.reencrypting                                how far a re-encryption is, and the lock of who does it
    <root>/.index/.reencrypted                                 how the last re-encryptions have ended
    <root>/.index/.flat/flat.sqlite                            tables for reports, of all forms that have any

Beside a file, while it is being written: ``.<name>.<id>`` (its next content) and ``.<name>.json`` (its next sidecar).
No file or directory of a name from a request starts with a dot, so none of these can be named from outside.
A file whose name would be longer than ``LONGEST_FILE`` is called by the beginning of its name, ``%~`` and a digest of
all of it; its sidecar has the name.
"""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass, field
from functools import lru_cache
from urllib.parse import unquote

from persistence.errors import BadAddressError
from persistence.limits import LONGEST_NAME, NAMES_KEPT
from persistence.model.addresses import DATA_XML, FORM_XHTML, Address, Collection, DefinitionAddress, Form
from persistence.model.texts import Instant, is_in_calendar

LAYOUT = "layout.json"
LOCKS = ".locks"
CREATIONS = ".locks/creations"
ELSEWHERE_LOCKS = ".locks/elsewhere"
SERVICE = ".locks/service"
LEASE = ".locks/lease"
READ_ONLY = ".locks/read-only"
LEASE_LOCKS = ".locks/leases"
LEASES = ".leases"
UNFINISHED_LEASE = ".next"  # Ends the name of a file that is to become a lease
SPOOL = ".spool"
TRASH = ".trash"
SERVE = ".serve"
BODIES = ".bodies"
QUARANTINE = ".quarantine"
ARRIVING = ".arriving.json"
ARRIVED_DRAFTS = ".arrived-drafts"
CHECKED = ".checked.json"
RESTORED = ".restored"
EVENTS = ".events"
PAGES = ".pages"
INDEX = ".index"
JOURNAL = ".index/.pending"
REINDEXING = ".index/.reindexing"
REENCRYPTING = ".index/.reencrypting"
REENCRYPTED = ".index/.reencrypted"
FLAT = ".index/.flat"
HISTORY = ".history"
SIDECAR_SUFFIX = ".json"

OWN_DIRECTORIES = (LOCKS, CREATIONS, ELSEWHERE_LOCKS, LEASE_LOCKS, LEASES, SPOOL, TRASH, SERVE, QUARANTINE, INDEX)
"""The service's own directories in a root, outer ones first."""

NEEDED = (LOCKS, CREATIONS, ELSEWHERE_LOCKS, SPOOL, TRASH, SERVE, SERVICE)
"""The service's own names in a root without which requests have to make them first."""

OTHERS = ("lost+found", ".git")
"""Names in a root that belong to the file system, and to those who version their forms with git."""

LONGEST_FILE = 200
"""Bytes in a file's name: the rest of the 255 is for the instant, the content id and the suffix beside it."""

FOLDER_DEPTH = 4  # Directories between the root and a content: application, form, collection, and document or version
_DEFINITIONS = "form"
_IN_HISTORY = f"/{HISTORY}"
_WIDEST = 4  # Bytes of a letter at most
_INSTANT = len("2025-03-04T05-06-07.089Z.")

_PLAIN = re.compile(r"[A-Za-z0-9_-]+(?:\.+[A-Za-z0-9_-]+)*", re.ASCII)
_REFUSED = re.compile(r"[/\\\x00-\x1f\x7f\ud800-\udfff]")
INSTANT_IN_NAME = re.compile(r"\d{4}-\d\d-\d\dT(?:[01]\d|2[0-3])-[0-5]\d-[0-5]\d\.\d{3}Z", re.ASCII)
_REVISION = re.compile(rf"({INSTANT_IN_NAME.pattern})\.(.+)", re.ASCII)
_SHORT = 28
"""Digits of the id in the name of an older revision's next content, where all 40 would not leave room for the rest."""
_UNCOMMITTED = re.compile(rf"\.(.+)\.([0-9a-f]{{40}}|[0-9a-f]{{{_SHORT}}})")
_UNFINISHED = re.compile(rf"\.(.+)\.(?:json|[0-9a-f]{{40}}|[0-9a-f]{{{_SHORT}}})")
_UNFINISHED_OWN = re.compile(r"(?:layout|\.(?:arriving|checked))\.json\.[0-9]+")
_ESCAPED = re.compile(r'[%<>:"|?*]')
_BEGINNING, _ENDING = 150, 42  # Bytes of a long name that its file is called by, and characters behind them
_SHORTENED = re.compile(r"%~[0-9a-f]{40}")  # Ends a shortened file name, which has more before


def escape(segment: str, *, may_be_hidden: bool = False) -> str:
    """Return the file name of a name in the virtual hierarchy; ``unescape`` undoes it."""
    # Percent-encoded are `%`, what other systems cannot keep, a final blank or dot, the dot of a final `.json` and a
    # dot at the beginning: no name is another's sidecar, or one of the service's own.
    if len(segment) > LONGEST_NAME:
        raise _too_long()
    if not segment:
        raise BadAddressError("a name in the path is empty")
    if _REFUSED.search(segment):
        raise BadAddressError(f"a name in the path holds a character that is not allowed: {segment!r}")
    if segment.startswith(".") and (not may_be_hidden or not segment.strip(".")):
        raise BadAddressError(f"a name in the path must not start with a dot: {segment!r}")
    name = segment
    if not _PLAIN.fullmatch(name):
        name = _ESCAPED.sub(lambda match: f"%{ord(match[0]):02X}", name)
        if name[-1] in " .":
            name = f"{name[:-1]}%{ord(name[-1]):02X}"
    if name.lower().endswith(SIDECAR_SUFFIX):
        name = f"{name[: -len(SIDECAR_SUFFIX)]}%2E{name[-4:]}"
    return f"%2E{name[1:]}" if name.startswith(".") else name


def unescape(name: str) -> str:
    """Return the name in the virtual hierarchy of a file name made by ``escape``; a shortened one as it is."""
    return name if is_shortened(name) else unquote(name)


def is_shortened(name: str) -> bool:
    """Return whether a file name is a shortened one; it stands for its file in addresses, too."""
    return _SHORTENED.fullmatch(name[-_ENDING:]) is not None and len(name) > _ENDING


def is_escaped(name: str) -> bool:
    """Return whether a file name found on disk is one that ``escape`` makes, and not a foreign one."""
    try:
        return escape(unescape(name)) == name
    except BadAddressError:
        return False


def is_file_name(name: str) -> bool:
    """Return whether a file name found on disk is one that a resource can have."""
    try:
        return _file(unescape(name)) == name
    except BadAddressError:
        return False


@lru_cache(NAMES_KEPT // 4)  # which keeps nothing of a name that is refused
def _directory(segment: str) -> str:
    name = escape(segment)
    if len(name.encode()) > LONGEST_NAME:
        raise _too_long()
    return name


def _application(app: str) -> str:
    if app in OTHERS:
        raise BadAddressError(f"no application can be called {app}: the file system has a directory of that name")
    return _directory(app)


@lru_cache(NAMES_KEPT // 8)
def _form(app: str, name: str) -> str:
    return f"{_application(app)}/{_directory(name)}"


def _too_long() -> BadAddressError:
    return BadAddressError(f"a name in the path is too long: {LONGEST_NAME} bytes are allowed")


@lru_cache(NAMES_KEPT // 2)
def _file(segment: str) -> str:
    if is_shortened(segment):
        return segment
    name = escape(segment, may_be_hidden=True)
    if len(segment.encode()) > LONGEST_NAME:
        raise _too_long()
    if len(name.encode()) <= LONGEST_FILE:
        return name
    beginning = name.encode()[:_BEGINNING].decode(errors="ignore")
    cut = beginning.rfind("%", len(beginning) - 2)  # of a character that is percent-encoded
    beginning = beginning if cut < 0 else beginning[:cut]
    return f"{beginning}%~{hashlib.sha256(name.encode()).hexdigest()[:40]}"


def file_name(instant: Instant) -> str:
    """Return an instant in a file name: colons would keep the tree from being copied to other systems."""
    return instant.replace(":", "-")


def revision_of(name: str) -> tuple[Instant, str] | None:
    """Return the instant and the file name of an older revision that a file is of; ``None`` where it is of none."""
    match = _REVISION.fullmatch(name)
    if match is None or not is_file_name(match[2]):
        return None
    instant = instant_of(match[1])
    return None if instant is None else (instant, match[2])


def instant_of(name: str) -> Instant | None:
    """Return the instant that ``file_name`` has written; ``None`` for any other text."""
    if not INSTANT_IN_NAME.fullmatch(name):
        return None
    instant = Instant(f"{name[:13]}:{name[14:16]}:{name[17:]}")
    return instant if is_in_calendar(instant) else None


def unfinished_of(name: str) -> str | None:
    """Return the name of the content to which a file belongs that only a write in progress, or a crash, has left."""
    match = _UNFINISHED.fullmatch(name)
    return match[1] if match is not None else None


def next_content_of(name: str) -> tuple[str, str] | None:
    """Return name and id (its beginning) of a content between arrival and last rename; ``None`` for another file."""
    match = _UNCOMMITTED.fullmatch(name)
    return (match[1], match[2]) if match is not None else None


def is_unfinished_own(name: str) -> bool:
    """Return whether a file in a root is what one of the service's own was to become, when its writer was killed."""
    return _UNFINISHED_OWN.fullmatch(name) is not None


@dataclass(frozen=True, slots=True)
class FilePaths:
    """The paths of one resource: its directory, its file name, and the names around it."""

    directory: str
    name: str
    content: str = field(init=False, repr=False, compare=False)
    sidecar: str = field(init=False, repr=False, compare=False)  # the commit record
    next_sidecar: str = field(init=False, repr=False, compare=False)  # the next one, before its rename commits it
    history: str = field(init=False, repr=False, compare=False)  # of older revisions
    address: str = field(init=False, repr=False, compare=False)  # the path below the root, also of older revisions

    def __post_init__(self) -> None:
        directory, name = self.directory, self.name
        content = f"{directory}/{name}"
        object.__setattr__(self, "content", content)
        object.__setattr__(self, "sidecar", f"{content}{SIDECAR_SUFFIX}")
        object.__setattr__(self, "next_sidecar", f"{directory}/.{name}{SIDECAR_SUFFIX}")
        object.__setattr__(self, "history", f"{directory}{_IN_HISTORY}")
        if directory.endswith(_IN_HISTORY):
            directory, name = directory[: -len(_IN_HISTORY)], name[_INSTANT:]
        object.__setattr__(self, "address", "/".join((*directory.rsplit("/", FOLDER_DEPTH)[1:], name)))

    @property
    def is_older(self) -> bool:
        return self.directory.endswith(_IN_HISTORY)

    @property
    def must_be_xml(self) -> bool:
        """Return whether it is the current ``form.xhtml`` or ``data.xml``, of which the others are attachments."""
        collection = self.directory.rsplit("/", 2)[-2]
        return self.name == (FORM_XHTML if collection == _DEFINITIONS else DATA_XML) and not self.is_older

    def next_content(self, content_id: str) -> str:
        """Return the content of a revision between its arrival and its last rename."""
        # An older revision of a file with a long name has part of the id in it: 112 bits tell it from all others, too.
        name = f".{self.name}.{content_id}"
        if len(name) * _WIDEST > LONGEST_NAME and len(os.fsencode(name)) > LONGEST_NAME:
            name = f".{self.name}.{content_id[:_SHORT]}"
        return f"{self.directory}/{name}"

    def revision(self, instant: Instant) -> FilePaths:
        return FilePaths(self.history, f"{file_name(instant)}.{self.name}")


@dataclass(frozen=True, slots=True)
class Layout:
    """The path map of one root; ``root`` is an absolute path."""

    root: str

    @lru_cache(NAMES_KEPT // 4)  # noqa: B019 - a layout is a small value
    def paths(self, address: Address) -> FilePaths:
        if isinstance(address, DefinitionAddress):
            folder = f"{_DEFINITIONS}/{address.version}"
        else:
            folder = f"{address.collection.value}/{_directory(address.document)}"
        return FilePaths(f"{self.root}/{_form(address.form.app, address.form.name)}/{folder}", _file(address.name))

    def application(self, app: str) -> str:
        return f"{self.root}/{_application(app)}"

    def form(self, form: Form) -> str:
        return f"{self.root}/{_form(form.app, form.name)}"

    def versions(self, form: Form) -> str:
        return f"{self.form(form)}/{_DEFINITIONS}"

    def documents(self, form: Form, collection: Collection) -> str:
        return f"{self.form(form)}/{collection.value}"

    def document(self, form: Form, collection: Collection, document: str) -> str:
        return f"{self.root}/{_form(form.app, form.name)}/{collection.value}/{_directory(document)}"

    def index(self, form: Form) -> str:
        return f"{self.root}/{INDEX}/{_directory(form.app)}/{_directory(form.name)}"

    def current_index(self, form: Form) -> str:
        """Return the file that names the index of a form in use; without it, the index is rebuilt."""
        return f"{self.index(form)}/current"

    def lease(self, document: str) -> str:
        """Return the file of the lease of a document, by its id alone: the form does not matter (spec crud 7)."""
        digest = hashlib.sha256(document.encode()).hexdigest()
        return f"{self.root}/{LEASES}/{digest[:2]}/{digest}"

    def own(self, name: str) -> str:
        return f"{self.root}/{name}"


NAMES = Layout("")
"""Refuses names that a tree cannot keep, for storages elsewhere: what is there can be moved into a tree."""
