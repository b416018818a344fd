"""``persistence config``: the settings and properties in force, and where each came from."""

from __future__ import annotations

import click

from persistence import settings
from persistence.cli.options import settings_options
from persistence.cli.property import property_, shown, shown_of
from persistence.cli.route import route


@click.group(invoke_without_command=True)
@settings_options
@click.pass_context
def config(context: click.Context, /, file: str | None, **flags: object) -> None:
    """Print the effective settings and properties, and where each came from."""
    context.obj = {"file": file, **flags}
    if context.invoked_subcommand is not None:
        return
    effective = settings.load(file, flags)
    for name, origin in effective.origins.items():
        value = getattr(effective.settings, name)
        said = "(not shown)" if value and name in settings.SECRET else repr(value)
        click.echo(f"{name} = {said}  # {origin}: {settings.MEANINGS[name]}")
    for entry in effective.properties.entries:
        meaning = f"{entry.known.meaning}; {entry.known.effect.value}"
        click.echo(f"{shown(str(entry))} = {shown_of(entry.known, entry.value)}  # {entry.origin}: {meaning}")


config.add_command(property_)
config.add_command(route)
