"""What removes or rewrites revisions in a database goes on beside saves: nothing is lost that it was not to change."""

from __future__ import annotations

import itertools
import json
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from lxml import etree

from persistence.crypto import EncryptionKeys
from persistence.keys import Keys
from persistence.postgresql.connections import parse
from persistence.postgresql.database import Database
from tests import encrypted_form, orders
from tests.in_process import serving
from tests.orders import named
from tests.postgresql import server as postgresql
from tests.postgresql.server import Server
from tests.service import PUBLIC, Service

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

_FORM = "acme/order"
_ROUNDS = 8
_SEARCHES = 6
_SEARCH = b'<search><query path="customer/name" match="substring">o</query></search>'
_SLOW = "SELECT set_config('statement_timeout', %s, true), pg_sleep(1.5)"
"""What a search begins with, and what makes it take long."""


def same(path: str, content: bytes) -> bytes:
    """Return what a content is compared by. Of XML it is the exclusive canonical form.

    An element that was encrypted by a rewrite keeps the declaration of the mark's namespace when it is decrypted.
    """
    if not path.endswith(".xml"):
        return content
    return etree.tostring(etree.fromstring(content), method="c14n", exclusive=True)


@dataclass
class Saver:
    """Saves documents of its own again and again, each with an attachment; it knows what was acknowledged."""

    service: Service
    name: str
    body: Callable[[str], bytes] = named
    statuses: set[int] = field(default_factory=set)
    current: dict[str, bytes] = field(default_factory=dict)

    def save(self, number: int) -> None:
        document = f"{_FORM}/data/{self.name}-{number % 5}"
        body = self.body(f"{self.name} {number}")
        for path, content in ((f"{document}/a.bin", secrets.token_bytes(300_000)), (f"{document}/data.xml", body)):
            answer = self.service.put(path, content, Form_Definition_Version=1)
            if answer.status == 503 and "published again" in answer.cause:  # by the test, while this was received
                answer = self.service.put(path, content, Form_Definition_Version=1)
            self.statuses.add(answer.status)
            if answer.status in (201, 204):
                self.current[path] = content

    def save_until(self, is_over: threading.Event) -> None:
        """Save until something is over, and at least each document once."""
        for number in itertools.count():
            self.save(number)
            if is_over.wait(0.4) and number >= 5:  # at full speed they would only slow down what they meet
                return

    def complete(self) -> None:
        """Save the data of documents of which only the attachment was acknowledged: nobody sees it without them."""
        for path in [f"{each.rpartition('/')[0]}/data.xml" for each in self.current]:
            if path not in self.current:
                assert self.service.put(path, self.body("late"), Form_Definition_Version=1).status == 201
                self.current[path] = self.body("late")

    def require_all(self, service: Service) -> None:
        for path, content in self.current.items():
            answer = service.get(path)
            assert answer.status == 200, path
            assert same(path, answer.body) == same(path, content)


@pytest.fixture
def administered(database_server: Server, tmp_path: Path) -> Iterator[Service]:
    """A service whose callers have the key of an administrator."""
    (tmp_path / "own.toml").write_text('keys = "keys.json"\nadministrators = ["admin"]\ntrusted = ["127.0.0.1"]\n')
    key = Keys(f"{tmp_path}/keys.json", tree=f"{tmp_path}/data").add("admin")
    place = database_server.uri(postgresql.fresh_schema())
    with serving(tmp_path, place=place, options=("--config", str(tmp_path / "own.toml"))) as service:
        service.extra = {"Authorization": f"Bearer {key}"}
        assert service.put(f"{_FORM}/form/form.xhtml", orders.definition()).status == 201
        yield service


def _beside(savers: list[Saver], work: Callable[[], None]) -> None:
    is_over = threading.Event()
    with ThreadPoolExecutor(len(savers)) as threads:
        saving = [threads.submit(each.save_until, is_over) for each in savers]
        try:
            work()
        finally:
            is_over.set()
        for each in saving:
            each.result()


def test_single_revisions_that_are_removed_by_force_beside_saves_are_the_only_ones(administered: Service) -> None:
    """Purges beside saves are in ``tests.rigs.modelled.removing``."""
    savers = [Saver(administered, name) for name in ("one", "two")]
    forced = set[int]()

    def force(path: str, instant: str | None) -> None:
        query = f"force-delete=true&last-modified-time={instant}"
        forced.add(administered.delete(f"{path}?{query}", Form_Definition_Version=1).status)

    def work() -> None:
        for number in range(_ROUNDS):
            path = f"{_FORM}/data/gone-{number}/data.xml"
            administered.put(path, named("x"), Form_Definition_Version=1)
            deleted = administered.delete(path, Form_Definition_Version=1)
            assert deleted.status in (204, 503)
            force(path, deleted["Svc-Last-Modified"])
            own = f"{_FORM}/data/one-{number % 5}/data.xml"
            if now := administered.head(own)["Svc-Last-Modified"]:
                force(own, now)

    _beside(savers, work)
    assert forced <= {204, 404, 409, 503}
    for each in savers:
        assert each.statuses <= {201, 204}
        each.require_all(administered)


@pytest.fixture
def nodes(database_server: Server, tmp_path: Path) -> Iterator[tuple[str, Service, Service]]:
    """An address of a schema, and two services on it that have the same encryption keys."""
    place = database_server.uri(postgresql.fresh_schema())
    (tmp_path / "own.toml").write_text(f'encryption_keys = "{tmp_path}/encryption-keys.json"\n')
    keys(tmp_path).new()
    with ExitStack() as stack:
        options = ("--config", str(tmp_path / "own.toml"))
        one, other = (stack.enter_context(serving(tmp_path / name, place=place, options=options)) for name in "ab")
        yield place, one, other


def keys(directory: Path) -> EncryptionKeys:
    return EncryptionKeys(f"{directory}/encryption-keys.json", trees=[f"{directory}/data"])


def test_reencrypting_on_one_node_beside_saves_on_another_leaves_nothing_plain(
    nodes: tuple[str, Service, Service], tmp_path: Path, database_server: Server
) -> None:
    """Nor with a key that goes: the newest one alone decrypts everything at the end."""
    place, one, other = nodes
    assert one.put(f"{_FORM}/form/form.xhtml", encrypted_form.UNMARKED).status == 201
    savers = [
        Saver(node, name, encrypted_form.named) for node, name in ((one, "one"), (other, "two"), (other, "three"))
    ]
    for each in savers:
        for number in range(5):
            each.save(number)

    def work() -> None:
        assert one.put(f"{_FORM}/form/form.xhtml", encrypted_form.DEFINITION, Form_Definition_Version=1).status == 204
        for _ in range(2):
            reencrypt(one)
            keys(tmp_path).new()
            reencrypt(one)

    _beside(savers, work)
    newest = keys(tmp_path).new()
    reencrypt(one)
    schema = parse(place).schema
    for column, table in (("body", "revision"), ("bytes", "piece")):
        for secret in encrypted_form.SECRETS:
            where = f"position('\\x{secret.encode().hex()}'::bytea IN {column}) > 0"
            assert database_server.execute(f"SELECT count(*) FROM {schema}.{table} WHERE {where}") == [(0,)]  # noqa: S608
    file = tmp_path / "encryption-keys.json"
    listed = json.loads(file.read_text())
    only = [key for key in listed["keys"] if key["id"] == newest]
    (tmp_path / "newest.json").write_text(json.dumps(listed | {"keys": only}))
    (tmp_path / "newest.json").chmod(0o600)
    (tmp_path / "newest.toml").write_text(f'encryption_keys = "{tmp_path}/newest.json"\n')
    with serving(tmp_path / "c", place=place, options=("--config", str(tmp_path / "newest.toml"))) as third:
        for each in savers:
            assert each.statuses <= {201, 204}
            for node in (one, other, third):
                each.require_all(node)


def reencrypt(node: Service) -> None:
    ends = time.monotonic() + 150
    while (started := node.raw("POST", f"{PUBLIC}/reencrypt/{_FORM}")).status == 503:  # the one before is just ending
        assert time.monotonic() < ends
        time.sleep(0.1)
    assert started.status == 200, started.cause
    while b'state="finished"' not in node.raw("GET", f"{PUBLIC}/reencrypt").body:
        assert time.monotonic() < ends, node.raw("GET", f"{PUBLIC}/reencrypt").body
        time.sleep(0.1)


def test_saves_beside_many_expensive_searches_are_stored_or_busy_in_time(
    database_server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A few connections, which searches take for as long as a statement may last."""
    defaults = Database.__init__.__kwdefaults__
    assert defaults is not None
    monkeypatch.setitem(defaults, "most_connections", 3)
    for name, seconds in (("STATEMENT_SECONDS", 2), ("STATEMENT_ANSWER_SECONDS", 1), ("CONNECT_SECONDS", 1)):
        monkeypatch.setattr(f"persistence.postgresql.connections.{name}", seconds)
    place = database_server.uri(postgresql.fresh_schema())
    with serving(tmp_path, place=place, env={"PERSISTENCE_LOCK_TIMEOUT": "1"}) as service:
        assert service.put(f"{_FORM}/form/form.xhtml", orders.definition()).status == 201
        saver = Saver(service, "one")
        saver.save(0)
        monkeypatch.setattr("persistence.postgresql.database_index._DEADLINE", _SLOW)
        is_over, slowest, found = threading.Event(), [0.0], set[int]()

        def search() -> None:
            while not is_over.is_set():
                began = time.monotonic()
                answer = service.raw("POST", f"{PUBLIC}/search/{_FORM}", {"Content-Type": "application/xml"}, _SEARCH)
                found.add(answer.status)
                slowest.append(time.monotonic() - began)

        with ThreadPoolExecutor(_SEARCHES) as threads:
            searching = [threads.submit(search) for _ in range(_SEARCHES)]
            for number in range(1, 6):
                began = time.monotonic()
                saver.save(number)
                slowest.append((time.monotonic() - began) / 2)
            is_over.set()
            for each in searching:
                each.result()
        assert saver.statuses <= {201, 204, 503}
        assert found <= {200, 503}
        assert 503 in found
        assert max(slowest) < 10
        saver.save(10)
        saver.complete()
        saver.require_all(service)
