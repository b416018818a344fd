"""``persistence serve``: gunicorn with the service's own settings and workers."""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
from collections.abc import Callable

import click
from flask import Flask
from gunicorn.app.base import Application
from gunicorn.glogging import Logger

from persistence import gunicorn_worker, processors, starting
from persistence.app import wired
from persistence.cli.options import allow_open_files, load, settings_options
from persistence.errors import DiskError, PersistenceError, StartupError
from persistence.http.logs import ServerLines, announce, apply, choose, look
from persistence.metrics import service as metrics
from persistence.providers.opened import init_places
from persistence.settings import Settings, require_own
from persistence.starting import Served
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


class Server(Application):  # type: ignore[misc]  # gunicorn ships no annotations
    """gunicorn, configured by the settings instead of its own command line. ``read`` reads them again on SIGHUP."""

    def __init__(self, served: Served, read: Callable[[], Served]) -> None:
        self._served = served
        self._read = read
        super().__init__()

    def load_config(self) -> None:
        """Apply gunicorn's own file for the fine tuning, and the service's settings for the rest."""
        settings = self._served.settings
        # What nginx relies on, also where gunicorn's own file is not there; the file says why.
        self.cfg.set("keepalive", 75)
        self.cfg.set("limit_request_line", 8190)
        self.cfg.set("limit_request_field_size", 16380)
        self.cfg.set("forwarder_headers", "")
        if os.path.exists(settings.gunicorn):
            require_own(settings.gunicorn)
            self.load_config_from_file(settings.gunicorn)
        # Slow clients block sync workers, which are then killed in the middle of a transfer.
        self.cfg.set("worker_class", "persistence.gunicorn_worker.Worker")
        self.cfg.set("logger_class", "persistence.cli.serve.ServerLog")
        self.cfg.set("errorlog", settings.log_file or "-")
        self.cfg.set("bind", list(settings.binds))
        self.cfg.set("workers", processors.workers(settings.workers))
        self.cfg.set("threads", settings.threads)
        self.cfg.set("post_worker_init", _leave_interrupts_to_the_master)
        self.cfg.set("on_starting", _begin_metrics)
        self.cfg.set("child_exit", gunicorn_worker.forget)
        # Its default path is one per user: two services would share it.
        self.cfg.set("control_socket_disable", True)  # noqa: FBT003 - gunicorn's signature

    def reload(self) -> None:
        """Read the settings again; if they cannot be served, the old ones stay in force, and the log says why."""
        before, config = self._served, self.cfg  # type: ignore[has-type]  # gunicorn ships no annotations
        try:
            self._served = self._read()
            require_log(self._served.settings)
            for bind in set(self._served.settings.binds) - set(before.settings.binds):
                starting.require_free(bind)
            super().reload()
        except (PersistenceError, SystemExit) as error:  # gunicorn exits where its own file cannot be read
            self._served, self.cfg = before, config
            cause = error if isinstance(error, PersistenceError) else f"{before.settings.gunicorn} is not acceptable"
            choose(before.settings.log_format, before.settings.log_level)
            announce(f"the settings were read again and not taken, the old ones count: {cause}", "error")
        else:
            _announce(self._served, "the settings were read again")

    def load(self) -> Flask:
        """Return the application; called once in each worker."""
        served = self._served
        return wired(served.effective, served.policy)


def _leave_interrupts_to_the_master(_worker: object) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _begin_metrics(_arbiter: object) -> None:
    try:
        metrics.begin()
    except DiskError as error:
        announce(str(error), "error")


def _announce(served: Served, *first: str) -> None:
    for line in (*first, *starting.lines(served)):
        announce(line)


@click.command(short_help="Serve forms over HTTP until stopped.")
@click.option("--init", "is_init", is_flag=True, help="Make data directories that are missing or empty.")
@settings_options
def serve(*, is_init: bool, **options: object) -> None:
    """Serve forms over HTTP until stopped. Run it as the user to whom the data directories belong.

    \b
    Signals: TERM   stop when the requests that run are answered
             HUP    read the settings again, and replace the workers
             USR1   open the file of the log again, after it was renamed
             USR2   start a new service on the same address, for new
                    software; then TERM to this one
    """  # noqa: D301 - click's mark for lines that stay apart
    allow_open_files()
    effective = load(options)
    if is_init:
        init_places(effective.settings, effective.properties)
    served = Served.of(effective)
    for bind in served.settings.binds:
        starting.require_free(bind)
    require_log(served.settings)
    _announce(served)
    sys.argv = sys.orig_argv[1:]  # what gunicorn starts again on SIGUSR2: without this, -m would be lost
    # Workers share what is loaded by now for as long as nobody visits it, and end without visiting it one by one.
    gc.freeze()
    Server(served, lambda: Served.of(load(options))).run()
