"""``persistence config``: the settings in force, and where each came from."""

from __future__ import annotations

import click

from persistence import settings
from persistence.cli.options import settings_options


@click.command()
@settings_options
def config(file: str | None, **flags: object) -> None:
    """Print the effective settings and where each came from."""
    effective = settings.load(file, flags)
    for name, origin in effective.origins.items():
        value = getattr(effective.settings, name)
        click.echo(f"{name} = {value!r}  # {origin}: {settings.MEANINGS[name]}")
