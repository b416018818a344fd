"""Which forms a user sees, in what order, and what the user may do: decisions as tables (spec search 4.2 to 4.5)."""

import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from persistence import catalog
from persistence.catalog import Catalog
from persistence.dialect import SVC
from persistence.errors import BadRequestError
from persistence.limits import LARGEST_LIST
from persistence.model.addresses import FORM_XHTML, DefinitionAddress, Form
from persistence.model.permissions import (
    ANONYMOUS,
    Admin,
    GrantCondition,
    Permission,
    Permissions,
    Role,
    User,
    UserRole,
    admin_entries,
    is_admin,
)
from persistence.model.queries import FormField, FormFilter, FormMatch, FormQuery, FormSort, PageRequest, Wanted
from persistence.model.texts import Instant
from persistence.model.versions import FormMetadata, PublishedVersion
from persistence.properties.properties import Properties
from persistence.services.rules import Put
from persistence.services.searching import Listed, holds, operations, select
from persistence.storage.store import Store
from persistence.storage.stored_revision import StoredRevision
from tests.initialised import initialised
from tests.opened import opened, services
from tests.published import PERMISSIONS, Planter, definition
from tests.service import Service, running
from tests.sidecars import resealed

TITLES = {"de": "Bestellung", "en": "Order", "": "None"}
ORDER = Listed(
    PublishedVersion(
        form=Form("Acme", "order"),
        version=3,
        created=Instant("2024-04-01T09:00:00.000Z"),
        modified=Instant("2024-04-10T09:00:00.250Z"),
        modifier="Fay",
        metadata=FormMetadata(titles=TITLES),
        permissions=None,
    ),
    ("*",),
)
ALL = FormQuery(all_forms=True)


def at(*fields: int) -> datetime:
    return datetime(*fields, tzinfo=UTC)  # type: ignore[arg-type,misc]


def changed(listed: Listed = ORDER, *, words: tuple[str, ...] | None = None, **facts: object) -> Listed:
    published = replace(listed.published, **facts)  # type: ignore[arg-type]
    return Listed(published, listed.operations if words is None else words)


@pytest.mark.parametrize(
    ("metadata", "match", "wanted", "does"),
    [
        (FormField.APPLICATION_NAME, FormMatch.EXACT, "acme", True),
        (FormField.APPLICATION_NAME, FormMatch.EXACT, "acm", False),
        (FormField.APPLICATION_NAME, FormMatch.SUBSTRING, "cm", True),
        (FormField.FORM_NAME, FormMatch.SUBSTRING, "", True),
        (FormField.FORM_NAME, FormMatch.SUBSTRING, "orders", False),
        (FormField.FORM_VERSION, FormMatch.EXACT, 3, True),
        (FormField.FORM_VERSION, FormMatch.EXACT, 2, False),
        (FormField.FORM_VERSION, FormMatch.GT, 3, False),
        (FormField.FORM_VERSION, FormMatch.GTE, 3, True),
        (FormField.FORM_VERSION, FormMatch.LT, 10, True),
        (FormField.FORM_VERSION, FormMatch.LTE, 2, False),
        (FormField.CREATED, FormMatch.EXACT, at(2024, 4, 1, 9), True),
        (FormField.CREATED, FormMatch.LT, at(2024, 4, 1, 9), False),
        (FormField.LAST_MODIFIED, FormMatch.EXACT, at(2024, 4, 10, 9, 0, 0, 250_000), True),
        (FormField.LAST_MODIFIED, FormMatch.GT, at(2024, 4, 10, 9, 0, 0, 249_999), True),
        (FormField.LAST_MODIFIED, FormMatch.LTE, at(2024, 4, 10, 9, 0, 0, 249_999), False),
        (FormField.LAST_MODIFIED_BY, FormMatch.EXACT, "fay", True),
        (FormField.LAST_MODIFIED_BY, FormMatch.EXACT, "", False),
        (FormField.AVAILABLE, FormMatch.EXACT, True, True),
        (FormField.AVAILABLE, FormMatch.EXACT, False, False),
    ],
)
def test_filters(metadata: FormField, match: FormMatch, wanted: Wanted, does: bool) -> None:  # noqa: FBT001 - a column
    assert holds(FormFilter(metadata, match, wanted), ORDER) is does


def test_an_empty_text_matches_what_is_absent_and_nothing_else_does() -> None:
    nobody = changed(modifier=None, metadata=FormMetadata())
    for metadata in (FormField.LAST_MODIFIED_BY, FormField.TITLE):
        assert holds(FormFilter(metadata, FormMatch.EXACT, ""), nobody)
        assert not holds(FormFilter(metadata, FormMatch.EXACT, "x"), nobody)
        assert not holds(FormFilter(metadata, FormMatch.SUBSTRING, ""), nobody)


@pytest.mark.parametrize(
    ("language", "title"), [("en", "order"), ("de", "bestellung"), ("fr", "bestellung"), ("", "bestellung")]
)
def test_a_title_is_that_of_the_language_or_else_the_first(language: str, title: str) -> None:
    assert holds(FormFilter(FormField.TITLE, FormMatch.EXACT, title, language), ORDER)


@pytest.mark.parametrize(
    ("words", "match", "wanted", "does"),
    [
        (("create", "list"), FormMatch.EXACT, ("create", "list"), True),
        (("create", "list"), FormMatch.EXACT, ("list", "create"), False),
        (("create", "list"), FormMatch.TOKEN, ("list", "create"), True),
        (("create", "list"), FormMatch.TOKEN, ("create", "read"), False),
        (("create", "list"), FormMatch.TOKEN, (), True),
        ((), FormMatch.EXACT, (), True),
        (("*",), FormMatch.EXACT, ("*",), True),
        (("*",), FormMatch.EXACT, ("create",), False),
        (("*",), FormMatch.TOKEN, ("create", "read", "update", "delete", "list"), True),
        (("*",), FormMatch.TOKEN, ("admin",), False),
        (("*",), FormMatch.TOKEN, ("fly",), False),
        (("admin", "*"), FormMatch.TOKEN, ("read", "admin"), True),
        (("admin", "*"), FormMatch.EXACT, ("admin", "*"), True),
    ],
)
def test_filters_of_operations(words: tuple[str, ...], match: FormMatch, wanted: tuple[str, ...], does: bool) -> None:  # noqa: FBT001
    assert holds(FormFilter(FormField.OPERATIONS, match, wanted), changed(words=words)) is does


HIDDEN = FormMetadata(available=False)
LIBRARY = Form("Acme", "library")


@pytest.mark.parametrize(
    ("listed", "usual", "as_others"),
    [
        (ORDER, True, True),
        (changed(words=("list",)), True, True),
        (changed(words=()), False, False),
        (changed(metadata=HIDDEN), False, False),
        (changed(form=LIBRARY), False, False),
        (changed(words=("admin", "*")), True, True),
        (changed(words=("admin",)), True, False),
        (changed(words=("admin", "*"), metadata=HIDDEN), True, False),
        (changed(words=("admin", "list"), form=LIBRARY), True, False),
    ],
)
def test_who_sees_a_form(listed: Listed, usual: bool, as_others: bool) -> None:  # noqa: FBT001 - columns of the table
    """Spec search 4.4, step 3; all of them with ``all-forms``, whatever else is asked."""
    assert select([listed], FormQuery())[0] == usual
    assert select([listed], FormQuery(ignore_admin=True))[0] == as_others
    assert select([listed], FormQuery(ignore_admin=True, all_forms=True))[0] == 1


def test_filters_are_all_to_hold_and_the_total_counts_what_they_let_pass() -> None:
    versions = [changed(version=number) for number in range(1, 10)]
    filters = (FormFilter(FormField.FORM_VERSION, FormMatch.GT, 2), FormFilter(FormField.FORM_VERSION, FormMatch.LT, 6))
    total, page = select(versions, FormQuery(filters=filters, page=PageRequest(1, 2)))
    assert (total, [one.published.version for one in page]) == (3, [5, 4])


def order(*versions: Listed, by: FormField, is_descending: bool = False) -> list[int]:
    _, found = select(versions, replace(ALL, sort=FormSort(by, is_descending)))
    return [one.published.version for one in found]


@pytest.mark.parametrize(
    ("by", "first", "second", "third"),
    [
        (FormField.APPLICATION_NAME, {"form": Form("a", "x")}, {"form": Form("B", "x")}, {"form": Form("c", "x")}),
        (FormField.FORM_NAME, {"form": Form("x", "A")}, {"form": Form("x", "b")}, {"form": Form("x", "C")}),
        (FormField.CREATED, {"created": "2023-12-31T23:59:59.999Z"}, {}, {"created": "2024-12-31T00:00:00.000Z"}),
        (FormField.LAST_MODIFIED, {"modified": "2023-12-31T23:59:59.999Z"}, {},
         {"modified": "2024-12-31T00:00:00.000Z"}),
        (FormField.LAST_MODIFIED_BY, {"modifier": None}, {"modifier": "ann"}, {"modifier": "Bob"}),
        (FormField.TITLE, {"metadata": FormMetadata()}, {"metadata": FormMetadata(titles={"fr": "Zut"})},
         {"metadata": FormMetadata(titles={"de": "a", "en": "zzz"})}),
        (FormField.OPERATIONS, {"words": ()}, {"words": ("*",)}, {"words": ("create", "list")}),
    ],
)  # fmt: skip
def test_sorts(by: FormField, first: dict[str, object], second: dict[str, object], third: dict[str, object]) -> None:
    """Case does not matter, and what is absent is lowest, in both directions."""
    versions = [changed(version=number, **facts) for number, facts in enumerate((first, second, third), 1)]  # type: ignore[arg-type]
    for given in (versions, versions[::-1]):
        assert order(*given, by=by) == [1, 2, 3]
        assert order(*given, by=by, is_descending=True) == [3, 2, 1]


def test_versions_sort_as_numbers_and_truth_after_falsehood() -> None:
    assert order(*(changed(version=number) for number in (10, 9, 100)), by=FormField.FORM_VERSION) == [9, 10, 100]
    versions = [changed(version=1), changed(version=2, metadata=HIDDEN)]
    assert order(*versions, by=FormField.AVAILABLE) == [2, 1]


@pytest.mark.parametrize("is_descending", [True, False])
def test_ties_are_by_application_form_and_version_descending(is_descending: bool) -> None:  # noqa: FBT001 - a column
    names = [("a", "y", 1), ("b", "x", 1), ("a", "x", 1), ("a", "x", 2)]
    versions = [changed(form=Form(app, form), version=number) for app, form, number in names]
    _, found = select(versions, replace(ALL, sort=FormSort(FormField.LAST_MODIFIED, is_descending)))
    assert [(str(one.published.form), one.published.version) for one in found] == [
        ("a/x", 2), ("a/x", 1), ("a/y", 1), ("b/x", 1),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("page", "found"),
    [
        (PageRequest(1, 2), [5, 4]),
        (PageRequest(3, 2), [1]),
        (PageRequest(4, 2), []),
        (PageRequest(1, 10), [5, 4, 3, 2, 1]),
        (PageRequest(10**17, 10), []),
    ],
)
def test_pages_are_windows_of_the_sorted_list(page: PageRequest, found: list[int]) -> None:
    versions = [changed(version=number) for number in range(1, 6)]
    total, shown = select(versions, FormQuery(page=page))
    assert (total, [one.published.version for one in shown]) == (5, found)


CREATE, READ, OWN = frozenset({"create", "list"}), frozenset({"read", "list"}), frozenset({"update", "list"})
LEA = User("lea", "staff", (Role("clerk"),))


@pytest.mark.parametrize(
    ("permissions", "user", "words"),
    [
        (None, ANONYMOUS, "*"),
        ((), LEA, ""),
        ((Permission(CREATE), Permission(OWN, (GrantCondition.OWNER,))), ANONYMOUS, "create list"),
        ((Permission(CREATE), Permission(OWN, (GrantCondition.OWNER,))), LEA, "create update list"),
        ((Permission(CREATE), Permission(OWN, (GrantCondition.GROUP_MEMBER,))), LEA, "create update list"),
        ((Permission(CREATE), Permission(OWN, (GrantCondition.GROUP_MEMBER,))), User("zoe"), "create list"),
        ((Permission(OWN, (GrantCondition.OWNER,)),), LEA, ""),
        ((Permission(READ, (UserRole(frozenset({"clerk"})),)),), LEA, "read list"),
        ((Permission(READ, (UserRole(frozenset({"boss"})),)),), LEA, ""),
    ],
)
def test_operations_are_those_on_data_of_ones_own_if_one_may_create_any(
    permissions: Permissions | None, user: User, words: str
) -> None:
    """Spec search 4.5."""
    assert " ".join(operations(permissions, user, is_admin=False)) == words
    assert " ".join(operations(permissions, user, is_admin=True)) == f"admin {words}".strip()


@pytest.mark.parametrize(
    ("entry", "user", "is_one"),
    [
        (Admin("clerk", "Acme", "order"), LEA, True),
        (Admin("clerk", "*", "*"), LEA, True),
        (Admin("*", "*", "order"), ANONYMOUS, True),
        (Admin("clerk", "acme", "*"), LEA, False),
        (Admin("clerk", "*", "orders"), LEA, False),
        (Admin("boss", "*", "*"), LEA, False),
        (Admin("clerk", "*", "*"), User("lea", roles=(Role("clerk", "west"),)), False),
    ],
)
def test_administrators_are_told_by_role_application_and_form(entry: Admin, user: User, is_one: bool) -> None:  # noqa: FBT001
    """Spec search 4.4; a form belongs to no organization, so that a role bound to one does not count."""
    assert is_admin(admin_entries([entry], user), Form("Acme", "order")) is is_one
    assert not is_admin((), Form("Acme", "order"))


def test_a_title_is_folded_once_for_all_filters() -> None:
    """A hundred filters on 400 titles of 2,000 characters took a second."""
    folded = []

    class Title(str):
        __slots__ = ()

        def casefold(self) -> str:
            folded.append(self)
            return super().casefold()

    forms = [changed(metadata=FormMetadata(titles={"en": Title(f"Order {number}")})) for number in range(5)]
    every = (
        FormFilter(FormField.TITLE, FormMatch.SUBSTRING, "order"),
        FormFilter(FormField.TITLE, FormMatch.EXACT, "order 3"),
    ) * 50
    assert select(forms, replace(ALL, filters=every))[0] == 1
    assert len(folded) == len(forms)


def test_a_list_is_refused_that_would_take_too_much_memory() -> None:
    """An attack: 1,000 titles of 65,000 characters. What a query does not find, or the rights hide, does not count."""
    large = changed(weight=LARGEST_LIST // 3)
    assert select([large] * 3, ALL)[0] == 3
    with pytest.raises(BadRequestError, match=str(LARGEST_LIST)):
        select([large] * 4, ALL)
    hidden = changed(weight=LARGEST_LIST, metadata=FormMetadata(available=False))
    assert select([large, hidden, large], FormQuery())[0] == 2


def test_what_metadata_weighs_is_what_its_texts_take_in_memory() -> None:
    small, large = (FormMetadata(titles={"en": letter * 1_000}) for letter in ("x", "\U0001f600"))
    assert 1_000 < small.weight < 1_500
    assert 4_000 < large.weight < 4_500
    assert FormMetadata(permissions="x" * 1_000).weight > 1_000


# What is kept in memory of a definition: read once for each state it is in, by whoever changed it.

LEAVE = Form("hr", "leave")
DEFINITION = """<xh:html xmlns:xh="http://www.w3.org/1999/xhtml" xmlns:xf="http://www.w3.org/2002/xforms"
 xmlns:fr="http://orbeon.org/oxf/xml/form-runner"><xh:head><xf:model id="fr-form-model">
<xf:instance id="fr-form-instance"><form><s><{0}/></s></form></xf:instance>
<xf:bind id="fr-form-binds" ref="instance('fr-form-instance')"><xf:bind id="s-bind" ref="s" name="s">
<xf:bind id="{0}-bind" ref="{0}" name="{0}"/></xf:bind></xf:bind>
<xf:instance id="fr-form-metadata"><metadata><title>{0}</title></metadata></xf:instance></xf:model></xh:head>
<xh:body><fr:view><fr:body><fr:section id="s-section" bind="s-bind"><fr:grid id="g-grid"><fr:c>
<xf:input id="{0}-control" bind="{0}-bind"/></fr:c></fr:grid></fr:section></fr:body></fr:view></xh:body></xh:html>"""


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return opened(Store(initialised(tmp_path), lock_timeout=5))


def publish(store: Store, name: str) -> None:
    definitions = services(store, SVC, Properties.load({}, SVC.property_prefix)).definitions
    definitions.write(LEAVE, FORM_XHTML, Put(), [DEFINITION.format(name).encode()])


def test_controls_and_metadata_are_read_once_for_each_state(store: Store, tmp_path: Path) -> None:
    catalog = Catalog(store)

    def known() -> tuple[str, str]:
        """The same objects twice, and what they say."""
        definition = catalog.of(LEAVE, 1)
        found, published = definition.controls, definition.published
        assert found is not None
        assert catalog.of(LEAVE, 1).controls is found
        assert catalog.of(LEAVE, 1).published is published
        return found[0].name, published.metadata.titles[""]

    publish(store, "one")
    assert known() == ("one", "one")
    publish(store, "two")
    assert known() == ("two", "two")
    (tmp_path / "hr/leave/form/1/form.xhtml").write_text(DEFINITION.format("three"))
    assert known() == ("three", "three")


def test_what_is_not_published_is_not_kept(store: Store) -> None:
    definition = Catalog(store).of(LEAVE, 1)
    assert not definition.is_stored
    assert definition.controls is None
    assert definition.published is None


def test_index_keys_belong_to_the_state_of_the_fingerprint(store: Store) -> None:
    before = Catalog(store).of(LEAVE, 1)
    publish(store, "one")
    after = Catalog(store).of(LEAVE, 1)
    assert not before.index_keys("4.0.0").is_published
    assert before.known_index_keys("4.0.0") == before.index_keys("4.0.0")
    assert after.known_index_keys("4.0.0") is None
    assert after.index_keys("4.0.0").is_published
    assert after.known_index_keys("4.0.0") is after.index_keys("4.0.0")


# What a process lists that has listed the forms before: what has changed since, whoever changed it (spec search 4).

WHEN = "2024-05-01T10:00:00.000Z"
LATER = "2024-06-01T10:00:00.000Z"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A tree with three forms, one of them with two versions."""
    planter = Planter(tmp_path)
    for form, version in (("hr/leave", 1), ("hr/leave", 2), ("hr/travel", 1), ("it/desk", 1)):
        planter.publish(form, version, f"<title>{form} {version}</title>{PERMISSIONS}", WHEN, "fay")
    return tmp_path


@pytest.fixture
def known(data: Path) -> Catalog:
    """The catalog of a process that has listed all versions."""
    catalog = Catalog(opened(Store(str(data), lock_timeout=5)))
    assert len(listed(catalog)) == 4
    return catalog


def listed(catalog: Catalog) -> dict[str, str]:
    """The titles of all versions."""
    versions = [found for _, form in catalog.forms() for found in form]
    assert all(found.permissions for found in versions)
    return {f"{found.form} {found.version}": found.metadata.titles[""] for found in versions}


def read_again(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> tuple[dict[str, str], list[str]]:
    """What a process lists, and the versions whose files it has read for that."""
    read: list[str] = []
    real = Store.read

    def counted(self: Store, address: DefinitionAddress, *, content: bool) -> StoredRevision | None:
        read.append(f"{address.form} {address.version}")
        return real(self, address, content=content)

    with monkeypatch.context() as patched:
        patched.setattr(Store, "read", counted)
        return listed(catalog), read


def test_what_was_read_is_not_read_again(known: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    assert read_again(known, monkeypatch) == (listed(known), [])


def test_what_has_changed_since_is_read(data: Path, known: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """Published again, edited by hand in place, published for the first time, removed by hand, and left as it was."""
    before = listed(known)
    Planter(data).publish("hr/leave", 1, f"<title>again</title>{PERMISSIONS}", LATER)
    (data / "hr/leave/form/2" / FORM_XHTML).write_bytes(definition(f"<title>by hand</title>{PERMISSIONS}"))
    Planter(data).publish("it/new", 1, f"<title>new</title>{PERMISSIONS}", LATER)
    (data / "hr/travel/form/1").rename(data / "hr/travel/form/elsewhere")
    found, read = read_again(known, monkeypatch)
    assert found == {
        "hr/leave 1": "again",
        "hr/leave 2": "by hand",
        "it/desk 1": before["it/desk 1"],
        "it/new 1": "new",
    }
    assert set(read) == set(found) - {"it/desk 1"}


def test_a_sidecar_of_the_same_time_and_size_is_read(data: Path, known: Catalog) -> None:
    sidecar = data / "hr/travel/form/1/form.xhtml.json"
    before = sidecar.read_bytes(), sidecar.stat()
    other = data / "other"
    other.write_bytes(before[0])
    resealed(other, metadata={"titles": {"": "hr/travel 9"}, "permissions": PERMISSIONS})
    assert len(other.read_bytes()) == len(before[0])
    os.utime(other, ns=(before[1].st_atime_ns, before[1].st_mtime_ns))
    other.rename(sidecar)
    assert listed(known)["hr/travel 1"] == "hr/travel 9"


@pytest.mark.parametrize(("limit", "most"), [("VERSIONS_KEPT", 3), ("MOST_CATALOG", 1_000)])
def test_more_than_is_kept_in_memory_is_listed(
    known: Catalog, monkeypatch: pytest.MonkeyPatch, limit: str, most: int
) -> None:
    monkeypatch.setattr(catalog, limit, most)
    assert len(listed(Catalog(known.storage))) == 4


def test_one_form_is_listed_highest_version_first(known: Catalog) -> None:
    assert known.of(Form("hr", "leave"), 2).published
    assert [found.version for found in known.published(Form("hr", "leave"), skips_damaged=True)] == [2, 1]


@pytest.fixture
def crowd(tmp_path: Path) -> Iterator[Service]:
    """A service with two workers."""
    with running(tmp_path, workers=2) as service:
        yield service


def test_workers_old_and_new_list_what_is_published(crowd: Service) -> None:
    """Ten lists after each publication, and after a deletion, and by workers that have just started."""

    def titles() -> set[str]:
        lists = {crowd.raw("GET", "/form?all-versions=true").body.decode() for _ in range(10)}
        assert len(lists) == 1
        return {part.partition("</title>")[0] for part in lists.pop().split("<title>")[1:]}

    for number in range(6):
        crowd.put(f"app/form-{number % 3}/form/form.xhtml", definition(f"<title>T{number}</title>"))
        assert titles() == {f"T{shown}" for shown in range(max(0, number - 2), number + 1)}
        if number % 2:
            for worker in crowd.workers():
                os.kill(worker, signal.SIGKILL)
    crowd.delete("app/form-0/form/form.xhtml", Form_Definition_Version=1)
    assert titles() == {"T4", "T5"}


def test_a_version_that_is_read_again_counts_once(data: Path, known: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """Publishing one version again and again does not use up the bounds of the summaries."""
    monkeypatch.setattr(catalog, "VERSIONS_KEPT", 6)
    for minute in range(10):
        Planter(data).publish(
            "hr/leave", 1, f"<title>{minute}</title>{PERMISSIONS}", f"2024-06-01T10:{minute:02}:00.000Z"
        )
        assert len([version for _, versions in known.forms() for version in versions]) == 4
