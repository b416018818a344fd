"""Attachments of 64 MiB, encrypted at rest and plain, PUT and GET in turn; and 5 KB of data with a marked value.

One client, the public API. Prints a table with ratios; judges nothing.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
from collections.abc import Callable, Mapping

from client import BODY, Connection, request
from servers import SERVICE, server

_PREFIX = "/fr/service/persistence/crud/bench/form"
_XML = {"Content-Type": "application/xml", "Svc-Form-Definition-Version": "1"}
_FR = "http://orbeon.org/oxf/xml/form-runner"
_NAMESPACES = 'xmlns:xh="http://www.w3.org/1999/xhtml" xmlns:xf="http://www.w3.org/2002/xforms"'
_FORM = f"""<xh:html {_NAMESPACES} xmlns:fr="{_FR}"><xh:head>
<xf:model id="fr-form-model"><xf:instance id="fr-form-instance"><form/></xf:instance>
<xf:bind id="fr-form-binds" ref="instance('fr-form-instance')">
<xf:bind id="scan-bind" ref="scan" name="scan"/></xf:bind>
</xf:model></xh:head><xh:body><fr:body><fr:section id="s-section"><fr:grid id="g-grid">
<fr:c><fr:attachment id="scan-control" bind="scan-bind">{{}}</fr:attachment></fr:c>
</fr:grid></fr:section></fr:body></xh:body></xh:html>"""
"""A form with one attachment, which is marked or not."""


class Client(Connection):
    """One connection to the form."""

    def form(self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None) -> float:
        """Return the seconds that a request takes."""
        fields = [f"{name}: {value}" for name, value in (headers or {}).items()]
        return self.seconds(request(method, f"{_PREFIX}{path}", body, fields))


def main() -> None:
    """Measure and print."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rounds", type=int, default=7, help="measurements of each, in turn")
    arguments.add_argument("--size", type=int, default=64, help="MiB in an attachment")
    arguments.add_argument("--data", default=None, help="directory to write in (default: a temporary one)")
    options = arguments.parse_args()
    content = os.urandom(options.size << 20)
    os.environ["PERSISTENCE_ENCRYPTION_KEY"] = f"bench:{os.urandom(32).hex()}"
    with tempfile.TemporaryDirectory(dir=options.data) as directory, server(SERVICE, f"{directory}/data", 2, 8) as port:
        client = Client(port)
        client.form("PUT", "/form/form.xhtml", _FORM.format("<fr:encrypt/>").encode(), _XML)
        client.form("PUT", "/data/1/data.xml", b"<form/>", _XML)
        sent = {"Content-Type": "application/octet-stream", "Svc-Form-Definition-Version": "1"}
        marked = {**sent, "Svc-Path-To-Holder": "scan"}
        client.form("PUT", "/form/form.xhtml", _FORM.format("").encode(), {**_XML, "Svc-Form-Definition-Version": "2"})
        second = {**_XML, "Svc-Form-Definition-Version": "2"}
        value = BODY.replace(b"<form>", f'<form xmlns:fr="{_FR}"><scan>Lea Example</scan>'.encode())

        def put(name: str, headers: dict[str, str]) -> Callable[[], float]:
            return lambda: client.form("PUT", f"/data/1/{name}.bin", content, headers)

        def get(name: str, headers: dict[str, str]) -> Callable[[], float]:
            return lambda: client.form("GET", f"/data/1/{name}.bin", headers=headers)

        def many(path: str, headers: dict[str, str]) -> Callable[[], float]:
            return lambda: sum(client.form("PUT", path, value, headers) for _ in range(100))

        def read(path: str) -> Callable[[], float]:
            return lambda: sum(client.form("GET", path) for _ in range(300))

        rows = [
            (f"PUT {options.size} MiB, MiB/s", options.size, put("a", marked), put("b", sent)),
            (f"GET {options.size} MiB, MiB/s", options.size, get("a", {"Svc-Decrypt": "true"}), get("b", {})),
            ("PUT 5 KB data.xml, one value, /s", 100, many("/data/2/data.xml", _XML), many("/data/3/data.xml", second)),
            ("GET 5 KB data.xml, one value, /s", 300, read("/data/2/data.xml"), read("/data/3/data.xml")),
        ]
        print(f"{'':38}{'encrypted':>11}{'plain':>12}{'ratio':>8}   min..max of {options.rounds} pairs")
        for name, amount, encrypted, plain in rows:
            pairs = [(amount / encrypted(), amount / plain()) for _ in range(options.rounds)]
            ratios = sorted(mine / other for mine, other in pairs)
            mine, other = (statistics.median(column) for column in zip(*pairs, strict=True))
            line = f"{name:38}{mine:11.0f}{other:12.0f}{statistics.median(ratios):8.2f}"
            print(f"{line}   {ratios[0]:.2f}..{ratios[-1]:.2f}")


if __name__ == "__main__":
    main()
