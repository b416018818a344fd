"""Durations on the command line: 90s, 10m, 1h30m."""

from __future__ import annotations

import re

import click

_PARTS = re.compile(r"(?:(\d{1,6})h)?(?:(\d{1,6})m)?(?:(\d{1,6})s?)?", re.ASCII)


class Duration(click.ParamType[float]):
    """A time span, which becomes seconds."""

    name = "duration"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Read hours, minutes and seconds, each at most once and in this order; a bare number is seconds."""
        if isinstance(value, float):
            return value
        match = _PARTS.fullmatch(str(value))
        hours, minutes, seconds = (int(part or 0) for part in match.groups()) if match else (0, 0, 0)
        total = hours * 3600 + minutes * 60 + seconds
        if not total:
            self.fail(f"{value!r} is no time span such as 90s, 10m or 1h30m", param, ctx)
        return float(total)
