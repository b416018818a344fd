"""The path of a request through the project: functions called, files visited, and calls of the file system.

``python bench/calls.py`` starts the application in this process, on a tree in a temporary directory, and traces one
GET of a ``data.xml``, one PUT over it, one search and one publication of a definition, each after one that warms up.
``--walk get`` prints the calls of the GET one under the other instead, indented by depth.

The functions are those of ``persistence/`` that run on the thread of the request, generators once each however often
they are resumed, comprehensions not at all (``sys.setprofile``). A crossing is a call from one file to another one.
The file system's column counts system calls on files and descriptors on the same thread, those of SQLite too; it is
empty where ``strace`` is not installed. Only the command line and HTTP are used, so that older states can be measured
with the same script (``PYTHONPATH=OLDER python bench/calls.py``).
"""

from __future__ import annotations

import argparse
import inspect
import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import persistence
from persistence.app import create_app
from persistence.settings import Settings

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication

CRUD = "/fr/service/persistence/crud/acme/order"
FIELDS = ("name", "city", "status", "amount")
BODY = b"<form><order><name>Ann</name><city>Paris</city>%s</order></form>" % (b"<line>a line of it</line>" * 200)
SEARCH = b'<search><query path="order/city" match="exact">Paris</query></search>'
_PACKAGE = os.path.dirname(persistence.__file__) + os.sep
_COMPREHENSIONS = frozenset({"<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"})
_MARK = "/bench-calls/"
_SETTLED = 1.0
"""Seconds after which the updater has taken up what was saved. Before, a search looks at those documents, too."""
_SYSTEM_CALL = re.compile(r"(\d+) +(\w+)\((?!2,)")  # 2 is standard error, where the log goes


def definition() -> bytes:
    """A form definition with as many indexed controls as there are fields."""
    binds = "".join(f'<xf:bind id="{name}-bind" name="{name}" ref="{name}"/>' for name in FIELDS)
    inputs = "".join(
        f'<fr:c><xf:input id="{name}-control" bind="{name}-bind"><fr:index/></xf:input></fr:c>' for name in FIELDS
    )
    return f"""<xh:html xmlns:xh="http://www.w3.org/1999/xhtml" xmlns:xf="http://www.w3.org/2002/xforms"
 xmlns:fr="http://orbeon.org/oxf/xml/form-runner"><xh:head><xf:model id="fr-form-model">
<xf:instance id="fr-form-instance"><form><order/></form></xf:instance>
<xf:bind id="fr-form-binds" ref="instance('fr-form-instance')"><xf:bind id="order-bind" name="order" ref="order">
{binds}</xf:bind></xf:bind><xf:instance id="fr-form-metadata"><metadata><application-name>acme</application-name>
<form-name>order</form-name></metadata></xf:instance></xf:model></xh:head><xh:body><fr:view><fr:body>
<fr:section id="order-section" bind="order-bind"><fr:grid id="g-grid">{inputs}</fr:grid></fr:section>
</fr:body></fr:view></xh:body></xh:html>""".encode()


@dataclass(frozen=True)
class Request:
    """A request, and the statuses that it is answered with: ``first`` where it is new."""

    method: str
    path: str
    body: bytes = b""
    status: int = 200
    first: int = 0


REQUESTS = {
    "publish": Request("PUT", f"{CRUD}/form/form.xhtml", definition(), 204, 201),
    "put": Request("PUT", f"{CRUD}/data/1/data.xml", BODY, 204, 201),
    "get": Request("GET", f"{CRUD}/data/1/data.xml"),
    "search": Request("POST", "/fr/service/persistence/search/acme/order", SEARCH),
}
"""In the order in which they are sent: each needs those before."""


class Trace:
    """The calls of one request; ``walk`` has the depth, the file and the name of each."""

    def __init__(self) -> None:
        self.walk: list[tuple[int, str, str]] = []
        self.crossings = 0
        self._files: list[str] = []
        self._generators: dict[int, FrameType] = {}

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        """Record an event of ``sys.setprofile``."""
        code = frame.f_code
        if not code.co_filename.startswith(_PACKAGE) or code.co_name in _COMPREHENSIONS:
            return
        if event == "return":
            self._files.pop()
        elif event == "call":
            file = code.co_filename.removeprefix(_PACKAGE)
            if not self._is_resumed(frame):
                self.walk.append((len(self._files) + 1, file, code.co_qualname))
                self.crossings += bool(self._files) and self._files[-1] != file
            self._files.append(file)

    def _is_resumed(self, frame: FrameType) -> bool:
        """Return whether a generator goes on; its frame is kept, so that no other one gets its id."""
        if not frame.f_code.co_flags & inspect.CO_GENERATOR:
            return False
        known = id(frame) in self._generators
        self._generators[id(frame)] = frame
        return known


def answer(app: WSGIApplication, request: Request) -> None:
    """Send a request as gunicorn does, and read the answer to its end."""
    environ = {
        "REQUEST_METHOD": request.method,
        "SCRIPT_NAME": "",
        "PATH_INFO": request.path,
        "RAW_URI": request.path,
        "QUERY_STRING": "",
        "SERVER_NAME": "127.0.0.1",
        "SERVER_PORT": "8080",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "REMOTE_ADDR": "127.0.0.1",
        "HTTP_HOST": "127.0.0.1:8080",
        "HTTP_SVC_FORM_DEFINITION_VERSION": "1",
        "CONTENT_TYPE": "application/xml",
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": "http",
        "wsgi.input": io.BytesIO(request.body),
        "wsgi.input_terminated": True,
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": True,
        "wsgi.multiprocess": True,
        "wsgi.run_once": False,
    }
    if request.body:
        environ["CONTENT_LENGTH"] = str(len(request.body))
    said: list[str] = []
    body = app(environ, lambda status, *_: said.append(status))  # type: ignore[arg-type]
    try:
        b"".join(body)
    finally:
        getattr(body, "close", lambda: None)()
    if int(said[0][:3]) != request.status:
        print(f"{request.method} {request.path}: {said[0]}, not {request.status}")
        sys.exit(1)


def traced(app: WSGIApplication) -> dict[str, Trace]:
    """Send each request twice, and trace the second one."""
    traces = {}
    for name, request in REQUESTS.items():
        answer(app, replace(request, status=request.first or request.status))
        time.sleep(_SETTLED)
        traces[name] = trace = Trace()
        sys.setprofile(trace)
        try:
            answer(app, request)
        finally:
            sys.setprofile(None)
    return traces


def marked(app: WSGIApplication) -> None:
    """Send each request twice, and mark for ``strace`` the begin and the end of the second one."""
    for name, request in REQUESTS.items():
        answer(app, replace(request, status=request.first or request.status))
        time.sleep(_SETTLED)
        os.access(f"{_MARK}{name}", os.F_OK)
        answer(app, request)
        os.access(f"{_MARK}end", os.F_OK)


def system_calls(directory: str) -> dict[str, Counter[str]]:
    """Count the system calls on files of each request, in a process of its own; none without ``strace``."""
    if shutil.which("strace") is None:
        return {}
    output = os.path.join(directory, "strace")
    command = ["strace", "-f", "-qq", "-e", "trace=%file,%desc", "-o", output, sys.executable, __file__, "--marked"]
    subprocess.run(command, check=True)
    counts: dict[str, Counter[str]] = {}
    thread, name = "", "end"
    for line in Path(output).read_text(errors="replace").splitlines():
        if (found := _SYSTEM_CALL.match(line)) is None:
            continue
        if _MARK in line:
            thread, name = found[1], line.partition(_MARK)[2].partition('"')[0]
        elif found[1] == thread and name != "end":
            counts.setdefault(name, Counter())[found[2]] += 1
    return counts


def table(traces: dict[str, Trace], calls: dict[str, Counter[str]]) -> None:
    """Print the sums of each request, then the calls and the files of each part of the project."""
    print(f"{'':14}" + "".join(f"{name:>12}" for name in traces))
    rows: list[tuple[str, Callable[[str, Trace], object]]] = [
        ("calls", lambda _, trace: len(trace.walk)),
        ("files", lambda _, trace: len({file for _, file, _ in trace.walk})),
        ("crossings", lambda _, trace: trace.crossings),
        ("depth", lambda _, trace: max(depth for depth, _, _ in trace.walk)),
        ("file system", lambda name, _: calls[name].total() if calls else ""),
    ]
    for title, value in rows:
        print(f"{title:14}" + "".join(f"{value(name, trace):>12}" for name, trace in traces.items()))
    print("\ncalls/files of")
    for part in sorted({_part(file) for trace in traces.values() for _, file, _ in trace.walk}):
        print(f"{part:14}" + "".join(f"{_of_part(trace, part):>12}" for trace in traces.values()))


def _of_part(trace: Trace, part: str) -> str:
    files = [file for _, file, _ in trace.walk if _part(file) == part]
    return f"{len(files)}/{len(set(files))}"


def _part(file: str) -> str:
    return file.partition(os.sep)[0].removesuffix(".py")


def main() -> None:
    """Trace the requests, and print a table or a walk."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--walk", choices=REQUESTS, help="print the calls of one request")
    parser.add_argument("--files", action="store_true", help="print the system calls of each request")
    parser.add_argument("--marked", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        data = os.path.join(directory, "data")
        subprocess.run(
            [sys.executable, "-m", "persistence.cli", "init", "--data", data], check=True, stdout=subprocess.DEVNULL
        )
        with open(os.path.join(directory, "log"), "wb") as log:
            os.dup2(log.fileno(), 2)  # where the service writes a line for each request
        with create_app(Settings(data=data, bind="127.0.0.1:8080")) as app:
            if asked.marked:
                marked(app)
                return
            traces = traced(app)
        if asked.walk:
            for depth, file, name in traces[asked.walk].walk:
                print(f"{'  ' * (depth - 1)}{file}:{name}")
            return
        counts = system_calls(directory)
        table(traces, counts)
        if asked.files:
            for name, found in counts.items():
                print(f"\n{name}: " + ", ".join(f"{count} {call}" for call, count in found.most_common()))


if __name__ == "__main__":
    main()
