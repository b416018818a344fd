"""The contract of an index: a subclass of ``IndexContract`` makes an empty storage with its index, and all of it holds.

An index that cannot do a thing says so by the abilities that its subject has, and must then refuse it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Protocol

import pytest

from persistence.catalog import Catalog
from persistence.errors import BadRequestError, MalformedXmlError, NotSupportedError
from persistence.index import protocol as budgets
from persistence.index.protocol import Budget, Reindexer, ReindexingState, SearchIndex
from persistence.model.addresses import Form
from persistence.model.permissions import NOBODY, OwnerPattern, OwnerSet
from persistence.model.queries import (
    Comparison,
    ControlFilter,
    DraftFilter,
    Drafts,
    Field,
    FieldFilter,
    Hits,
    Query,
    Scope,
    Sort,
    TextMatch,
    VisibleOwners,
)
from tests import orders

NAME, TOPICS, STATUS = "customer/name", "customer/topics", "customer/status"


class Ability(Enum):
    """Something that an index may not be able to do; whoever is asked all the same raises ``NotSupportedError``."""

    GROUPS = auto()
    """Search the documents of the members of a group, and of several owners."""
    DISTINCT_OF_OWNERS = auto()
    """Give the distinct values of the documents of some owners only."""


ALL_ABILITIES = frozenset(Ability)


class ContractStorage(Protocol):
    """Changes what is stored of the subject's form."""

    def publish(self, definition: bytes, version: int = 1) -> None:
        """Publish a version."""

    def unpublish(self, version: int = 1) -> None:
        """Delete the definition of a version."""

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
        """Save a document or draft."""

    def delete(self, document: str) -> None:
        """Delete a document."""


@dataclass
class Subject:
    """An index, the storage whose documents of a form it searches, and what it is able to do."""

    index: SearchIndex
    definitions: Catalog
    reindexer: Reindexer
    storage: ContractStorage
    form: Form
    abilities: frozenset[Ability] = field(default=ALL_ABILITIES)

    def save(self, document: str, name: str = "", topics: str = "", status: str = "", **own: object) -> None:
        values = (("name", name), ("topics", topics), ("status", status))
        customer = "".join(f"<{element}>{text}</{element}>" for element, text in values)
        self.storage.save(document, f"<form><customer>{customer}</customer></form>".encode(), **own)  # type: ignore[arg-type]
        time.sleep(0.001)  # what is saved in one millisecond has no order

    def search(self, query: Query, scope: Scope | None = None, budget: Budget | None = None) -> Hits:
        return self.index.search(self.form, scope or Scope(), query, budget)

    def names(self, *controls: ControlFilter, scope: Scope | None = None, **more: object) -> list[str]:
        """The documents that are found, the newest first; a draft is marked."""
        query = Query(controls=controls, **{"paths": (), **more})  # type: ignore[arg-type]
        return [hit.document + "°" * hit.is_draft for hit in self.search(query, scope).page]

    def distinct(self, by: Field | str, scope: Scope | None = None) -> list[str]:
        return list(self.index.distinct(self.form, scope or Scope(), by))


def exact(path: str, text: str) -> ControlFilter:
    return ControlFilter(path, TextMatch.EXACT, text)


def only(kind: Drafts) -> Scope:
    return Scope(drafts=DraftFilter(kind))


def seen_by(*patterns: OwnerPattern) -> Scope:
    owners = frozenset({OwnerSet(frozenset(patterns))})
    return Scope(drafts=DraftFilter(Drafts.EXCLUDE), seen=VisibleOwners(lambda _: owners))


class IndexContract:
    """The subclass has a fixture ``subject``: one that is empty, each time."""

    @pytest.fixture
    def filled(self, subject: Subject) -> Subject:
        """Three documents of two users, and a draft."""
        subject.storage.publish(orders.definition())
        subject.save("d-1", "Ada Lovelace", "red green", "open", user="ann", group="sales")
        subject.save("d-2", "Bob", "green", "closed", user="bob", group="support")
        subject.save("d-3", "ada", "Blue", "open", user="ann", group="sales")
        subject.save("d-4", "Zoe", "", "new", user="bob", is_draft=True)
        return subject

    def test_reindexing_loses_nothing_and_ends(self, filled: Subject) -> None:
        """First, while few forms are there to be read again."""
        before = filled.search(Query(paths=(NAME,)))
        filled.reindexer.version(filled.form, 1)
        filled.reindexer.version(Form("acme", "unknown"), 1)
        filled.reindexer.all()
        assert filled.search(Query(paths=(NAME,))) == before
        assert filled.reindexer.status().state is ReindexingState.STOPPED

    def test_an_empty_form_has_no_hits_and_no_values(self, subject: Subject) -> None:
        assert subject.search(Query(paths=())) == Hits()
        assert subject.distinct(Field.CREATED_BY) == []

    def test_documents_come_newest_first_page_by_page_with_their_number(self, filled: Subject) -> None:
        assert filled.names() == ["d-4°", "d-3", "d-2", "d-1"]
        page = filled.search(Query(offset=2, size=2, paths=()))
        assert (page.total, [hit.document for hit in page.page]) == (4, ["d-2", "d-1"])
        assert filled.search(Query(offset=10, paths=())).page == ()

    def test_conditions_on_controls(self, filled: Subject) -> None:
        for condition, found in (
            (exact(NAME, "ada"), ["d-3"]),
            (exact(STATUS, "open"), ["d-3", "d-1"]),
            (ControlFilter(NAME, TextMatch.SUBSTRING, "ADA"), ["d-3", "d-1"]),
            (ControlFilter(NAME, TextMatch.SUBSTRING, "velac"), ["d-1"]),
            (ControlFilter(TOPICS, TextMatch.TOKEN, "green"), ["d-2", "d-1"]),
            (ControlFilter(TOPICS, TextMatch.TOKEN, "green red"), ["d-1"]),
            (ControlFilter(TOPICS, TextMatch.TOKEN, "gree"), []),
            (exact("customer/notes", "ada"), []),
        ):
            assert filled.names(condition) == found, condition

    @pytest.fixture
    def typed(self, subject: Subject) -> Subject:
        """A date, a time and some numbers of one value."""
        subject.storage.publish(_typed())
        subject.save("t-1", "2024-05-01T10:00:00Z", "2024-05-01", "9")
        subject.save("t-2", "2024-05-01T23:30:00", "2024-05-31", "10.5")
        subject.save("t-3", "2024-05-02T00:30:00+02:00", "2024-06-01", "-3")
        subject.save("t-4", "soon", "May", "ten")
        return subject

    def test_ranges_of_typed_controls(self, typed: Subject) -> None:
        for conditions, found in (
            ([(TOPICS, "gte", "2024-05-31")], ["t-3", "t-2"]),
            ([(TOPICS, "gt", "2024-05-31")], ["t-3"]),
            ([(TOPICS, "lte", "2024-05-31")], ["t-2", "t-1"]),
            ([(TOPICS, "lt", "2024-05-31")], ["t-1"]),
            ([(TOPICS, "between", "2024-05-01 2024-05-31")], ["t-2", "t-1"]),
            ([(TOPICS, "gte", "2024-05-02"), (TOPICS, "lt", "2024-06-01")], ["t-2"]),
            ([(TOPICS, "gte", "2024-06-02")], []),
            ([(STATUS, "gt", "9")], ["t-2"]),
            ([(STATUS, "between", "-3.0 9.00")], ["t-3", "t-1"]),
            ([(NAME, "lte", "2024-05-01")], ["t-3", "t-2", "t-1"]),
            ([(NAME, "gt", "2024-05-01")], []),
            ([(NAME, "between", "2024-05-01T22:30:00Z 2024-05-02T02:00:00+02:00")], ["t-3", "t-2"]),
            ([(TOPICS, "gte", "2024-05-02"), (STATUS, "lt", "0")], ["t-3"]),
            ([(TOPICS, "substring", "2024-05"), (STATUS, "gte", "10")], ["t-2"]),
        ):
            filters = [ControlFilter(path, TextMatch(match), text) for path, match, text in conditions]
            assert typed.names(*filters) == found, conditions

    def test_of_the_alternatives_of_each_name_one_must_hold(self, filled: Subject) -> None:
        for controls, fields, found in (
            ([(STATUS, "closed", "a"), (TOPICS, "green", "a")], [], ["d-2"]),
            ([(STATUS, "closed", "a")], [("bob", "a")], ["d-2"]),
            ([(STATUS, "open", "")], [("ann", "a"), ("bob", "a")], ["d-3", "d-1"]),
            ([("never/indexed", "x", "a")], [("bob", "a")], ["d-2"]),
            ([("never/indexed", "x", "a")], [], []),
            ([(STATUS, "open", "a"), (NAME, "Bob", "b")], [("bob", "a"), ("ann", "b")], ["d-3", "d-2", "d-1"]),
        ):
            of_controls = [ControlFilter(path, TextMatch.EXACT, text, name) for path, text, name in controls]
            of_fields = tuple(FieldFilter(Field.CREATED_BY, Comparison.EXACT, text, name) for text, name in fields)
            assert filled.names(*of_controls, fields=of_fields, scope=only(Drafts.EXCLUDE)) == found, controls

    def test_a_search_has_many_alternatives(self, typed: Subject) -> None:
        texts = [f"2024-05-{number % 28 + 1:02}" for number in range(180)]
        for match in TextMatch:
            bounds = [f"{each} {each}" if match is TextMatch.BETWEEN else each for each in texts]
            filters = [ControlFilter(TOPICS, match, text, "a") for text in bounds]
            alone = {name for each in dict.fromkeys(filters) for name in typed.names(replace(each, alternative=""))}
            assert set(typed.names(*filters)) == alone, match

    def test_documents_are_read_again_by_the_types_of_the_next_publication(self, typed: Subject) -> None:
        since = ControlFilter(TOPICS, TextMatch.GTE, "2024-05-31")
        assert typed.names(since) == ["t-3", "t-2"]
        typed.storage.publish(_typed(b"xf:dateTime"))
        assert typed.names(since) == []
        typed.save("t-1", "", "2024-05-31T08:00:00")
        assert typed.names(since) == ["t-1"]
        typed.storage.publish(_typed())
        assert typed.names(since) == ["t-3", "t-2"]

    def test_conditions_on_fields_and_text_and_all_of_them(self, filled: Subject) -> None:
        of_ann = FieldFilter(Field.CREATED_BY, Comparison.EXACT, "ann")
        assert filled.names(fields=(of_ann,)) == ["d-3", "d-1"]
        assert filled.names(text="LOVE") == ["d-1"]
        filled.save("d-5", 'a &amp; "b"', "&lt;x>", "gone", user="cid")
        assert filled.names(text='& "B') == filled.names(exact(NAME, 'a & "b"'), exact(TOPICS, "<x>")) == ["d-5"]
        filled.storage.delete("d-5")
        assert filled.names(exact(STATUS, "open"), text="blue", fields=(of_ann,)) == ["d-3"]
        since = next(hit.facts.modified for hit in filled.search(Query(paths=())).page if hit.document == "d-2")
        assert filled.names(fields=(FieldFilter(Field.LAST_MODIFIED, Comparison.GTE, since),)) == ["d-4°", "d-3", "d-2"]
        assert filled.names(fields=(FieldFilter(Field.LAST_MODIFIED, Comparison.LT, since),)) == ["d-1"]

    def test_the_order_of_a_control_or_field(self, filled: Subject) -> None:
        assert filled.names(sort=Sort(NAME, is_descending=False), paths=(NAME,)) == ["d-3", "d-1", "d-2", "d-4°"]
        assert filled.names(sort=Sort(NAME), paths=(NAME,)) == ["d-4°", "d-2", "d-1", "d-3"]
        assert filled.names(sort=Sort(STATUS, is_descending=False), paths=(NAME, STATUS)) == [
            "d-2",
            "d-4°",
            "d-3",
            "d-1",
        ]
        assert filled.names(sort=Sort(Field.CREATED, is_descending=False)) == ["d-1", "d-2", "d-3", "d-4°"]

    def test_a_hit_has_the_facts_and_the_values_that_are_asked_for(self, filled: Subject) -> None:
        (hit,) = filled.search(Query(controls=(exact(NAME, "Bob"),), paths=(TOPICS,))).page
        assert (hit.document, hit.facts.creator, hit.facts.group, hit.facts.modifier, hit.is_draft) == (
            *("d-2", "bob", "support"),
            *("bob", False),
        )
        assert hit.facts.created == hit.facts.modified
        assert hit.values[TOPICS] == ("green",)

    def test_drafts(self, filled: Subject) -> None:
        filled.save("d-1", "Ada as a draft", is_draft=True)
        assert filled.names(scope=only(Drafts.INCLUDE)) == ["d-1°", "d-4°", "d-3", "d-2", "d-1"]
        assert filled.names(scope=only(Drafts.EXCLUDE)) == ["d-3", "d-2", "d-1"]
        assert filled.names(scope=only(Drafts.ONLY)) == ["d-1°", "d-4°"]
        never_saved = Scope(drafts=DraftFilter(Drafts.ONLY, never_saved=True))
        assert filled.names(scope=never_saved) == ["d-4°"]
        of_document = Scope(drafts=DraftFilter(Drafts.ONLY, for_document="d-1"))
        assert filled.names(scope=of_document) == ["d-1°"]

    def test_a_save_removes_the_draft(self, filled: Subject) -> None:
        filled.save("d-4", "Zoe", user="bob")
        assert filled.names() == ["d-4", "d-3", "d-2", "d-1"]

    def test_versions(self, filled: Subject) -> None:
        filled.storage.publish(orders.definition(), version=2)
        filled.save("v-2", "Ada", version=2)
        assert filled.names(scope=Scope(versions=(1,))) == ["d-4°", "d-3", "d-2", "d-1"]
        assert filled.names(scope=Scope(versions=(2,))) == ["v-2"]
        assert filled.names(scope=Scope(versions=None)) == ["v-2", "d-4°", "d-3", "d-2", "d-1"]

    def test_owners_whose_documents_are_seen(self, filled: Subject) -> None:
        assert filled.names(scope=seen_by(OwnerPattern(creator="ann"))) == ["d-3", "d-1"]
        assert filled.names(exact(STATUS, "closed"), scope=seen_by(OwnerPattern(creator="ann"))) == []
        nobody = Scope(seen=VisibleOwners(lambda _: frozenset({NOBODY})))
        assert filled.search(Query(paths=()), nobody) == Hits()
        assert filled.distinct(NAME, nobody) == []

    def test_groups_whose_documents_are_seen(self, filled: Subject) -> None:
        of_group = OwnerPattern(group="support")
        for scope, found in (
            (seen_by(of_group), ["d-2"]),
            (seen_by(OwnerPattern(creator="ann"), of_group), ["d-3", "d-2", "d-1"]),
        ):
            if Ability.GROUPS in filled.abilities:
                assert filled.names(scope=scope) == found
            else:
                with pytest.raises(NotSupportedError):
                    filled.names(scope=scope)

    def test_distinct_values_are_sorted_and_each_is_there_once(self, filled: Subject) -> None:
        assert filled.distinct(NAME) == ["ada", "Ada Lovelace", "Bob", "Zoe"]
        assert filled.distinct(STATUS) == ["closed", "new", "open"]
        assert filled.distinct(TOPICS) == ["Blue", "green", "red green"]
        assert filled.distinct(Field.CREATED_BY) == ["ann", "bob"]
        assert filled.distinct(Field.WORKFLOW_STAGE) == [""]
        assert filled.distinct("customer/notes") == []

    def test_distinct_values_of_the_documents_that_are_seen(self, filled: Subject) -> None:
        scope = seen_by(OwnerPattern(creator="ann"))
        if Ability.DISTINCT_OF_OWNERS in filled.abilities:
            assert filled.distinct(NAME, scope) == ["ada", "Ada Lovelace"]
        else:
            with pytest.raises(NotSupportedError):
                filled.distinct(NAME, scope)

    def test_a_write_is_found_by_the_next_search(self, filled: Subject) -> None:
        for number in range(5):
            filled.save("d-1", f"Version {number}")
            assert filled.names(exact(NAME, f"Version {number}")) == ["d-1"]
            assert filled.names(exact(NAME, f"Version {number - 1}")) == []
        assert "Version 4" in filled.distinct(NAME)

    def test_a_deleted_document_is_not_found_until_it_is_saved_again(self, filled: Subject) -> None:
        filled.storage.delete("d-2")
        assert filled.names() == ["d-4°", "d-3", "d-1"]
        assert "Bob" not in filled.distinct(NAME)
        filled.save("d-2", "Bob is back")
        assert filled.names() == ["d-2", "d-4°", "d-3", "d-1"]

    def test_a_search_goes_by_the_definition_as_it_is(self, filled: Subject) -> None:
        filled.storage.publish(_without_name())
        assert filled.names(exact(NAME, "Bob")) == []
        assert filled.distinct(NAME) == []
        assert filled.names(text="Lovelace") == ["d-1"]
        filled.storage.publish(orders.definition())
        assert filled.names(exact(NAME, "Bob")) == ["d-2"]

    @pytest.fixture
    def unpublished(self, filled: Subject) -> Subject:
        """The three documents and the draft when their definition is deleted (spec search 2.5)."""
        assert filled.names(exact(NAME, "Bob"), scope=Scope(versions=(1,))) == ["d-2"]
        filled.storage.unpublish()
        assert filled.names(scope=Scope(versions=(1,))) == []
        return filled

    def test_data_of_a_deleted_definition_is_found_again_after_reindexing(self, unpublished: Subject) -> None:
        unpublished.storage.publish(orders.definition(), version=2)
        unpublished.reindexer.version(unpublished.form, 2)
        assert unpublished.names(scope=Scope(versions=(1,))) == []
        unpublished.reindexer.version(unpublished.form, 1)
        assert unpublished.names(scope=Scope(versions=(1,))) == ["d-4°", "d-3", "d-2", "d-1"]

    def test_data_of_a_deleted_definition_is_hidden_until_it_is_saved_or_the_form_is_published(
        self, unpublished: Subject
    ) -> None:
        of_version = Scope(versions=(1,))
        unpublished.save("d-1", "Ada Lovelace")
        assert unpublished.names(scope=of_version) == ["d-1"]
        assert unpublished.names(exact(NAME, "Ada Lovelace"), scope=of_version) == []
        unpublished.storage.publish(orders.definition())
        assert unpublished.names(scope=of_version) == ["d-1", "d-4°", "d-3", "d-2"]
        assert unpublished.names(exact(NAME, "Bob"), scope=of_version) == ["d-2"]

    def test_a_document_is_checked_while_it_is_received(self, filled: Subject) -> None:
        definition = filled.definitions.of(filled.form, 1)
        with filled.index.checking(definition) as check:
            check.read([b"<form><customer>", b"<name>Ada</name></customer></form>"])
        with pytest.raises(MalformedXmlError), filled.index.checking(definition) as check:
            check.read([b"<form><customer></form>"])

    def test_a_budget_bounds_the_answer(self, filled: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
        assert filled.search(Query(paths=(NAME,)), budget=Budget()).total == 4
        monkeypatch.setattr(budgets, "LARGEST_FOUND", 100)
        with pytest.raises(BadRequestError, match="larger than"):
            filled.search(Query(paths=(NAME,)), budget=Budget())
        with pytest.raises(BadRequestError, match="larger than"):
            list(filled.index.distinct(filled.form, Scope(), NAME, Budget()))


def _typed(topics: bytes = b"xf:date") -> bytes:
    definition = orders.definition()
    for name, of in ((b"name", b"xs:dateTime"), (b"topics", topics), (b"status", b"xf:decimal")):
        definition = definition.replace(b'name="%s"' % name, b'name="%s" type="%s"' % (name, of), 1)
    return definition


def _without_name() -> bytes:
    definition = orders.definition()
    changed = definition.replace(b"<fr:index><fr:summary-show/></fr:index>", b"")
    assert changed != definition
    return changed
