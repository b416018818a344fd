"""Requests as they are kept for the calls of other services."""

import pytest

from persistence import client_request
from persistence.client_request import ClientRequest
from persistence.http.logs import CALLER, REQUEST_ID
from persistence.http.middleware import Forwarding


def taken(**environ: str) -> ClientRequest:
    served: list[ClientRequest] = []

    def app(_environ: object, _start: object) -> list[bytes]:
        served.append(client_request.current())
        return []

    Forwarding(app)({"REQUEST_METHOD": "PUT", "QUERY_STRING": "valid=true", **environ}, lambda *_: None)  # type: ignore[arg-type,return-value]
    return served[0]


def test_method_query_and_fields_are_taken_down() -> None:
    assert taken(HTTP_X_OWN_FIELD="1", SERVER_NAME="here") == ClientRequest(
        "PUT", "valid=true", (("X-Own-Field", "1"),)
    )


@pytest.mark.parametrize(("caller", "is_kept"), [("backup-key", False), ("trusted", True), (None, False)])
def test_what_may_be_a_key_of_this_service_stays_here(caller: str | None, *, is_kept: bool) -> None:
    known = {} if caller is None else {CALLER: caller}
    assert (taken(HTTP_AUTHORIZATION="Bearer k", **known).field_of("authorization") is not None) == is_kept


def test_a_request_has_the_number_that_it_has_here() -> None:
    request = taken(HTTP_X_REQUEST_ID="theirs and odd", **{REQUEST_ID: "ours"})
    assert request.fields == (("X-Request-Id", "ours"),)


def test_one_request_asks_once_and_the_next_one_again() -> None:
    asked: list[int] = []

    def ask() -> int:
        asked.append(1)
        return len(asked)

    for expected in (1, 2):
        request = taken()
        assert [request.once("key", ask), request.once("key", ask)] == [expected, expected]
