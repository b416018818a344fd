"""A persistence service for forms: definitions, data, drafts and attachments as plain files, over REST."""

from pathlib import Path

__version__ = "1.0.0rc1"

CONFIG_FILES = (
    "persistence.service",
    "persistence.socket",
    *(f"persistence-{task}.{kind}" for task in ("check", "backup", "purge") for kind in ("service", "timer")),
    "gunicorn.conf.py",
    "nginx.conf",
    "nginx-site.conf",
    "logrotate.conf",
    "prometheus-alerts.yml",
    "grafana-dashboard.json",
)  # The files that an administrator changes and installs

_PACKAGE = Path(__file__).parent


def shipped(name: str) -> bytes:
    """Return a file that ``setup.py`` has put into the installed package, or of the checkout that is run."""
    places = (_PACKAGE / "shipped", _PACKAGE.parent / "config", _PACKAGE.parent / "docs")
    return next(place / name for place in places if (place / name).is_file()).read_bytes()
