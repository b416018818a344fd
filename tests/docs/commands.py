"""The help of all commands as one page, docs/commands.md: ``python -m tests.docs.commands`` writes it."""

from collections.abc import Iterator

import click

from persistence.cli import commands
from tests.docs.markdown import DOCS

PAGE = DOCS / "commands.md"
_BEGIN = """# Every command and option

For administrators. This page is the help of the commands, in one place (`make docs` writes it). What they are for:
[cli.md](cli.md).
"""
_WIDTH = 100

Path = tuple[str, ...]


def leaves(command: click.Command = commands, path: Path = ()) -> Iterator[tuple[Path, click.Command]]:
    """Yield the commands that do something, each after the words that follow ``persistence``."""
    if path and (not isinstance(command, click.Group) or command.invoke_without_command):
        yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            if found is not None:
                yield from leaves(found, (*path, name))


def page() -> str:
    """Return the page."""
    return "\n".join((_BEGIN, *(_described(path, command) for path, command in leaves())))


def _described(path: Path, command: click.Command) -> str:
    words = " ".join(path)
    whole = click.Context(commands, info_name="persistence", **commands.context_settings)
    context = click.Context(command, whole, words, terminal_width=_WIDTH)
    return f"## {words}\n\n```text\n{command.get_help(context)}\n```\n"


if __name__ == "__main__":
    PAGE.write_text(page())
