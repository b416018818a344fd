"""The lines of the log: one format for the service, for gunicorn and for libraries, as JSON or for people.

Each process has one format and one level, which the settings decide.
"""

from __future__ import annotations

import logging
import re
import sys
import traceback
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Literal

from persistence.errors import one_line
from persistence.model.texts import json_line

LogFormat = Literal["auto", "json", "text"]
LogLevel = Literal["debug", "info", "warning", "error"]

LEVELS: dict[LogLevel, int] = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}
_PLAIN = re.compile(r"[\w./:@%+,*()-]+", re.ASCII)
_OF_PYTHON = {"critical": "error", "notset": "info"}


class _Chosen:
    """The format and the level of this process, before anybody has chosen."""

    format: LogFormat = "json"
    is_text = False
    level = logging.INFO


def choose(log_format: LogFormat, level: LogLevel) -> None:
    """Choose the format and the level; ``auto`` is for people where standard error is a terminal, else JSON."""
    _Chosen.format = log_format
    _Chosen.level = LEVELS[level]
    look()
    apply()


def look() -> None:
    """Look whether standard error is a terminal, as it may lead elsewhere by now."""
    _Chosen.is_text = _Chosen.format == "text" or (_Chosen.format == "auto" and sys.stderr.isatty())


def apply() -> None:
    """Let gunicorn log from the level of this process on, and libraries from warnings on at least."""
    logging.getLogger("gunicorn.error").setLevel(_Chosen.level)
    logging.getLogger().setLevel(max(_Chosen.level, logging.WARNING))


def line(facts: Mapping[str, Any]) -> bytes:
    """Return a line without its end; the facts have ``timestamp``, ``level`` and ``event``."""
    return _text(dict(facts)) if _Chosen.is_text else json_line(facts)


def write(event: str, level: LogLevel, facts: Mapping[str, object], exception: BaseException | None = None) -> None:
    """Write a line about an event to standard error, with its time, unless its level is below that of this process.

    Raises:
        OSError, ValueError: it cannot be written.
    """
    if LEVELS[level] < _Chosen.level:
        return
    every = {**facts, "event": event, "level": level, "timestamp": now()}
    if exception is not None:
        every["exception"] = "".join(traceback.format_exception(exception))
    stream = sys.stderr.buffer
    stream.write(line(every) + b"\n")
    stream.flush()


def announce(text: str, level: LogLevel = "info") -> None:
    """Write a line about the start of the service, or about its settings."""
    if not _Chosen.is_text:
        write("service", level, {"message": one_line(text)})
    elif LEVELS[level] >= _Chosen.level:
        sys.stderr.write(f"persistence: {one_line(text)}\n")
        sys.stderr.flush()


def now() -> str:
    """Return the time now as the log has it."""
    return f"{datetime.now(UTC).isoformat(timespec='microseconds').removesuffix('+00:00')}Z"


class ServerLines(logging.Formatter):
    """Formats what gunicorn and libraries log as the lines of the service are; the event is ``server``."""

    def format(self, record: logging.LogRecord) -> str:
        """Return a line."""
        level = record.levelname.lower()
        facts: dict[str, Any] = {
            "event": "server",
            "message": record.getMessage(),
            "pid": record.process,
            "level": _OF_PYTHON.get(level, level),
            "timestamp": now(),
        }
        if record.exc_info:
            facts["exception"] = self.formatException(record.exc_info)
        return line(facts).decode()


def _text(facts: dict[str, Any]) -> bytes:
    """Return a line for people: time, level, event or message, and the rest as ``name=value``."""
    timestamp, level = facts.pop("timestamp", now()), facts.pop("level", "info")
    event, exception = facts.pop("event", ""), facts.pop("exception", None)
    words = [timestamp, f"{level:<7}", one_line(str(facts.pop("message", event)))]
    words += [f"{name}={_value(value)}" for name, value in facts.items() if value is not None]
    text = " ".join(words)
    if exception:
        text += "".join(f"\n    {one_line(each)}" for each in str(exception).splitlines())
    return text.encode()


def _value(value: object) -> str:
    text = str(value)
    return text if _PLAIN.fullmatch(text) else json_line(text).decode()
