"""gunicorn's log, in the format of the service.

There is one log: gunicorn's lines and those of libraries are formatted as the lines of the service, and go where these
go. gunicorn has no access log of its own, because the service logs a line for each request.

With the setting ``log_file``, gunicorn opens the file, and opens it again on SIGUSR1 and SIGHUP in every process;
standard error then leads to it. gunicorn's own ``capture_output`` would send standard output there, too, which may be
the audit.
"""

from __future__ import annotations

import logging
import os
import sys

from gunicorn.glogging import Logger

from persistence.errors import StartupError
from persistence.http.logs import ServerLines, apply, look
from persistence.settings import Settings
from persistence.storage import files


def require_log(settings: Settings) -> None:
    """Make sure that the file of the log can be written to, if there is one: gunicorn shows a traceback otherwise."""
    if settings.log_file:
        try:
            os.close(files.open_shared(settings.log_file, os.O_APPEND))
        except OSError as error:
            raise StartupError(f"cannot write the log to {settings.log_file}: {error.strerror or error}") from error


class ServerLog(Logger):  # type: ignore[misc]  # gunicorn ships no annotations
    """gunicorn's logger. The settings of the service decide its format and its level, before it is made and later."""

    def setup(self, cfg: object) -> None:
        """Set up the handlers as gunicorn does; then let them format, and let the level decide, as the service does."""
        super().setup(cfg)
        self._lead_standard_error()
        lines, libraries = ServerLines(), logging.StreamHandler()
        for handler in (*self.error_log.handlers, libraries):
            handler.setFormatter(lines)
        logging.getLogger().handlers[:] = [libraries]
        apply()

    def exception(self, msg: str, *args: object, **kwargs: object) -> None:
        """Log an error with its traceback, but for a transfer that stood still: that is a client's."""
        if isinstance(sys.exception(), (BlockingIOError, TimeoutError)):
            self.warning("closed a connection on which nothing has moved: progress_timeout")
        else:
            super().exception(msg, *args, **kwargs)

    def reopen_files(self) -> None:
        """Open the file again, after it was renamed. Until then all lines go into the renamed one."""
        super().reopen_files()
        self._lead_standard_error()

    def _lead_standard_error(self) -> None:
        for handler in self.error_log.handlers:
            if isinstance(handler, logging.FileHandler) and handler.stream is not None:
                os.dup2(handler.stream.fileno(), sys.stderr.fileno())
                look()
