"""A process that makes the index of a large form ready, begun by a service (``making``)."""

from __future__ import annotations

import argparse
import sqlite3
import sys

from persistence.errors import BusyError, PersistenceError
from persistence.index.generations import Generations
from persistence.index.making import Maker, processors
from persistence.index.sources import Source
from persistence.model.addresses import Form
from persistence.store.layout import Layout
from persistence.store.view import View


def main() -> int:
    """Make the index ready; 1 where that was not possible, and the cause is said."""
    parser = argparse.ArgumentParser()
    for name in ("root", "app", "form", "data_format"):
        parser.add_argument(name)
    parser.add_argument("--designer", action="store_true")
    asked = parser.parse_args()
    form = Form(asked.app, asked.form)
    try:
        source = Source(View(asked.root), form, asked.data_format, is_designer=asked.designer)
        maker = Maker(asked.root, Generations(Layout(asked.root), form), source)
        maker.make(processes=processors(), timeout=0.0, progress=lambda _: None)
    except BusyError:
        return 0
    except (PersistenceError, sqlite3.Error, OSError) as error:
        sys.stderr.write(f"persistence: the index of {form} cannot be made: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
