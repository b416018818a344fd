"""Requests to search, for distinct values and for lists of forms (spec search 1, 3, 4.2), read and written."""

from datetime import UTC, datetime
from functools import partial
from typing import Any
from xml.sax.saxutils import escape, quoteattr

import pytest
from hypothesis import given
from hypothesis import strategies as st

from persistence.errors import BadRequestError
from persistence.forms.search_xml import (
    read_distinct_answer,
    read_distinct_request,
    read_form_list,
    read_form_query,
    read_search_answer,
    read_search_request,
    write_search_request,
)
from persistence.limits import MOST_CHILDREN, MOST_FILTERS, MOST_TOKENS
from persistence.model.addresses import Form
from persistence.model.permissions import ANONYMOUS, User
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
    PageRequest,
    Query,
    Scope,
    SearchRequest,
    SentQuery,
    Sort,
    TextMatch,
)

ANN = User("ann")
_EXACT, _SUBSTRING, _TOKEN = TextMatch.EXACT, TextMatch.SUBSTRING, TextMatch.TOKEN
_GTE, _LT = Comparison.GTE, Comparison.LT
_NOBODYS = DraftFilter(Drafts.EXCLUDE)
"""The drafts that whoever has no name finds, whatever is asked."""


def element(tag: str, text: str = "", /, **attributes: str) -> str:
    said = "".join(f" {name.replace('_', '-')}={quoteattr(value)}" for name, value in attributes.items())
    return f"<{tag}{said}>{escape(text)}</{tag}>"


query = partial(element, "query")


def asked(children: str, root: str = "search", user: User = ANN) -> SearchRequest:
    body = f"<{root}>{children}</{root.split(maxsplit=1)[0]}>"
    return read_search_request(SentQuery([body.encode()]), user)


def request(**said: Any) -> SearchRequest:
    """What is asked for, where all else is as usual."""
    of_query = {name: said.pop(name) for name in [*said] if name in Query.__dataclass_fields__ and name != "paths"}
    return SearchRequest(query=Query(**of_query), **said)


def control(match: TextMatch, text: str, path: str = "p") -> SearchRequest:
    return request(paths=(path,), controls=(ControlFilter(path, match, text),))


def field(by: Field, comparison: Comparison, value: str) -> SearchRequest:
    return request(fields=(FieldFilter(by, comparison, value),))


def sorted_by(by: Field | str, *, is_descending: bool = False) -> SearchRequest:
    return request(paths=() if isinstance(by, Field) else (by,), sort=Sort(by, is_descending=is_descending))


def test_nothing_asked_for_is_everything_the_last_modified_first() -> None:
    assert asked("") == request()
    assert request().query == Query(sort=Sort(Field.LAST_MODIFIED, is_descending=True), offset=0, size=10)
    assert request().any_of == ("read", "update", "delete")


def test_the_example_of_the_specification() -> None:
    body = """
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
      <lang>en</lang>"""
    name, topics = "customer/name", "customer/topics"
    assert asked(body, 'search return-all-indexed-fields="false"') == request(
        text="free text",
        controls=(ControlFilter(name, _SUBSTRING, "ada"), ControlFilter(topics, _TOKEN, "red green")),
        fields=(
            FieldFilter(Field.CREATED, _GTE, "2024-05-01T00:00:00.000Z"),
            FieldFilter(Field.CREATED_BY, Comparison.EXACT, "ann"),
        ),
        sort=Sort(name, is_descending=False),
        paths=(name, topics, "customer/status"),
        drafts=DraftFilter(Drafts.ONLY, "d-3"),
        any_of=("update", "delete"),
    )


def test_what_is_not_known_is_ignored() -> None:
    body = (
        '<!-- --><?a b?>stray<a:query path="p">x</a:query><name>n</name>'
        '<query path="p" name="n" type="t" summary-show="true" a:sort="x">a<b>c</b><![CDATA[d]]></query>'
        "<nested><page-size>x</page-size></nested>"
    )
    assert asked(body, 'a:other xmlns:a="urn:a" page-size="x"') == control(_EXACT, "acd")


_PAGE = "<page-number>{1}</page-number><page-size>{0}</page-size>"
REQUESTS: list[tuple[str, SearchRequest]] = [
    # The free text is that of the first query about nothing in particular.
    (query(" free text\n"), request(text="free text")),
    (query("x", path="p") + query("z"), request(text="z", paths=("p",), controls=(ControlFilter("p", _EXACT, "x"),))),
    *((query(text) + query("second"), request()) for text in ("", "  ")),
    (query("first") + query("second"), request(text="first")),
    (query("x", path=""), control(_EXACT, "x", "")),
    (query("free", sort="whatever", match="whatever"), request(text="free")),
    # A path is taken literally but for the first of each.
    *((query("x", path=path), control(_EXACT, "x", path)) for path in ("a/b", "a[2]/b", "a[11]]", " a ")),
    (query("x", path="xf:instance[@id = 'x']/*"), control(_EXACT, "x", "xf:instance[@id = 'x']/*")),
    *((query("x", path=path), control(_EXACT, "x", plain)) for path, plain in (("a[1]/b[1]", "a/b"), ("[1]", ""))),
    # How values are compared.
    (query(" a  B ", path="p"), control(_EXACT, "a  B")),
    *((query("a", path="p", match=match.value), control(match, "a")) for match in (_SUBSTRING, _TOKEN, _EXACT)),
    (query("a", path="p", match="exact", control="input"), control(_EXACT, "a")),
    *((query("a", path="p", control=kind), control(_SUBSTRING, "a")) for kind in ("input", "textarea", "output")),
    *((query("a", path="p", control=kind), control(_TOKEN, "a")) for kind in ("select", "open-select", "-select")),
    *((query("a", path="p", control=kind), control(_EXACT, "a")) for kind in ("select1", "selected", "Input", "")),
    # A query without text asks for values only: its match does not matter then.
    *((query(text, path="p", match="like"), request(paths=("p",))) for text in ("", " \n\t")),
    *((query(text, metadata="created", match="like"), request()) for text in ("", " \n\t")),
    (
        query(path="b") + query("free") + query("x", path="a") + query(path="b[1]"),
        request(text="free", paths=("b", "a", "b"), controls=(ControlFilter("a", _EXACT, "x"),)),
    ),
    # Stored times have whole milliseconds: a bound between two of them is the later one.
    *(
        (query(text, metadata=by.value, match=match.name.lower()), field(by, match, f"{instant}Z"))
        for by, match, text, instant in (
            (Field.CREATED, _GTE, "2024-05-01T00:00:00Z", "2024-05-01T00:00:00.000"),
            (Field.CREATED, _LT, "2024-05-01T02:00:00+02:00", "2024-05-01T00:00:00.000"),
            (Field.LAST_MODIFIED, _GTE, "2024-05-01Z", "2024-05-01T00:00:00.000"),
            (Field.CREATED, _LT, "2024-05-01T00:00:00.0001Z", "2024-05-01T00:00:00.001"),
            (Field.CREATED, _GTE, "2024-12-31T23:59:59.9991Z", "2025-01-01T00:00:00.000"),
            (Field.CREATED, _GTE, "2024-05-01T00:00:00.250Z", "2024-05-01T00:00:00.250"),
        )
    ),
    *(
        (query(text, metadata=by.value, match="exact"), field(by, Comparison.EXACT, text.strip()))
        for by, text in (
            *((Field.CREATED_BY, " Ann "), (Field.LAST_MODIFIED_BY, "cid")),
            (Field.WORKFLOW_STAGE, "in review"),
        )
    ),
    (
        query("2024-05-01Z", metadata="created", match="gte") + query("2024-05-02Z", metadata="created", match="lt"),
        request(
            fields=(
                FieldFilter(Field.CREATED, _GTE, "2024-05-01T00:00:00.000Z"),
                FieldFilter(Field.CREATED, _LT, "2024-05-02T00:00:00.000Z"),
            )
        ),
    ),
    (
        query("ann", path="p", metadata="created-by", match="exact"),
        request(
            paths=("p",),
            controls=(ControlFilter("p", _EXACT, "ann"),),
            fields=(FieldFilter(Field.CREATED_BY, Comparison.EXACT, "ann"),),
        ),
    ),
    (query(path="p[1]", sort="asc"), sorted_by("p")),
    (query(path="p", sort=" ASC "), sorted_by("p")),
    (query(path="p", sort="DeSc"), sorted_by("p", is_descending=True)),
    *((query(metadata=each.value, sort="asc"), sorted_by(each)) for each in (*Field,)[:-1]),
    *(
        (_PAGE.format(size, number), request(offset=offset, size=int(size.strip() or 10)))
        for size, number, offset in (
            *(("10", "1", 0), ("2", "3", 4), ("", "", 0), (" \n", " 2\t", 10), ("007", "01", 0)),
        )
    ),
    ("<drafts>include</drafts>", request(drafts=DraftFilter(Drafts.INCLUDE))),
    ("<drafts>exclude</drafts>", request(drafts=DraftFilter(Drafts.EXCLUDE))),
    ("<drafts>only</drafts>", request(drafts=DraftFilter(Drafts.ONLY))),
    ('<drafts for-document-id="d">only</drafts>', request(drafts=DraftFilter(Drafts.ONLY, "d"))),
    ('<drafts for-never-saved-document="">only</drafts>', request(drafts=DraftFilter(Drafts.ONLY, never_saved=True))),
    (
        '<drafts for-never-saved-document="x" for-document-id="d">only</drafts>',
        request(drafts=DraftFilter(Drafts.ONLY, "d")),
    ),
    ('<drafts for-document-id="d">include</drafts>', request(drafts=DraftFilter(Drafts.INCLUDE))),
    ('<drafts for-never-saved-document="true">exclude</drafts>', request(drafts=DraftFilter(Drafts.EXCLUDE))),
    ('<operations any-of="create"/>', request(any_of=("create",))),
    ('<operations any-of=" list  delete list "/>', request(any_of=("delete", "list"))),
    *((each, request(any_of=())) for each in ('<operations any-of=""/>', "<operations/>")),
]


@pytest.mark.parametrize(("children", "expected"), REQUESTS, ids=[each for each, _ in REQUESTS])
def test_what_is_asked_for(children: str, expected: SearchRequest) -> None:
    assert asked(children) == expected
    assert asked(children, user=ANONYMOUS).drafts == _NOBODYS


def test_a_page_far_away_is_one_that_any_database_can_count_to() -> None:
    made = asked(_PAGE.format("9" * 18, "9" * 18)).query
    assert made.offset + made.size < 1 << 63
    assert min(made.offset, made.size) > 1 << 50


@pytest.mark.parametrize("user", [ANN, ANONYMOUS])
@pytest.mark.parametrize(("text", "holds"), [("true", True), ("True", False), (" true", False), ("1", False)])
def test_all_indexed_controls_are_asked_for_by_one_word(text: str, holds: bool, user: User) -> None:  # noqa: FBT001
    assert asked("", f"search return-all-indexed-fields='{text}'", user).all_indexed is holds


@pytest.mark.parametrize("text", ["", "Only", " only", "only ", "both", "true"])
def test_drafts_in_other_words_are_refused_but_not_looked_at_where_nobody_sees_them(text: str) -> None:
    with pytest.raises(BadRequestError, match="drafts"):
        asked(f"<drafts>{text}</drafts>")
    assert asked(f"<drafts>{text}</drafts>", user=ANONYMOUS).drafts == _NOBODYS


@pytest.mark.parametrize(
    ("children", "cause"),
    [
        *((f"<page-size>{text}</page-size>", "page-size") for text in ("0", "-1", "x", "1.5", "+1", "1 0", "9" * 30)),
        *((f"<page-number>{text}</page-number>", "page-number") for text in ("0", "00", "x", "٣")),
        *((query("x", path="p", match=match), "match") for match in ("like", "", "Exact")),
        (query("x", path="p", match="like", control="input"), "match"),
        (query("x", metadata="invalid", match="exact"), "metadata"),
        *((query(metadata=name), "metadata") for name in ("invalid", "Created", "")),
        *((query("x", metadata="created-by", match=match), "created-by") for match in ("gte", "substring")),
        (query("string", metadata="workflow-stage", match="lt"), "workflow-stage"),
        *((query("2024-12-31T01:30:00.000Z", metadata="created", match=match), "created") for match in ("exact", "gt")),
        (query("x", metadata="created-by"), "created-by"),
        (query("x", metadata="created-by", sort="desc"), "created-by"),
        (query("yesterday", metadata="created", match="gte"), "created"),
        (query("2024-02-30", metadata="last-modified", match="lt"), "last-modified"),
        (query("9999-12-31T23:59:59.9999Z", metadata="created", match="lt"), "created"),
        *((query(path="p", sort=sort), "sort") for sort in ("sort", "")),
        (query(metadata="created", sort="ascending"), "sort"),
        (query(metadata="leased-by", sort="asc"), "cannot be sorted by leased-by"),
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
        # Of two mistakes, a client is told that of the page, as ever.
        ('<query path="a" match="gte">x</query><page-number>0</page-number>', "page-number"),
    ],
)
def test_what_is_asked_wrongly_is_refused(children: str, cause: str) -> None:
    with pytest.raises(BadRequestError, match=cause) as caught:
        asked(children)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "children",
    [
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
    made = asked("".join(query(text, path=path, match=match) for path, text, match in sent))
    expected = [(path.replace("[1]", ""), text.strip(), match) for path, text, match in sent]
    assert made.paths == tuple(path for path, _, _ in expected)
    found = [(each.path, each.text, each.match.value) for each in made.query.controls]
    assert found == [each for each in expected if each[1]]


def distinct(*queries: str) -> tuple[Field | str, ...]:
    return read_distinct_request(SentQuery([f"<distinct-values>{''.join(queries)}</distinct-values>".encode()]))


def test_distinct_values_are_those_of_controls_and_then_of_fields() -> None:
    queries = (
        *(query(metadata="workflow-stage"), query(path="a[1]/b"), query("text", match="like", sort="x")),
        *(query(metadata="created-by"), query(path="c"), query(metadata="last-modified-by"), query(path="c")),
        query(metadata="created-by"),
    )
    stage, creator, modifier = Field.WORKFLOW_STAGE, Field.CREATED_BY, Field.LAST_MODIFIED_BY
    assert distinct(*queries) == ("a/b", "c", "c", stage, creator, modifier, creator)
    assert distinct() == ()


@pytest.mark.parametrize("name", ["created", "last-modified", "invalid", ""])
def test_there_are_no_distinct_values_of_other_fields(name: str) -> None:
    with pytest.raises(BadRequestError):
        distinct(query(metadata=name))


# Requests for a list of forms: their meaning, and refusals (spec search 4.2)


def condition(text: str, metadata: str, match: str, **more: str) -> str:
    return element("filter", text, metadata=metadata, match=match, **more)


def forms_query(*children: str, **root: str) -> FormQuery:
    said = "".join(f" {name.replace('_', '-')}={quoteattr(value)}" for name, value in root.items())
    return read_form_query(SentQuery([f"<search{said}>{''.join(children)}</search>".encode()]))


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
def test_filters(given: str, made: FormFilter) -> None:
    assert forms_query(given).filters == (made,)


@pytest.mark.parametrize(
    ("own", "of_root", "language"),
    [(None, None, "en"), (None, "fr", "fr"), ("de", "fr", "de"), ("", "fr", ""), (None, "", "")],
)
def test_the_language_of_titles_is_the_nearest_that_is_given(
    own: str | None, of_root: str | None, language: str
) -> None:
    """A blank one counts as given: the real client sends it."""

    def said(language: str | None) -> dict[str, str]:
        return {} if language is None else {"xml:lang": language}

    sort = element("sort", "", metadata="title", direction="asc", **said(own))
    made = forms_query(condition("x", "title", "exact", **said(own)), sort, **said(of_root))
    assert (made.filters[0].language, made.sort.language) == (language, language)


def test_the_first_exact_names_are_looked_up_and_the_second_are_filters() -> None:
    made = forms_query(
        condition("acm", "application-name", "substring"),
        condition("Acme", "application-name", "exact"),
        condition("ACME", "application-name", "exact"),
        condition("Order", "form-name", "exact"),
    )
    assert (made.app, made.form) == ("Acme", "Order")
    found = [(each.match, each.wanted) for each in made.filters]
    assert found == [(FormMatch.SUBSTRING, "acm"), (FormMatch.EXACT, "acme")]


def test_latest_is_no_filter_but_comes_before_them() -> None:
    made = forms_query(condition("latest", "form-version", "exact"), condition("1", "form-version", "gte"))
    assert (made.latest_only, [each.wanted for each in made.filters]) == (True, [1])
    assert not forms_query(condition("1", "form-version", "exact")).latest_only
    for first in ("latest", "1"):
        with pytest.raises(BadRequestError, match="latest"):
            forms_query(condition(first, "form-version", "exact"), condition("latest", "form-version", "exact"))


@pytest.mark.parametrize(("text", "holds"), [("true", True), ("True", False), ("1", False), ("", False)])
def test_flags_of_the_root_are_exactly_true(text: str, holds: bool) -> None:  # noqa: FBT001 - a column of the table
    made = forms_query(all_forms=text, ignore_admin_permissions=text)
    assert (made.all_forms, made.ignore_admin) == (holds, holds)


@pytest.mark.parametrize(
    ("page", "made"),
    [
        ("", None),
        ("<pagination/>", PageRequest(1, 10)),
        ('<pagination page-size="3"/>', PageRequest(1, 3)),
        ('<pagination page-number=" 007 " page-size=""/>', PageRequest(7, 10)),
    ],
)
def test_pages_of_a_list_of_forms(page: str, made: PageRequest | None) -> None:
    assert forms_query(page).page == made


REFUSED = [
    *(condition("x", name, "exact") for name in ("app-name", "")),
    *(condition("x", "title", match) for match in ("", "exct", "gte", "token")),
    *(condition("1", "form-version", "substring"), condition("true", "available", "substring")),
    *(condition("read", "operations", "substring"), condition("x", "application-name", "lt")),
    *(condition(text, "form-version", "gt") for text in ("1.0", "\N{ARABIC-INDIC DIGIT ONE}", "", "9" * 5000)),
    *(condition("", "form-version", "exact"), condition("latest", "form-version", "gte")),
    *(condition("now", "created", "gt"), condition("", "created", "exact")),
    *(condition(text, "available", "exact") for text in ("yes", "True")),
    *(condition("x", "title", "exact", url="http://a"), condition("x", "title", "exact", combinator="or")),
    condition("2024-01-01", "created", "gt", combinator="and"),
    condition("1", "form-version", "gt", combinator="max"),
    condition("true", "available", "exact", url="http://a", combinator="or"),
    '<sort metadata="title"/>',
    '<sort metadata="title" direction="dsc"/>',
    '<sort metadata="titel" direction="asc"/>',
    '<sort direction="asc"/>',
    '<sort metadata="title" direction="asc" url="http://a"/>',
    '<sort metadata="title" direction="asc" combinator="min"/>',
]


@pytest.mark.parametrize("children", REFUSED)
def test_filters_and_sorts_that_are_refused(children: str) -> None:
    with pytest.raises(BadRequestError):
        forms_query(children)


@pytest.mark.parametrize("name", ["page-number", "page-size"])
@pytest.mark.parametrize("text", ["0", "-1", "x", "1.5", "+1", "9" * 30, "\N{ARABIC-INDIC DIGIT THREE}"])
def test_pages_that_are_refused(name: str, text: str) -> None:
    with pytest.raises(BadRequestError, match=name):
        forms_query(element("pagination", **{name: text}))


def test_there_is_an_end_to_filters() -> None:
    one = condition("x", "title", "exact")
    assert len(forms_query(*[one] * MOST_FILTERS).filters) == MOST_FILTERS
    with pytest.raises(BadRequestError, match="100 filters"):
        forms_query(*[one] * (MOST_FILTERS + 1))


# Requests as they are sent to another service, and its answers; the contract of an index asks for the rest


@pytest.mark.parametrize(
    "which",
    [
        *map(DraftFilter, Drafts),
        DraftFilter(Drafts.ONLY, for_document="d-3"),
        DraftFilter(Drafts.ONLY, never_saved=True),
    ],
)
def test_drafts_and_operations_are_asked_for_as_they_were(which: DraftFilter) -> None:
    written = write_search_request(Scope(drafts=which, any_of=("update", "delete")), Query())
    read = read_search_request(SentQuery([written]), ANN)
    assert (read.drafts, read.any_of) == (which, ("update", "delete"))


@pytest.mark.parametrize("paths", [None, (), ("c",), ("c", "a/b")])
def test_a_sort_is_asked_for_where_its_control_is_not_shown(paths: tuple[str, ...] | None) -> None:
    written = write_search_request(Scope(), Query(sort=Sort("a/b", is_descending=False), paths=paths))
    read = read_search_request(SentQuery([written]), ANN)
    assert (read.query.sort, set(read.paths)) == (Sort("a/b", is_descending=False), {"a/b", *(paths or ())})


def test_an_answer_is_read_with_its_details_and_values_with_empty_ones() -> None:
    found = read_search_answer(
        [
            b'<documents search-total="7"><document name="d1" draft="false" operations="*"><details>',
            b'<detail path="a/b">x &amp; y</detail><detail path="c"/></details></document>',
            b'<document name="d2" draft="true"><details/></document></documents>',
        ]
    )
    assert found.total == "7"
    assert [(each.document, each.is_draft) for each in found.documents] == [("d1", False), ("d2", True)]
    assert found.documents[0].operations == {"*"}
    assert found.documents[0].values == {"a/b": "x & y", "c": ""}
    values = b'<distinct-values><query path="a"><value>x</value><value/><value>y &lt;</value></query></distinct-values>'
    assert read_distinct_answer([values]) == ["x", "", "y <"]


def test_versions_of_a_list_that_say_anything_else_have_another_sum() -> None:
    form = (
        '<form operations="{}"><application-name>hr</application-name><form-name>leave</form-name>'
        "<form-version>2</form-version><last-modified-time>2024-04-15T12:00:00Z</last-modified-time>"
        '<title xml:lang="en">{}</title><permissions><permission operations="{}"/></permissions></form>'
    )
    variants = [("", "A", "read"), ("*", "A", "read"), ("", "B", "read"), ("", "A", "create")]
    listed = [read_form_list([f"<forms>{form.format(*each)}</forms>".encode()])[0] for each in variants]
    assert (listed[0].form, listed[0].number) == (Form("hr", "leave"), 2)
    assert listed[0].sum == listed[1].sum, "what the caller may do is not what the form says"
    assert len({each.sum for each in listed}) == 3
