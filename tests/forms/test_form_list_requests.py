"""Requests for a list of forms: their meaning, and refusals (spec search 4.2)."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime

import pytest

from persistence.errors import BadRequestError
from persistence.forms import messages
from persistence.forms.search_xml import read_form_query
from persistence.limits import MOST_FILTERS
from persistence.model.queries import FormField, FormFilter, FormMatch, FormPage, FormQuery, FormSort


@dataclass(frozen=True)
class Element:
    attributes: dict[str, str] = field(default_factory=dict)
    text: str = ""


def element(text: str = "", **attributes: str) -> Element:
    return Element({name.replace("_", "-"): value for name, value in attributes.items()}, text)


def condition(text: str, metadata: str, match: str, **more: str) -> Element:
    return element(text, metadata=metadata, match=match, **more)


def query(
    *filters: Element, root: Element | None = None, sort: Element | None = None, page: Element | None = None
) -> FormQuery:
    children = [("filter", each) for each in filters] + [("sort", sort), ("pagination", page)]
    content = "".join(written(name, each) for name, each in children if each is not None)
    return read_form_query([written("search", root or Element(), content).encode()])


def written(name: str, given: Element, content: str = "") -> str:
    attributes = "".join(messages.attribute(key, value) for key, value in given.attributes.items())
    return messages.element(name, attributes, content or messages.text(given.text))


def test_nothing_asked_for_is_every_version_the_last_modified_first() -> None:
    assert query() == FormQuery(sort=FormSort(FormField.LAST_MODIFIED, is_descending=True), page=None)


@pytest.mark.parametrize(
    ("given", "made"),
    [
        (condition(" Ada ", "title", "exact"), FormFilter(FormField.TITLE, FormMatch.EXACT, "ada")),
        (condition("", "last-modified-by", "exact"), FormFilter(FormField.LAST_MODIFIED_BY, FormMatch.EXACT, "")),
        (condition("STRASSE", "Title", "SUBSTRING"), FormFilter(FormField.TITLE, FormMatch.SUBSTRING, "strasse")),
        (condition("Maß", "title", "substring"), FormFilter(FormField.TITLE, FormMatch.SUBSTRING, "mass")),
        (condition("-3", "form-version", "lte"), FormFilter(FormField.FORM_VERSION, FormMatch.LTE, -3)),
        (condition("2", "form-version", "exact"), FormFilter(FormField.FORM_VERSION, FormMatch.EXACT, 2)),
        (condition("false", "available", "exact"), FormFilter(FormField.AVAILABLE, FormMatch.EXACT, wanted=False)),
        (
            condition(" list  admin ", "operations", "token"),
            FormFilter(FormField.OPERATIONS, FormMatch.TOKEN, ("list", "admin")),
        ),
        (
            condition("2024-04-15T12:00:00.250Z", "created", "gt"),
            FormFilter(FormField.CREATED, FormMatch.GT, datetime(2024, 4, 15, 12, 0, 0, 250_000, UTC)),
        ),
        (condition("x", "title", "exact", url=" ", combinator=""), FormFilter(FormField.TITLE, FormMatch.EXACT, "x")),
        (
            condition("true", "available", "exact", combinator="or"),
            FormFilter(FormField.AVAILABLE, FormMatch.EXACT, wanted=True),
        ),
    ],
)
def test_filters(given: Element, made: FormFilter) -> None:
    assert query(given).filters == (made,)


@pytest.mark.parametrize(
    ("own", "of_root", "language"),
    [(None, None, "en"), (None, "fr", "fr"), ("de", "fr", "de"), ("", "fr", ""), (None, "", "")],
)
def test_the_language_of_titles_is_the_nearest_that_is_given(
    own: str | None, of_root: str | None, language: str
) -> None:
    """A blank one counts as given: the real client sends it."""

    def with_language(given: str | None, attributes: dict[str, str]) -> Element:
        return Element(attributes if given is None else {**attributes, "xml:lang": given}, "x")

    made = query(
        with_language(own, {"metadata": "title", "match": "exact"}),
        root=with_language(of_root, {}),
        sort=with_language(own, {"metadata": "title", "direction": "asc"}),
    )
    assert (made.filters[0].language, made.sort.language) == (language, language)


def test_the_first_exact_names_are_looked_up_and_the_second_are_filters() -> None:
    made = query(
        condition("acm", "application-name", "substring"),
        condition("Acme", "application-name", "exact"),
        condition("ACME", "application-name", "exact"),
        condition("Order", "form-name", "exact"),
    )
    assert (made.app, made.form) == ("Acme", "Order")
    assert [(each.match, each.wanted) for each in made.filters] == [
        (FormMatch.SUBSTRING, "acm"),
        (FormMatch.EXACT, "acme"),
    ]


def test_latest_is_no_filter_but_comes_before_them() -> None:
    made = query(condition("latest", "form-version", "exact"), condition("1", "form-version", "gte"))
    assert (made.latest_only, [each.wanted for each in made.filters]) == (True, [1])
    assert not query(condition("1", "form-version", "exact")).latest_only


@pytest.mark.parametrize(("text", "holds"), [("true", True), ("True", False), ("1", False), ("", False)])
def test_flags_of_the_root_are_exactly_true(text: str, holds: bool) -> None:  # noqa: FBT001 - a column of the table
    made = query(root=element(all_forms=text, ignore_admin_permissions=text))
    assert (made.all_forms, made.ignore_admin) == (holds, holds)


@pytest.mark.parametrize(
    ("page", "made"),
    [
        (None, None),
        (element(), FormPage(1, 10)),
        (element(page_size="3"), FormPage(1, 3)),
        (element(page_number=" 007 ", page_size=""), FormPage(7, 10)),
    ],
)
def test_pages(page: Element | None, made: FormPage | None) -> None:
    assert query(page=page).page == made


@pytest.mark.parametrize(
    "given",
    [
        *(condition("x", "app-name", "exact"), condition("x", "", "exact"), condition("x", "title", "")),
        *(condition("x", "title", "exct"), condition("x", "title", "gte"), condition("x", "title", "token")),
        *(condition("1", "form-version", "substring"), condition("true", "available", "substring")),
        *(condition("read", "operations", "substring"), condition("x", "application-name", "lt")),
        *(condition("1.0", "form-version", "gt"), condition("\N{ARABIC-INDIC DIGIT ONE}", "form-version", "gt")),
        *(condition("", "form-version", "gt"), condition("", "form-version", "exact")),
        *(condition("latest", "form-version", "gte"), condition("9" * 5000, "form-version", "gt")),
        *(condition("now", "created", "gt"), condition("", "created", "exact")),
        *(condition("yes", "available", "exact"), condition("True", "available", "exact")),
        *(condition("x", "title", "exact", url="http://a"), condition("x", "title", "exact", combinator="or")),
        condition("2024-01-01", "created", "gt", combinator="and"),
        condition("1", "form-version", "gt", combinator="max"),
        condition("true", "available", "exact", url="http://a", combinator="or"),
    ],
)  # fmt: skip
def test_filters_that_are_refused(given: Element) -> None:
    with pytest.raises(BadRequestError):
        query(given)


def test_latest_is_refused_in_a_second_exact_filter() -> None:
    for first in ("latest", "1"):
        with pytest.raises(BadRequestError, match="latest"):
            query(condition(first, "form-version", "exact"), condition("latest", "form-version", "exact"))


def test_there_is_an_end_to_filters() -> None:
    one = condition("x", "title", "exact")
    assert len(query(*[one] * MOST_FILTERS).filters) == MOST_FILTERS
    with pytest.raises(BadRequestError, match="100 filters"):
        query(*[one] * (MOST_FILTERS + 1))


@pytest.mark.parametrize(
    "sort",
    [
        element(metadata="title"),
        element(metadata="title", direction="dsc"),
        element(metadata="titel", direction="asc"),
        element(direction="asc"),
        element(metadata="title", direction="asc", url="http://a"),
        element(metadata="title", direction="asc", combinator="min"),
    ],
)
def test_sorts_that_are_refused(sort: Element) -> None:
    with pytest.raises(BadRequestError):
        query(sort=sort)


@pytest.mark.parametrize("name", ["page-number", "page-size"])
@pytest.mark.parametrize("text", ["0", "-1", "x", "1.5", "+1", "9" * 30, "\N{ARABIC-INDIC DIGIT THREE}"])
def test_pages_that_are_refused(name: str, text: str) -> None:
    with pytest.raises(BadRequestError, match=name):
        query(page=Element({name: text}))
