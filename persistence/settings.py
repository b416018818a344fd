"""Settings: one frozen object from defaults < TOML file < environment < flags. Unknown names are errors.

The file holds the properties too: its tables, and its names with a dot. A path in it is relative to the directory that
the file is in, a path of the environment or of a flag to the current directory. ``load`` makes all of them absolute.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Literal, cast, get_args, get_origin
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec

from persistence.dialect import DIALECTS
from persistence.errors import BadRequestError, StartupError
from persistence.limits import LEAST_WORKER_MEMORY, MOST_WEBHOOKS, WORKER_MEMORY
from persistence.model import network_addresses
from persistence.model.permissions import Admin
from persistence.properties.properties import Properties
from persistence.properties.property_table import Value, full_address, general_names, is_database, resolved_place

_PORT = "([0-9]{1,4}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])"
_BIND = rf"^(unix:/.+|(\[[0-9a-fA-F:.]+\]|[^:\s/]+):{_PORT})$"
_ACCEPTABLE = {
    "bind": "HOST:PORT, or unix: and an absolute path",
    "admin_bind": "HOST:PORT with a port other than 0, or unix: and an absolute path",
    "hosts": "a list of names and addresses, without port and brackets, or of *",
    "origins": "a list of origins such as https://forms.example.org, without a path",
    "admin": "tables [[admin]] of role, app and form, each a name or *",
    "datasource": "tables [datasource.NAME] of data, the directory of a tree or the address of a database",
    "events_days": "a whole number from 1 to 3650",
    "webhook": f"tables [webhook.NAME] of url, secret (whsec_ and Base64) and a list of types, at most {MOST_WEBHOOKS}",
    "time_zone": "the name of a time zone, such as Europe/Berlin, or empty",
    "accel_redirect": "the absolute path of a location, such as /protected, or empty",
    **dict.fromkeys(("administrators", "token_issuers", "second_keys"), "a list of names of API keys"),
    "audit_syslog": "the absolute path of a socket, or HOST:PORT",
    "worker_memory": f"0, or at least {LEAST_WORKER_MEMORY} bytes: one that needs more when idle is replaced for ever",
}  # Descriptions of values of a certain form, for messages instead of the pattern
Syslog = Annotated[str, msgspec.Meta(pattern=rf"^(/.+|(\[[0-9a-fA-F:.]+\]|[^:\s/]+):{_PORT})\Z")]
Positive = Annotated[int, msgspec.Meta(ge=1)]
Name = Annotated[str, msgspec.Meta(pattern=r"^[^\s\x00-\x1f\x7f]+\Z")]
Host = Annotated[str, msgspec.Meta(pattern=r"^(\*|[^\s/:\[\]*]+|[0-9a-fA-F]*:[0-9a-fA-F:.]*)\Z")]
Origin = Annotated[str, msgspec.Meta(pattern=r"^https?://[^\s/]+\Z")]
Seconds = Annotated[float, msgspec.Meta(gt=0, le=3600)]
Bytes = Annotated[int, msgspec.Meta(ge=0)]
Count = Annotated[int, msgspec.Meta(ge=0, le=100_000)]
Bind = Annotated[str, msgspec.Meta(pattern=_BIND)]
AdminBind = Annotated[str, msgspec.Meta(pattern=rf"^$|(?!unix://|.*:0+$){_BIND}")]

_SIZE = re.compile(r"([0-9]{1,9})([KMGT])(?:iB)?", re.ASCII)
_SHIFTS = {"K": 10, "M": 20, "G": 30, "T": 40}  # Powers of 1024, as systemd and nginx have them
_KINDS: Mapping[object, str] = {
    bool: "true or false",
    Bytes: 'a number of bytes, or a size such as "500M" or "1GiB"',
    Count: "a whole number from 0 to 100000",
    Positive: "a whole number from 1 on",
    Seconds: "a number of seconds above 0, at most 3600",
}  # Descriptions of the values of types, for messages

PATHS = frozenset({"data", "local", "gunicorn", "keys", "encryption_keys", "audit_file", "log_file"})
"""Settings that are paths; of ``data``, an address of a database is none."""


class Datasource(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A place of forms that properties name: ``data`` is the directory of a tree, or the address of a database."""

    data: Annotated[str, msgspec.Meta(min_length=1)]


def converted(name: str, value: object, kind: object, origin: str, *, is_text: bool) -> object:
    """Return the value of a setting in its type, ``kind``; ``is_text`` says that its origin has nothing but texts."""
    if get_origin(kind) is tuple and is_text:
        value = [part.strip() for part in str(value).split(",") if part.strip()]
    may_be_secret = any(each in str(value) for each in ("@", "password", "secret"))
    given = f"{origin}: {name}" if may_be_secret else f"{origin}: {name} = {value!r}"
    if kind == Bytes and isinstance(value, str) and (size := _SIZE.fullmatch(value)):
        value = int(size[1]) << _SHIFTS[size[2]]
    try:
        # A file that says workers = "2" is a mistake.
        found: Any = msgspec.convert(value, kind, strict=not is_text)
        if name in {"trusted", "metrics_from"}:
            network_addresses.parse_trusted(found)
        if name == "time_zone":
            zone_of(found)
        if name == "publish_to":
            for url in found:
                network_addresses.parse_server_url(url)
    except (StartupError, BadRequestError) as error:
        raise StartupError(f"{given} is not acceptable: {error}") from error
    except (msgspec.ValidationError, ZoneInfoNotFoundError) as error:
        raise StartupError(f"{given} is not {_expected(name, kind, value)}") from error
    if name == "worker_memory" and 0 < found < LEAST_WORKER_MEMORY:
        raise StartupError(f"{given} is not {_ACCEPTABLE[name]}")
    return found


def _expected(name: str, kind: object, value: object) -> str:
    if name in _ACCEPTABLE:
        return _ACCEPTABLE[name]
    if get_origin(kind) is Literal:
        *others, last = get_args(kind)
        near = difflib.get_close_matches(str(value).lower(), (*others, last), n=1)
        return f"{', '.join(map(repr, others))} or {last!r}" + (f"; the nearest is {near[0]!r}" if near else "")
    if get_origin(kind) is tuple:
        return f"a list of texts: write [{json.dumps(value)}]" if isinstance(value, str) else "a list of texts"
    text = _KINDS.get(kind, "a text in quotation marks")
    is_quoted = isinstance(value, str) and kind not in (Bytes, bool) and value.isdigit()
    return f"{text}: write it without quotation marks" if is_quoted else text


def zone_of(name: str) -> ZoneInfo | None:
    """Return a time zone, ``None`` for that of the machine (an empty name). Raises ``ZoneInfoNotFoundError``."""
    if not name:
        return None
    try:
        return ZoneInfo(name)
    except (ValueError, OSError) as error:  # a path, or a name with characters that no file has
        raise ZoneInfoNotFoundError(name) from error


def absolute(name: str, value: object, directory: str) -> object:
    """Return the value of a setting, a path made absolute from a directory; an empty path says nothing, and stays."""
    if name == "data" and is_database(str(value)):
        return resolved_place(full_address(value))
    if name == "data":
        resolved_place(str(value))  # refuses what joined to a directory would be a path
    if name in PATHS and value:
        return os.path.abspath(os.path.join(directory, str(value)))
    if name == "datasource" and isinstance(value, dict):
        return {key: Datasource(cast("str", absolute("data", each.data, directory))) for key, each in value.items()}
    return value


DEFAULT_FILE = "config/persistence.toml"
ENVIRONMENT_PREFIX = "PERSISTENCE_"
_FILE_VARIABLE = "PERSISTENCE_CONFIG"

GIVEN = "-"  # In place of the path of the settings file: the settings in force of another process are on standard input
_IN_0_1_0 = frozenset({"keys", "encryption_keys", "gunicorn"})
_FILE_ONLY = ("admin", "datasource", "webhook")
_ENVIRONMENT_ONLY = ("encryption_key", "second_key")

_REMOVED = frozenset({"server", "proxies"})
"""Settings of earlier versions, about which the refusal says more than that they are unknown."""

SECRET = frozenset({"encryption_key", "second_key", "webhook"})  # Settings whose values are not shown


@dataclass(frozen=True, slots=True)
class Roots:
    """The default place of forms, and those of datasources by name: roots of trees, or addresses of databases."""

    default: str
    named: Mapping[str, str]

    def place(self, datasource: str) -> str | None:
        """The place of a datasource, the default one where that is empty; ``None`` where no datasource has the name."""
        return self.named.get(datasource) if datasource else self.default

    def __iter__(self) -> Iterator[str]:
        return (each for each in self.places if not is_database(each))

    @property
    def databases(self) -> Iterator[str]:
        return (each for each in self.places if is_database(each))

    @property
    def places(self) -> tuple[str, ...]:
        """Every place once, the default one first."""
        return tuple(dict.fromkeys((self.default, *self.named.values())))


class Webhook(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A target of events: those of ``types`` are sent to ``url``, signed with the ``secret``; without types all."""

    url: Annotated[str, msgspec.Meta(pattern=r"^https?://[^\s]+\Z")]
    secret: Annotated[str, msgspec.Meta(pattern=r"^whsec_[A-Za-z0-9+/]{32,128}={0,2}\Z")]
    types: tuple[str, ...] = ()


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Everything that can be set; ``MEANINGS`` says what each is. Paths are as in ``DEFAULT_FILE``."""

    data: str = "var/data"
    local: str = "var/local"
    bind: Bind = "127.0.0.1:8080"
    admin_bind: AdminBind = ""
    time_zone: str = ""
    dialect: Literal["svc", "orbeon"] = "svc"
    workers: Count = 0
    threads: Positive = 8
    max_body: Bytes = 1 << 30
    max_xml: Bytes = 32 << 20
    lock_timeout: Seconds = 10.0
    progress_timeout: Seconds = 20.0
    hand_edits: Literal["xml", "none", "all"] = "xml"
    verify: Literal["size", "digest"] = "size"
    verify_up_to: Bytes = 16 << 20
    accel_redirect: Annotated[str, msgspec.Meta(pattern="^(/[^/]+)*$")] = ""
    min_free: Bytes = 64 << 20
    worker_memory: Bytes = WORKER_MEMORY
    gunicorn: str = "config/gunicorn.conf.py"
    trusted: tuple[str, ...] = ()
    hosts: tuple[Host, ...] = ()
    origins: tuple[Origin, ...] = ()
    keys: str = "var/keys.json"
    insecure: bool = False
    foreign_headers: Literal["refuse", "ignore"] = "refuse"
    admin: tuple[Admin, ...] = ()
    administrators: tuple[Name, ...] = ()
    token_issuers: tuple[Name, ...] = ()
    publish_to: tuple[str, ...] = ()
    encryption_keys: str = "var/encryption-keys.json"
    encryption_key: tuple[str, ...] = ()
    audit: Literal["off", "file", "syslog", "stdout"] = "off"
    audit_file: str = "var/audit/audit.jsonl"
    audit_required: bool = False
    audit_sync: Literal["second", "line"] = "second"
    audit_signed: bool = False
    audit_size: Bytes = 64 << 20
    audit_days: Count = 0
    audit_keep: Count = 0
    audit_syslog: Syslog = "/dev/log"
    log_format: Literal["auto", "json", "text"] = "auto"
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_users: bool = False
    log_file: str = ""
    metrics: bool = True
    metrics_from: tuple[str, ...] = ()
    remote_connect: Seconds = 5.0
    remote_timeout: Seconds = 60.0
    remote_calls: Positive = 4
    datasource: dict[Name, Datasource] = {}
    append_only: bool = False
    second_keys: tuple[Name, ...] = ()
    second_key: str = ""
    events: bool = False
    events_days: Annotated[int, msgspec.Meta(ge=1, le=3650)] = 7
    webhook: Annotated[dict[Name, Webhook], msgspec.Meta(max_length=MOST_WEBHOOKS)] = {}

    @property
    def roots(self) -> Roots:
        return Roots(
            resolved_place(self.data), {name: resolved_place(each.data) for name, each in self.datasource.items()}
        )

    @property
    def binds(self) -> tuple[str, ...]:
        return (self.bind, self.admin_bind) if self.admin_bind else (self.bind,)

    @property
    def largest_xml(self) -> int:
        """Bytes of the largest form data or definition that is accepted."""
        return min(self.max_body, self.max_xml)

    @property
    def home(self) -> str:
        """The directory that keeps bodies on their way to other places."""
        return self.home_of(self.data)

    def home_of(self, place: str) -> str:
        """Return the directory here with notes about a place."""
        return self.local if is_database(place) else place


MEANINGS: Mapping[str, str] = {
    "data": "directory of the tree of forms, or the address of a database that begins with postgresql://",
    "local": "directory of this instance alone, for bodies on their way into a database",
    "bind": "address and port to serve on, or unix: and a path",
    "admin_bind": "address and port of the pages for administrators, or unix: and a path; empty: bind",
    "time_zone": "time zone of the times on the pages for administrators, such as Europe/Berlin; empty: the machine's",
    "dialect": "names on the wire: svc or orbeon",
    "workers": "worker processes; 0: one for each processor, at least 2 and at most 4",
    "threads": "threads in each worker",
    "max_body": "largest accepted body in bytes; a larger one is answered 413",
    "max_xml": "largest accepted form data or definition in bytes; a larger one is answered 413",
    "lock_timeout": "seconds a writer waits for another writer of the same document before it is answered 503",
    "hand_edits": "which files that differ from what was stored are served as edits by hand: xml, none or all",
    "verify": "what is compared with the sidecar when a content is read: size (and time), or digest",
    "verify_up_to": "bytes up to which the digest of a content is compared, with verify = digest",
    "accel_redirect": "nginx's internal location for the data directory, such as /protected; empty: none",
    "min_free": "free bytes below which /readyz answers 503",
    "progress_timeout": "seconds without a byte after which a client that does not read or send loses its connection",
    "worker_memory": "bytes of memory above which a worker process is replaced after it has answered; 0: never",
    "gunicorn": "gunicorn's own settings file, used if it exists",
    "trusted": "IP addresses and networks that may call without a key; unix: every user of the Unix socket",
    "hosts": "names and addresses, without port, under which callers without a key may reach the service (else 421),"
    " in addition to those of loopback and of bind; *: any",
    "origins": "origins, such as https://forms.example.org, whose pages may change something through a browser"
    " (else 403), in addition to the service's own",
    "keys": "file with the digests of the API keys and the keys that sign access tokens; persistence api-key writes it",
    "insecure": "let everyone call who reaches the service",
    "foreign_headers": "headers of the other dialect, such as Orbeon-Username in svc: refuse (400) or ignore",
    "admin": "tables of role, app and form, each a name or *: which role administers which forms; only in the file",
    "administrators": "names of API keys whose callers may export, import and purge, and sign in to the pages",
    "token_issuers": "names of API keys whose callers may issue access tokens over HTTP",
    "audit": "the audit, which has a line for every change and who made it: off, file, syslog or stdout",
    "audit_file": "file of the audit, outside of every data directory; rotated files are beside it",
    "audit_required": "refuse changes, before anything is stored, if their lines cannot be written to the audit",
    "audit_sync": "when lines of the audit file are durable: within a second, or each line before the response",
    "audit_signed": "key the digests of the audit file by the newest key that signs access tokens",
    "audit_size": "bytes after which the audit file is rotated; 0: never",
    "audit_days": "days after which the audit file is rotated; 0: never",
    "audit_keep": "rotated audit files that are kept; 0: all",
    "audit_syslog": "socket of syslog, or HOST:PORT for UDP",
    "log_format": "lines of the log: json, text for people, or auto: text on a terminal, else json",
    "log_level": "least level of lines in the log: debug, info, warning or error",
    "log_users": "name the user in the line of each request",
    "log_file": "file of the log, opened again on SIGUSR1; empty: standard error",
    "metrics": "count requests and other things, and show them at /metrics and to administrators",
    "metrics_from": "IP addresses and networks that may read /metrics without a key, and nothing else; as trusted",
    "publish_to": "addresses of servers, such as https://forms.example.org/runtime, to which forms may be published",
    "remote_connect": "seconds to connect to another service that is a provider, else 502 or 503",
    "remote_timeout": "seconds without a byte from such a service, or without all headers of its response, before 504",
    "remote_calls": "concurrent calls to one such service, for each worker; keep it below threads",
    "datasource": "tables [datasource.NAME] with data, as above: more trees of forms, or databases; only in the file",
    "append_only": "only add revisions: what deletes, purges or rewrites some needs a second key",
    "second_keys": "names of API keys that are second keys",
    "second_key": "a second key, for commands; only in the environment",
    "events": "record an event of every change, for webhooks and those who follow /changes",
    "events_days": "days for which events are kept, delivered or not",
    "webhook": "tables [webhook.NAME] with url, secret and types: targets to which events are sent; only in the file",
    "encryption_keys": "file with the encryption keys; persistence encryption-key new writes it",
    "encryption_key": "encryption keys instead of those in the file: ID:64-HEX-DIGITS, separated by commas, the first"
    " one encrypts; only in the environment",
}


@dataclass(frozen=True, slots=True)
class Effective:
    """Settings in force, where each value came from, and the properties; ``file`` is empty where there is none."""

    settings: Settings
    origins: Mapping[str, str]
    properties: Properties
    file: str


def load(
    file: str | None = None, flags: Mapping[str, object] | None = None, environment: Mapping[str, str] | None = None
) -> Effective:
    """Read the settings; ``flags`` holds those given on the command line, ``None`` standing for not given."""
    if file == GIVEN:
        if any(value is not None for value in (flags or {}).values()):
            raise StartupError("settings that are passed on have no other options beside them")
        return _received()
    variables = os.environ if environment is None else environment
    named, content = _from_file(file or variables.get(_FILE_VARIABLE))
    properties = {
        name: value
        for name, value in content.items()
        if "." in name or (isinstance(value, dict) and name not in _FILE_ONLY)
    }
    from_environment = {
        name.removeprefix(ENVIRONMENT_PREFIX).lower(): value
        for name, value in variables.items()
        if name.startswith(ENVIRONMENT_PREFIX) and name != _FILE_VARIABLE
    }
    layers: tuple[tuple[str, Mapping[str, object]], ...] = (
        (named, {name: value for name, value in content.items() if name not in properties}),
        ("environment", from_environment),
        ("flag", {name: value for name, value in (flags or {}).items() if value is not None}),
    )
    settings, origins, unknown = _merged(named, layers)
    prefix = DIALECTS[settings.dialect].property_prefix
    _check_dialect(properties, settings.dialect, named)
    if settings.admin_bind.rpartition(":")[2] == settings.bind.rpartition(":")[2]:
        raise StartupError(f"{origins['admin_bind']}: admin_bind must have a port, or a path, that is not that of bind")
    for name, origin in unknown.items():
        raise StartupError(f"{origin}: {_unknown(name, prefix)}")
    there = os.path.abspath(named) if os.path.exists(named) else ""
    if there:
        owners = list[int]()
        if os.geteuid() == 0:  # root is told the command to type there, and not about this file
            with suppress(OSError):
                owners.append(os.stat(settings.home).st_uid)
        require_own(there, *owners)
    return Effective(settings, origins, Properties.load(properties, prefix, named), there)


class _Given(msgspec.Struct, frozen=True):
    """Settings in force, as one process passes them to another; ``properties`` are those of the file."""

    settings: Settings
    origins: dict[str, str]
    properties: dict[str, Value]
    file: str


def passed_on(effective: Effective) -> bytes:
    """Return settings in force for the standard input of a command with ``--config`` ``GIVEN``, secrets included."""
    properties = {str(each): full_address(each.value) for each in effective.properties.entries if each.file}
    given = _Given(effective.settings, dict(effective.origins), properties, effective.file)
    return msgspec.json.encode(given, enc_hook=full_address)


@cache
def _received() -> Effective:
    try:
        given = msgspec.json.decode(sys.stdin.buffer.read(), type=_Given)
    except msgspec.DecodeError as error:
        raise StartupError(f"standard input has no settings of a service: {error}") from error
    places: dict[str, Any] = {
        name: absolute(name, getattr(given.settings, name), "/") for name in ("data", "datasource")
    }
    settings = msgspec.structs.replace(given.settings, **places)
    properties = Properties.load(given.properties, DIALECTS[settings.dialect].property_prefix, given.file)
    return Effective(settings, given.origins, properties, given.file)


def require_own(path: str, *owners: int) -> None:
    """Make sure that a file that decides what this process does belongs to root, to this user, or to ``owners``."""
    try:
        found = os.stat(path).st_uid
    except OSError as error:
        raise StartupError(f"{path} cannot be read: {error.strerror}") from error
    if found not in (0, os.geteuid(), *owners):
        raise StartupError(f"{path} belongs to another user (uid {found}): it must belong to root or to this user")


def inherits_socket() -> bool:
    """Return whether this process was given the socket to listen on: by gunicorn on SIGUSR2, or by systemd."""
    return "GUNICORN_FD" in os.environ or "LISTEN_FDS" in os.environ


def _check_dialect(properties: Iterable[str], dialect: str, file: str) -> None:
    first = {name.partition(".")[0] for name in properties}
    for other in DIALECTS.values():
        if other.name != dialect and other.property_prefix.partition(".")[0] in first:
            raise StartupError(
                f"{file}: properties that begin with {other.property_prefix} are of dialect {other.name!r},"
                f" and the one in force is {dialect!r}"
            )


def _merged(
    file: str, layers: Iterable[tuple[str, Mapping[str, object]]]
) -> tuple[Settings, dict[str, str], dict[str, str]]:
    shipped, values = Settings(), dict[str, object]()
    for name in PATHS:
        if path := getattr(shipped, name):  # as in the shipped file, but from the directory of this one
            beside = os.path.relpath(path, os.path.dirname(DEFAULT_FILE))
            values[name] = absolute(name, beside, os.path.dirname(file))
    origins = dict.fromkeys(Settings.__struct_fields__, "default")
    unknown: dict[str, str] = {}
    for origin, layer in layers:
        relative_to = os.path.dirname(origin) if origin == file else ""
        for name, value in layer.items():
            if name not in origins:
                unknown.setdefault(name, origin)
                continue
            if name in _FILE_ONLY and origin == "environment":
                raise StartupError(f"{origin}: {name} can only be set in the settings file")
            if name in _ENVIRONMENT_ONLY and origin != "environment":
                raise StartupError(f"{origin}: {name} can only be set in the environment")
            given = converted(name, value, _FIELDS[name], origin, is_text=origin == "environment")
            values[name] = absolute(name, given, relative_to)
            if origin == file and name in _IN_0_1_0:
                _require_existing(file, name, str(given), str(values[name]))
            origins[name] = origin
    return Settings(**values), origins, unknown  # type: ignore[arg-type]  # each was converted to its field's type


def _from_file(path: str | None) -> tuple[str, dict[str, object]]:
    chosen = path or DEFAULT_FILE
    try:
        with open(chosen, "rb") as file:
            return chosen, tomllib.load(file)
    except FileNotFoundError:
        if path is None:
            return chosen, {}
        raise StartupError(f"the settings file {chosen} does not exist") from None
    # A text that is no TOML, lists too deep, a number too long: the library has no one error for them.
    except (OSError, ValueError, RecursionError) as error:
        raise StartupError(f"the settings file {chosen} cannot be read: {error}") from error


_FIELDS = {field.name: field.type for field in msgspec.structs.fields(Settings)}


def _require_existing(file: str, name: str, written: str, path: str) -> None:
    # Version 0.1.0 took paths from where the service starts. A service that finds no keys lets more callers in, and one
    # that does not find gunicorn's file takes the defaults.
    if not os.path.lexists(path) and os.path.lexists(written):
        intended = os.path.relpath(written, os.path.dirname(os.path.abspath(file)))
        raise StartupError(
            f"{file}: {name} = {written!r} starts in the directory of the file, where it is not: write {intended!r}"
        )


def _unknown(name: str, prefix: str) -> str:
    if name in _REMOVED:
        return f"the setting {name!r} was removed with granian: see docs/running.md"
    names = (*Settings.__struct_fields__, *general_names(prefix))
    near = difflib.get_close_matches(name, names, n=1, cutoff=0)[0]
    kind = "" if near in Settings.__struct_fields__ else ", a property of the file"
    return f"unknown setting {name!r}; the nearest valid name is {near!r}{kind}"
