"""How fast forms and data are exported, as an archive and as tables, and the memory that takes, beside tar and zip.

``python bench/export.py [DOCUMENTS]`` makes a tree in a temporary directory and prints a table. One document has 5 KB.
tar and zip copy the files as they are; an export also reads each sidecar, compares each digest and writes metadata.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from maintenance import timed
from orders import APP, FORM, Orders, plant

_DOCUMENTS = 100_000
_SIZE = 5000
_COMMAND = (sys.executable, "-m", "persistence.cli", "export")


def main() -> None:
    """Make the tree, run the commands on it, print the table."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else _DOCUMENTS
    with tempfile.TemporaryDirectory(prefix="persistence-bench-") as name:
        scratch = Path(name)
        plant(scratch / "data", Orders(count, _SIZE))
        tree = ("--data", f"{scratch}/data", "--match", f"{APP}/{FORM}/1")
        runs = (
            ("tar", ("tar", "-cf", f"{scratch}/x.tar", "-C", f"{scratch}/data", APP)),
            ("tar --gzip", ("tar", "-czf", f"{scratch}/x.tgz", "-C", f"{scratch}/data", APP)),
            ("zip -r", ("zip", "-r", "-q", f"{scratch}/files.zip", f"{scratch}/data/{APP}")),
            ("export", (*_COMMAND, f"{scratch}/x.zip", *tree)),
            ("export --history include", (*_COMMAND, f"{scratch}/x.zip", "--history", "include", *tree)),
            ("export, none in its range of dates", (*_COMMAND, f"{scratch}/x.zip", "--until", "2001-01-01", *tree)),
            ("export --csv", (*_COMMAND, f"{scratch}/x.csv", "--csv", *tree)),
            ("export --jsonl", (*_COMMAND, f"{scratch}/x.jsonl", "--jsonl", *tree)),
            ("export --xlsx", (*_COMMAND, f"{scratch}/x.xlsx", "--xlsx", *tree)),
            ("export --parquet", (*_COMMAND, f"{scratch}/p.zip", "--parquet", *tree)),
        )
        print(f"{count} documents\n")
        print("| | seconds | documents a second | times zip | most memory, MB |\n|---|--:|--:|--:|--:|")
        rows = [(title, *timed(command)) for title, command in runs]
        zipping = rows[2][1]
        for title, seconds, memory in rows:
            print(f"| {title} | {seconds:.1f} | {count / seconds:.0f} | {seconds / zipping:.2f} | {memory:.0f} |")


if __name__ == "__main__":
    main()
