"""The load: the clients of the model, through the balancer, and when it cut them off."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from http import HTTPStatus
from http.client import HTTPException
from pathlib import Path

from tests.rigs.clients import SEALED, Client, content
from tests.rigs.ledger import FORM, Ledger, Resource
from tests.rigs.server import Line, NoAnswerError
from tests.service import Answer, Service

_PATIENCE = 75.0
_LONGEST_OUTAGE = 150.0
_PAUSE = 0.04
_AWAY = 0.2
_SETTLING = 2.0
"""Seconds after a write of unknown outcome: then it is done, or never will be, in a database that goes on."""

_MOST_LARGE = 900_000
"""Bytes in one document of fifty: larger than what the database has in its row."""

_CUT = {HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.GATEWAY_TIMEOUT}
_READING = ("GET", "HEAD", "POST")


def service_at(port: int) -> Service:
    return Service(port, Path(), Path(), None, timeout=_PATIENCE)


class BalancedLine(Line):
    """Requests through the balancer; what it, or an instance without its database, answers does not say what happened.

    ``written`` is when each write was acknowledged, and ``unanswered`` when a request was not, by the monotonic clock.
    """

    def __init__(self, service: Service) -> None:
        super().__init__(lambda: service)
        self.written: list[float] = []
        self.unanswered: list[float] = []
        self.statuses: Counter[tuple[str, str]] = Counter()
        self._answered = time.monotonic()

    def ask(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None, **own: object
    ) -> Answer | None:
        answer = None
        try:
            answer = self._service().raw(method, path, headers, body, **own)
            status = str(answer.status)
        except TimeoutError as error:
            raise NoAnswerError(f"{method} {path} is not answered for {_PATIENCE:g} seconds") from error
        except (OSError, HTTPException) as error:
            status = type(error).__name__
        now = time.monotonic()
        self.statuses[method, status] += 1
        if answer is not None and answer.status not in _CUT:
            self._answered = now
            if method not in _READING and answer.status < HTTPStatus.BAD_REQUEST:
                self.written.append(now)
            return answer
        self.unanswered.append(now)
        if now > self._answered + _LONGEST_OUTAGE:
            raise NoAnswerError(f"{method} {path} is not answered for {_LONGEST_OUTAGE:g} seconds: {status}")
        if method in _READING:
            time.sleep(_AWAY)
        else:
            self.unknown += 1
            time.sleep(_SETTLING)
        return None


class BalancedClient(Client):
    """A client of the model: one that publishes once and encrypts nothing, which is no matter of a cluster."""

    def __init__(self, port: int, ledger: Ledger, number: int) -> None:
        service = service_at(port)
        super().__init__(lambda: service, ledger, number)
        self.line: BalancedLine = BalancedLine(service)
        del self._actions[self.publish]

    def act(self) -> None:
        try:
            super().act()
        except NoAnswerError as error:
            self.violations.append(str(error))
        time.sleep(self._rng.uniform(0, 2 * _PAUSE))

    def _content(self, resource: Resource, token: str) -> bytes:
        if self._rng.random() < 0.02:
            return content(resource, token, self._word, "f" * self._rng.randrange(_MOST_LARGE))
        return super()._content(resource, token)

    def _names(self) -> tuple[str, str]:
        form, document = super()._names()
        return (FORM if form == SEALED else form), document
