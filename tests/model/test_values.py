"""Instants, preconditions, users and texts: values and their edges."""

import time

import pytest

from persistence.errors import BadRequestError, one_line
from persistence.model.permissions import ANONYMOUS, Role, User, from_headers, parse_credentials
from persistence.model.sidecar import SCHEMA, Sidecar, fresh_id, stamp
from persistence.model.texts import (
    Instant,
    epoch_nanoseconds,
    from_datetime,
    next_after,
    parse_instant,
    short,
    to_datetime,
)
from persistence.model.versions import NO_PRECONDITION, parse_precondition, parse_tags

LATER = Instant("2999-12-31T23:59:59.999Z")


def test_an_instant_has_three_digits_always() -> None:
    assert parse_instant("2025-03-04T05:06:07Z") == "2025-03-04T05:06:07.000Z"
    assert parse_instant("2025-03-04T06:06:07.089+01:00") == "2025-03-04T05:06:07.089Z"


@pytest.mark.parametrize(
    "text", ["", "yesterday", "2025-03-04", "2025-03-04T05:06:07.089", "2025-03-04T05:06:07.0891Z"]
)
def test_what_is_no_instant_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse_instant(text)


def test_the_next_instant_is_now_or_a_millisecond_later() -> None:
    """A clock that was set back must not give two revisions one instant."""
    assert next_after(LATER) == "3000-01-01T00:00:00.000Z"
    instant = None
    for _ in range(5000):
        following = next_after(instant)
        assert instant is None or following > instant
        instant = following


def test_now_is_now() -> None:
    assert abs(to_datetime(next_after(None)).timestamp() - time.time()) < 5


def test_an_instant_survives_the_trip_through_datetime() -> None:
    instant = Instant("2025-03-04T05:06:07.089Z")
    assert from_datetime(to_datetime(instant)) == instant
    assert epoch_nanoseconds(instant) == 1741064767_089_000_000


def test_nanoseconds_are_in_the_order_of_the_instants() -> None:
    """Also before 1970, where a fraction was added to a whole second that was cut off towards 1970."""
    instants = [
        Instant(f"{second}.{fraction}Z")
        for second in ("0001-01-01T00:00:00", "1583-10-15T12:00:00", "1969-12-31T23:59:58", "1969-12-31T23:59:59")
        for fraction in ("000", "001", "500", "999")
    ]
    instants.append(Instant("1970-01-01T00:00:00.000Z"))
    found = [epoch_nanoseconds(each) for each in instants]
    assert found == sorted(set(found))
    assert (found[-1], found[-2]) == (0, -1_000_000)


def test_a_stamp_is_the_instant_and_something_of_the_id() -> None:
    modified = next_after(None)
    revisions = [
        Sidecar(schema=SCHEMA, id=fresh_id(), version=1, modified=modified, created=modified, size=0) for _ in range(50)
    ]
    stamps = {stamp(sidecar) for sidecar in revisions}
    assert len(stamps) > 45
    assert {value // 1_000_000 for value in stamps} == {epoch_nanoseconds(modified) // 1_000_000}


@pytest.mark.parametrize(
    ("header", "current", "holds"),
    [
        ("*", "a", True),
        ("a", "a", True),
        ('"a"', "a", True),
        ('"b", "a"', "a", True),
        ("b,a", "a", True),
        ("b", "a", False),
        ('W/"a"', "a", False),
        ("", "a", False),
        ("A", "a", False),
    ],
)
def test_if_match_holds_for_the_tags_it_names(header: str, current: str, *, holds: bool) -> None:
    tags = parse_tags(header)
    assert tags.match(current) is holds
    assert parse_precondition(header, None).expected == tags
    assert parse_precondition(None, header).excluded == tags


def test_no_header_is_no_condition() -> None:
    assert parse_precondition(None, None) is NO_PRECONDITION


def test_credentials_are_read_as_the_specification_shows_them() -> None:
    user = parse_credentials(
        '{"username":"l%C3%A9a+b","groups":["staff","other"],"roles":[{"name":"clerk"},'
        '{"name":"manager","organization":"Paris"}],"organizations":[["Corp","France","Paris"],["X"]]}'
    )
    assert user == User("léa b", "staff", (Role("clerk"), Role("manager", "Paris")), ("Corp", "France", "Paris"))


@pytest.mark.parametrize("field", ['"username":"a%0D%0Ab"', '"username":"a","groups":["%00"]'])
def test_credentials_smuggle_no_control_characters(field: str) -> None:
    """Decoded after the server has checked the header, they would come out as headers again."""
    with pytest.raises(BadRequestError):
        parse_credentials(f"{{{field}}}")
    with pytest.raises(BadRequestError):
        parse_credentials('{"username":"a","organizations":[["Corp","x%0D%0ASet-Cookie:%20y"]]}')


@pytest.mark.parametrize("text", ["{", "[]", '{"groups":[]}', '{"username":1}', '{"username":"a","roles":[{}]}'])
def test_malformed_credentials_are_refused(text: str) -> None:
    with pytest.raises(BadRequestError):
        parse_credentials(text)


def test_a_blank_user_is_anonymous() -> None:
    assert parse_credentials('{"username":" "}') == ANONYMOUS
    assert from_headers(None, "staff", "clerk") == ANONYMOUS
    assert from_headers(" ", "staff", "clerk") == ANONYMOUS


def test_roles_are_split_at_commas_and_bars() -> None:
    user = from_headers("lea", " ", "clerk, manager|admin")
    assert user == User("lea", None, (Role("clerk"), Role("manager"), Role("admin")))


def test_short_texts_are_trimmed_and_bounded() -> None:
    assert short("  a b ", "text") == "a b"
    assert short("   ", "text") is None
    assert short("x" * 255, "text") == "x" * 255
    for bad in ("x" * 256, "a\nb", "a\x00"):
        with pytest.raises(BadRequestError):
            short(bad, "text")


def test_a_cause_is_one_printable_line() -> None:
    assert one_line("a\r\nb\x00\x1b[31mc") == "a b [31mc"
    assert len(one_line("x" * 1000)) == 300


def test_a_long_line_keeps_its_subject_and_its_remedy() -> None:
    shown = one_line(f"the host {'x' * 1000} is not served: add it to the setting hosts")
    assert (shown[:10], shown[-44:]) == ("the host x", "xxx is not served: add it to the setting hosts"[-44:])
