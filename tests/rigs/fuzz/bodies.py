"""XML as bodies: what is accepted, what comes back, its relevant part, its migration, and what is published of it.

The second opinion is that of libxml2, and where it and the service differ, what the recommendations say.
"""

from __future__ import annotations

import codecs
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from lxml import etree

from persistence import limits
from persistence.errors import BadRequestError, DamagedError, MalformedXmlError
from persistence.forms.controls import unusable_marks
from persistence.forms.definition_metadata import MetadataReader
from persistence.model.versions import DATA_FORMATS
from persistence.xml import Streaming
from tests.rigs.fuzz.documents import CONTAINERS, CONTROLS, FILE, FR
from tests.rigs.fuzz.judge import Exchange, Request
from tests.service import Answer

DIFFERENCES = {
    "unmarked UTF-16": "accepted; XML 1.0 4.3.3 wants a byte order mark, which libxml2 insists on and expat does not",
    "a namespace that is no URI": "accepted; the recommendation on namespaces does not make its syntax a constraint",
    "an xml:id that is no name": "accepted; the recommendation on xml:id makes that no matter of being well-formed",
    "another encoding": "refused; a parser must know UTF-8 and UTF-16 only (2.2); a list says which others are taken",
    "untrue declaration": "refused; an encoding that is declared and not the one in use is a fatal error (4.3.3)",
    "names of the fifth edition": "refused; expat knows the names of the fourth edition of XML 1.0 only",
}
"""Where service and libxml2 differ: what the service does, and why that is right or bearable."""

_DECLARED = re.compile(r"""<\?xml[^>]*?encoding\s*=\s*["']([^"']*)["']""")
_MARKS = (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, codecs.BOM_UTF8)
_MARKED = {codecs.BOM_UTF16_LE: "UTF-16", codecs.BOM_UTF16_BE: "UTF-16", codecs.BOM_UTF8: "UTF-8"}
_HARMLESS = {
    etree.ErrorTypes.WAR_NS_URI: "a namespace that is no URI",
    etree.ErrorTypes.DTD_XMLID_VALUE: "an xml:id that is no name",
}
_SINGLE_BYTE = re.compile(r"(?i)utf-?(8|16|16le|16be)|us-ascii|ascii|iso-8859-\d+|windows-125\d")


@dataclass(frozen=True, slots=True)
class Opinion:
    """What libxml2 says of a document, with the limits of the service: its tree, or why it is refused.

    ``harmless`` is the difference that its objection is, where it has no other.
    """

    tree: etree._Element | None
    reason: str
    harmless: str | None = None


def opinion(document: bytes) -> Opinion:
    """Parse with nothing resolved, loaded or fetched."""
    parser = etree.XMLParser(
        resolve_entities=False, no_network=True, load_dtd=False, dtd_validation=False, huge_tree=False
    )
    try:
        tree = etree.fromstring(document, parser)
    except (etree.XMLSyntaxError, ValueError) as error:
        objections = {entry.type for entry in parser.error_log if entry.level >= etree.ErrorLevels.ERROR}
        harmless = [_HARMLESS[kind] for kind in objections & _HARMLESS.keys()]
        return Opinion(None, str(error), harmless[0] if len(harmless) == len(objections) > 0 else None)
    if tree.getroottree().docinfo.doctype:
        return Opinion(None, "a document type")
    limit = _limit(tree)
    return Opinion(None if limit else tree, limit)


def difference(document: bytes, own: Opinion, *, is_accepted: bool) -> str | None:
    """Which of the known differences explains that the service did not do as ``own`` says; ``None``: none does."""
    if is_accepted:
        return own.harmless or ("unmarked UTF-16" if _is_unmarked(document) else None)
    if own.tree is None:
        return None
    if _is_untrue(document):
        return "untrue declaration"
    encoding = own.tree.getroottree().docinfo.encoding or "UTF-8"
    if document.startswith(_MARKS[:2]) or not _SINGLE_BYTE.fullmatch(encoding):
        return "another encoding"
    return "names of the fifth edition" if _has_odd_names(own.tree) else None


def _is_untrue(document: bytes) -> bool:
    """Whether a document declares another encoding than its byte order mark tells."""
    declared = _DECLARED.search(document[:400].replace(b"\0", b"").decode("latin-1"))
    return declared is not None and any(
        document.startswith(mark) and not declared[1].upper().startswith(name) for mark, name in _MARKED.items()
    )


def without_irrelevant(tree: etree._Element) -> bytes | None:
    """The canonical form of a document without its non-relevant elements; ``None`` where it has no canonical form."""
    mark, gone = f"{{{FR}}}relevant", "{urn:gone}gone"
    if tree.get(mark) == "false":
        tree.text = None
        for child in list(tree):
            tree.remove(child)
    for element in tree.iterdescendants(etree.Element):
        if element.get(mark) == "false":
            element.tag = gone
    etree.strip_elements(tree, gone, with_tail=False)
    return canonical(tree)


def canonical(tree: etree._Element) -> bytes | None:
    """The canonical form; relative names of namespaces have none."""
    try:
        return etree.tostring(tree.getroottree(), method="c14n")
    except etree.C14NError:
        return None


def _limit(tree: etree._Element) -> str:
    depth = deepest = count = 0
    for event, element in etree.iterwalk(tree, events=("start", "end")):
        depth += 1 if event == "start" else -1
        count += event == "start"
        deepest = max(deepest, depth)
        name = etree.QName(element)
        if len(name.localname) + len(name.namespace or "") + bool(name.namespace) > limits.LONGEST_XML_NAME:
            return "a long name"
        if any(len(each) > limits.LONGEST_NAMESPACE // (1 if each.isascii() else 4) for each in element.nsmap.values()):
            return "a long namespace"
        if len(element.attrib) > limits.MOST_ATTRIBUTES:
            return "many attributes"
        if len(element.nsmap) > limits.MOST_NAMESPACES:
            return "many namespaces"
    return "deep" if deepest > limits.DEEPEST else "many elements" if count > limits.MOST_ELEMENTS else ""


def _is_unmarked(document: bytes) -> bool:
    """Whether a document would be well-formed UTF-16 with a byte order mark, which it lacks."""
    if document.startswith(_MARKS):
        return False
    marked = [opinion(mark + document) for mark in _MARKS[2:4]]
    return any(own.tree is not None or own.harmless is not None for own in marked)


def _has_odd_names(tree: etree._Element) -> bool:
    """Whether expat takes the document as soon as its letters above ASCII are plain ones."""
    text = etree.tostring(tree.getroottree(), encoding="unicode")
    plain = "".join(letter if letter.isascii() else "q" for letter in text).encode()
    return is_taken(plain) and not is_taken(text.encode())


def is_taken(document: bytes) -> bool:
    try:
        with Streaming() as parser:
            parser.feed(document)
            parser.finish()
    except MalformedXmlError:
        return False
    return True


# Bodies that are put in places of the service.

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
        own = opinion(document)
        if place.attachments and own.tree is not None and has_unknown_marks(document):
            own = Opinion(None, "permissions or marks that are not known")
        is_accepted = answer.status in (201, 204)
        if not is_accepted and answer.status != 400:
            yield f"XML answered {answer.status}"
        if is_accepted != (own.tree is not None):
            known = difference(document, own, is_accepted=is_accepted)
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
            self._send(b"PUT", data, f'<form xmlns:fr="{FR}">{controls}{sections}</form>'.encode())

    def _send(self, method: bytes, path: str, document: bytes) -> Answer | None:
        version = (f"{self.prefix}Form-Definition-Version".encode(), b"1")
        fields = (version, (b"Content-Type", b"application/xml"))
        return self.ask(Request(method, path.encode(), fields, document)).answer

    def _get(self, target: str) -> Answer | None:
        return self.ask(Request(b"GET", target.encode())).answer


def _public(path: str) -> str:
    """The path on the public API, which transforms data also where a proxy would do it for the other API."""
    return path if path.startswith(_PUBLIC) else f"{_PUBLIC}{path}"


def has_unknown_marks(document: bytes) -> bool:
    """Whether a definition is refused for permissions or marks, as the service itself finds: tests/forms say which."""
    try:
        with MetadataReader(is_checked=True) as reader:
            reader.read([document])
        return bool(unusable_marks(document))
    except (MalformedXmlError, DamagedError):  # refused for another reason, which the opinion knows
        return False
    except BadRequestError:
        return True


def _held(definition: str) -> str:
    return f"{definition.removesuffix('/form/form.xhtml')}/data/held/data.xml"


def _check_xml(answer: Answer | None, statuses: set[int], document: bytes) -> Iterator[str]:
    """Whether an answer has one of the statuses, and is XML where it is no error."""
    if answer is None:
        return
    if answer.status not in statuses:
        yield f"answered {answer.status} {answer.body[:200]!r}: {document!r}"
    elif answer.status == 200 and opinion(answer.body).tree is None:
        yield f"not well-formed: {answer.body!r} of {document!r}"


def _check_relevant(answer: Answer, own: Opinion, document: bytes) -> Iterator[str]:
    """Whether the relevant part is well-formed, and is what a tree without the other elements would be."""
    if answer.status != 200:
        yield f"the relevant part is answered {answer.status}: {document!r}"
        return
    left = opinion(answer.body)
    if left.tree is None or own.tree is None:
        yield f"the relevant part is not well-formed: {left.reason}: {answer.body!r} of {document!r}"
        return
    if canonical(left.tree) != without_irrelevant(own.tree):
        yield f"the relevant part is another: {answer.body!r} of {document!r}"
