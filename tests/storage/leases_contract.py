"""The contract of leases: a subclass of ``LeasesContract`` makes ``Leasing``, and all of it holds."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial

import pytest

from persistence.errors import BadRequestError, BusyError, LockedError, NotFoundError, PreconditionError
from persistence.model.addresses import Collection, DocumentAddress, Form
from persistence.model.permissions import User
from persistence.model.versions import LeaseHolder
from persistence.storage.storage import Leases
from tests.waiting import at_once

LEA, BOB = LeaseHolder("lea", "staff"), LeaseHolder("bob")


def address(document: str = "D") -> DocumentAddress:
    return DocumentAddress(Form("a", "b"), Collection.DATA, document, "data.xml")


@dataclass(frozen=True)
class Leasing:
    """The leases of two users of one storage; ``passes`` lets seconds pass, ``saving`` is a block of ``one``."""

    one: Leases
    other: Leases
    passes: Callable[[float], None]
    saving: Callable[[], AbstractContextManager[object]]


class LeasesContract:
    def test_a_lease_is_known_to_all_until_it_ends(self, leasing: Leasing) -> None:
        one, other = leasing.one, leasing.other
        one.lock(address(), LEA, 600)
        for call in (
            lambda: other.lock(address(), BOB, 600),
            lambda: other.unlock(address(), BOB),
            lambda: other.require(address(), User(name="bob")),
            lambda: other.require(address(), User()),
        ):
            with pytest.raises(LockedError, match=r"lea has leased the document D for (600|599) more seconds") as said:
                call()
            assert (said.value.user, said.value.group) == ("lea", "staff")
        other.require(address(), User(name="lea"))
        other.lock(address(), LEA, 10)
        leasing.passes(10.1)
        one.require(address(), User(name="bob"))
        one.lock(address(), BOB, 600)
        with pytest.raises(LockedError):
            other.require(address(), User(name="lea"))
        one.unlock(address(), BOB)
        other.lock(address(), LEA, 1)

    def test_of_many_that_lease_at_once_one_does(self, leasing: Leasing) -> None:
        def lease(number: int) -> bool:
            try:
                (leasing.one, leasing.other)[number % 2].lock(address(), LeaseHolder(f"user {number}"), 600)
            except LockedError:
                return False
            return True

        assert sum(at_once(*(partial(lease, number) for number in range(8)))) == 1

    def test_nobody_leases_a_document_while_it_is_saved(self, leasing: Leasing) -> None:
        """Otherwise somebody could lease, read the old data, and lose what is being written."""
        one, other = leasing.one, leasing.other
        with leasing.saving(), one.protecting(address(), User(name="bob")), pytest.raises(BusyError):
            at_once(partial(other.lock, address(), LEA, 600))
        other.lock(address(), LEA, 600)
        for user in (User(name="bob"), User()):
            with pytest.raises(LockedError), one.protecting(address(), user):
                raise AssertionError
        with leasing.saving(), one.protecting(address(), User(name="lea")):
            pass

    def test_an_administrator_lists_and_breaks_leases(self, leasing: Leasing) -> None:
        one, other = leasing.one, leasing.other
        for name in ("c", "a", "b"):
            one.lock(address(name), LEA, 600)
        assert sorted(each.document for each in other.listed()) == ["a", "b", "c"]
        with pytest.raises(PreconditionError, match="lea has leased the document b now"):
            other.broken("b", "bob")
        assert other.broken("b", "lea").user == "lea"
        with pytest.raises(NotFoundError, match="nobody has leased the document b"):
            one.broken("b")
        leasing.passes(601)
        with pytest.raises(NotFoundError):
            one.broken("a")
        assert "c" in {each.document for each in other.listed()}

    def test_a_name_that_no_document_can_have_is_refused(self, leasing: Leasing) -> None:
        for name in ("a/b", "\n"):
            with pytest.raises(BadRequestError):
                leasing.one.lock(address(name), LEA, 600)
