"""Search as tight as reading: what searches, totals, distinct values and free text show is what a GET shows.

Permissions, users, versions and documents are made at random; what a GET says decides. The seed is in the test's name.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from random import Random
from xml.etree import ElementTree as ET

import pytest
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from persistence.app import create_app
from persistence.dialect import DIALECTS
from persistence.model.permissions import OPERATIONS
from persistence.properties.properties import Properties
from persistence.settings import Settings
from tests import orders
from tests.initialised import initialised
from tests.searches import NAME, control

_CONDITIONS = (
    *("<any-authenticated-user/>", "<owner/>", "<owner/>", "<owner/>", "<group-member/>", "<group-member/>"),
    *('<user-role any-of="clerk"/>', '<user-role any-of="boss"/>', '<user-role any-of="clerk boss"/>'),
)
_USERS: tuple[dict[str, object], ...] = (
    {},
    {"username": "ann", "groups": ["sales"], "organizations": [["corp", "east"]]},
    {"username": "bob", "groups": ["sales"], "organizations": [["corp", "west"]]},
    {"username": "cid", "groups": ["support"]},
    {"username": "ann", "groups": ["support"], "roles": [{"name": "clerk"}]},
    {"username": "bob", "roles": [{"name": "clerk", "organization": "east"}, {"name": "boss", "organization": "west"}]},
    {"username": "dee", "groups": ["sales"], "roles": [{"name": "boss", "organization": "corp"}]},
)
_NAMES = ("Ada", "Bob", "Cleo", "Dora")
_VERSIONS = (1, 2, 3)
_QUICK, _LONG = 4, 20
"""Forms that are made for one test."""
_DELETED = 4
"""Of so many forms one loses its latest version: all forms are then reindexed, which takes a while."""


@dataclass
class Client:
    """One service in this process, asked in the headers of its dialect."""

    http: FlaskClient
    prefix: str
    forms: Iterator[int] = field(default_factory=lambda: count(1))

    def ask(
        self, method: str, path: str, user: dict[str, object], body: bytes | None = None, version: object = None
    ) -> TestResponse:
        headers = {f"{self.prefix}Credentials": json.dumps(user)} if user else {}
        if version is not None:
            headers[f"{self.prefix}Form-Definition-Version"] = str(version)
        path = f"/fr/service/persistence/{path}"
        return self.http.open(path, method=method, headers=headers, data=body, content_type="application/xml")


@contextmanager
def serving(directory: Path, dialect: str) -> Iterator[Client]:
    """A service whose searches are restricted, which in dialect orbeon a property asks for."""
    prefix = DIALECTS[dialect].property_prefix
    asked = {} if dialect == "svc" else {f"{prefix}persistence.*.search.restrict-to-readable": True}
    settings = Settings(data=str(initialised(directory)), dialect=dialect, insecure=True)  # type: ignore[arg-type]
    with create_app(settings, Properties.load(asked, prefix)) as app:
        yield Client(app.test_client(), DIALECTS[dialect].header_prefix)


@dataclass(frozen=True)
class Shown:
    """A document or draft that a GET shows, with what the user may do."""

    name: str
    is_draft: bool
    version: int
    word: str
    value: str
    operations: frozenset[str]


class World:
    """One form: its versions with permissions of their own, its documents and drafts."""

    def __init__(self, client: Client, random: Random) -> None:
        self.client, self.random = client, random
        self.form = f"app/form{next(client.forms)}"
        self.documents: dict[tuple[str, bool], tuple[int, str, str]] = {}
        self.latest = max(_VERSIONS)
        for version in _VERSIONS:  # open while documents are made
            self._publish(version, "")
        for number in range(8):
            self._save(f"d{number}", version=random.choice(_VERSIONS), is_draft=random.random() < 0.2)
        for name, is_draft in [key for key in self.documents if random.random() < 0.4]:
            if not is_draft:
                self._save(name, version=self.documents[name, False][0], is_draft=True)
        self._delete(random.choice([name for name, is_draft in self.documents if not is_draft]))
        for version in _VERSIONS:
            self._publish(version, self._permissions())

    def _publish(self, version: int, metadata: str) -> None:
        body = orders.definition(metadata)
        answer = self.client.ask("PUT", f"crud/{self.form}/form/form.xhtml", {}, body, version)
        assert answer.status_code < 300, answer.text

    def _save(self, name: str, *, version: int, is_draft: bool) -> None:
        word, value = f"word{len(self.documents)}end", self.random.choice(_NAMES)
        body = f"<form><customer><name>{value}</name></customer><x>{word}</x></form>".encode()
        path = f"crud/{self.form}/{'draft' if is_draft else 'data'}/{name}/data.xml"
        answer = self.client.ask("PUT", path, self.random.choice(_USERS), body, version)
        assert answer.status_code == 201, answer.text
        self.documents[name, is_draft] = version, word, value

    def _delete(self, name: str) -> None:
        assert self.client.ask("DELETE", f"crud/{self.form}/data/{name}/data.xml", {}).status_code == 204
        self.documents = {key: said for key, said in self.documents.items() if key[0] != name}

    def delete_latest(self) -> None:
        """Delete the definition of the latest version: its data is found again after a reindexing."""
        path = f"crud/{self.form}/form/form.xhtml"
        assert self.client.ask("DELETE", path, {}, version=self.latest).status_code == 204
        assert self.client.ask("POST", "reindex", {}).status_code == 200
        self.latest -= 1

    def _permissions(self) -> str:
        random = self.random
        if random.random() < 0.15:
            return ""
        each = []
        for _ in range(random.randint(0, 4)):
            operations = random.sample([*OPERATIONS, "read", "-list", "-list"], random.randint(1, 4))
            conditions = "".join(random.sample(_CONDITIONS, random.choice((0, 1, 1, 1, 2, 2))))
            each.append(f'<permission operations="{" ".join(dict.fromkeys(operations))}">{conditions}</permission>')
        return f"<permissions>{''.join(each)}</permissions>"

    def read_by(self, user: dict[str, object]) -> list[Shown]:
        """What GETs show."""
        shown = []
        for (name, is_draft), (version, word, value) in self.documents.items():
            path = f"crud/{self.form}/{'draft' if is_draft else 'data'}/{name}/data.xml"
            answer = self.client.ask("GET", path, user)
            assert answer.status_code in (200, 403), answer.text
            if answer.status_code == 200:
                operations = frozenset(answer.headers[f"{self.client.prefix}Operations"].split())
                is_indexed = version <= self.latest  # without a definition nothing says what is
                shown.append(Shown(name, is_draft, version, word, value if is_indexed else "", operations))
        return shown

    def compare(self, user: dict[str, object]) -> int:
        """Search in every way; returns how many documents were compared that may be read, and that may not."""
        readable = self.read_by(user)
        for version in (*_VERSIONS, "all", None):
            number = self.latest if version is None else version
            meant = [each for each in readable if number in (each.version, "all")]
            # Whoever has no name is never shown drafts (spec search 1.5).
            meant = [each for each in meant if user or not each.is_draft]
            asked = self.random.sample(OPERATIONS, self.random.randint(1, 5)) if self.random.random() < 0.7 else []
            self._compare_search(user, version, meant, asked)
            self._compare_distinct(user, version, meant)
        self._compare_text(user, readable)
        return len(readable)

    def _compare_search(
        self, user: dict[str, object], version: object, readable: list[Shown], asked: list[str]
    ) -> None:
        any_of = f'<operations any-of="{" ".join(asked)}"/>' if asked else ""
        drafts = self.random.choice(("include", "exclude", "only"))
        found = self._search(f"{any_of}<drafts>{drafts}</drafts>{control(NAME)}", user, version)
        is_wanted = {"include": (False, True), "exclude": (False,), "only": (True,) if user else (False,)}[drafts]
        expected = {
            (each.name, each.is_draft, each.operations, each.value)
            for each in readable
            if each.is_draft in is_wanted and (not asked or each.operations & {*asked, "*"})
        }
        said = {
            (
                str(each.get("name")),
                each.get("draft") == "true",
                frozenset(str(each.get("operations")).split()),
                str(each.findtext("details/detail")),
            )
            for each in found
        }
        assert said == expected, (user, version, asked, drafts)
        assert int(str(found.get("search-total"))) == len(found) == len(expected)

    def _compare_distinct(self, user: dict[str, object], version: object, readable: list[Shown]) -> None:
        body = f"<distinct-values>{control(NAME)}</distinct-values>".encode()
        answer = self.client.ask("POST", f"distinct-values/{self.form}", user, body, version)
        assert answer.status_code == 200, answer.text
        values = {str(each.text) for each in orders.tree(answer.data).iter("value")}
        assert values == {each.value for each in readable} - {""}, (user, version)

    def _compare_text(self, user: dict[str, object], readable: list[Shown]) -> None:
        seen = {(each.name, each.is_draft) for each in readable if user or not each.is_draft}
        for key, (_, word, _) in self.documents.items():
            found = self._search(f"<query>{word}</query>", user, "all")
            assert int(str(found.get("search-total"))) == len(found) == (key in seen), (user, key)

    def _search(self, children: str, user: dict[str, object], version: object) -> ET.Element:
        body = f"<search>{children}<page-size>100</page-size></search>".encode()
        answer = self.client.ask("POST", f"search/{self.form}", user, body, version)
        assert answer.status_code == 200, answer.text
        return orders.tree(answer.data)


def _agree(directory: Path, dialect: str, seed: int, worlds: int) -> None:
    random, read, refused = Random(f"{dialect} {seed}"), 0, 0
    with serving(directory, dialect) as client:
        for number in range(worlds):
            world = World(client, random)
            for user in _USERS:
                shown = world.compare(user)
                read, refused = read + shown, refused + len(world.documents) - shown
            if number % _DELETED == 0:
                world.delete_latest()
                for user in _USERS[:3]:
                    world.compare(user)
    assert read > worlds * 5, "hardly anything could be read: nothing was shown"
    assert refused > worlds * 5, "hardly anything was refused: nothing was shown"


@pytest.mark.parametrize("dialect", [pytest.param("svc", marks=pytest.mark.long), "orbeon"])
def test_searches_show_what_a_get_shows(tmp_path: Path, dialect: str) -> None:
    _agree(tmp_path / "data", dialect, 13, _QUICK)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("dialect", [pytest.param("svc", marks=pytest.mark.long), "orbeon"])
def test_many_searches_show_what_a_get_shows(tmp_path: Path, dialect: str, seed: int) -> None:
    _agree(tmp_path / "data", dialect, seed, _LONG)
