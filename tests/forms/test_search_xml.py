"""Requests to search, for distinct values and for lists of forms, and their answers (spec search 1, 3, 4.2)."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from xml.etree import ElementTree as ET
from xml.sax.saxutils import escape, quoteattr

import pytest
from hypothesis import given
from hypothesis import strategies as st

from persistence.errors import BadRequestError
from persistence.forms import messages
from persistence.forms.answers import DistinctAnswer, SearchAnswer
from persistence.forms.search_xml import read_distinct_request, read_form_query, read_search_request
from persistence.limits import MOST_CHILDREN, MOST_FILTERS, MOST_TOKENS
from persistence.model.permissions import ANONYMOUS, UNRESTRICTED, Operations, User
from persistence.model.queries import (
    Comparison,
    ControlFilter,
    DraftFilter,
    Drafts,
    Field,
    FieldFilter,
    FormField,
    FormFilter,
    FormMatch,
    FormQuery,
    FormSort,
    Hit,
    Hits,
    PageRequest,
    Query,
    SearchRequest,
    SentQuery,
    Sort,
    TextMatch,
)
from persistence.model.sidecar import DocumentFacts
from persistence.model.texts import Instant

ANN = User("ann")
_EXACT, _SUBSTRING, _TOKEN = TextMatch.EXACT, TextMatch.SUBSTRING, TextMatch.TOKEN


def sent(body: str) -> SentQuery:
    return SentQuery([body.encode()])


def asked(*children: str, root: str = "search", user: User = ANN) -> SearchRequest:
    return read_search_request(sent(f"<{root}>{''.join(children)}</{root.split(maxsplit=1)[0]}>"), user)


def query(text: str = "", **attributes: str) -> str:
    said = "".join(f" {name.replace('_', '-')}={quoteattr(value)}" for name, value in attributes.items())
    return f"<query{said}>{escape(text)}</query>"


def test_nothing_asked_for_is_everything_the_last_modified_first() -> None:
    assert asked() == SearchRequest()
    request = SearchRequest()
    assert request.query == Query(sort=Sort(Field.LAST_MODIFIED, is_descending=True), offset=0, size=10)
    assert request.any_of == ("read", "update", "delete")


def test_the_example_of_the_specification() -> None:
    body = """<search return-all-indexed-fields="false">
      <query>free text</query>
      <query path="customer/name" match="substring" sort="asc">ada</query>
      <query path="customer/topics" control="select">red green</query>
      <query path="customer/status"/>
      <query metadata="created"    match="gte">2024-05-01T00:00:00Z</query>
      <query metadata="created-by" match="exact">ann</query>
      <drafts for-document-id="d-3">only</drafts>
      <operations any-of="update delete"/>
      <page-size>10</page-size>
      <page-number>1</page-number>
      <lang>en</lang>
    </search>"""
    assert read_search_request(sent(body), ANN) == SearchRequest(
        query=Query(
            text="free text",
            controls=(
                ControlFilter("customer/name", _SUBSTRING, "ada"),
                ControlFilter("customer/topics", _TOKEN, "red green"),
            ),
            fields=(
                FieldFilter(Field.CREATED, Comparison.GTE, "2024-05-01T00:00:00.000Z"),
                FieldFilter(Field.CREATED_BY, Comparison.EXACT, "ann"),
            ),
            sort=Sort("customer/name", is_descending=False),
        ),
        paths=("customer/name", "customer/topics", "customer/status"),
        drafts=DraftFilter(Drafts.ONLY, "d-3"),
        any_of=("update", "delete"),
    )


def test_what_is_not_known_is_ignored() -> None:
    body = (
        '<a:other xmlns:a="urn:a" page-size="x"><!-- --><?a b?>stray<a:query path="p">x</a:query><name>n</name>'
        '<query path="p" name="n" type="t" summary-show="true" a:sort="x">a<b>c</b><![CDATA[d]]></query>'
        "<nested><page-size>x</page-size></nested></a:other>"
    )
    request = read_search_request(sent(body), ANN)
    assert request == SearchRequest(query=Query(controls=(ControlFilter("p", _EXACT, "acd"),)), paths=("p",))


@pytest.mark.parametrize(
    ("queries", "text"),
    [
        ([query(" free text\n")], "free text"),
        ([query("x", path="p"), query("y", metadata="created-by", match="exact"), query("z")], "z"),
        ([query(), query("second")], ""),
        ([query("  "), query("second")], ""),
        ([query("first"), query("second")], "first"),
        ([query("x", path="")], ""),
        ([query("free", sort="whatever", match="whatever")], "free"),
    ],
)
def test_the_free_text_is_that_of_the_first_query_about_nothing_in_particular(queries: list[str], text: str) -> None:
    assert asked(*queries).query.text == text


@pytest.mark.parametrize(
    ("sent", "path"),
    [
        ("a/b", "a/b"),
        ("a[1]/b[1]", "a/b"),
        ("[1]", ""),
        ("a[2]/b", "a[2]/b"),
        ("a[11]]", "a[11]]"),
        (" a ", " a "),
        ("xf:instance[@id = 'x']/*", "xf:instance[@id = 'x']/*"),
    ],
)
def test_a_path_is_taken_literally_but_for_the_first_of_each(sent: str, path: str) -> None:
    request = asked(query("x", path=sent))
    assert (request.paths, request.query.controls) == ((path,), (ControlFilter(path, _EXACT, "x"),))


@pytest.mark.parametrize(
    ("attributes", "match"),
    [
        ({}, _EXACT),
        ({"match": "substring"}, _SUBSTRING),
        ({"match": "token"}, _TOKEN),
        ({"match": "exact"}, _EXACT),
        ({"match": "exact", "control": "input"}, _EXACT),
        ({"control": "input"}, _SUBSTRING),
        ({"control": "textarea"}, _SUBSTRING),
        ({"control": "output"}, _SUBSTRING),
        ({"control": "select"}, _TOKEN),
        ({"control": "open-select"}, _TOKEN),
        ({"control": "-select"}, _TOKEN),
        ({"control": "select1"}, _EXACT),
        ({"control": "selected"}, _EXACT),
        ({"control": "Input"}, _EXACT),
        ({"control": ""}, _EXACT),
    ],
)
def test_how_values_are_compared(attributes: dict[str, str], match: TextMatch) -> None:
    assert asked(query(" a  B ", path="p", **attributes)).query.controls == (ControlFilter("p", match, "a  B"),)


@pytest.mark.parametrize("text", ["", " \n\t"])
def test_a_query_without_text_asks_for_values_only(text: str) -> None:
    """Its match does not matter then; the name of a field is checked all the same."""
    request = asked(query(text, path="p", match="like"), query(text, metadata="created", match="like"))
    assert (request.paths, request.query) == (("p",), Query())


def test_paths_come_back_in_order_and_as_often_as_they_are_asked_for() -> None:
    request = asked(query(path="b"), query("free"), query("x", path="a"), query(path="b[1]"))
    assert request.paths == ("b", "a", "b")


@pytest.mark.parametrize(
    ("given", "condition"),
    [
        (("created", "gte", "2024-05-01T00:00:00Z"), (Field.CREATED, Comparison.GTE, "2024-05-01T00:00:00.000Z")),
        (("created", "lt", "2024-05-01T02:00:00+02:00"), (Field.CREATED, Comparison.LT, "2024-05-01T00:00:00.000Z")),
        (("last-modified", "gte", "2024-05-01Z"), (Field.LAST_MODIFIED, Comparison.GTE, "2024-05-01T00:00:00.000Z")),
        (("created", "lt", "2024-05-01T00:00:00.0001Z"), (Field.CREATED, Comparison.LT, "2024-05-01T00:00:00.001Z")),
        (("created", "gte", "2024-12-31T23:59:59.9991Z"), (Field.CREATED, Comparison.GTE, "2025-01-01T00:00:00.000Z")),
        (("created", "gte", "2024-05-01T00:00:00.250Z"), (Field.CREATED, Comparison.GTE, "2024-05-01T00:00:00.250Z")),
        (("created-by", "exact", " Ann "), (Field.CREATED_BY, Comparison.EXACT, "Ann")),
        (("last-modified-by", "exact", "cid"), (Field.LAST_MODIFIED_BY, Comparison.EXACT, "cid")),
        (("workflow-stage", "exact", "in review"), (Field.WORKFLOW_STAGE, Comparison.EXACT, "in review")),
    ],
)
def test_conditions_on_fields(given: tuple[str, str, str], condition: tuple[Field, Comparison, str]) -> None:
    """Stored times have whole milliseconds: a bound between two of them is the later one."""
    metadata, match, text = given
    assert asked(query(text, metadata=metadata, match=match)).query.fields == (FieldFilter(*condition),)


def test_a_range_is_two_conditions() -> None:
    request = asked(
        query("2024-05-01Z", metadata="created", match="gte"), query("2024-05-02Z", metadata="created", match="lt")
    )
    assert [condition.comparison for condition in request.query.fields] == [Comparison.GTE, Comparison.LT]


def test_a_query_about_both_counts_as_both() -> None:
    request = asked(query("ann", path="p", metadata="created-by", match="exact"))
    assert request.paths == ("p",)
    assert request.query.controls == (ControlFilter("p", _EXACT, "ann"),)
    assert request.query.fields == (FieldFilter(Field.CREATED_BY, Comparison.EXACT, "ann"),)


@pytest.mark.parametrize(
    ("given", "sort"),
    [
        (query(path="p[1]", sort="asc"), Sort("p", is_descending=False)),
        (query("x", path="p", sort="desc"), Sort("p", is_descending=True)),
        (query(path="p", sort=" ASC "), Sort("p", is_descending=False)),
        (query(path="p", sort="DeSc"), Sort("p", is_descending=True)),
        *((query(metadata=each.value, sort="asc"), Sort(each, is_descending=False)) for each in (*Field,)[:-1]),
    ],
)
def test_sorts(given: str, sort: Sort) -> None:
    assert asked(query(path="other"), given).query.sort == sort


def test_a_sort_by_lease_holders_is_refused() -> None:
    with pytest.raises(BadRequestError, match="cannot be sorted by leased-by"):
        asked(query(metadata="leased-by", sort="asc"))


@pytest.mark.parametrize(
    ("size", "number", "window"),
    [("10", "1", (0, 10)), ("2", "3", (4, 2)), ("", "", (0, 10)), (" \n", " 2\t", (10, 10)), ("007", "01", (0, 7))],
)
def test_pages(size: str, number: str, window: tuple[int, int]) -> None:
    made = asked(f"<page-number>{number}</page-number>", f"<page-size>{size}</page-size>").query
    assert (made.offset, made.size) == window


def test_a_page_far_away_is_one_that_any_database_can_count_to() -> None:
    far = "9" * 18
    made = asked(f"<page-size>{far}</page-size>", f"<page-number>{far}</page-number>").query
    assert made.offset + made.size < 1 << 63
    assert min(made.offset, made.size) > 1 << 50


@pytest.mark.parametrize("user", [ANN, ANONYMOUS])
@pytest.mark.parametrize(("text", "holds"), [("true", True), ("True", False), (" true", False), ("1", False)])
def test_all_indexed_controls_are_asked_for_by_one_word(text: str, holds: bool, user: User) -> None:  # noqa: FBT001
    assert asked(root=f"search return-all-indexed-fields='{text}'", user=user).all_indexed is holds


@pytest.mark.parametrize(
    ("element", "drafts"),
    [
        ("", DraftFilter(Drafts.INCLUDE)),
        ("<drafts>include</drafts>", DraftFilter(Drafts.INCLUDE)),
        ("<drafts>exclude</drafts>", DraftFilter(Drafts.EXCLUDE)),
        ("<drafts>only</drafts>", DraftFilter(Drafts.ONLY)),
        ('<drafts for-document-id="d">only</drafts>', DraftFilter(Drafts.ONLY, "d")),
        ('<drafts for-never-saved-document="">only</drafts>', DraftFilter(Drafts.ONLY, never_saved=True)),
        ('<drafts for-never-saved-document="x" for-document-id="d">only</drafts>', DraftFilter(Drafts.ONLY, "d")),
        ('<drafts for-document-id="d">include</drafts>', DraftFilter(Drafts.INCLUDE)),
        ('<drafts for-never-saved-document="true">exclude</drafts>', DraftFilter(Drafts.EXCLUDE)),
    ],
)
def test_drafts(element: str, drafts: DraftFilter) -> None:
    assert asked(element).drafts == drafts
    assert asked(element, user=ANONYMOUS).drafts == DraftFilter(Drafts.EXCLUDE)


@pytest.mark.parametrize("text", ["", "Only", " only", "only ", "both", "true"])
def test_drafts_in_other_words_are_refused_but_not_looked_at_where_nobody_sees_them(text: str) -> None:
    element = f"<drafts>{text}</drafts>"
    with pytest.raises(BadRequestError, match="drafts"):
        asked(element)
    assert asked(element, user=ANONYMOUS).drafts == DraftFilter(Drafts.EXCLUDE)


@pytest.mark.parametrize(
    ("element", "any_of"),
    [
        ("", ("read", "update", "delete")),
        ('<operations any-of="create"/>', ("create",)),
        ('<operations any-of=" list  delete list "/>', ("delete", "list")),
        ('<operations any-of=""/>', ()),
        ("<operations/>", ()),
    ],
)
def test_operations(element: str, any_of: tuple[str, ...]) -> None:
    assert asked(element).any_of == any_of


@pytest.mark.parametrize(
    ("children", "cause"),
    [
        *((f"<page-size>{text}</page-size>", "page-size") for text in ("0", "-1", "x", "1.5", "+1", "1 0", "9" * 30)),
        *((f"<page-number>{text}</page-number>", "page-number") for text in ("0", "00", "x", "٣")),
        (query("x", path="p", match="like"), "match"),
        (query("x", path="p", match=""), "match"),
        (query("x", path="p", match="Exact"), "match"),
        (query("x", path="p", match="like", control="input"), "match"),
        (query("x", metadata="invalid", match="exact"), "metadata"),
        (query(metadata="invalid"), "metadata"),
        (query(metadata="Created"), "metadata"),
        (query(metadata=""), "metadata"),
        (query("string", metadata="created-by", match="gte"), "created-by"),
        (query("string", metadata="workflow-stage", match="lt"), "workflow-stage"),
        (query("string", metadata="created-by", match="substring"), "created-by"),
        (query("2024-12-31T01:30:00.000Z", metadata="created", match="exact"), "created"),
        (query("2024-12-31T01:30:00.000Z", metadata="created", match="gt"), "created"),
        (query("x", metadata="created-by"), "created-by"),
        (query("x", metadata="created-by", sort="desc"), "created-by"),
        (query("yesterday", metadata="created", match="gte"), "created"),
        (query("2024-02-30", metadata="last-modified", match="lt"), "last-modified"),
        (query("9999-12-31T23:59:59.9999Z", metadata="created", match="lt"), "created"),
        (query(path="p", sort="sort"), "sort"),
        (query(path="p", sort=""), "sort"),
        (query(metadata="created", sort="ascending"), "sort"),
        (query(path="p", sort="asc") + query(path="q", sort="asc"), "sort"),
        (query(path="p", sort="asc") + query(metadata="created", sort="desc"), "sort"),
        (query(path="p", metadata="created", sort="asc"), "sort"),
        ('<operations any-of="read fly"/>', "fly"),
        ('<operations any-of="Read"/>', "Read"),
        ('<operations any-of="*"/>', "operation"),
        (query("a " * (MOST_TOKENS + 1), path="p", match="token"), "tokens"),
        (query() * (MOST_CHILDREN + 1), "200"),
        ("<page-size>1</page-size>" * (MOST_CHILDREN + 1), "200"),
        ("<query>", "well-formed"),
    ],
)
def test_what_is_asked_wrongly_is_refused(children: str, cause: str) -> None:
    with pytest.raises(BadRequestError, match=cause) as caught:
        asked(children)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "children",
    [
        query("x", metadata="created-by", match="exact"),
        query(metadata="created-by", sort="asc"),
        query("x", path="p", match="exact", sort="asc") + query("y", path="q") + query("z"),
        query("a " * MOST_TOKENS, path="p", match="token"),
        query() * MOST_CHILDREN,
        "<lang>en</lang>" * (MOST_CHILDREN + 1),
    ],
)
def test_what_is_asked_rightly_is_not(children: str) -> None:
    asked(children)


_texts = st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\ufffe\uffff"), max_size=8)


@given(st.lists(st.tuples(_texts, _texts, st.sampled_from(["substring", "token", "exact"])), max_size=5))
def test_texts_and_paths_arrive_as_they_were_sent(sent: list[tuple[str, str, str]]) -> None:
    request = asked(*(query(text, path=path, match=match) for path, text, match in sent))
    expected = [(path.replace("[1]", ""), text.strip(), match) for path, text, match in sent]
    assert request.paths == tuple(path for path, _, _ in expected)
    assert [(each.path, each.text, each.match.value) for each in request.query.controls] == [
        each for each in expected if each[1]
    ]


def distinct(*queries: str) -> tuple[Field | str, ...]:
    return read_distinct_request(sent(f"<distinct-values>{''.join(queries)}</distinct-values>"))


def test_distinct_values_are_those_of_controls_and_then_of_fields() -> None:
    queries = (
        query(metadata="workflow-stage"),
        query(path="a[1]/b"),
        query("text", match="like", sort="x"),
        query(metadata="created-by"),
        query(path="c"),
        query(metadata="last-modified-by"),
        query(path="c"),
        query(metadata="created-by"),
    )
    stage, creator, modifier = Field.WORKFLOW_STAGE, Field.CREATED_BY, Field.LAST_MODIFIED_BY
    assert distinct(*queries) == ("a/b", "c", "c", stage, creator, modifier, creator)
    assert distinct() == ()


@pytest.mark.parametrize("name", ["created", "last-modified", "invalid", ""])
def test_there_are_no_distinct_values_of_other_fields(name: str) -> None:
    with pytest.raises(BadRequestError):
        distinct(query(metadata=name))


def test_the_page_is_looked_at_before_the_controls() -> None:
    """Of two mistakes, a client is told the one that it has always been told."""
    with pytest.raises(BadRequestError, match="page-number"):
        asked('<query path="a" match="gte">x</query>', "<page-number>0</page-number>")


# Requests for a list of forms: their meaning, and refusals (spec search 4.2)


@dataclass(frozen=True)
class Element:
    attributes: dict[str, str] = field(default_factory=dict)
    text: str = ""


def element(text: str = "", **attributes: str) -> Element:
    return Element({name.replace("_", "-"): value for name, value in attributes.items()}, text)


def condition(text: str, metadata: str, match: str, **more: str) -> Element:
    return element(text, metadata=metadata, match=match, **more)


def forms_query(
    *filters: Element, root: Element | None = None, sort: Element | None = None, page: Element | None = None
) -> FormQuery:
    children = [("filter", each) for each in filters] + [("sort", sort), ("pagination", page)]
    content = "".join(written(name, each) for name, each in children if each is not None)
    return read_form_query(sent(written("search", root or Element(), content)))


def written(name: str, given: Element, content: str = "") -> str:
    attributes = "".join(messages.attribute(key, value) for key, value in given.attributes.items())
    return messages.element(name, attributes, content or messages.text(given.text))


def test_nothing_asked_for_is_every_version_the_last_modified_first() -> None:
    assert forms_query() == FormQuery(sort=FormSort(FormField.LAST_MODIFIED, is_descending=True), page=None)


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
    assert forms_query(given).filters == (made,)


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

    made = forms_query(
        with_language(own, {"metadata": "title", "match": "exact"}),
        root=with_language(of_root, {}),
        sort=with_language(own, {"metadata": "title", "direction": "asc"}),
    )
    assert (made.filters[0].language, made.sort.language) == (language, language)


def test_the_first_exact_names_are_looked_up_and_the_second_are_filters() -> None:
    made = forms_query(
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
    made = forms_query(condition("latest", "form-version", "exact"), condition("1", "form-version", "gte"))
    assert (made.latest_only, [each.wanted for each in made.filters]) == (True, [1])
    assert not forms_query(condition("1", "form-version", "exact")).latest_only


@pytest.mark.parametrize(("text", "holds"), [("true", True), ("True", False), ("1", False), ("", False)])
def test_flags_of_the_root_are_exactly_true(text: str, holds: bool) -> None:  # noqa: FBT001 - a column of the table
    made = forms_query(root=element(all_forms=text, ignore_admin_permissions=text))
    assert (made.all_forms, made.ignore_admin) == (holds, holds)


@pytest.mark.parametrize(
    ("page", "made"),
    [
        (None, None),
        (element(), PageRequest(1, 10)),
        (element(page_size="3"), PageRequest(1, 3)),
        (element(page_number=" 007 ", page_size=""), PageRequest(7, 10)),
    ],
)
def test_pages_of_a_list_of_forms(page: Element | None, made: PageRequest | None) -> None:
    assert forms_query(page=page).page == made


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
        forms_query(given)


def test_latest_is_refused_in_a_second_exact_filter() -> None:
    for first in ("latest", "1"):
        with pytest.raises(BadRequestError, match="latest"):
            forms_query(condition(first, "form-version", "exact"), condition("latest", "form-version", "exact"))


def test_there_is_an_end_to_filters() -> None:
    one = condition("x", "title", "exact")
    assert len(forms_query(*[one] * MOST_FILTERS).filters) == MOST_FILTERS
    with pytest.raises(BadRequestError, match="100 filters"):
        forms_query(*[one] * (MOST_FILTERS + 1))


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
        forms_query(sort=sort)


@pytest.mark.parametrize("name", ["page-number", "page-size"])
@pytest.mark.parametrize("text", ["0", "-1", "x", "1.5", "+1", "9" * 30, "\N{ARABIC-INDIC DIGIT THREE}"])
def test_pages_that_are_refused(name: str, text: str) -> None:
    with pytest.raises(BadRequestError, match=name):
        forms_query(page=Element({name: text}))


# The answers of searches and distinct values (spec search 1.6 and 3)


_FIRST, _SECOND = Instant("2024-05-02T10:00:00.000Z"), Instant("2024-05-04T09:30:00.000Z")
BOB = Hit(
    document="d-2",
    is_draft=False,
    facts=DocumentFacts(1, _FIRST, _SECOND, creator="bob", group="support", modifier="cid", stage="review"),
    values={"items/lines/product": ("valve b",), "customer/name": ("Bob",)},
)


def everything(_hit: Hit) -> Operations:
    return UNRESTRICTED


def whole(pieces: Iterable[bytes]) -> str:
    return b"".join(pieces).decode()


def test_a_document_and_what_is_known_of_it() -> None:
    assert whole(SearchAnswer(Hits(2, (BOB,)), ("customer/name", "items/lines/product"), everything).xml()) == (
        '<documents search-total="2"><document created="2024-05-02T10:00:00.000Z"'
        ' last-modified="2024-05-04T09:30:00.000Z" created-by="bob" created-by-groupname="support"'
        ' last-modified-by="cid" workflow-stage="review" name="d-2" draft="false" operations="*"><details>'
        '<detail path="customer/name">Bob</detail><detail path="items/lines/product">valve b</detail>'
        "</details></document></documents>"
    )


def test_what_is_not_known_is_left_out() -> None:
    draft = Hit("d", is_draft=True, facts=DocumentFacts(1, _FIRST, _SECOND))
    assert whole(SearchAnswer(Hits(1, (draft,)), (), lambda _: Operations(())).xml()) == (
        '<documents search-total="1"><document created="2024-05-02T10:00:00.000Z"'
        ' last-modified="2024-05-04T09:30:00.000Z" name="d" draft="true" operations=""><details/></document>'
        "</documents>"
    )


def test_nothing_found_and_a_page_past_the_end() -> None:
    assert whole(SearchAnswer(Hits(), ("a",), everything).xml()) == '<documents search-total="0"/>'
    assert whole(SearchAnswer(Hits(7), (), everything).xml()) == '<documents search-total="7"/>'


def test_values_are_joined_and_a_path_asked_for_twice_is_there_twice() -> None:
    hit = Hit("d", is_draft=False, facts=DocumentFacts(1, _FIRST, _SECOND), values={"p": ("a, b", " ", "c")})
    answer = whole(SearchAnswer(Hits(1, (hit,)), ("p", "q", "p"), everything).xml())
    detail = '<detail path="p">a, b,  , c</detail>'
    assert f'<details>{detail}<detail path="q"/>{detail}</details>' in answer


def test_the_operations_are_those_of_each_document() -> None:
    hits = Hits(2, (BOB, Hit("d", is_draft=False, facts=DocumentFacts(1, _FIRST, _SECOND))))
    answer = whole(SearchAnswer(hits, (), lambda hit: Operations(("read", "list") if hit is BOB else ())).xml())
    assert [each.get("operations") for each in ET.fromstring(answer)] == ["read list", ""]  # noqa: S314 - our own


_any_text = st.text(
    st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\ufffe\uffff") | st.sampled_from("\t\n\r<&\"'>")
)


@given(_any_text, _any_text)
def test_every_text_comes_back_from_a_parser(path: str, value: str) -> None:
    hit = Hit(value, is_draft=False, facts=DocumentFacts(1, _FIRST, _SECOND, creator=value), values={path: (value,)})
    found = ET.fromstring(whole(SearchAnswer(Hits(1, (hit,)), (path,), everything).xml()))[0]  # noqa: S314 - our own
    detail = found[0][0]
    assert (found.get("name"), found.get("created-by")) == (value, value)
    assert (detail.get("path"), detail.text or "") == (path, value)


@given(st.text(st.characters()))
def test_what_xml_cannot_hold_makes_no_malformed_answer(text: str) -> None:
    """A sidecar may have been edited by hand."""
    hit = Hit(text, is_draft=False, facts=DocumentFacts(1, _FIRST, _SECOND, stage=text), values={"p": (text,)})
    ET.fromstring(whole(SearchAnswer(Hits(1, (hit,)), ("p",), everything).xml()))  # noqa: S314 - our own


def test_distinct_values() -> None:
    asked = [("a/b", ("x & y", "z")), ("c", ()), (Field.WORKFLOW_STAGE, ("", "review"))]
    assert whole(DistinctAnswer(asked).xml()) == (
        '<distinct-values><query path="a/b"><value>x &amp; y</value><value>z</value></query><query path="c"></query>'
        '<query metadata="workflow-stage"><value/><value>review</value></query></distinct-values>'
    )
    assert whole(DistinctAnswer(()).xml()) == "<distinct-values/>"
