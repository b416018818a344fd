"""Published definitions, compared by what they say, and pulled back into the documents of the form designer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from persistence.catalog import Catalog, Definition
from persistence.errors import ConflictError, DeletedError, NotFoundError, disk_errors
from persistence.forms.controls import DESIGNER_KEYS, KIND, NO_OUTLINE, read_elements
from persistence.forms.definition_metadata import unpublish
from persistence.forms.definition_tree import printed
from persistence.limits import LARGEST_TREE
from persistence.model.addresses import Collection, DocumentAddress, Form
from persistence.model.permissions import Permissions, User
from persistence.model.queries import ControlFilter, Query, TextMatch
from persistence.model.sidecar import fresh_id
from persistence.model.versions import V2019_1_0, VersionRequest
from persistence.services.definitions import Definitions
from persistence.services.documents import Documents
from persistence.services.rules import Get, Put, must_live

Words = Callable[[Permissions | None], Iterable[str]]
"""Returns permissions as lines, each of whom, a colon and what they may do."""


def published_definition(catalog: Catalog, form: Form, version: int | None) -> Definition:
    if version is None:
        latest = catalog.latest(form)
        if latest is None:
            raise NotFoundError(f"{form} has no published version")
        return latest
    definition = catalog.of(form, version)
    if definition.published is None:
        raise NotFoundError(f"{form} has no published version {version}")
    return definition


def version_before(catalog: Catalog, definition: Definition) -> Definition:
    published = (each.version for each in catalog.published(definition.form, skips_damaged=True))
    before = max((number for number in published if number < definition.version), default=None)
    if before is None:
        raise NotFoundError(f"{definition.form} has no published version before {definition.version}")
    return catalog.of(definition.form, before)


def print_definition(definition: Definition) -> bytes:
    return printed(_content_of(definition))


def _content_of(definition: Definition) -> bytes:
    found = must_live(definition.stored(), definition.address)
    with found.opened as file, disk_errors(f"reading {definition.address}"):
        return file.read(LARGEST_TREE + 1)


@dataclass(frozen=True, slots=True)
class DefinitionDifference:
    """A difference at a section, grid or control, or of the form itself where ``place`` is empty."""

    # ``what`` is ``kind``, ``path``, ``label``, ``item``, ``title``, ``permission`` or the name of a rule; ``of`` is
    # the language of a text, or who has a permission. ``None`` is what a version does not have.
    place: str
    what: str
    of: str
    older: str | None
    newer: str | None


OTHER = "other"
"""The name of a difference in something that is not compared."""

_Key = tuple[str, str, str]  # The place, what is there, and of which language or user


def compare_definitions(older: Definition, newer: Definition, words: Words) -> Iterator[DefinitionDifference]:
    """Yield the differences between two published versions: of the form, then by element, in the order of the form."""
    before, after = _facts(older, words), _facts(newer, words)
    moved = _moved(before, after)
    before = {(moved.get(place, place), what, of): text for (place, what, of), text in before.items()}
    is_equal = not moved
    for was, now in moved.items():
        yield DefinitionDifference(now, "path", "", was, now)
    order: dict[str, int] = {"": 0}
    for place, _, _ in (*after, *before):
        order.setdefault(place, len(order))
    for key in sorted(dict.fromkeys((*after, *before)), key=lambda key: order[key[0]]):
        place, what, of = key
        kind = (place, KIND, "")
        is_alone = bool(place) and (kind in before) is not (kind in after)  # that it is new or gone says it all
        if before.get(key) != after.get(key) and (key == kind or not is_alone):
            is_equal = False
            yield DefinitionDifference(place, what, of, before.get(key), after.get(key))
    if is_equal and print_definition(older) != print_definition(newer):
        yield DefinitionDifference("", OTHER, "", None, None)


def _facts(definition: Definition, words: Words) -> dict[_Key, str]:
    outline = definition.outline(V2019_1_0) or NO_OUTLINE
    found: dict[_Key, str] = {}
    if (published := definition.published) is not None:
        metadata = published.metadata
        found |= {("", "title", language): title for language, title in metadata.titles.items()}
        found |= {("", "available", ""): _word(metadata.available)}
        found |= {} if metadata.singleton is None else {("", "singleton", ""): _word(metadata.singleton)}
        for line in words(published.permissions):
            whom, separator, what = line.partition(": ")
            key = ("", "permission", whom if separator else "")
            found[key] = "; ".join(filter(None, (found.get(key), what or line)))
    for path, rules in read_elements(_content_of(definition)).items():
        place, node = "/".join(path), outline.find(path)
        found |= {(place, name, ""): text for name, text in rules.items()}
        if node is not None and node.label is not None:
            found |= {(place, "label", language): text for language, text in node.label.texts.items()}
        for value, label in ({} if node is None else node.choices).items():
            found |= {(place, f"item {value}", language): text for language, text in label.texts.items()}
    for control in definition.controls or ():
        place = "/".join(control.path(V2019_1_0))
        found |= {(place, "index", ""): "yes"} if control.is_indexed else {}
        found |= {(place, "encryption", ""): "yes"} if control.is_encrypted else {}
    return found


def _word(value: bool) -> str:  # noqa: FBT001 - the one argument
    return "yes" if value else "no"


def _moved(before: dict[_Key, str], after: dict[_Key, str]) -> dict[str, str]:
    """Return the new place by the old one of each element that is elsewhere under its own name, and only there."""

    def gone(facts: dict[_Key, str], others: dict[_Key, str]) -> dict[tuple[str, str], list[str]]:
        found: dict[tuple[str, str], list[str]] = {}
        for (place, what, of), kind in facts.items():
            if what == KIND and (place, what, of) not in others:
                found.setdefault((place.rpartition("/")[2], kind), []).append(place)
        return found

    came = gone(after, before)
    return {
        was[0]: came[key][0]
        for key, was in gone(before, after).items()
        if len(was) == 1 and len(came.get(key, ())) == 1
    }


def designer_query(form: Form) -> Query:
    wanted = {"application-name": form.app, "form-name": form.name}
    keys = {key.steps[-1].name: key.path for key in DESIGNER_KEYS}
    filters = (ControlFilter(keys[name], TextMatch.EXACT, text) for name, text in wanted.items())
    return Query(controls=tuple(filters), size=100)


@dataclass(frozen=True, slots=True)
class Pulled:
    """A version in the designer's storage; ``missing`` attachments are named by it, and are not there."""

    address: DocumentAddress
    version: int
    is_new: bool
    attachments: tuple[str, ...]
    missing: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Pulling:
    """Puts published versions back into the designer's documents, without permissions."""

    documents: Documents
    definitions: Definitions

    def pull(self, form: Form, version: int | None, document: str | None, user: User) -> Pulled:
        """Store a version, the latest one without a number, as a revision of a document, or as a new one."""
        # Its attachments come first, so the document never names one that is still to come.
        router = self.definitions.router
        definition = published_definition(router.of(form).catalog, form, version)
        designer = self.documents.dialect.designer
        address = DocumentAddress(designer, Collection.DATA, document or fresh_id())
        content, names = unpublish(_content_of(definition), form, address)
        stored = [name for name in names if self._copy(definition, name, address, user)]
        put = Put(user=user, content_type="application/xml")
        written = self.documents.write(address, put, [content])
        missing = tuple(name for name in names if name not in stored)
        return Pulled(address, definition.version, written.created, tuple(stored), missing)

    def _copy(self, definition: Definition, name: str, address: DocumentAddress, user: User) -> bool:
        asked = Get(version=VersionRequest(number=definition.version))
        try:
            read = self.definitions.read(definition.form, name, asked)
        except (NotFoundError, DeletedError):
            return False
        sidecar = read.found.sidecar
        put = Put(user=user, content_type=sidecar.content_type, client_hash=sidecar.client_hash)
        target = DocumentAddress(address.form, address.collection, address.document, name)
        self.documents.write(target, put, read.pieces())
        return True

    def document_of(self, form: Form, version: int | None, found: Sequence[str], wanted: str | None) -> str | None:
        """Return the ``wanted`` document, else of those with the form the source of the version, or the only one."""
        if wanted is not None:
            designer = self.documents.dialect.designer
            address = DocumentAddress(designer, Collection.DATA, wanted)
            there = self.definitions.router.of(designer).data.storage.sidecar(address)
            if there is not None and not there.deleted and wanted not in found:
                raise ConflictError(f"the designer's document {wanted} does not have {form}: --new makes another one")
            return wanted
        definition = published_definition(self.definitions.router.of(form).catalog, form, version)
        stored = definition.stored()
        source = None
        if stored is not None:
            stored.close()
            source = stored.sidecar.source
        if source in found:
            return source
        if len(found) > 1:
            names = ", ".join(sorted(found)[:3])
            raise NotFoundError(
                f"{len(found)} documents have {form}, such as {names}, and none is known to be its source: name one"
            )
        return found[0] if found else None
