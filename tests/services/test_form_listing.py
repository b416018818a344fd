"""Which forms a user sees, in what order, and what the user may do: decisions as tables (spec search 4.2 to 4.5)."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from persistence.errors import BadRequestError
from persistence.limits import LARGEST_LIST
from persistence.model.addresses import Form
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
from persistence.services.searching import Listed, holds, operations, select

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


EXACT, SUBSTRING, TOKEN = FormMatch.EXACT, FormMatch.SUBSTRING, FormMatch.TOKEN
NOBODYS = changed(modifier=None, metadata=FormMetadata())
CREATE_LIST, ALL_WORDS, NO_WORDS = changed(words=("create", "list")), changed(words=("*",)), changed(words=())
OF_ADMIN = changed(words=("admin", "*"))


@pytest.mark.parametrize(
    ("listed", "metadata", "match", "wanted", "does"),
    [
        (ORDER, FormField.APPLICATION_NAME, EXACT, "acme", True),
        (ORDER, FormField.APPLICATION_NAME, EXACT, "acm", False),
        (ORDER, FormField.APPLICATION_NAME, SUBSTRING, "cm", True),
        (ORDER, FormField.FORM_NAME, SUBSTRING, "", True),
        (ORDER, FormField.FORM_NAME, SUBSTRING, "orders", False),
        (ORDER, FormField.FORM_VERSION, EXACT, 3, True),
        (ORDER, FormField.FORM_VERSION, EXACT, 2, False),
        (ORDER, FormField.FORM_VERSION, FormMatch.GT, 3, False),
        (ORDER, FormField.FORM_VERSION, FormMatch.GTE, 3, True),
        (ORDER, FormField.FORM_VERSION, FormMatch.LT, 10, True),
        (ORDER, FormField.FORM_VERSION, FormMatch.LTE, 2, False),
        (ORDER, FormField.CREATED, EXACT, at(2024, 4, 1, 9), True),
        (ORDER, FormField.CREATED, FormMatch.LT, at(2024, 4, 1, 9), False),
        (ORDER, FormField.LAST_MODIFIED, EXACT, at(2024, 4, 10, 9, 0, 0, 250_000), True),
        (ORDER, FormField.LAST_MODIFIED, FormMatch.GT, at(2024, 4, 10, 9, 0, 0, 249_999), True),
        (ORDER, FormField.LAST_MODIFIED, FormMatch.LTE, at(2024, 4, 10, 9, 0, 0, 249_999), False),
        (ORDER, FormField.LAST_MODIFIED_BY, EXACT, "fay", True),
        (ORDER, FormField.LAST_MODIFIED_BY, EXACT, "", False),
        (ORDER, FormField.AVAILABLE, EXACT, True, True),
        (ORDER, FormField.AVAILABLE, EXACT, False, False),
        # An empty text is what is absent, and nothing else is.
        *((NOBODYS, field, EXACT, "", True) for field in (FormField.LAST_MODIFIED_BY, FormField.TITLE)),
        *((NOBODYS, field, EXACT, "x", False) for field in (FormField.LAST_MODIFIED_BY, FormField.TITLE)),
        *((NOBODYS, field, SUBSTRING, "", False) for field in (FormField.LAST_MODIFIED_BY, FormField.TITLE)),
        (CREATE_LIST, FormField.OPERATIONS, EXACT, ("create", "list"), True),
        (CREATE_LIST, FormField.OPERATIONS, EXACT, ("list", "create"), False),
        (CREATE_LIST, FormField.OPERATIONS, TOKEN, ("list", "create"), True),
        (CREATE_LIST, FormField.OPERATIONS, TOKEN, ("create", "read"), False),
        (CREATE_LIST, FormField.OPERATIONS, TOKEN, (), True),
        (NO_WORDS, FormField.OPERATIONS, EXACT, (), True),
        (ALL_WORDS, FormField.OPERATIONS, EXACT, ("*",), True),
        (ALL_WORDS, FormField.OPERATIONS, EXACT, ("create",), False),
        (ALL_WORDS, FormField.OPERATIONS, TOKEN, ("create", "read", "update", "delete", "list"), True),
        (ALL_WORDS, FormField.OPERATIONS, TOKEN, ("admin",), False),
        (ALL_WORDS, FormField.OPERATIONS, TOKEN, ("fly",), False),
        (OF_ADMIN, FormField.OPERATIONS, TOKEN, ("read", "admin"), True),
        (OF_ADMIN, FormField.OPERATIONS, EXACT, ("admin", "*"), True),
    ],
)
def test_filters(listed: Listed, metadata: FormField, match: FormMatch, wanted: Wanted, *, does: bool) -> None:
    assert holds(FormFilter(metadata, match, wanted), listed) is does


@pytest.mark.parametrize(
    ("language", "title"), [("en", "order"), ("de", "bestellung"), ("fr", "bestellung"), ("", "bestellung")]
)
def test_a_title_is_that_of_the_language_or_else_the_first(language: str, title: str) -> None:
    assert holds(FormFilter(FormField.TITLE, FormMatch.EXACT, title, language), ORDER)


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
