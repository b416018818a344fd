"""Searches as they are sent to another service, and its answers: what is written is read back as it was asked."""

import pytest

from persistence.forms.search_xml import (
    read_distinct_answer,
    read_distinct_request,
    read_form_list,
    read_search_answer,
    read_search_request,
    write_distinct_request,
    write_search_request,
)
from persistence.model.permissions import User
from persistence.model.queries import (
    Comparison,
    ControlFilter,
    DraftFilter,
    Drafts,
    Field,
    FieldFilter,
    Query,
    Scope,
    SentQuery,
    Sort,
    TextMatch,
)

USER = User("kim")


@pytest.mark.parametrize(
    "query",
    [
        Query(),
        Query(text='a "<free> & text', paths=()),
        Query(paths=("a/b", "c")),
        Query(paths=("c", "a"), controls=(ControlFilter("c", TextMatch.TOKEN, "x & y"),), offset=40, size=20),
        Query(
            paths=("c",),
            controls=(ControlFilter("c", TextMatch.EXACT, "1"), ControlFilter("c", TextMatch.SUBSTRING, "2")),
        ),
        Query(sort=Sort("c", is_descending=False), paths=("b", "c")),
        Query(sort=Sort(Field.CREATED_BY)),
        Query(fields=(FieldFilter(Field.CREATED, Comparison.GTE, "2024-05-01T00:00:00.000Z"),)),
        Query(fields=(FieldFilter(Field.WORKFLOW_STAGE, Comparison.EXACT, "done"),), sort=Sort(Field.CREATED)),
    ],
)
def test_a_search_that_was_written_asks_for_the_same(query: Query) -> None:
    read = read_search_request(SentQuery([write_search_request(Scope(), query)]), USER)
    assert (read.query.text, read.query.controls, read.query.fields) == (query.text, query.controls, query.fields)
    assert (read.query.sort, read.query.offset, read.query.size) == (query.sort, query.offset, query.size)
    assert read.paths[: len(query.paths or ())] == (query.paths or ())


@pytest.mark.parametrize(
    "which",
    [
        DraftFilter(),
        DraftFilter(Drafts.EXCLUDE),
        DraftFilter(Drafts.ONLY),
        DraftFilter(Drafts.ONLY, for_document="d-3"),
        DraftFilter(Drafts.ONLY, never_saved=True),
    ],
)
def test_drafts_and_operations_are_asked_for_as_they_were(which: DraftFilter) -> None:
    read = read_search_request(
        SentQuery([write_search_request(Scope(drafts=which, any_of=("update", "delete")), Query())]), USER
    )
    assert (read.drafts, read.any_of) == (which, ("update", "delete"))


@pytest.mark.parametrize("by", ["customer/name", Field.CREATED_BY])
def test_distinct_values_are_asked_for_by_path_or_field(by: Field | str) -> None:
    assert read_distinct_request(SentQuery([write_distinct_request(by)])) == (by,)


def test_an_answer_is_read_with_its_details() -> None:
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


def test_values_are_read_with_empty_ones() -> None:
    answer = b'<distinct-values><query path="a"><value>x</value><value/><value>y &lt;</value></query></distinct-values>'
    assert read_distinct_answer([answer]) == ["x", "", "y <"]


def test_versions_of_a_list_that_say_anything_else_have_another_sum() -> None:
    form = (
        '<form operations="{}"><application-name>hr</application-name><form-name>leave</form-name>'
        "<form-version>2</form-version><last-modified-time>2024-04-15T12:00:00Z</last-modified-time>"
        '<title xml:lang="en">{}</title><permissions><permission operations="{}"/></permissions></form>'
    )
    variants = [("", "A", "read"), ("*", "A", "read"), ("", "B", "read"), ("", "A", "create")]
    listed = [read_form_list([f"<forms>{form.format(*each)}</forms>".encode()])[0] for each in variants]
    assert (listed[0].app, listed[0].name, listed[0].version) == ("hr", "leave", "2")
    assert listed[0].sum == listed[1].sum, "what the caller may do is not what the form says"
    assert len({each.sum for each in listed}) == 3
