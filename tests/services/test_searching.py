"""What a user's search finds, and may do with it: versions, permissions and drafts over an index in plain Python."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec
import pytest

from persistence.catalog import Catalog
from persistence.dialect import SVC
from persistence.errors import DamagedError, VersionError
from persistence.forms import controls
from persistence.forms.controls import DESIGNER_KEYS
from persistence.index.protocol import Budget
from persistence.model.addresses import FORM_XHTML, Form
from persistence.model.permissions import ANONYMOUS, Role, User
from persistence.model.queries import Hit, Hits, Query, Scope, SentQuery
from persistence.model.versions import Searched, VersionRequest
from persistence.properties.properties import Properties
from persistence.providers.opened import open_index, provider_of_tree
from persistence.providers.router import only
from persistence.services.apis import Services
from persistence.services.rules import Access, AccessTokens, Delete
from persistence.services.searching import Searcher, Searching
from persistence.settings import Settings
from persistence.storage.store import Store
from tests import orders, searches
from tests.index.oracle import Oracle, Stored
from tests.initialised import initialised
from tests.opened import opened, services
from tests.orders import ANN, ORDER, found
from tests.published import PERMISSIONS, Planter

KIM = User("kim", roles=(Role("clerk"),))
LATEST, ALL = Searched.LATEST, Searched.ALL
_EVERY = ["d-4°", "d-3°", "d-2", "d-3", "d-1"]
_SEARCH = "<search/>"
_CLASS = re.compile(r'(id="(\w+)-control"[^>]*?) class="[^"]*"')


def any_of(operations: str) -> str:
    return f'<search><operations any-of="{operations}"/></search>'


def _changed(hit: Hit, document: str | None = None, **facts: object) -> Hit:
    """A hit with another document or other facts."""
    return replace(hit, document=document or hit.document, facts=msgspec.structs.replace(hit.facts, **facts))


@dataclass
class Bench:
    """A tree of definitions, an index of documents, and searches over the two."""

    data: Path
    stored: list[Stored] = field(default_factory=lambda: [each.stored for each in orders.DOCUMENTS])
    properties: Mapping[str, object] = field(default_factory=dict)

    def define(
        self,
        metadata: str = "",
        version: int = 1,
        when: str = orders.PUBLISHED,
        form: Form = ORDER,
        indexed: tuple[str, ...] | None = None,
    ) -> None:
        """Publish the form of the vectors, with its own indexed controls or only some of them."""
        definition = orders.definition(metadata).decode()
        if indexed is not None:
            definition = definition.replace("<fr:index/>", "")
            definition = _CLASS.sub(lambda found: found[0] if found[2] in indexed else found[1], definition)
        Planter(self.data).define(str(form), version, definition.encode(), when)

    def delete(self, version: int) -> None:
        definitions = services(self.store, SVC, self._loaded).definitions
        definitions.delete(ORDER, FORM_XHTML, Delete(version=VersionRequest(number=version)))

    @property
    def store(self) -> Store:
        return opened(Store(initialised(self.data), lock_timeout=1))

    @property
    def _loaded(self) -> Properties:
        return Properties.load(self.properties, SVC.property_prefix)

    @property
    def _searching(self) -> Searching:
        store = self.store
        index = opened(open_index(Settings(data=store.root), self._loaded, store.root))
        provider = provider_of_tree(store, index, Catalog(store))
        found = replace(provider, index=Oracle(self.stored))
        return Services.public(only(found, self._loaded), Access(SVC, AccessTokens(tuple))).searching

    def search(
        self, body: str = _SEARCH, user: User = ANONYMOUS, version: int | Searched = LATEST, form: Form = ORDER
    ) -> bytes:
        return b"".join(self._searching.search(form, version, SentQuery([body.encode()]), Searcher(user))[0].xml())

    def distinct(self, body: str = searches.T13_QUERY, user: User = ANONYMOUS) -> bytes:
        return b"".join(self._searching.distinct(ORDER, LATEST, SentQuery([body.encode()]), Searcher(user))[0].xml())


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """The set-up of the vectors."""
    made = Bench(tmp_path)
    made.define()
    return made


def operations(body: bytes) -> set[str]:
    return {each.attrib["operations"] for each in orders.tree(body)}


def test_all_indexed_controls_can_be_sorted_by(bench: Bench) -> None:
    body = '<search return-all-indexed-fields="true"><query path="{}" sort="asc"/></search>'
    assert found(bench.search(body.format("customer/name"))) == ["d-1", "d-2", "d-3"]
    assert found(bench.search(body.format("customer/notes"))) == ["d-2", "d-3", "d-1"]


def test_where_the_definition_cannot_be_read_all_queries_about_controls_vanish(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has more controls than anyone reads."""
    monkeypatch.setattr(controls, "MOST_STEPS", 1)
    answer = bench.search(searches.T10_CLOSED)
    assert found(answer) == ["d-2", "d-3", "d-1"]
    assert list(orders.details(answer)) == [[], [], []]


AS_SPECIFIED = {"svc.persistence.*.search.restrict-to-readable": False}
"""Searches as spec search 1.8 has them."""


def one(operations: str, conditions: str = "") -> str:
    return f'<permissions><permission operations="{operations}">{conditions}</permission></permissions>'


_PARIS = User("pia", roles=(Role("clerk", "Paris"),))


@pytest.mark.parametrize(
    ("permissions", "user", "documents", "allowed"),
    [
        ("<permissions/>", ANN, [], set()),
        (PERMISSIONS, ANN, ["d-3°", "d-3", "d-1"], {"create read update list"}),
        (PERMISSIONS, replace(KIM, name=None), ["d-2", "d-3", "d-1"], {"create read list"}),
        (one("read", "<group-member/>"), User("sue", "support"), ["d-4°", "d-2"], {"read list"}),
        (
            one("read", '<owner/><user-role any-of="clerk"/>'),
            replace(ANN, roles=KIM.roles),
            ["d-3°", "d-3", "d-1"],
            {"read list"},
        ),
        (one("read", '<owner/><user-role any-of="clerk"/>'), KIM, [], set()),
        (one("read", '<user-role any-of="clerk"/>'), _PARIS, ["d-6"], {"read list"}),
    ],
)
def test_what_is_found_by_whom(
    bench: Bench, permissions: str, user: User, documents: list[str], allowed: set[str]
) -> None:
    """What a GET shows. One more document belongs to somebody in Paris."""
    first = bench.stored[0]
    elsewhere = _changed(first.hit, "d-6", creator="leo", group=None, organization=("Corp", "Paris"))
    if user is _PARIS:
        bench.stored.append(replace(first, hit=elsewhere))
    bench.define(permissions)
    answer = bench.search(user=user)
    assert (found(answer), operations(answer)) == (documents, allowed)


def test_as_specified_who_may_only_create_or_list_finds_what_others_may_read(bench: Bench) -> None:
    bench.properties = AS_SPECIFIED
    bench.define(PERMISSIONS)
    for user, body, documents, allowed in (
        (ANONYMOUS, any_of("create"), ["d-2", "d-3", "d-1"], {"create list"}),
        (ANONYMOUS, any_of("list"), ["d-2", "d-3", "d-1"], {"create list"}),
        (ANONYMOUS, any_of(""), [], set()),
        (ANN, any_of("delete"), [], set()),
        (replace(ANN, roles=KIM.roles), _SEARCH, _EVERY, {"create read list", "create read update list"}),
    ):
        answer = bench.search(body, user)
        assert (found(answer), operations(answer)) == (documents, allowed), (user, body)


def test_as_specified_owners_are_found_whatever_their_role(bench: Bench) -> None:
    """Spec search 1.8: a row is found for the owner, who then may do nothing with it."""
    bench.properties = AS_SPECIFIED
    bench.define(one("read", '<owner/><user-role any-of="clerk"/>'))
    answer = bench.search(user=ANN)
    assert (found(answer), operations(answer)) == (["d-3°", "d-3", "d-1"], {""})


def test_drafts_are_not_found_where_they_are_switched_off(bench: Bench) -> None:
    """A GET of one is 403."""
    bench.properties = {"svc.persistence.*.autosave": False}
    assert found(bench.search(user=ANN)) == ["d-2", "d-3", "d-1"]
    assert found(bench.search("<search><drafts>only</drafts></search>", ANN)) == []
    bench.properties = {**bench.properties, **AS_SPECIFIED}
    assert found(bench.search(user=ANN)) == _EVERY


def test_as_specified_a_role_in_an_organization_counts_whatever_is_asked_for(bench: Bench) -> None:
    """These always use read, update and delete; the operations say the rest."""
    bench.properties = AS_SPECIFIED
    bench.stored = [replace(each, hit=_changed(each.hit, organization=("Corp", "Paris"))) for each in bench.stored]
    bench.define(one("read", '<user-role any-of="clerk"/>'))
    answer = bench.search(any_of("update"), _PARIS)
    assert (found(answer), operations(answer)) == (_EVERY, {"read list"})


def test_permissions_may_come_from_the_property_be_switched_off_or_gone_again(bench: Bench) -> None:
    bench.properties = {"svc.permissions.acme.order": '{"owner": ["read"]}'}
    answer = bench.search(user=ANN)
    assert (found(answer), operations(answer)) == (["d-3°", "d-3", "d-1"], {"read"})
    assert found(bench.search()) == []
    bench.define("<permissions/>")
    bench.properties = {"svc.persistence.*.permissions": False}
    assert operations(bench.search()) == {"*"}
    bench.properties = {}
    assert found(bench.search()) == []
    bench.define()
    assert (found(bench.search()), operations(bench.search())) == (["d-2", "d-3", "d-1"], {"*"})


@pytest.fixture
def versions(bench: Bench) -> Bench:
    """Two versions, of which the second has permissions, and a document of each of three."""
    bench.define(PERMISSIONS, version=2, when="2024-04-02T09:00:00.000Z", indexed=("name",))
    for number in (2, 3):
        hit = _changed(bench.stored[0].hit, f"v-{number}", version=number)
        bench.stored.append(Stored(hit))
    return bench


def test_versions_and_whose_permissions_count(versions: Bench) -> None:
    """Of every document those of its own version; of one that was never published, those of the one published last."""
    for version, user, documents in (
        (LATEST, KIM, ["v-2"]),
        (LATEST, ANONYMOUS, []),
        (1, ANONYMOUS, ["d-2", "d-3", "d-1"]),
        (2, KIM, ["v-2"]),
        (2, ANONYMOUS, []),
        (ALL, KIM, ["d-4°", "d-3°", "d-2", "d-3", "d-1", "v-2", "v-3"]),
        (ALL, ANONYMOUS, ["d-2", "d-3", "d-1"]),
        (3, KIM, ["v-3"]),
        (3, ANONYMOUS, []),
        (7, KIM, []),
    ):
        assert found(versions.search(user=user, version=version)) == documents, (version, user)


def test_a_version_whose_permissions_cannot_be_read_shows_nothing(versions: Bench) -> None:
    """A GET of its documents is 500; so is one of a version that was never published: which was last is not known."""
    for name in ("form.xhtml", "form.xhtml.json"):
        (versions.data / "acme/order/form/1" / name).write_bytes(b"<")
    assert found(versions.search(user=KIM, version=ALL)) == ["v-2"]


def test_as_specified_the_permissions_of_the_latest_version_count_for_all(versions: Bench) -> None:
    versions.define("", version=1, when="2024-04-03T09:00:00.000Z")
    assert found(versions.search(version=3)) == ["v-3"], "those of the version published last"
    versions.properties = AS_SPECIFIED
    assert found(versions.search(version=ALL)) == []
    assert len(found(versions.search(user=KIM, version=ALL))) == 7


def test_whose_index_counts(versions: Bench) -> None:
    versions.stored.append(Stored(_changed(versions.stored[0].hit, "v-7", version=7)))
    for version, paths in ((LATEST, 1), (ALL, 1), (2, 1), (1, 5), (7, 0)):
        answer = versions.search('<search return-all-indexed-fields="true"/>', KIM, version)
        assert {len(each) for each in orders.details(answer)} == {paths}, version


def test_when_the_latest_version_is_deleted_the_one_before_is_searched(versions: Bench) -> None:
    versions.delete(2)
    assert found(versions.search()) == ["d-2", "d-3", "d-1"]


def test_when_nothing_is_published_any_more_the_permissions_of_what_was_deleted_hold(versions: Bench) -> None:
    """And only its own data is searched: a form that is deleted does not open that of a version more closed."""
    versions.delete(2)
    versions.delete(1)
    for version in (LATEST, ALL, 2):
        assert found(versions.search(version=version)) == []
    for version in (LATEST, ALL, 2):
        assert found(versions.search(user=KIM, version=version)) == ["v-2"]
    assert found(versions.search(version=1)) == ["d-2", "d-3", "d-1"]


def test_when_nothing_was_ever_published_everything_is_found(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.stored.append(Stored(_changed(bench.stored[0].hit, "v-2", version=2)))
    assert sorted(found(bench.search())) == ["d-1", "d-2", "d-3", "v-2"]
    assert operations(bench.search(version=ALL)) == {"*"}
    assert found(bench.search(version=2)) == ["v-2"]


def test_of_a_form_without_versions_there_is_only_the_first(versions: Bench) -> None:
    versions.properties = {"svc.persistence.*.versioning": False}
    for version in (LATEST, ALL, 1):
        assert found(versions.search(version=version)) == ["d-2", "d-3", "d-1"]
    with pytest.raises(VersionError):
        versions.search(version=2)


def test_the_designers_own_data_has_no_versions(bench: Bench) -> None:
    designer = Form("svc", "builder")
    bench.define(version=3, form=designer)  # nothing that anyone publishes there counts
    answer = bench.search('<search return-all-indexed-fields="true"/>', form=designer)
    assert found(answer) == ["d-2", "d-3", "d-1"]
    assert len(next(orders.details(answer))) == len(DESIGNER_KEYS)
    assert found(bench.search(form=designer, version=1)) == ["d-2", "d-3", "d-1"]
    assert found(bench.search(form=designer, version=2)) == []


def test_a_definition_that_cannot_be_read_lets_nobody_in(bench: Bench) -> None:
    folder = bench.data / "acme/order/form/1"
    (folder / "form.xhtml.json").write_text("{")
    (folder / "form.xhtml").write_text("{")
    for version in (LATEST, ALL, 1):
        with pytest.raises(DamagedError):
            bench.search(user=KIM, version=version)


def test_who_may_see_nothing_gets_no_values_and_others_those_they_may_see(bench: Bench) -> None:
    bench.define(PERMISSIONS)
    assert bench.distinct() == b"<distinct-values/>"
    values = [value.text for value in orders.tree(bench.distinct('<d><query path="customer/name"/></d>', ANN))[0]]
    assert values == ["Ada", "Zoe", "Zoe B"]


def test_values_that_are_asked_for_twice_are_there_twice(bench: Bench) -> None:
    answer = orders.tree(bench.distinct(f"<d>{searches.control(searches.STATUS) * 2}</d>"))
    assert [[value.text for value in query] for query in answer] == [["closed", "open"]] * 2


def test_nothing_is_asked_of_the_index_for_whom_may_see_nothing(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.define("<permissions/>")

    def search(_self: Oracle, _form: Form, _scope: Scope, _query: Query, _budget: Budget) -> Hits:
        raise AssertionError

    monkeypatch.setattr(Oracle, "search", search)
    assert bench.search() == b'<documents search-total="0"/>'
