"""XML as bodies: what is accepted, what comes back, its relevant part, its migration, and what is published of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from persistence.errors import BadRequestError, DamagedError
from persistence.forms.controls import unusable_marks
from persistence.model.versions import DATA_FORMATS
from tests.rigs.fuzz import verdict
from tests.rigs.fuzz.definitions import CONTAINERS, CONTROLS, FILE
from tests.rigs.fuzz.judge import Exchange, Request
from tests.rigs.fuzz.verdict import Opinion
from tests.service import Answer

Ask = Callable[[Request], Exchange]


class Place(NamedTuple):
    """Where a document goes: form data, or a definition and the list of attachments of data made with it."""

    path: str
    attachments: str | None = None


_PUBLIC = "/fr/service/persistence"


def places(app: str) -> list[Place]:
    below = f"/crud/{app}"
    return [
        *(Place(f"{below}/form/data/{number}/data.xml") for number in range(4)),
        Place(f"{_PUBLIC}{below}/form/draft/draft/data.xml"),
        *(_definition(app, form) for form in ("definition", "other")),
    ]


def _definition(app: str, form: str) -> Place:
    path = f"{_PUBLIC}/crud/{app}/{form}/form/form.xhtml"
    return Place(path, f"/fr/service/{app}/{form}/attachments?document=held")


@dataclass
class Bodies:
    """Puts documents in their places; knows what must be there, and counts by which difference they were judged."""

    ask: Ask
    prefix: str
    stored: dict[Place, bytes] = field(default_factory=dict)
    differences: Counter[str] = field(default_factory=Counter)

    def put(self, place: Place, document: bytes) -> Iterator[str]:
        answer = self._send(b"PUT", place.path, document)
        if answer is None:
            return
        own = verdict.opinion(document)
        if place.attachments and own.tree is not None and not verdict.knows_permissions(own.tree):
            own = Opinion(None, "permissions that are not known")
        if place.attachments and own.tree is not None and _has_unusable_marks(document):
            own = Opinion(None, "a mark without effect")
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
        if own is None or own.tree is None:
            return
        if place.attachments:
            yield from self._check_definition(place.path, place.attachments, expected or b"")
            return
        answer = self._get(f"{_public(place.path)}?nonrelevant=remove")
        if answer is not None:
            yield from _check_relevant(answer, own, expected or b"")

    def _check_definition(self, path: str, attachments: str, document: bytes) -> Iterator[str]:
        """Whether a definition can be migrated, published, and asked for its controls and permissions."""
        target = DATA_FORMATS[len(document) % len(DATA_FORMATS)]
        yield from _check_xml(self._get(f"{path}?form-definition-format-version={target}"), {200}, document)
        yield from _check_xml(self._send(b"POST", "/fr/service/publish", document), {200, 400, 403, 404}, document)
        for target in (attachments, _held(path)):
            yield from _check_xml(self._get(target), {200, 403}, document)

    def hold(self, found: list[Place]) -> None:
        """Store what definitions name, and data that names attachments in their controls, while there are none."""
        designer = self.prefix.removesuffix("-").lower()
        for path in (f"{designer}/builder/data/1b4e28ba/data.xml", f"{designer}/builder/data/1b4e28ba/{FILE}"):
            self._send(b"PUT", f"/crud/{path}", b"<d/>")
        self._send(b"PUT", f"/crud/hr/library/form/{FILE}", b"<d/>")
        for data in (_held(place.path) for place in found if place.attachments):
            folder = data.removesuffix("data.xml")
            controls = "".join(f"<{name}>{folder}{name}.bin</{name}>" for name in CONTROLS)
            inside = "".join(f"<{name}>{controls}</{name}>" for name in CONTAINERS)
            sections = "".join(f'<{name} fr:relevant="false">{controls}{inside}</{name}>' for name in CONTAINERS)
            self._send(b"PUT", data, f'<form xmlns:fr="{verdict.FR}">{controls}{sections}</form>'.encode())

    def _send(self, method: bytes, path: str, document: bytes) -> Answer | None:
        version = (f"{self.prefix}Form-Definition-Version".encode(), b"1")
        fields = (version, (b"Content-Type", b"application/xml"))
        return self.ask(Request(method, path.encode(), fields, document)).answer

    def _get(self, target: str) -> Answer | None:
        return self.ask(Request(b"GET", target.encode())).answer


def _public(path: str) -> str:
    """The path on the public API, which transforms data also where a proxy would do it for the other API."""
    return path if path.startswith(_PUBLIC) else f"{_PUBLIC}{path}"


def _has_unusable_marks(document: bytes) -> bool:
    """Whether a mark is ignored, as the service itself finds: tests/forms/test_controls.py says which."""
    try:
        return bool(unusable_marks(document))
    except (BadRequestError, DamagedError):  # refused for another reason, which the opinion knows
        return False


def _held(definition: str) -> str:
    return f"{definition.removesuffix('/form/form.xhtml')}/data/held/data.xml"


def _check_xml(answer: Answer | None, statuses: set[int], document: bytes) -> Iterator[str]:
    """Whether an answer has one of the statuses, and is XML where it is no error."""
    if answer is None:
        return
    if answer.status not in statuses:
        yield f"answered {answer.status} {answer.body[:200]!r}: {document!r}"
    elif answer.status == 200 and verdict.opinion(answer.body).tree is None:
        yield f"not well-formed: {answer.body!r} of {document!r}"


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
