"""The contract of an index, kept by each implementation."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from pathlib import Path

import pytest

from persistence import client_request
from persistence.catalog import Catalog
from persistence.client_request import ClientRequest
from persistence.dialect import SVC
from persistence.index.protocol import RequestedRebuilds
from persistence.model.addresses import Form
from persistence.properties.properties import Properties
from persistence.providers.opened import open_index
from persistence.remote.remote_calls import Client, ProviderNames, RemoteIndex, RemoteReindexing
from persistence.settings import Settings
from persistence.storage.reader import StoreReader
from persistence.wire import CallPolicy, Connection
from tests.index.contract import IndexContract, Subject
from tests.opened import opened
from tests.postgresql.indexing import IndexedDatabase
from tests.postgresql.server import Server, fresh_schema, prepared
from tests.served import served
from tests.service import Service

_numbers = count(1)


service = served(alone=True)


@pytest.fixture(scope="module")
def schema(database_server: Server) -> str:
    """The address of tables in which each test has a form of its own."""
    return prepared(database_server.uri(fresh_schema()))


@pytest.fixture
def form() -> Form:
    return Form("acme", f"order{next(_numbers)}")


@dataclass(frozen=True)
class ServedStorage:
    """A storage that is changed over HTTP."""

    service: Service
    form: Form

    def publish(self, definition: bytes, version: int = 1) -> None:
        self.service.publish(str(self.form), definition, Form_Definition_Version=version)

    def unpublish(self, version: int = 1) -> None:
        answer = self.service.delete(f"{self.form}/form/form.xhtml", Form_Definition_Version=version)
        assert answer.status == 204, answer.cause

    def save(
        self,
        document: str,
        body: bytes,
        user: str = "ann",
        group: str = "",
        version: int = 1,
        *,
        is_draft: bool = False,
    ) -> None:
        own = {"Username": user, "Form_Definition_Version": version} | ({"Group": group} if group else {})
        self.service.save(str(self.form), document, body, "draft" if is_draft else "data", **own)

    def delete(self, document: str) -> None:
        answer = self.service.delete(f"{self.form}/data/{document}/data.xml")
        assert answer.status == 204, answer.cause


class TestTreeIndex(IndexContract):
    """The SQLite index of a file tree, beside that of the service which changes the tree."""

    @pytest.fixture
    def subject(self, service: Service, form: Form) -> Subject:
        root = str(service.data)
        properties = Properties.load({}, SVC.property_prefix)
        index = opened(open_index(Settings(data=root), properties, root))
        storage, reader = ServedStorage(service, form), StoreReader(root)
        return Subject(index, Catalog(reader), RequestedRebuilds(reader, index.rebuild, index.status), storage, form)


class TestRemoteIndex(IndexContract):
    """The index of another service, which has the definitions nowhere but here."""

    @pytest.fixture
    def subject(self, service: Service, form: Form) -> Subject:
        names = ProviderNames(SVC, SVC)
        client = Client("behind", names, opened(Connection(f"http://127.0.0.1:{service.port}", CallPolicy())))
        reader = StoreReader(str(service.data))
        index = RemoteIndex(client, reader.versions, lambda _: False, is_exact=True)
        client_request.begin(ClientRequest("POST", "", (("Svc-Username", "kim"),)))
        storage = ServedStorage(service, form)
        return Subject(index, Catalog(reader), RemoteReindexing(client), storage, form, abilities=frozenset())


class TestDatabaseIndex(IndexContract):
    """The index in PostgreSQL, written in the transactions of the storage."""

    @pytest.fixture
    def subject(self, schema: str, form: Form, tmp_path: Path) -> Subject:
        return opened(IndexedDatabase(schema, tmp_path)).of(form).subject
