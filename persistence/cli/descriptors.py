"""How many files a process may have open."""

from __future__ import annotations

import resource


def allow_most() -> None:
    """As many as the system lets it have: all attachments of a document or a form are open at once."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
