"""The version that a request means (the table of spec crud 5.1), and the conditions of its entity tags."""

import pytest

from persistence.errors import BadRequestError, VersionError
from persistence.model.versions import (
    ABSENT,
    HIGHEST,
    HIGHEST_NAMED,
    NO_PRECONDITION,
    ForDocument,
    Searched,
    VersionRequest,
    must_equal,
    must_leave_room,
    parse,
    parse_precondition,
    parse_reindexed,
    parse_searched,
    parse_tags,
    to_publish,
    to_read,
)

NEXT = VersionRequest(wants_next=True)
FOR_DOCUMENT = VersionRequest(for_document=ForDocument("D", is_draft=False))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *(("1", VersionRequest(number=1)), ("12", VersionRequest(number=12)), (" 3 ", VersionRequest(number=3))),
        *(("next", NEXT), (None, ABSENT)),
    ],
)
def test_a_positive_integer_next_and_nothing_are_versions(text: str | None, expected: VersionRequest) -> None:
    assert parse(text, None, None) == expected


@pytest.mark.parametrize("text", ["", "0", "-1", "+1", "1.0", "one", "latest", "Next", "1 2", "\uff19", "9" * 10])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(VersionError):
        parse(text, None, None)


@pytest.mark.parametrize("number", [None, "7", "next", "nonsense"])
def test_a_document_wins_over_the_version(number: str | None) -> None:
    assert parse(number, "D", "true") == VersionRequest(for_document=ForDocument("D", is_draft=True))


def test_the_draft_flag_is_true_or_false() -> None:
    assert parse(None, "D", "false") == FOR_DOCUMENT
    for other in ("FALSE", "yes"):
        with pytest.raises(BadRequestError):
            parse(None, "D", other)


@pytest.mark.parametrize(
    ("asked", "latest", "version"),
    [(ABSENT, None, 1), (ABSENT, 3, 3), (VersionRequest(number=2), 3, 2), (VersionRequest(number=9), None, 9)],
)
def test_reading_means_the_latest_or_the_number(asked: VersionRequest, latest: int | None, version: int) -> None:
    assert to_read(asked, latest) == version


@pytest.mark.parametrize(
    ("asked", "latest", "version"),
    [(ABSENT, None, 1), (ABSENT, 3, 3), (NEXT, None, 1), (NEXT, 3, 4), (VersionRequest(number=9), 3, 9)],
)
def test_publishing_replaces_the_latest_or_takes_the_next(
    asked: VersionRequest, latest: int | None, version: int
) -> None:
    assert to_publish(asked, latest) == version


def test_next_and_for_document_do_not_read_for_document_does_not_publish_and_next_has_an_end() -> None:
    for refused in (
        lambda: to_read(NEXT, 1),
        lambda: to_read(FOR_DOCUMENT, 1),
        lambda: to_publish(FOR_DOCUMENT, 1),
        lambda: to_publish(NEXT, HIGHEST),
    ):
        with pytest.raises(VersionError):
            refused()


def test_a_number_leaves_room_for_next() -> None:
    for number, latest in ((HIGHEST_NAMED, None), (HIGHEST_NAMED + 1, HIGHEST_NAMED), (HIGHEST, HIGHEST)):
        must_leave_room(number, latest)
    for number, latest in ((HIGHEST_NAMED + 1, None), (HIGHEST, 3), (HIGHEST_NAMED + 2, HIGHEST_NAMED)):
        with pytest.raises(VersionError, match=f"version {number} would leave no room for 'next'"):
            must_leave_room(number, latest)


def test_a_number_must_equal_the_stored_one() -> None:
    must_equal(None, 2, "x")
    must_equal(2, 2, "x")
    with pytest.raises(VersionError, match="x has form definition version 2, not 1"):
        must_equal(1, 2, "x")


@pytest.mark.parametrize(
    ("text", "searched"),
    [(None, Searched.LATEST), ("all", Searched.ALL), (" all ", Searched.ALL), ("1", 1), (" 007 ", 7)],
)
def test_a_search_is_in_the_latest_version_in_one_or_in_all(text: str | None, searched: int | Searched) -> None:
    """Spec search 1.4."""
    assert parse_searched(text) == searched


@pytest.mark.parametrize("text", ["", "next", "abc", "0", "-1", "ALL", "latest", "1.0", "9" * 10])
def test_a_search_in_other_versions_is_refused(text: str) -> None:
    with pytest.raises(VersionError, match="'all'"):
        parse_searched(text)


def test_what_is_reindexed_is_one_version() -> None:
    assert parse_reindexed(" 2 ") == 2
    for text in (None, "", "all", "next", "0", "x"):
        with pytest.raises(VersionError):
            parse_reindexed(text)


@pytest.mark.parametrize(
    ("header", "holds"),
    [
        *(("*", True), ("a", True), ('"a"', True), ('"b", "a"', True), ("b,a", True)),
        *(("b", False), ('W/"a"', False), ("", False), ("A", False)),
    ],
)
def test_if_match_holds_for_the_tags_it_names(header: str, *, holds: bool) -> None:
    tags = parse_tags(header)
    assert tags.match("a") is holds
    assert parse_precondition(header, None).expected == tags
    assert parse_precondition(None, header).excluded == tags
    assert parse_precondition(None, None) is NO_PRECONDITION
