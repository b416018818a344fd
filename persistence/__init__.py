"""A persistence service for forms: definitions, data, drafts and attachments as plain files, over REST."""

from pathlib import Path

__version__ = "0.1.0"

_PACKAGE = Path(__file__).parent
_CHECKOUT = {"persistence.toml": "config", "openapi.yaml": "docs"}
"""The shipped files, and the directories of a checkout that have them. ``setup.py`` copies them into the wheel."""


def shipped(name: str) -> bytes:
    """Return a file that is shipped with the installed package, or of the checkout that is run."""
    installed = _PACKAGE / name
    return (installed if installed.is_file() else _PACKAGE.parent / _CHECKOUT[name] / name).read_bytes()
