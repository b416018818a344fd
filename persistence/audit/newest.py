"""The newest lines of the audit of some kind, read from the end of its files. They are not verified."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

import msgspec

from persistence.audit.chain import SealOf
from persistence.audit.verification import in_order, opened
from persistence.errors import DamagedError, disk_errors
from persistence.limits import AUDIT_BYTES_READ, CHUNK, LONGEST_AUDIT_LINE

Facts = Mapping[str, object]
_SHOWN = ("app", "form", "collection", "document", "name")


@dataclass(frozen=True, slots=True)
class NewestLines:
    """The fields of lines, the newest first. There may be more below the number ``older``, if it is not 0."""

    lines: tuple[Facts, ...]
    older: int


def facts_of(line: bytes) -> dict[str, object]:
    """Return the fields of a line; empty if it is damaged, which ``verify`` reports."""
    try:
        return msgspec.json.decode(line, type=dict[str, object])
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return {}


def is_of_kind(facts: Facts, wanted: Mapping[str, str], since: str = "") -> bool:
    return (
        bool(facts)
        and all(facts.get(name) == value for name, value in wanted.items())
        and str(facts.get("at", "")) >= since
    )


def subject_of(facts: Facts) -> str:
    """Return the path of a line's form, document or attachment."""
    is_definition = facts.get("collection") == "form"  # a document is the designer's then, and no part of the path
    names = [name for name in _SHOWN if facts.get(name) and not (is_definition and name == "document")]
    return "/".join(str(facts[name]) for name in names)


def outcome_of(facts: Facts) -> str:
    """Return the status of a request, the outcome of a command, or the phase."""
    return str(facts.get("status") or facts.get("outcome") or facts.get("phase") or "")


def newest(  # noqa: PLR0913 - the parts of a question
    path: str, seal_of: SealOf, wanted: Mapping[str, str], *, since: str, before: int, most: int
) -> NewestLines:
    """Return the ``most`` newest lines of a kind, with numbers below ``before`` if that is not 0.

    At most ``AUDIT_BYTES_READ`` are read.
    """
    found: list[Facts] = []
    lowest, read = 0, 0
    with disk_errors("reading the audit"):
        for line in _backwards(in_order(path, seal_of)):
            facts = facts_of(line)
            number = facts.get("n")
            lowest = number if isinstance(number, int) else lowest
            if since and facts and str(facts.get("at", "")) < since:
                break
            if before and lowest >= before:
                continue
            read += len(line)
            if is_of_kind(facts, wanted, since):
                found.append(facts)
            if len(found) == most or read > AUDIT_BYTES_READ:
                return NewestLines(tuple(found), lowest if lowest > 1 else 0)
    return NewestLines(tuple(found), 0)


def _backwards(paths: list[str]) -> Iterator[bytes]:
    for path in reversed(paths):
        with suppress(DamagedError), opened(path) as file:  # ``verify`` reports what cannot be unpacked
            at, rest = file.seek(0, os.SEEK_END), b""
            while at:
                step = min(CHUNK, at)
                at -= step
                file.seek(at)
                first, *lines = (file.read(step) + rest).split(b"\n")
                yield from reversed([line for line in lines if line])
                rest = first if len(first) <= LONGEST_AUDIT_LINE else b""
            if rest:
                yield rest
