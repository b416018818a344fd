"""``python -m persistence`` is the command ``persistence``."""

from persistence.cli import main

main()
