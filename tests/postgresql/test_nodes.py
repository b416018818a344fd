"""Several instances of the service on one schema, each with a directory of its own, behave as one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from threading import Barrier

import psycopg
import pytest

from persistence.postgresql.connections import parse
from tests import encrypted_form, orders
from tests.http.test_documents import SINGLETON
from tests.postgresql import server as postgresql
from tests.postgresql.server import Server
from tests.service import PUBLIC, Answer, Service, alone
from tests.waiting import at_once, eventually

_KEY = f"k1:{'7' * 64}"
_ROUNDS = 3


@dataclass(frozen=True)
class Nodes:
    """Two instances on one schema, and the server with the schema."""

    first: Service
    second: Service
    server: Server
    uri: str

    def of_schema(self, selected: str) -> object:
        with self._connected() as connection:
            row = connection.execute(f"SELECT {selected}".encode()).fetchone()
            return None if row is None else row[0]

    @contextmanager
    def holding(self, statement: str) -> Iterator[None]:
        """Hold what a statement locks for a block, in the schema."""
        with self._connected() as connection:
            connection.execute(statement.encode())
            yield
            connection.rollback()

    @contextmanager
    def _connected(self) -> Iterator[psycopg.Connection]:
        conninfo = f"host={self.server.directory} port={self.server.port} dbname={postgresql.DATABASE} user=admin"
        with psycopg.connect(conninfo) as connection:
            connection.execute(f"SET search_path TO {parse(self.uri).schema}".encode())
            yield connection


@pytest.fixture(scope="module")
def nodes(database_server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    uri = database_server.uri(postgresql.fresh_schema())
    with ExitStack() as stack:

        def started(name: str) -> Service:
            directory = tmp_path_factory.mktemp(name)
            service = alone(
                directory,
                env={"PERSISTENCE_ENCRYPTION_KEY": _KEY, "PERSISTENCE_LOCAL": str(directory / "local")},
                options=("--data", uri),
            )
            return stack.enter_context(service)

        yield Nodes(started("first"), started("second"), database_server, uri)


def both_at_once(nodes: Nodes, ask: Callable[[Service, int], Answer], count: int = 8) -> list[Answer]:
    barrier = Barrier(count)

    def one(number: int) -> Answer:
        barrier.wait()
        return ask((nodes.first, nodes.second)[number % 2], number)

    return at_once(*(partial(one, number) for number in range(count)))


def test_of_many_conditional_saves_one_is_stored(nodes: Nodes, form: str) -> None:
    path = f"{form}/data/D/data.xml"
    tag = nodes.first.put(path, b"<d>0</d>", Form_Definition_Version=1)["ETag"]
    for _ in range(_ROUNDS):
        condition = {"If-Match": str(tag)}
        save = partial(_save, path, condition)
        answers = both_at_once(nodes, save)
        assert sorted(each.status for each in answers) == [204, *[412] * 7]
        tag = next(each["ETag"] for each in answers if each.status == 204)
        winner = next(number for number, each in enumerate(answers) if each.status == 204)
        for node in (nodes.first, nodes.second):
            found = node.get(path)
            assert (found.body, found["ETag"]) == (f"<d>{winner}</d>".encode(), tag)


def _save(path: str, headers: dict[str, str], node: Service, number: int) -> Answer:
    return node.put(path, f"<d>{number}</d>".encode(), headers, Form_Definition_Version=1)


def test_saves_without_a_condition_are_all_in_the_history(nodes: Nodes, form: str) -> None:
    path = f"{form}/data/D/data.xml"
    nodes.first.put(path, b"<d/>", Form_Definition_Version=1)
    answers = both_at_once(nodes, partial(_save, path, {}))
    assert {each.status for each in answers} == {204}
    listed = nodes.second.raw("GET", f"{PUBLIC}/history/{form}/D").body
    assert b' total="9" ' in listed


def test_of_a_singleton_one_document_is_created(nodes: Nodes, form: str) -> None:
    assert nodes.first.put(f"{form}/form/form.xhtml", SINGLETON).status == 201
    answers = both_at_once(nodes, lambda node, n: node.put(f"{form}/data/{n}/data.xml", Form_Definition_Version=1))
    assert sorted(each.status for each in answers) == [201, *[409] * 7]


def test_a_publication_counts_everywhere_at_once(nodes: Nodes, form: str) -> None:
    path, search = f"{form}/form/form.xhtml", '<search><query path="customer/name" match="exact">Ann</query></search>'
    document = b"<form><customer><name>Ann</name></customer></form>"
    open_to_all = orders.definition()
    closed = orders.definition("<permissions/>")
    for _ in range(_ROUNDS):
        assert nodes.first.put(path, open_to_all, Form_Definition_Version=1).status in (201, 204)
        assert nodes.second.put(f"{form}/data/D/data.xml", document, Form_Definition_Version=1).status in (201, 204)
        found = nodes.first.raw("POST", f"{PUBLIC}/search/{form}", {"Content-Type": "application/xml"}, search.encode())
        assert (found.status, found.body.count(b"<document ")) == (200, 1)
        assert nodes.second.put(path, closed, Form_Definition_Version=1).status == 204
        assert nodes.first.get(f"{form}/data/D/data.xml").status == 403


def test_reencrypting_is_seen_from_another_instance(nodes: Nodes, form: str) -> None:
    assert nodes.first.put(f"{form}/form/form.xhtml", encrypted_form.UNMARKED).status == 201
    body = encrypted_form.data()
    assert nodes.second.put(f"{form}/data/D/data.xml", body, Form_Definition_Version=1).status == 201
    assert (
        nodes.second.put(f"{form}/form/form.xhtml", encrypted_form.DEFINITION, Form_Definition_Version=1).status == 204
    )
    app = form.partition("/")[0].encode()

    def state(node: Service) -> bytes:
        listed = node.raw("GET", f"{PUBLIC}/reencrypt").body
        return next((each for each in listed.split(b"<form ") if app in each), b"").partition(b">")[0]

    with nodes.holding("SELECT 1 FROM revision FOR UPDATE"):
        assert nodes.first.raw("POST", f"{PUBLIC}/reencrypt/{form}").status == 200
        eventually(lambda: state(nodes.second) == b'state="encrypting"')
    eventually(lambda: state(nodes.second) == b'state="finished"')
    assert encrypted_form.SECRETS[0].encode() in nodes.second.get(f"{form}/data/D/data.xml").body
    assert (
        nodes.of_schema(f"count(*) FROM revision WHERE position('{encrypted_form.SECRETS[0]}'::bytea in body) > 0") == 0
    )
