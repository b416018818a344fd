"""What may be read after a cut follows from what was acknowledged, and from what was in flight."""

from __future__ import annotations

from tests.rigs.ledger import NEVER_STORED, Change, Cut, Resource, Revision, State, expected

DATA = Resource("hr/leave/data/D/data.xml")
DRAFT = Resource("hr/leave/draft/D/data.xml")


def change(begun: int, acknowledged: int, tag: str, *, gone: bool = False, resource: Resource = DATA) -> Change:
    revision = None if gone else Revision(tag, 1, "application/xml", "1", "", f"user-{tag}")
    return Change(resource, begun, acknowledged, State(revision, tag, f"instant-{tag}"))


def test_the_last_acknowledged_change_and_those_in_flight_are_possible() -> None:
    """A cut between two numbers; what began after it is impossible, and what was replaced before it is older."""
    changes = [change(1, 2, "a"), change(3, 4, "b"), change(5, 9, "c"), change(12, 13, "d")]
    (each,) = expected(changes, Cut(began=6, ended=7))
    assert [each.current(tag) for tag in ("a", "b", "c", "d", None)] == [None, 2, 3, None, None]
    assert [state.etag for state in each.older(2)] == ["a"]
    assert [state.etag for state in each.older(3)] == ["a", "b"]


def test_nothing_is_possible_until_the_first_change_is_acknowledged() -> None:
    (each,) = expected([change(1, 9, "a")], Cut(began=5, ended=6))
    assert (each.states[0], each.current(None), each.current("a")) == (NEVER_STORED, 0, 1)
    (each,) = expected([change(1, 4, "a")], Cut(began=5, ended=6))
    assert (each.current(None), each.current("a")) == (None, 1)


def test_nothing_read_promises_the_least_of_what_it_may_mean() -> None:
    """Stored and deleted while the picture was taken: nothing to be read may be that neither is on the disk."""
    (each,) = expected([change(5, 6, "a"), change(7, 8, "b", gone=True)], Cut(began=4, ended=9))
    assert each.current(None) == 0
    (each,) = expected([change(1, 2, "a"), change(7, 8, "b", gone=True)], Cut(began=4, ended=9))
    assert each.current(None) == 2
    assert [state.etag for state in each.older(2)] == ["a"]


def test_the_order_among_clients_is_that_of_instants() -> None:
    """The one that began first may have been stored last."""
    (each,) = expected([change(1, 4, "b"), change(2, 3, "a")], Cut(began=5, ended=6))
    assert [each.current(tag) for tag in ("a", "b")] == [None, 2]


def test_creation_and_owner_are_those_of_the_first_revision_since_it_was_gone() -> None:
    changes = [change(1, 2, "a"), change(3, 4, "b"), change(5, 6, "c", gone=True), change(7, 8, "d")]
    (each,) = expected(changes, Cut(began=9, ended=10))
    revisions = [state.revision for state in each.states if state.revision is not None]
    assert [(revision.created, revision.owner) for revision in revisions] == [
        ("instant-a", "user-a"),
        ("instant-a", "user-a"),
        ("instant-d", "user-d"),
    ]


def test_a_draft_keeps_nothing_older() -> None:
    (each,) = expected([change(1, 2, "a", resource=DRAFT), change(3, 4, "b", resource=DRAFT)], Cut(5, 6))
    assert (each.current("b"), list(each.older(2))) == (2, [])
