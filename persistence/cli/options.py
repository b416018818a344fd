"""The options that set settings, the same for every subcommand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from persistence.settings import DEFAULT_FILE

Command = Callable[..., Any]


def settings_options(command: Command) -> Command:
    """Add the options; each overrides the setting of its name."""
    for option in reversed(
        (
            click.option("--bind", metavar="HOST:PORT", help="Address and port to serve on."),
            click.option("--data", metavar="DIR", help="Directory of the tree of forms."),
            click.option("--config", "file", metavar="FILE", help=f"Settings file instead of {DEFAULT_FILE}."),
            click.option("--dialect", type=click.Choice(["svc", "orbeon"]), help="Names on the wire."),
            click.option("--workers", type=int, metavar="N", help="Worker processes."),
            click.option("--threads", type=int, metavar="N", help="Threads in each worker."),
        )
    ):
        command = option(command)
    return command
