"""The manual page, docs/persistence.1, made of the commands: ``python -m tests.docs.manual_page`` writes it.

One page has all commands. Programs that make manual pages from click, such as click-man, see only commands that are
loaded from the start, and know nothing of exit statuses.
"""

import textwrap
from collections.abc import Iterator
from datetime import UTC, datetime
from inspect import cleandoc

import click

from persistence import __version__
from persistence.cli import commands
from persistence.cli.declarations import STATUSES
from tests.docs.commands import leaves
from tests.docs.markdown import DOCS

PAGE = DOCS / "persistence.1"
_AS_WRITTEN = "\b\n"
_WIDTH = 70
_SEE_ALSO = "docs/index.md of the source, or the pages of the service for administrators, at /admin/."


def page(date: str) -> str:
    """Return the page of a date in the macros of man(7)."""
    return "\n".join(
        (*_head(date), *(line for path, command in leaves() for line in _described(path, command)), *_end())
    )


def _head(date: str) -> Iterator[str]:
    yield rf'.TH PERSISTENCE 1 "{date}" "persistence {__version__}" "persistence"'
    yield from (".SH NAME", r"persistence \- keep forms as plain files, over REST")
    yield from (".SH SYNOPSIS", r".B persistence", r"[\-\-version] [\-\-help] COMMAND [OPTIONS] [ARGUMENTS]")
    yield from (".SH DESCRIPTION", *_paragraphs(commands.help or ""))
    yield ".SH COMMANDS"


def _end() -> Iterator[str]:
    yield from (".SH ENVIRONMENT", ".TP", ".B PERSISTENCE_NAME")
    yield _text("overrides the setting NAME of the settings file; options override both.")
    yield from (".SH FILES", ".TP", ".I config/persistence.toml")
    yield _text("is the settings file, unless --config names another one.")
    yield from (".SH SEE ALSO", *_wrapped(_SEE_ALSO), "")


def _described(path: tuple[str, ...], command: click.Command) -> Iterator[str]:
    """Yield the section of a command."""
    words = " ".join(path)
    whole = click.Context(commands, info_name="persistence", **commands.context_settings)
    context = click.Context(command, whole, words)
    usage = " ".join((f"persistence {words}", *command.collect_usage_pieces(context)))
    yield f".SS {_text(usage)}"
    yield from _paragraphs(command.help or "")
    for option in command.get_params(context):
        record = option.get_help_record(context) if isinstance(option, click.Option) else None
        if record is not None:
            yield from (".TP", rf"\fB{_text(record[0])}\fR", *_wrapped(record[1]))
    yield from (".PP", "Exit status:")
    for status, meaning in STATUSES[words].items():
        yield from (".TP", f".B {status}", *_wrapped(meaning))


def _paragraphs(text: str) -> Iterator[str]:
    """Yield the paragraphs of a help text; those with click's mark keep their lines."""
    for at, paragraph in enumerate(cleandoc(text).split("\n\n")):
        if at:
            yield ".PP"
        if paragraph.startswith(_AS_WRITTEN):
            yield from (".nf", *map(_text, paragraph.removeprefix(_AS_WRITTEN).split("\n")), ".fi")
        else:
            yield from _wrapped(paragraph)


def _wrapped(text: str) -> Iterator[str]:
    """Yield short lines of a text; they are filled again when the page is shown."""
    yield from map(_text, textwrap.wrap(" ".join(text.split()), _WIDTH, break_on_hyphens=False))


def _text(text: str) -> str:
    r"""Return text in which nothing is a request: a backslash, or a dot or quote that begins a line."""
    escaped = text.replace("\\", r"\e").replace("-", r"\-")
    return rf"\&{escaped}" if escaped.startswith((".", "'")) else escaped


if __name__ == "__main__":
    PAGE.write_text(page(datetime.now(UTC).date().isoformat()))
