"""The exit statuses of every command, a table for ``--help`` and the manual pages."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping

import click

FAILED = 1
"""Exit status: the work could not be done. Status 2 is for wrong usage."""
USAGE = 2
"""Exit status: the command line is wrong."""
REPAIRED = 3
"""Exit status: all findings are repaired."""
REMAINS = 4
"""Exit status: damage remains."""
EDITED = 5
"""Exit status: the worst findings are edits by hand that nobody has adopted."""

_FROM_BEST = (0, REPAIRED, EDITED, REMAINS, FAILED)

_WRONG_USAGE = "wrong usage"
_NO_KEYS = "the file of keys cannot be used"
_NO_SETTINGS = "the settings cannot be read, or one is not acceptable"
_TITLE = "Exit status: "
_WIDTH = 76

STATUSES: Mapping[str, Mapping[int, str]] = {
    "init": {
        0: "there is a service or a data directory now; the latter may have been there before",
        FAILED: "could not: the directory holds something else, or belongs to another user",
    },
    "demo": {0: "done", FAILED: "could not: the directory holds something, or the disk refused"},
    "serve": {
        0: "stopped by a signal",
        FAILED: "could not start, as its line says",
        3: "a worker could not start, as the log says",
        4: "a worker could not load the application, as the log says",
    },
    "health": {0: "ready", FAILED: "not ready, not alive, or cannot be reached"},
    "check-runtime": {
        0: "no step failed, and nothing is missing in FILE",
        FAILED: "could not check: the service cannot be reached or refuses the caller, or FILE cannot be read",
        REMAINS: "a step failed, something was not removed, or something is missing in FILE",
    },
    "config": {0: "printed", FAILED: _NO_SETTINGS},
    "config property": {0: "printed", FAILED: f"no such property; or {_NO_SETTINGS}"},
    "config route": {0: "printed", FAILED: f"no provider has the form; or {_NO_SETTINGS}"},
    "api-key new": {0: "made", FAILED: f"there is a key of that name, or too many; or {_NO_KEYS}"},
    "api-key list": {0: "listed, also where there are none", FAILED: _NO_KEYS},
    "api-key retire": {0: "retired", FAILED: f"no such key; or {_NO_KEYS}"},
    "encryption-key new": {0: "made", FAILED: f"the keys are given in the environment; or {_NO_KEYS}"},
    "encryption-key list": {0: "listed, also where there are none", FAILED: _NO_KEYS},
    "encryption-key retire": {
        0: "retired; or with --dry-run, nothing is encrypted with it",
        FAILED: f"no such key, or it encrypts, or not all places could be looked at; or {_NO_KEYS}",
        REMAINS: "something is encrypted with it, or cannot be read, as the lines say; the key is as it was",
    },
    "signing-key new": {0: "made", FAILED: f"there are too many; or {_NO_KEYS}"},
    "signing-key list": {0: "listed, also where there are none", FAILED: _NO_KEYS},
    "signing-key retire": {0: "retired", FAILED: f"no such key; or {_NO_KEYS}"},
    "password set": {0: "set", FAILED: f"there are too many; or {_NO_KEYS}"},
    "password list": {0: "listed, also where there are none", FAILED: _NO_KEYS},
    "password remove": {0: "removed", FAILED: f"the name has none; or {_NO_KEYS}"},
    "token": {
        0: "issued",
        FAILED: _NO_KEYS,
        USAGE: f"{_WRONG_USAGE}, also of an operation or a time that is not allowed",
    },
    "forms": {
        0: "all could be read",
        FAILED: "could not look: no such application or form, no data directory (or not in all of them)",
        REMAINS: "a version is damaged, as its line says",
    },
    "show": {
        0: "all could be read",
        FAILED: "there is nothing there, or it is damaged",
        REMAINS: "a part of it is damaged, as the lines say",
    },
    "history": {
        0: "all could be read",
        FAILED: "there is nothing there, or its current sidecar is damaged",
        REMAINS: "an older sidecar is damaged, as its line says",
    },
    "diff": {
        0: "compared, whether or not something differs",
        FAILED: "could not: no such revision, revisions of two form versions, one that is not published",
    },
    "revert": {
        0: "brought back",
        FAILED: "could not: no such revision, one of another form version, somebody else writes, another user's tree",
    },
    "search": {
        0: "searched, whatever was found",
        FAILED: "could not: no such form, version or indexed control, no data directory, another user's",
    },
    "leases": {
        0: "listed, or broken",
        FAILED: "could not: nobody has leased DOC, no data directory (or not in all of them), another user's",
        REMAINS: "a lease cannot be read, as its line says: persistence check --repair removes it",
    },
    "audit verify": {
        0: "nothing is wrong",
        FAILED: "there is no audit, or it cannot be read",
        REMAINS: "something is wrong, as the lines say",
    },
    "audit show": {
        0: "printed, also if no line matches",
        FAILED: "there is no audit, or it cannot be read",
    },
    "export": {
        0: "done",
        FAILED: "could not: no such form, no data directory, the disk refused",
        REMAINS: "something could not be exported, as its line on standard error says",
    },
    "import": {
        0: "imported, or there already",
        FAILED: "could not: no such file, no data directory, a full disk",
        REMAINS: "something was refused; the lines say what and why",
    },
    "check": {
        0: "nothing found, or only notices",
        FAILED: "could not check",
        REPAIRED: "something was found, and all of it is repaired",
        REMAINS: "damage or leftovers remain, or a remedy failed",
        EDITED: "edits by hand that nobody has adopted, and nothing worse",
    },
    "reindex": {0: "done", FAILED: "could not: no such form, no data directory, another user's"},
    "reencrypt": {
        0: "done",
        FAILED: "could not: no key, no such form, no data directory, another user's",
        REMAINS: "something could not be rewritten, and is as it was",
    },
    "backup": {
        0: "saved",
        FAILED: "could not save, or not all trees and directories; the lines say which",
        REMAINS: "saved, but some files are damaged, or were written wrongly (--verify); the lines say which",
    },
    "restore": {
        0: "restored",
        FAILED: "could not restore, or the backup has no such document",
        REMAINS: (
            "restored, but some files were damaged, the backup lacks a part, or encryption keys are missing; the lines "
            "say which"
        ),
    },
    "move": {
        0: "moved",
        FAILED: "could not move, or COMMAND failed",
        REMAINS: "something was not moved; the lines say what and why",
    },
    "purge": {
        0: "done",
        FAILED: "could not: no such form or document, no data directory, another user's",
        USAGE: f"{_WRONG_USAGE}, or a date in the future",
        REMAINS: "something could not be purged, as its line says",
    },
    "erase": {0: "done, or listed", FAILED: "could not: no such document, no backup, another user's tree"},
    "upgrade": {0: "done, or nothing to do", FAILED: "could not upgrade a tree, as its line says"},
    "help": {0: "printed", USAGE: f"{_WRONG_USAGE}, also an unknown command"},
    "version": {0: "printed"},
}
"""The exit statuses of each command with their meanings; that of wrong usage only if it has another meaning."""


def worst(statuses: Iterable[int]) -> int:
    """Return the worst exit status; a tree that could not be read is worse than damage."""
    return max(statuses, key=_FROM_BEST.index, default=0)


def meanings(name: str) -> list[tuple[int, str]]:
    return sorted({USAGE: _WRONG_USAGE, **STATUSES[name]}.items())


def state(name: str, command: click.Command) -> None:
    """Let the help of a command, or of its subcommands, end with its exit statuses."""
    if name in STATUSES:
        command.epilog = "\b\n" + "\n".join(_lines(name))
    for subcommand, each in command.commands.items() if isinstance(command, click.Group) else ():
        state(f"{name} {subcommand}", each)


def _lines(name: str) -> Iterator[str]:
    title = _TITLE
    for status, meaning in meanings(name):
        indent = f"{title}{status}  "
        yield from textwrap.wrap(meaning, _WIDTH, initial_indent=indent, subsequent_indent=" " * len(indent))
        title = " " * len(_TITLE)
