"""gunicorn's fine tuning, for `persistence serve` and for `gunicorn -c`."""

import sys

from persistence import starting
from persistence.app import policy_of
from persistence.errors import PersistenceError
from persistence.settings import load

# The service's own settings, from its file and the environment; `persistence serve` adds its flags.
try:
    _effective = load()
except PersistenceError as error:
    sys.exit(f"persistence: {error}")
_settings = _effective.settings
bind = _settings.bind
workers = _settings.workers
threads = _settings.threads

# gunicorn's gthread, which gives memory back, and is replaced where it has grown past the setting worker_memory.
worker_class = "persistence.worker.Worker"

# A worker that does not answer its master for this long is killed. With gthread a slow transfer does not count.
timeout = 60
# What a stopping worker may take to finish its transfers.
graceful_timeout = 30
# nginx keeps connections open; so must this side, longer than nginx does.
keepalive = 75
# Names of up to 255 bytes, percent-encoded, four to a path.
limit_request_line = 8190
# A credentials header with many roles; nginx lets 16 KiB through.
limit_request_field_size = 16380
# Only nginx on this machine may say who is calling.
forwarded_allow_ips = "127.0.0.1,::1"
# And nobody may say where the path of a request begins: one that does not begin there would be answered 500.
forwarder_headers = ""
# Heartbeats of the workers: in memory, so that a slow disk does not look like a dead worker.
worker_tmp_dir = "/dev/shm"  # noqa: S108 - that is the point of it
# The service logs its requests itself, one line each.
accesslog = None
# Its default path is one per user: two services would share it.
control_socket_disable = True


def on_starting(server):
    """Say what is served, to whom and where, and stop if the address is taken; `persistence serve` does so itself."""
    try:
        for bind in server.cfg.bind:
            starting.require_free(bind)
        served = starting.Served(_settings, _effective.properties, policy_of(_settings))
        for line in starting.lines(served, server.cfg.bind[0]):
            sys.stderr.write(starting.said(line))
    except PersistenceError as error:
        sys.stderr.write(starting.said(str(error)))
        sys.exit(4)
