"""The small documents of the APIs: elements, requests in XML and JSON, leases, and answers that a client reads."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar
from xml.etree import ElementTree as ET
from xml.sax.saxutils import escape

from persistence import limits
from persistence.errors import BadRequestError, MalformedXmlError
from persistence.model.addresses import Form
from persistence.model.queries import Field, SentQuery
from persistence.model.texts import Instant, nearest, short
from persistence.model.versions import LeaseHolder
from persistence.xml import SEPARATOR, Streaming, local_name

T = TypeVar("T")

_XML = f"http://www.w3.org/XML/1998/namespace{SEPARATOR}"
LANGUAGE = f"{_XML}lang"  # The name of xml:lang in elements that were read

_CHILD = 2


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The attributes of the root of a kind of request, and by name its children, each with its attributes."""

    # Names have no namespace; attributes of XML itself, such as ``xml:lang``, may be anywhere.
    request: str
    root: frozenset[str]
    children: Mapping[str, frozenset[str]]

    def check(self, element: ET.Element, *, is_root: bool = False) -> None:
        """Refuse an unknown child, an element inside it, and an unknown attribute, of it or of the root."""
        subject, known = f"a {self.request}", self.root
        if not is_root:
            if element.tag not in self.children:
                near = hint(element.tag, self.children)
                raise BadRequestError(f"{subject} has no element <{shown_name(element.tag)}>{near}")
            subject, known = f"<{element.tag}> of {subject}", self.children[element.tag]
        for name in element.attrib:
            if name not in known and not name.startswith(_XML):
                raise BadRequestError(f"{subject} has no attribute {shown_name(name)!r}{hint(name, known)}")
        for inner in element:
            raise BadRequestError(f"{subject} has text, and no element <{shown_name(inner.tag)}>")


def shown_name(name: str) -> str:
    return name if len(name) <= limits.LONGEST_SHOWN else f"{name[: limits.LONGEST_SHOWN]}…"


def hint(name: str, known: Iterable[str]) -> str:
    near = nearest(name, sorted(known))
    return "" if near is None else f"; the nearest is {near}"


def read_request(sent: SentQuery, names: Collection[str], vocabulary: Vocabulary, *, is_strict: bool) -> ET.Element:
    """Read the root, of any name, with the children of these names; what is not in the ``vocabulary`` is refused."""
    # In XML only if ``is_strict``: runtimes add to theirs.
    if sent.is_json:
        return _read_json_request(sent.pieces, names, vocabulary)
    found: list[ET.Element] = []

    def take(child: ET.Element) -> None:
        if is_strict:
            vocabulary.check(child)
        if child.tag in names:
            found.append(child)
        if len(found) > limits.MOST_CHILDREN:
            raise BadRequestError(f"more than {limits.MOST_CHILDREN} {', '.join(names)} are not accepted at once")

    root = SmallReader(take).read(sent.pieces).root
    if is_strict:
        vocabulary.check(root, is_root=True)
    root.extend(found)
    return root


def text_in(element: ET.Element | None) -> str:
    return "" if element is None else "".join(element.itertext())


class ChildReader(Streaming):
    """A parser that calls ``take`` with each child of the root, as a whole; only one is held at a time."""

    # ``root`` has no children. Names have their namespace before ``SEPARATOR``.
    def __init__(self, take: Callable[[ET.Element], None]) -> None:
        super().__init__()
        self.root = ET.Element("")
        self._take = take
        self._child = ET.TreeBuilder()

    def start(self, name: str, attributes: dict[str, str]) -> None:
        super().start(name, attributes)
        if self.depth < _CHILD:
            self.root.tag = name
            self.root.attrib.update(attributes)
            return
        if self.depth == _CHILD:
            self._child = ET.TreeBuilder()
            self.parser.CharacterDataHandler = self._child.data
        self._child.start(name, attributes)

    def end(self, name: str) -> None:
        super().end(name)
        if self.depth:
            self._child.end(name)
        if self.depth == _CHILD - 1:
            self.parser.CharacterDataHandler = None
            self._take(self._child.close())


def read_children(pieces: Iterable[bytes], take: Callable[[ET.Element], None]) -> ET.Element:
    """Call ``take`` with each child of the root; return the root, with its attributes only."""
    return ChildReader(take).read(pieces).root


def read_each(pieces: Iterable[bytes], read: Callable[[ET.Element], T]) -> tuple[Mapping[str, str], list[T]]:
    """Return the attributes of the root, and what is read from each of its children."""
    found: list[T] = []
    root = read_children(pieces, lambda child: found.append(read(child)))
    return root.attrib, found


class SmallReader(ChildReader):
    """A reader of requests and sidecars, which are smaller than documents."""

    most_elements = limits.MOST_QUERY_ELEMENTS
    most_names = limits.MOST_QUERY_NAMES


NOT_IN_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_TO_CHANGE_IN_TEXT = re.compile("[^\t\n\x20-%'-;=?-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_TO_CHANGE_IN_ATTRIBUTES = re.compile("[^ !#-%'-;=?-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_IN_TEXT = {"\r": "&#13;"}
_IN_ATTRIBUTES = {**_IN_TEXT, '"': "&quot;", "\t": "&#9;", "\n": "&#10;"}


def text(value: str) -> str:
    """Escape a text between tags. Characters that XML cannot have, from sidecars edited by hand, are replaced."""
    return escape(NOT_IN_XML.sub("\ufffd", value), _IN_TEXT) if _TO_CHANGE_IN_TEXT.search(value) else value


def attribute(name: str, value: str | int) -> str:
    """Return an attribute, with the blank before it."""
    return attributes_of({name: value})


def element(name: str, attributes: str = "", content: str = "") -> str:
    return f"<{name}{attributes}>{content}</{name}>" if content else f"<{name}{attributes}/>"


Fact = str | int | bool | Sequence[str] | None
"""The value of an attribute, or of a member of a JSON object; a sequence are words."""


def attributes_of(facts: Mapping[str, Fact]) -> str:
    """Return attributes, each with the blank before it, without those that are ``None``."""
    attributes = ""
    for name, fact in facts.items():
        if fact is not None:
            value = fact if isinstance(fact, str) else str(fact).lower() if isinstance(fact, int) else " ".join(fact)
            if _TO_CHANGE_IN_ATTRIBUTES.search(value):
                value = escape(NOT_IN_XML.sub("\ufffd", value), _IN_ATTRIBUTES)
            attributes += f' {name}="{value}"'
    return attributes


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """A revision in a history. ``modified`` names it: ``load`` and ``revert`` take it as ``revision``.

    Of one that ``is_damaged`` only the time is known. ``restored`` is the revision that it has brought back.
    """

    modified: Instant
    modifier: str | None
    owner: str | None
    group: str | None
    is_deleted: bool
    is_damaged: bool
    stage: str | None
    restored: Instant | None


@dataclass(frozen=True, slots=True)
class FoundHistory:
    """A page of a history: the attributes of the list, and its revisions."""

    attributes: Mapping[str, str]
    revisions: list[HistoryEntry]


def read_history(pieces: Iterable[bytes]) -> FoundHistory:
    def read(child: ET.Element) -> tuple[str, HistoryEntry]:
        facts, restored = child.attrib, child.get("restored-time")
        return child.tag, HistoryEntry(
            modified=Instant(facts.get("modified-time", "")),
            modifier=facts.get("modified-username") or None,
            owner=facts.get("owner-username") or None,
            group=facts.get("owner-group") or None,
            is_deleted=facts.get("deleted") == "true",
            is_damaged=facts.get("damaged") == "true",
            stage=facts.get("stage"),
            restored=None if restored is None else Instant(restored),
        )

    attributes, children = read_each(pieces, read)
    return FoundHistory(attributes, [entry for tag, entry in children if tag == "document"])


# JSON in requests: its objects, and queries in JSON as the elements that they would be in XML.
#
# A query has the names of the XML. An attribute is a member of the object; an element is a text, or an object with its
# attributes, ``lang`` for ``xml:lang``, and its text as ``value``; several elements of one name are a list.


_LANGUAGE, _VALUE = "lang", "value"


def read_json(data: bytes, members: str, most: int = 2 * limits.MOST_TREE_NODES) -> dict[str, Any]:
    """Read a body: an object, whose numbers are texts as they were sent; ``members`` are named in its refusal."""
    if data.count(b",") + data.count(b"{") + data.count(b"[") > most:  # a value takes some 100 bytes
        raise BadRequestError(f"the body has more than {most} commas and brackets, which is too many")
    try:
        found = json.loads(data, object_pairs_hook=_object, parse_int=str, parse_float=str, parse_constant=int)
    except (ValueError, RecursionError) as error:
        raise BadRequestError(f"the body is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise BadRequestError(f"the body must be a JSON object of the {members}")
    return found


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        (twice, _), *_ = Counter(name for name, _ in pairs).most_common(1)
        raise ValueError(f"an object has the name {twice[: limits.LONGEST_SHOWN]!r} twice")
    return found


def _read_json_request(pieces: Iterable[bytes], names: Collection[str], vocabulary: Vocabulary) -> ET.Element:
    """Return the root with the children of these names; a name that is not in the ``vocabulary`` is refused."""
    root, request = ET.Element(""), f"a {vocabulary.request}"
    for name, value in read_json(b"".join(pieces), f"names of {request}", limits.MOST_QUERY_ELEMENTS).items():
        if name in vocabulary.children:
            values = value if isinstance(value, list) else [value]
            if len(root) + len(values) > limits.MOST_CHILDREN:
                raise BadRequestError(f"more than {limits.MOST_CHILDREN} {', '.join(names)} are not accepted at once")
            children = [_child(name, each, vocabulary) for each in values]
            root.extend(children if name in names else ())
        elif name in vocabulary.root or name == _LANGUAGE:
            _set(root, name, value, request)
        else:
            raise _unknown(request, name, {*vocabulary.root, *vocabulary.children})
    return root


def _child(name: str, value: Any, vocabulary: Vocabulary) -> ET.Element:
    child, subject, known = ET.Element(name), f"{name!r} of a {vocabulary.request}", vocabulary.children[name]
    if not isinstance(value, dict):
        child.text = _text(value, subject)
        return child
    for own, inner in value.items():
        if own == _VALUE:
            child.text = _text(inner, subject)
        elif own in known or own == _LANGUAGE:
            _set(child, own, inner, subject)
        else:
            raise _unknown(subject, own, {*known, _VALUE})
    return child


def _set(element: ET.Element, name: str, value: Any, subject: str) -> None:
    if value is not None and value is not False:  # some attributes count if they are there
        element.set(LANGUAGE if name == _LANGUAGE else name, _text(value, f"{name!r} of {subject}"))


def _unknown(subject: str, name: str, known: Collection[str]) -> BadRequestError:
    return BadRequestError(f"{subject} has no {shown_name(name)!r}{hint(name, known)}")


def _text(value: Any, subject: str) -> str:
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        value = " ".join(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is not None and not isinstance(value, str):
        raise BadRequestError(f"{subject} must be a text, a number, true, false, or a list of words")
    if value and NOT_IN_XML.search(value):
        raise BadRequestError(f"{subject} has a character that XML does not allow")
    return value or ""


_DAV = ' xmlns:d="DAV:"'
_FORM_RUNNER = ' xmlns:fr="http://orbeon.org/oxf/xml/form-runner"'
_SLACK = 4096  # Blanks around a name after which it is too long in any case


def read_lock(pieces: Iterable[bytes]) -> LeaseHolder:
    """Read the first user and the first group in ``lockinfo/owner``, in any namespaces."""
    found: dict[str, str] = {}

    def take(child: ET.Element) -> None:
        if (local_name(reader.root.tag), local_name(child.tag)) == ("lockinfo", "owner"):
            for name in child:
                own = "".join((name.text or "", *(each.tail or "" for each in name)))
                found.setdefault(local_name(name.tag), own[: limits.LONGEST_TEXT + _SLACK])

    reader = SmallReader(take)
    reader.read(pieces)
    user = short(found.get("username", "").strip(), "user name of the lease")
    if user is None:
        raise BadRequestError("the body does not name a user: it needs lockinfo/owner/username")
    return LeaseHolder(user, short(found.get("groupname", "").strip(), "group name of the lease"))


def write_lock(holder: LeaseHolder) -> bytes:
    group = element("fr:groupname", content=text(holder.group or ""))
    names = element("fr:username", content=text(holder.user)) + group
    scope = element("d:lockscope", content=element("d:exclusive"))
    kind = element("d:locktype", content=element("d:write"))
    return element("d:lockinfo", _DAV + _FORM_RUNNER, scope + kind + element("d:owner", content=names)).encode()


@dataclass(frozen=True, slots=True)
class ListedForm:
    """A published version in the list of forms: times without a fraction that is zero, and titles by language."""

    form: Form
    version: int
    modified: str
    created: str
    modifier: str | None
    titles: Mapping[str, str]
    operations: frozenset[str]
    is_available: bool


def read_forms(pieces: Iterable[bytes]) -> list[ListedForm]:
    def read(form: ET.Element) -> ListedForm:
        return ListedForm(
            form=Form(text_in(form.find("application-name")), text_in(form.find("form-name"))),
            version=_number(text_in(form.find("form-version")).strip()),
            modified=text_in(form.find("last-modified-time")).strip(),
            created=text_in(form.find("created")).strip(),
            modifier=text_in(form.find("last-modified-by")) or None,
            titles={title.get(LANGUAGE, ""): text_in(title) for title in form.findall("title")},
            operations=frozenset(form.get("operations", "").split()),
            is_available=text_in(form.find("available")).strip() != "false",
        )

    return read_each(pieces, read)[1]


def read_values(pieces: Iterable[bytes]) -> dict[Field | str, tuple[str, ...]]:
    def read(query: ET.Element) -> tuple[Field | str, tuple[str, ...]]:
        name = query.get("metadata")
        return query.get("path", "") if name is None else Field(name), tuple(map(text_in, query))

    return dict(read_each(pieces, read)[1])


@dataclass(frozen=True, slots=True)
class ReportedImport:
    """The report of an import: counts of definitions, documents, drafts and attachments by outcome."""

    is_dry: bool
    refused: int
    definitions: Mapping[str, int] = field(default_factory=dict)
    documents: Mapping[str, int] = field(default_factory=dict)
    drafts: Mapping[str, int] = field(default_factory=dict)
    attachments: Mapping[str, int] = field(default_factory=dict)
    revisions: int = 0  # of documents; these were new
    known: int = 0  # these were stored already
    causes: Mapping[str, str] = field(default_factory=dict)  # by name, of the first that were refused or skipped
    notes: Mapping[str, int] = field(default_factory=dict)  # each with its count


def read_import_report(pieces: Iterable[bytes]) -> ReportedImport:
    kinds = ("definitions", "documents", "drafts", "attachments", "revisions")
    counts: dict[str, dict[str, int]] = {kind: {} for kind in kinds}
    causes: dict[str, str] = {}
    notes: dict[str, int] = {}

    def take(child: ET.Element) -> None:
        if child.tag in counts:
            counts[child.tag] = {name: _number(text) for name, text in child.items()}
        elif child.tag in ("refused", "skipped"):
            causes[child.get("name", "")] = text_in(child)
        elif child.tag == "note":
            notes[text_in(child)] = _number(child.get("count", "1"))

    root = read_children(pieces, take)
    revisions = counts.pop("revisions")
    return ReportedImport(
        is_dry=root.get("dry-run") == "true",
        refused=_number(root.get("refused", "0")),
        revisions=revisions.get("new", 0),
        known=revisions.get("known", 0),
        causes=causes,
        notes=notes,
        **counts,
    )


@dataclass(frozen=True, slots=True)
class ReportedPurge:
    """The report of a purge: what was removed, or would be if it ``is_dry``."""

    is_dry: bool
    revisions: int
    documents: int
    drafts: int
    attachments: int
    freed: int  # in bytes
    problems: tuple[str, ...]  # why documents were not purged, or not entirely


def read_purge_report(pieces: Iterable[bytes]) -> ReportedPurge:
    root, problems = read_each(pieces, text_in)
    counts = {name: _number(root.get(name, "0")) for name in ("revisions", "documents", "drafts", "attachments")}
    freed, is_dry = _number(root.get("bytes", "0")), root.get("dry-run") == "true"
    return ReportedPurge(is_dry, **counts, freed=freed, problems=tuple(problems))


@dataclass(frozen=True, slots=True)
class ReportedDifference:
    """A difference between two revisions of a document (spec crud 8.1)."""

    kind: str  # a value of ``DiffKind``; ``other`` for all that is not listed
    name: str
    label: str
    older: str | None
    newer: str | None
    iterations: int  # how many were added or removed


def read_differences(pieces: Iterable[bytes]) -> list[ReportedDifference]:
    def read(diff: ET.Element) -> ReportedDifference:
        older, newer = (None if each is None else text_in(each) for each in (diff.find("from"), diff.find("to")))
        label, count = text_in(diff.find("label")), _number(diff.get("count", "0"))
        return ReportedDifference(diff.get("type", ""), diff.get("name", ""), label, older, newer, count)

    return read_each(pieces, read)[1]


@dataclass(frozen=True, slots=True)
class ReportedReindexing:
    """The progress of rebuilding indexes: ``current`` of ``total`` documents, which are 0 unless it ``is_running``."""

    state: str
    current: int
    total: int

    @property
    def is_running(self) -> bool:
        return self.state == "indexing"


def read_reindexing(pieces: Iterable[bytes]) -> ReportedReindexing:
    root = read_children(pieces, lambda _: None)
    current, total = (_number(root.get(f"document-{each}", "0")) for each in ("current", "total"))
    return ReportedReindexing(root.get("state", ""), current, total)


@dataclass(frozen=True, slots=True)
class ReportedReencryption:
    """The progress of encrypting a form, or one ``version``, again; ``state`` is encrypting, finished or stopped."""

    form: Form
    version: int | None
    state: str
    current: int
    total: int


def read_reencryptions(pieces: Iterable[bytes]) -> list[ReportedReencryption]:
    def read(form: ET.Element) -> ReportedReencryption:
        app, name, version, current, total = (
            text_in(form.find(each)) for each in ("application-name", "form-name", "form-version", "current", "total")
        )
        number = _number(version) if version else None
        progress = (form.get("state", ""), _number(current), _number(total))
        return ReportedReencryption(Form(app, name), number, *progress)

    return read_each(pieces, read)[1]


def _number(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise MalformedXmlError(f"the response has {text[:20]!r} instead of a number")
    return int(text)
