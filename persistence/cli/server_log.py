"""gunicorn's log, in the format of the service.

There is one log: gunicorn's lines and those of libraries are formatted as the lines of the service, and go where these
go. gunicorn has no access log of its own, because the service logs a line for each request.
"""

from __future__ import annotations

import logging

from gunicorn.glogging import Logger

from persistence.http.log_lines import ServerLines, apply


class ServerLog(Logger):  # type: ignore[misc]  # gunicorn ships no annotations
    """gunicorn's logger. The settings of the service decide its format and its level, before it is made and later."""

    def setup(self, cfg: object) -> None:
        """Set up the handlers as gunicorn does; then let them format, and let the level decide, as the service does."""
        super().setup(cfg)
        lines, libraries = ServerLines(), logging.StreamHandler()
        for handler in (*self.error_log.handlers, libraries):
            handler.setFormatter(lines)
        logging.getLogger().handlers[:] = [libraries]
        apply()
