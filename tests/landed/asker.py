"""Requests as a client of either dialect puts them."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote

from tests.landed.history import ANN, BOB, BOSS, CID, DEE, PREFIXES, PUBLIC
from tests.landed.wire import Question, Wire, question

ORDER = "acme/order"
USERS: tuple[Mapping[str, object], ...] = ({}, ANN, BOB, CID, BOSS, DEE)


class Asker:
    """Makes requests in one dialect, some of which need an instant or a tag that the service has told."""

    def __init__(self, wire: Wire, dialect: str) -> None:
        self._wire = wire
        self.dialect = dialect

    def crud(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str] | None = None,
        body: str | bytes | None = None,
        face: str = PUBLIC,
        **own: object,
    ) -> Question:
        return question(method, f"{face}/crud/{quote(path, safe='/?=&%')}", {**(headers or {}), **self.own(own)}, body)

    def own(self, own: Mapping[str, object]) -> dict[str, str]:
        prefix = PREFIXES[self.dialect]
        return {prefix + name.replace("_", "-"): str(value) for name, value in own.items()}

    def told(self, path: str, **own: object) -> dict[str, str]:
        """Return the headers of a resource."""
        return dict(self._wire.ask(self.crud("HEAD", path, **own))["headers"])

    def search(
        self, children: str, form: str = ORDER, root: str = "search", more: str = "", face: str = PUBLIC, **own: object
    ) -> Question:
        path = {"search": "search", "distinct-values": "distinct-values"}[root]
        return question("POST", f"{face}/{path}/{quote(form)}", self.own(own), f"<{root}{more}>{children}</{root}>")
