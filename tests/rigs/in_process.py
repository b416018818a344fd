"""The service in this process, without a server: what judges many trees, one after the other."""

from __future__ import annotations

from collections.abc import Mapping
from http.client import HTTPMessage
from pathlib import Path

from werkzeug.test import Client

from persistence.app import create_app
from persistence.closable import Closable
from persistence.providers.opened import open_store
from persistence.settings import Settings
from persistence.storage.layout import EVENTS
from tests.service import PROVIDER, Answer, Service


class InProcess(Service, Closable):
    """Tried out and started on a data directory as ``persistence serve`` does it; ``refusal`` is why it only reads."""

    def __init__(self, data: Path) -> None:
        super().__init__(0, data, data.with_name("none.log"), None, face=PROVIDER)
        self.has_events = (data / EVENTS).exists()
        # Requests that are made here come from no address.
        settings = Settings(data=str(data), insecure=True, events=self.has_events, administrators=("trusted",))
        with open_store(settings, settings.data) as store:
            self.refusal = store.probe()
        self._app = create_app(settings)
        self._client = Client(self._app)

    def close(self) -> None:
        self._app.close()

    def raw(
        self, method: str, path: str, headers: Mapping[str, str] | None = None, body: bytes | None = None, **own: object
    ) -> Answer:
        sent = {**(headers or {}), **self.own(own)}
        response = self._client.open(path, method=method, data=body, headers=[*sent.items()], buffered=True)
        fields = HTTPMessage()
        for name, value in response.headers:
            fields[name] = value
        return Answer(response.status_code, fields, response.get_data())

    def whole(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> Answer:
        return self.raw(method, path, headers, body)
