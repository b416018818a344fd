"""gunicorn's own settings, for `persistence serve` and for `gunicorn -c`."""

import sys

from gunicorn.arbiter import Arbiter

from persistence import gunicorn_worker, processes
from persistence.app import policy_of
from persistence.cli import serve
from persistence.cli.serve import require_log
from persistence.errors import PersistenceError
from persistence.http.logs import announce, choose
from persistence.metrics import service as metrics
from persistence.settings import load

# gunicorn's gthread, whose workers are replaced when they have grown past the setting worker_memory.
worker_class = "persistence.gunicorn_worker.Worker"
# The parser in C of gunicorn_h1c, if it is installed.
http_parser = "auto"

# Read the service's settings from its file and the environment. `persistence serve` adds its flags.
try:
    _effective = load()
except PersistenceError as error:
    sys.exit(f"persistence: {error}")
_settings = _effective.settings
bind = list(_settings.binds)
workers = processes.workers(_settings.workers)
threads = _settings.threads

# Seconds after which a worker that does not report to its master is killed. A slow transfer does not count.
timeout = 60
# Seconds that a stopping worker has to finish its transfers.
graceful_timeout = 30
# Seconds for which an idle connection is kept: longer than nginx keeps it, so that nginx is the side that closes.
keepalive = 75
# Bytes: room for four percent-encoded names of up to 255 bytes in a path.
limit_request_line = 8190
# Bytes: room for a credentials header with many roles. nginx passes 16 KiB.
limit_request_field_size = 16380
# Only nginx on this machine may name the client.
forwarded_allow_ips = "127.0.0.1,::1"
# Nobody may set the prefix of paths: a request outside of it would be answered 500.
forwarder_headers = ""
# Heartbeats of the workers are in memory, so that a slow disk does not look like a dead worker.
worker_tmp_dir = "/dev/shm"  # noqa: S108 - that is the point of it
# The service itself logs one line for each request.
accesslog = None
# gunicorn's own lines have the format and the level of the service's.
logger_class = "persistence.cli.serve.ServerLog"
choose(_settings.log_format, _settings.log_level)
# gunicorn opens it, and again on SIGUSR1; the logger leads standard error to it.
errorlog = _settings.log_file or "-"
# Its default path is the same for all services of a user.
control_socket_disable = True


# The gauges of a worker end with it.
child_exit = gunicorn_worker.forget


def on_starting(server: Arbiter) -> None:
    """Print what is served, to whom and where, and make room for metrics; exit if the address is in use.

    `persistence serve` does so itself.
    """
    try:
        for bind in server.cfg.bind:
            serve.require_free(bind)
        require_log(_settings)
        served = serve.Served(_effective, policy_of(_settings))
        for line in serve.start_lines(served, server.cfg.bind[0]):
            announce(line)
        metrics.begin()
    except PersistenceError as error:
        sys.stderr.write(f"persistence: {error}\n")
        sys.exit(4)
