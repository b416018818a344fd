"""A pseudo-terminal for tests: what a program writes to it, and what a person sees then."""

import fcntl
import os
import pty
import re
import struct
import termios
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

_ROWS = 200
_CONTROL = re.compile(r"\x1b\[([0-9;?]*)([A-Za-z])")


class Terminal:
    """A terminal of so many columns; ``stream`` is its other end."""

    def __init__(self, columns: int) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", _ROWS, columns, 0, 0))
        self.stream: TextIO = os.fdopen(theirs, "w", encoding="utf-8")
        self._shown = bytearray()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        try:
            while chunk := os.read(self._ours, 1 << 16):
                self._shown += chunk
        except OSError:  # the other end is closed
            return

    def text(self) -> str:
        """Close the terminal, and return everything that was written."""
        self.stream.close()
        self._reader.join(timeout=10)
        os.close(self._ours)
        return self._shown.decode()


@contextmanager
def terminal(columns: int = 80) -> Iterator[Terminal]:
    """Open a terminal for a block."""
    found = Terminal(columns)
    yield found
    found.stream.close()


def screen(text: str) -> list[str]:
    """Return the lines that are to be seen at the end, without colours."""
    lines, row, column, at = [""], 0, 0, 0
    while at < len(text):
        control = _CONTROL.match(text, at)
        if control is not None:
            if control[2] == "A":
                row -= int(control[1] or 1)
            elif control[2] == "K":
                lines[row] = ""
            at = control.end()
            continue
        if text[at] == "\r":
            column = 0
        elif text[at] == "\n":
            row += 1
            lines += [""] * (row + 1 - len(lines))
        else:
            line = lines[row].ljust(column)
            lines[row] = f"{line[:column]}{text[at]}{line[column + 1 :]}"
            column += 1
        at += 1
    return [line.rstrip() for line in lines]
