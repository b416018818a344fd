"""``persistence`` as a person runs it: a process of its own, on the data directory of a service."""

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests import forkserver

_LONGEST = 300.0


def persistence(
    *arguments: str,
    data: Path | None = None,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    module: str = "persistence.cli",
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, in a directory, or on a data directory and beside it."""
    given = arguments if data is None else (*arguments, "--data", str(data))
    cwd = cwd or data.parent if data else cwd
    return forkserver.run(module, given, cwd=cwd, env={**os.environ, **(env or {})}, timeout=_LONGEST)


def findings(done: subprocess.CompletedProcess[str]) -> list[dict[str, str]]:
    """Everything that ``check --json`` found; the summary is left out."""
    return [finding for line in done.stdout.splitlines() if "kind" in (finding := json.loads(line))]
