"""``python -m persistence.cli`` is the command ``persistence``."""

from persistence.cli import main

main()
