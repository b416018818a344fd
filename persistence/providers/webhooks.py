"""The delivery of events to webhooks: in order, at least once.

One process at a time numbers the events of a place and delivers them, for a term; then all may take the turn. Each
target has a thread in it, so one that is slow keeps no other waiting, and no request waits for any of them.
"""

from __future__ import annotations

import base64
import hmac
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from typing import NamedTuple
from urllib.parse import urlsplit

import msgspec

from persistence.closable import Closable
from persistence.errors import BusyError, PersistenceError, RemoteError, StartupError
from persistence.index.outbox import EVENT_TYPES, NumberedEvent, Outbox, TargetState
from persistence.limits import MOST_ATTEMPTS
from persistence.model import network_addresses
from persistence.settings import Settings, Webhook
from persistence.storage.storage import Storage

_LOOK = 0.25  # Seconds between two looks for new events
_TERM = 60.0  # Seconds for which a process has the turn, and between two removals of old events
_RECOVERING = 5.0  # Seconds between two looks for changes that a crash has left without an event
_PAUSE = 5.0  # Seconds until the turn is tried again
_AT_ONCE = 20  # Events that are delivered before the position is recorded: a crash has them delivered again
_BACKOFF = (5, 30, 120, 600, 1_800, 7_200, 18_000, 36_000, 50_400, 72_000, 86_400)  # Seconds, as Standard Webhooks
_LONGEST_ANSWER = 15.0  # Seconds for which a target may be silent
_GONE = 410
_DAY = 86_400


class Delivered(NamedTuple):
    """The answer of a target: its status, 0 without one; the ``cause`` of a failure; seconds that it asks to wait."""

    status: int
    cause: str = ""
    retry_after: int = 0


Post = Callable[[str, Sequence[tuple[str, str]], bytes], Delivered]
"""Sends a body with headers to a URL; raises nothing."""


def poster(settings: Settings) -> Post:
    """Return what sends events. No redirect is followed, and no proxy of the environment is used."""
    from persistence.wire import Call, CallPolicy, Connection, OutgoingContent, Peer, whole_number  # noqa: PLC0415 - large

    def post(url: str, fields: Sequence[tuple[str, str]], body: bytes) -> Delivered:
        parts = urlsplit(url)
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        policy = CallPolicy(settings.remote_connect, min(settings.remote_timeout, _LONGEST_ANSWER))
        peer = Peer("the target", "the connection to the target broke")
        call = Call("POST", path, fields, content=OutgoingContent(body))
        try:
            with (
                Connection(f"{parts.scheme}://{parts.netloc}", policy, is_provider=True) as connection,
                connection.call(call, peer) as answer,
            ):
                is_good = answer.status // 100 == 2  # noqa: PLR2004 - a class of statuses
                cause = "" if is_good else f"the target answers {answer.status}"
                return Delivered(answer.status, cause, whole_number(answer.headers.get("Retry-After", "")) or 0)
        except (BusyError, RemoteError) as error:
            return Delivered(0, str(error).partition(": ")[0])

    return post


def signature(secret: str, identity: str, seconds: int, body: bytes) -> str:
    """Return the signature of an event, as the specification Standard Webhooks has it."""
    key = base64.b64decode(secret.removeprefix("whsec_") + "==")
    signed = hmac.digest(key, f"{identity}.{seconds}.".encode() + body, "sha256")
    return f"v1,{base64.b64encode(signed).decode()}"


def _includes(name: str, event_type: str) -> bool:
    """Tell whether a name of the settings, which may end with ``*``, stands for a type."""
    return event_type == name or (name.endswith("*") and event_type.startswith(name[:-1]))


def require_targets(settings: Settings) -> None:
    """Make sure that targets can get events: types that there are, and no target that is this service itself."""
    for name, webhook in settings.webhook.items():
        if unknown := next(
            (each for each in webhook.types if not any(_includes(each, one) for one in EVENT_TYPES)), None
        ):
            raise StartupError(f"webhook {name}: no event has the type {unknown!r}; there are {', '.join(EVENT_TYPES)}")
        parts = urlsplit(webhook.url)
        try:
            port = parts.port or {"http": 80, "https": 443}[parts.scheme]
        except ValueError as error:
            raise StartupError(f"webhook {name}: the address {webhook.url} cannot be read: {error}") from error
        for bind in settings.binds:
            is_here = network_addresses.binds_loopback(bind) or network_addresses.binds_everywhere(bind)
            host, _, number = bind.rpartition(":")
            own = {host.strip("[]"), *(("localhost", "127.0.0.1", "::1") if is_here else ())}
            if parts.hostname in own and number == str(port):
                raise StartupError(f"webhook {name}: its address is that of this service")
        if not settings.events:
            raise StartupError(f"webhook {name}: it gets no events while the setting events is false")


class Deliveries(Closable):
    """The threads that number the events of places, and deliver them to targets, while this process has the turn."""

    def __init__(
        self,
        settings: Settings,
        places: Sequence[tuple[Outbox, Storage]],
        post: Post,
        report: Callable[[str, str], None],
    ) -> None:
        """``report`` gets the name of a target, empty for other faults, and a line of text."""
        self._settings = settings
        self._post = post
        self._report = report
        self._is_ending = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=place, name="events", daemon=True) for place in places]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """End after the events that are just being delivered."""
        self._is_ending.set()
        for thread in self._threads:
            thread.join(_LONGEST_ANSWER)

    def _run(self, outbox: Outbox, storage: Storage) -> None:
        while not self._is_ending.is_set():
            try:
                outbox.feed()  # which makes it, where it is missing
                with suppress(BusyError), outbox.turn.turn("another process delivers", 0.0, self._is_ending.is_set):
                    self._work(outbox, storage)
                    continue
            except Exception as error:  # noqa: BLE001 - the next turn tries again
                self._report(
                    "", f"{type(error).__name__}: {error}" if not isinstance(error, PersistenceError) else str(error)
                )
            self._is_ending.wait(_PAUSE)

    def _work(self, outbox: Outbox, storage: Storage) -> None:
        """Number and deliver for a term."""
        ends, is_over, fresh = time.monotonic() + _TERM, threading.Event(), threading.Condition()
        webhooks = self._settings.webhook
        with ExitStack() as stack:
            pool = stack.enter_context(ThreadPoolExecutor(max(1, len(webhooks)), "webhooks"))
            stack.callback(is_over.set)
            outbox.prune(time.time() - self._settings.events_days * _DAY)
            feed, last, looks = outbox.feed(), outbox.settle(), 0.0
            done = [pool.submit(self._deliver, outbox, feed, each, is_over, fresh) for each in webhooks]
            while time.monotonic() < ends and not self._is_ending.wait(_LOOK):
                if time.monotonic() >= looks:
                    outbox.recover(storage, self._is_ending.is_set)
                    looks = time.monotonic() + _RECOVERING
                if (now := outbox.settle()) != last:
                    last = now
                    with fresh:
                        fresh.notify_all()
                if failed := next((each for each in done if each.done() and each.exception()), None):
                    failed.result()

    def _deliver(
        self, outbox: Outbox, feed: str, name: str, is_over: threading.Event, fresh: threading.Condition
    ) -> None:
        while not (is_over.is_set() or self._is_ending.is_set()):
            state = outbox.begin_target(name)
            events = [] if state.is_paused or state.due > time.time() else outbox.after(state.position, _AT_ONCE)
            if not events:
                with fresh:
                    fresh.wait(1.0)
                continue
            self._deliver_some(outbox, feed, name, state, events)

    def _deliver_some(
        self, outbox: Outbox, feed: str, name: str, known: TargetState, events: Sequence[NumberedEvent]
    ) -> None:
        """Deliver events until one fails, and record how far that came."""
        webhook, state, dead = self._settings.webhook[name], known, None
        missed = events[0].number - known.position - 1
        if missed:
            self._report(name, f"{missed} events were not delivered before they were too old")
            state = state._replace(missed=state.missed + missed, attempts=0)
        for event in events:
            if self._is_ending.is_set():
                break
            sent = self._send(webhook, feed, event)
            if not sent.cause:
                state = state._replace(position=event.number, attempts=0, due=0.0, cause="")
                continue
            attempts = state.attempts + 1
            if sent.status == _GONE:
                state = state._replace(is_paused=1, cause=f"paused: {sent.cause}")
                self._report(name, f"{sent.cause}, and is paused: 'persistence events --resume {name}' goes on")
            elif attempts >= MOST_ATTEMPTS:
                state, dead = state._replace(position=event.number, attempts=0, due=0.0, cause=sent.cause), event
                self._report(name, f"event {event.number} is given up after {attempts} attempts: {sent.cause}")
            else:
                if attempts == 1:
                    self._report(name, f"event {event.number} is tried again: {sent.cause}")
                wait = max(_BACKOFF[min(attempts, len(_BACKOFF)) - 1], min(sent.retry_after, _BACKOFF[-1]))
                state = state._replace(attempts=attempts, due=time.time() + wait, cause=sent.cause)
            break
        outbox.change_target(name, known, state, dead)

    def _send(self, webhook: Webhook, feed: str, event: NumberedEvent) -> Delivered:
        word: str = msgspec.json.decode(event.body, type=_Type).type
        if webhook.types and not any(_includes(each, word) for each in webhook.types):
            return Delivered(0)
        identity, seconds = f"{feed}.{event.number}", int(time.time())
        fields = [
            ("Content-Type", "application/json"),
            ("User-Agent", "persistence-webhooks"),
            ("webhook-id", identity),
            ("webhook-timestamp", str(seconds)),
            ("webhook-signature", signature(webhook.secret, identity, seconds, event.body)),
        ]
        return self._post(webhook.url, fields, event.body)


class _Type(msgspec.Struct):
    type: str
