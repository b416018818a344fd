"""Bounds on archives of forms and data, which are exported and imported (spec crud 8.4)."""

from __future__ import annotations

LARGEST_ARCHIVE_METADATA = 4 << 20
"""Bytes of the facts of one revision. A sidecar has at most 1 MiB, and a character of it at most four in XML."""
