"""The audit of commands, and ``persistence audit``, which verifies its files and shows lines of them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime

import click
import msgspec
from msgspec.structs import replace

from persistence.audit import verification
from persistence.audit.audit_log import AuditEvent, AuditLog, lines_of, open_audit, seals
from persistence.cli.declarations import REMAINS, Params, command, exits, group
from persistence.cli.options import SETTINGS, load, second_key_name, usage_errors
from persistence.cli.terminal import counted, is_json, safe, say, say_error, say_result
from persistence.errors import DamagedError, NotFoundError, PersistenceError, disk_errors, one_line
from persistence.model import texts
from persistence.properties.property_table import shown_address
from persistence.providers.locations import open_keys, own_directories
from persistence.settings import Effective, Settings
from persistence.storage import owner

_SETTINGS = ("file", "data", "dialect")
_COLLECTIONS = frozenset({"data", "draft", "form"})


@contextmanager
def auditing(name: str, params: Params, subject: str) -> Iterator[None]:
    """Write the audit lines of a command, for a block. ``subject`` is the parameter that names a form or a document."""
    effective = load(**{key: params.get(key) for key in _SETTINGS})
    if effective.settings.audit == "off":
        yield
        return
    event, begun, outcome = _event(name, params, subject), 0, "interrupted"
    if effective.settings.audit_required:
        with _log(effective) as log:
            begun = log.begin(event)
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
                second_key = second_key_name(effective.settings)
                log.record(replace(event, outcome=outcome, begun=begun, second_key=second_key))
        except PersistenceError as error:  # what was done stays done
            _say_fault(str(error))


def _log(effective: Effective) -> AuditLog:
    settings = effective.settings
    owner.refuse_root(os.path.dirname(settings.audit_file))
    return open_audit(settings, open_keys(settings), own_directories(settings, effective.properties), _say_fault)


def _event(name: str, params: Params, subject: str) -> AuditEvent:
    given = {key: value for key, value in params.items() if value is not None and value is not False and value != ()}
    details = {key: _shown(value) for key, value in given.items() if key not in _SETTINGS[::2]}
    if is_json():
        details["as_json"] = True
    action, user = name.replace(" ", "-"), owner.name(os.getuid())
    event = AuditEvent(action=action, command=f"persistence {name}", system_user=user, details=details)
    path = params.get(subject)
    if isinstance(path, tuple) and len(path) == 1:
        path = path[0]
    match [one_line(part) for part in path.split("/")] if isinstance(path, str) else []:
        case [document]:
            return replace(event, document=document)
        case [app, form, collection, document, *_] if collection in _COLLECTIONS:
            return replace(event, app=app, form=form, collection=collection, document=document)
        case [app, form, *_]:
            return replace(event, app=app, form=form)
        case _:
            return event


def _shown(value: object) -> object:
    if isinstance(value, bool | int | float):
        return value
    if isinstance(value, list | tuple):
        return [_shown(each) for each in value[:20]]
    return one_line(shown_address(str(value)))[:200]


def _say_fault(cause: str) -> None:
    say_error(f"persistence: audit: {one_line(cause)}")


@group("audit", short_help="Verify the audit, and show lines of it.")
def audit() -> None:
    """Verify the audit, and show lines of it: docs/audit.md says what they contain.

    The settings say where it is. Nothing is changed, and the service may run.
    """


@command("audit verify", "Find lines that were changed or are missing.", SETTINGS)
@exits("nothing is wrong", "there is no audit, or it cannot be read", remains="something is wrong, as the lines say")
@click.option("--head", metavar="NUMBER:DIGEST", help="A line that was noted elsewhere, and must be there.")
@click.option("--retired-key", metavar="ID", multiple=True, help="A signing key that you removed. May be repeated.")
def verify_audit(*, head: str | None, retired_key: tuple[str, ...], effective: Effective) -> int:
    """Find lines that were changed, removed, inserted or moved, missing files, and a cut at the end.

    The last line of the output has the number and the digest of the last line of the audit. Keep it elsewhere: a person
    who can write the files can also rewrite the chain, but not to a digest that you have.

    A line whose signing key is missing cannot be compared, which is a finding. If you removed the key, name it with
    --retired-key. Anybody may have changed such lines.
    """
    expected = None if head is None else verification.expected_head(head)
    if head is not None and expected is None:
        raise click.UsageError(f"{safe(head)} is not a NUMBER:DIGEST, as this command prints it")
    settings = _with_audit(effective)
    verdict = verification.verify(
        settings.audit_file,
        seals(open_keys(settings)),
        must_be_sealed=settings.audit_signed,
        expected=expected,
        retired=frozenset(retired_key),
    )
    last, found = verdict.last, len(verdict.findings) + verdict.more
    facts = {"lines": verdict.lines, "findings": verdict.findings, "more_findings": verdict.more}
    facts |= {"notes": verdict.notes, "head": {"number": last.number, "digest": last.digest}}
    lines = [*verdict.findings, *[f"and {verdict.more} more like these"] * bool(verdict.more)]
    lines += (f"note: {note}" for note in verdict.notes)
    lines.append(f"{counted(verdict.lines, 'line')}, {counted(found, 'finding') if found else 'nothing is wrong'}")
    say_result(facts, "\n".join(map(safe, (*lines, f"head {last.number}:{last.digest}"))))
    return REMAINS if verdict.findings else 0


@command("audit show", None, SETTINGS)
@exits("printed, also if no line matches", "there is no audit, or it cannot be read")
@click.argument("path", metavar="[APP[/FORM[/DOCUMENT]]]", required=False)
@click.option("--document", metavar="ID", help="Only lines of this document, of any form.")
@click.option("--user", metavar="NAME", help="Only lines of this user.")
@click.option("--action", metavar="WORD", help="Only lines of this action, such as delete.")
@click.option("--since", metavar="TIME", help="Only lines from this time on, such as 2025-03-04 or with T05:06:07Z.")
def show(*, path: str | None, since: str | None, effective: Effective, **kinds: str | None) -> None:
    """Print lines of the audit, oldest first. They are not verified.

    If none matches, a line on standard error says so.
    """
    wanted = dict(zip(("app", "form", "document"), (path or "").split("/"), strict=False)) if path else {}
    wanted |= {name: value for name, value in kinds.items() if value is not None}
    with usage_errors():
        begin = None if since is None else texts.parse_time(since, "--since")
    settings = _with_audit(effective)
    with disk_errors("reading the audit"):
        line = ""
        for line in _chosen(settings, wanted, begin):
            say(line if is_json() else safe(_shown_line(msgspec.json.decode(line))))
        if not line:
            say_error("no line of the audit matches")


def _with_audit(effective: Effective) -> Settings:
    settings = effective.settings
    if settings.audit == "off" and not os.path.isdir(os.path.dirname(settings.audit_file)):
        raise NotFoundError('there is no audit: the setting audit is off (audit = "file" begins one)')
    if settings.audit in {"syslog", "stdout"}:
        raise NotFoundError(f"the audit goes to {settings.audit}: look for its lines there")
    return settings


def _chosen(settings: Settings, wanted: Mapping[str, str], since: datetime | None) -> Iterator[str]:
    begin = "" if since is None else texts.from_datetime(since)
    for path in verification.in_order(settings.audit_file, seals(open_keys(settings))):
        try:
            with verification.opened(path) as file:
                for line in lines_of(file):
                    if verification.is_of_kind(verification.facts_of(line), wanted, begin):
                        yield line.decode().rstrip("\n")
        except DamagedError as error:
            say_error(safe(str(error)))


def _shown_line(facts: Mapping[str, object]) -> str:
    place = verification.subject_of(facts)
    users = [str(facts[name]) for name in ("user", "system_user") if facts.get(name)] or ["-"]
    outcome = verification.outcome_of(facts)
    parts = [str(facts.get("at")), *users, str(facts.get("action")), place or str(facts.get("command", "")), outcome]
    origin = [str(facts[name]) for name in ("key", "peer") if facts.get(name)]
    details = facts.get("details")
    given = details.items() if isinstance(details, dict) else ()
    shown = ", ".join(f"{name}={value}" for name, value in given if name not in {"path", "paths", "document"})
    return "  ".join(part for part in (*parts, "from " + " ".join(origin) if origin else "", shown) if part)
