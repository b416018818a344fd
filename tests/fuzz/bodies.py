"""XML as bodies: what is accepted, what comes back, and what is left when the non-relevant part is left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.fuzz import verdict
from tests.fuzz.verdict import Opinion
from tests.fuzz.wire import Exchange, Request
from tests.service import Answer

Ask = Callable[[Request], Exchange]


class Place(NamedTuple):
    """Where a document goes, and whether non-relevant elements can be left out of it."""

    path: str
    has_relevance: bool


def places(app: str) -> list[Place]:
    """Some places of an application: saved data, a draft, a definition of another form."""
    below = f"/crud/{app}"
    return [
        *(Place(f"{below}/form/data/{number}/data.xml", has_relevance=True) for number in range(4)),
        Place(f"/fr/service/persistence{below}/form/draft/draft/data.xml", has_relevance=True),
        Place(f"/fr/service/persistence{below}/definition/form/form.xhtml", has_relevance=False),
    ]


@dataclass
class Bodies:
    """Puts documents in their places; knows what must be there, and counts by which difference they were judged."""

    ask: Ask
    prefix: str
    stored: dict[Place, bytes] = field(default_factory=dict)
    differences: Counter[str] = field(default_factory=Counter)

    def put(self, place: Place, document: bytes) -> Iterator[str]:
        """Store a document or have it refused; yields what is wrong."""
        fields = (
            (f"{self.prefix}Form-Definition-Version".encode(), b"1"),
            (b"Content-Type", b"application/xml"),
        )
        answer = self.ask(Request(b"PUT", place.path.encode(), fields, document)).answer
        if answer is None:
            return
        own = verdict.opinion(document)
        is_accepted = answer.status in (201, 204)
        if not is_accepted and answer.status != 400:
            yield f"XML answered {answer.status}"
        if is_accepted != (own.tree is not None):
            known = verdict.difference(document, own, is_accepted=is_accepted)
            self.differences[known or "unknown"] += 1
            if known is None:
                yield f"XML is {'accepted' if is_accepted else 'refused'}: {own.reason or answer.cause}: {document!r}"
        if is_accepted:
            self.stored[place] = document
        yield from self._check(place, own if is_accepted else None)

    def _check(self, place: Place, own: Opinion | None) -> Iterator[str]:
        """Whether the last accepted document is there, whole; ``own`` is the opinion on it where it is new."""
        answer = self._get(place.path)
        expected = self.stored.get(place)
        if answer is not None and (answer.status, answer.body if expected else None) != (
            200 if expected else 404,
            expected,
        ):
            yield f"not what was stored: {answer.status} {answer.body!r} and not {expected!r}"
        if not (place.has_relevance and own is not None and own.tree is not None):
            return
        answer = self._get(f"{place.path}?nonrelevant=remove")
        if answer is not None:
            yield from _check_relevant(answer, own, expected or b"")

    def _get(self, target: str) -> Answer | None:
        return self.ask(Request(b"GET", target.encode())).answer


def _check_relevant(answer: Answer, own: Opinion, document: bytes) -> Iterator[str]:
    """Whether the relevant part is well-formed, and is what a tree without the other elements would be."""
    if answer.status != 200:
        yield f"the relevant part is answered {answer.status}: {document!r}"
        return
    left = verdict.opinion(answer.body)
    if left.tree is None or own.tree is None:
        yield f"the relevant part is not well-formed: {left.reason}: {answer.body!r} of {document!r}"
        return
    if verdict.canonical(left.tree) != verdict.without_irrelevant(own.tree):
        yield f"the relevant part is another: {answer.body!r} of {document!r}"
