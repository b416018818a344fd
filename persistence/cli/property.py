"""``persistence config property``: the value of one property, and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import click
import msgspec

from persistence import settings
from persistence.cli.options import file_options
from persistence.properties.entries import without_user
from persistence.properties.lookup import Reason
from persistence.properties.properties import ExplainedProperty, Properties
from persistence.properties.property_table import KnownProperty, Value, ValueType


@click.command("property")
@click.argument("name")
@file_options
@click.pass_obj
def property_(outer: Mapping[str, object], /, name: str, **options: str | None) -> None:
    """Say what a property is, which entry wins, and why.

    NAME is a full name without wildcards: svc.persistence.provider.hr.leave.data, svc.persistence.files.autosave.

    An application or form whose own name has a dot cannot be told apart in NAME; for it only entries with * count.
    """
    given = {**outer, **{option: value for option, value in options.items() if value is not None}}
    file = given.pop("file")
    effective = settings.load(None if file is None else str(file), given)
    for line in explained(effective.properties.explain(name), effective.properties):
        click.echo(line)


def shown(value: Value) -> str:
    """A value, or a name with wildcards, as TOML has it."""
    return msgspec.json.encode(value).decode()


def shown_of(known: KnownProperty, value: Value) -> str:
    """A value of a property, unless it is a secret; an address without the password that it may have."""
    if known.kind is ValueType.SECRET and value:
        return "(not shown)"
    return shown(without_user(value) if isinstance(value, str) else value)


def explained(answer: ExplainedProperty, properties: Properties) -> Iterator[str]:
    """The lines that say what a property is, which entry wins, and why the others do not."""
    said = "is not configured" if answer.value is None else f"= {shown_of(answer.known, answer.value)}"
    yield f"{'.'.join(answer.name)} {said}"
    yield f"  {answer.known.meaning}; {answer.known.effect.value}"
    winner = answer.explanation.winner
    if winner is not None:
        yield from _reasons("wins", (winner,), properties)
    if answer.entry is None or answer.entry.is_blank:
        cause = "nothing matches" if answer.entry is None else "the winner is blank, and the search does not go on"
        yield f"  {cause}: {'not configured' if answer.value is None else 'the default'}"
    yield from _reasons("loses", answer.explanation.losers, properties)
    for reason in answer.explanation.left:
        yield f"  left {'.'.join(reason.name)}: {reason.text}"


def _reasons(word: str, reasons: tuple[Reason, ...], properties: Properties) -> Iterator[str]:
    for reason in reasons:
        entry = properties.entry(reason.name)
        yield f"  {word} {entry} = {shown_of(entry.known, entry.value)} ({entry.origin}): {reason.text}"
