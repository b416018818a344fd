"""``persistence serve``: gunicorn with the service's own settings."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from functools import partial

import click
from flask import Flask
from gunicorn.app.base import Application

from persistence import settings as configuration
from persistence.app import create_app, policy_of, warn_of, warn_of_properties
from persistence.cli import descriptors
from persistence.cli.options import settings_options
from persistence.opening import open_encryption_keys, probe
from persistence.settings import Settings


class Server(Application):  # type: ignore[misc]  # gunicorn ships no annotations
    """gunicorn, told by settings instead of its own command line."""

    def __init__(self, settings: Settings, application: Callable[[], Flask]) -> None:
        self._settings = settings
        self._application = application
        super().__init__()

    def load_config(self) -> None:
        """Take gunicorn's own file for the fine tuning, and the service's settings for the rest."""
        # What nginx relies on, also where gunicorn's own file is not there; the file says why.
        self.cfg.set("keepalive", 75)
        self.cfg.set("limit_request_line", 8190)
        self.cfg.set("limit_request_field_size", 16380)
        self.cfg.set("forwarder_headers", "")
        if os.path.exists(self._settings.gunicorn):
            self.load_config_from_file(self._settings.gunicorn)
        # Slow clients block sync workers, which are then killed in the middle of a transfer.
        self.cfg.set("worker_class", "gthread")
        self.cfg.set("bind", self._settings.bind)
        self.cfg.set("workers", self._settings.workers)
        self.cfg.set("threads", self._settings.threads)
        self.cfg.set("post_worker_init", _leave_interrupts_to_the_master)
        # Its default path is one per user: two services would share it.
        self.cfg.set("control_socket_disable", True)  # noqa: FBT003 - gunicorn's signature

    def load(self) -> Flask:
        """The application, once in each worker."""
        return self._application()


def _leave_interrupts_to_the_master(_worker: object) -> None:
    """Ctrl-C reaches every process of the terminal; two signals at once can hang a worker that is stopping."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@click.command()
@settings_options
def serve(file: str | None, **flags: object) -> None:
    """Serve forms over HTTP until stopped."""
    descriptors.allow_most()
    effective = configuration.load(file, flags)
    settings = effective.settings
    policy = policy_of(settings)  # now, for a worker that starts anew must not decide otherwise
    open_encryption_keys(settings, effective.properties)  # what they are refused for is said once
    warn_of_properties(effective.properties)
    warn_of(probe(settings, effective.properties))  # once, not by every worker
    Server(settings, partial(create_app, settings, effective.properties, policy)).run()
