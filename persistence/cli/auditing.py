"""Commands in the audit: those that change something, or take something out, have a line."""

from __future__ import annotations

import os
import pwd
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial, update_wrapper
from typing import Any

import click

from persistence.audit.events import AuditEvent
from persistence.audit.log import AuditLog, open_audit
from persistence.cli.options import load
from persistence.errors import PersistenceError, one_line
from persistence.properties.property_table import shown_address
from persistence.providers.locations import open_keys, own_directories
from persistence.settings import Effective
from persistence.storage import owner

_Params = Mapping[str, Any]

_SETTINGS = ("file", "data", "dialect")
_LONGEST = 200
_MOST = 20
_WITH_SUBJECT = frozenset({"purge", "erase", "revert", "restore", "reindex", "reencrypt", "token", "leases"})
"""The commands whose argument is a form or a document, and not a file."""
_COLLECTIONS = frozenset({"data", "draft", "form"})


def _always(_: _Params) -> bool:
    return True


def _is_real(params: _Params) -> bool:
    return not params.get("dry_run")


AUDITED: Mapping[str, Callable[[_Params], bool]] = {
    "check": lambda params: _is_real(params) and bool(params.get("repair") or params.get("adopt")),
    "leases": lambda params: params.get("document") is not None,
    "purge": lambda params: bool(params.get("yes")) and _is_real(params),
    "erase": lambda params: bool(params.get("yes")),
    **dict.fromkeys(("reindex", "reencrypt", "upgrade", "import", "revert", "restore", "move"), _is_real),
    **dict.fromkeys(("backup", "export", "token"), _always),
    **dict.fromkeys(("password set", "password remove"), _always),
    **dict.fromkeys(("api-key new", "api-key retire", "signing-key new", "signing-key retire"), _always),
    "encryption-key new": _always,
    "encryption-key retire": _is_real,
}
"""The commands that have a line, and whether they have one with these parameters: dry runs have none."""


def audited(name: str, command: click.Command) -> click.Command:
    if isinstance(command, click.Group):
        for subcommand, each in command.commands.items():
            audited(f"{name} {subcommand}", each)
    elif name in AUDITED and command.callback is not None and not isinstance(command.callback, partial):
        command.callback = update_wrapper(partial(_run, name, command.callback), command.callback)
    return command


def _run(name: str, callback: Callable[..., Any], /, **params: Any) -> Any:
    if not AUDITED[name](params):
        return callback(**params)
    with auditing(name, params):
        return callback(**params)


@contextmanager
def auditing(name: str, params: _Params) -> Iterator[None]:
    """Write the audit lines of a command, for a block."""
    effective = load({key: params.get(key) for key in _SETTINGS})
    if effective.settings.audit == "off":
        yield
        return
    begun, outcome = 0, "interrupted"
    if effective.settings.audit_required:
        with _log(effective) as log:
            begun = log.begin(_event(name, params))
    try:
        yield
        outcome = "done"
    except SystemExit as ended:
        outcome = f"status {ended.code}" if ended.code else "done"
        raise
    except (PersistenceError, click.ClickException):
        outcome = "failed"
        raise
    finally:
        try:
            with _log(effective) as log:
                log.record(_event(name, params, outcome, begun))
        except PersistenceError as error:  # what was done stays done
            _say_fault(str(error))


@contextmanager
def _log(effective: Effective) -> Iterator[AuditLog]:
    settings = effective.settings
    owner.refuse_root(os.path.dirname(settings.audit_file))
    places = own_directories(settings, effective.properties)
    with open_audit(settings, open_keys(settings), places, _say_fault) as log:
        yield log


def _event(name: str, params: _Params, outcome: str = "", begun: int = 0) -> AuditEvent:
    paths = params.get("path") or params.get("document") or params.get("paths")
    app, form, collection, document = _subject(paths if name in _WITH_SUBJECT else None)
    given = {key: value for key, value in params.items() if value is not None and value is not False and value != ()}
    details = {key: _shown(value) for key, value in given.items() if key not in _SETTINGS[::2]}
    return AuditEvent(
        action=name.replace(" ", "-"),
        command=f"persistence {name}",
        system_user=_user(),
        app=app,
        form=form,
        collection=collection,
        document=document,
        details=details,
        outcome=outcome,
        begun=begun,
    )


def _subject(path: object) -> tuple[str, str, str, str]:
    if isinstance(path, tuple) and len(path) == 1:
        path = path[0]
    match [one_line(part) for part in path.split("/")] if isinstance(path, str) else []:
        case [document]:
            return "", "", "", document
        case [app, form, collection, document, *_] if collection in _COLLECTIONS:
            return app, form, collection, document
        case [app, form, *_]:
            return app, form, "", ""
        case _:
            return "", "", "", ""


def _shown(value: object) -> object:
    if isinstance(value, bool | int | float):
        return value
    if isinstance(value, list | tuple):
        return [_shown(each) for each in value[:_MOST]]
    return one_line(shown_address(str(value)))[:_LONGEST]


def _user() -> str:
    number = os.getuid()
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


def _say_fault(cause: str) -> None:
    click.echo(f"persistence: audit: {one_line(cause)}", err=True)
