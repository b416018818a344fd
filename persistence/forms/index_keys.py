"""The keys of a form's index: its indexed controls, and the steps to their values (spec search 2.2 to 2.4)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any

from persistence.forms.controls import INDEXED, template_uses
from persistence.forms.structure import (
    BIND,
    XF,
    XH,
    DefinitionTree,
    FormPart,
    classes,
    control_name,
    is_element_name,
    on_definition,
    reference,
    text_in,
    with_namespaces,
)
from persistence.forms.trees import Bound, Element
from persistence.limits.definitions import MOST_KEY_CHARACTERS, MOST_PATTERNS, MOST_STEPS
from persistence.model.versions import V4_0_0, V4_8_0, V2019_1_0, IndexKey, PathStep

_EACH_LANGUAGE = "[@xml:lang = $fb-lang]"
_MIGRATIONS = {V4_0_0: (V2019_1_0, V4_8_0), V4_8_0: (V2019_1_0,), V2019_1_0: ()}
"""The lists of grids for which a data format leaves out a step; one or several of them have the same effect."""

_Path = tuple[tuple[str, Element | None], ...]
"""The reference of each bind on the way, with the bind; iterations around a section template have none."""
_Grids = frozenset[tuple[str, ...]]


def read_index_keys(stored: bytes, data_format: str) -> tuple[IndexKey, ...]:
    """Read the keys of a stored definition in index order, for data of a format; none where it has no form model.

    A path that cannot be followed becomes a key without steps, which has no values.

    Raises:
        BadRequestError: the definition is too large, or has too many keys (``MOST_STEPS``), or too long ones.
        DamagedError: it is not well-formed XML.
    """
    return on_definition(stored, lambda definition: _KeyReader(definition).keys(data_format)) or ()


class _KeyReader:
    """A reader of the keys of a definition: the paths of its indexed controls."""

    def __init__(self, definition: DefinitionTree) -> None:
        self._definition = definition
        self._steps = Bound(MOST_STEPS, "the form indexes too many controls, or too deeply nested ones")

    def keys(self, data_format: str) -> tuple[IndexKey, ...]:
        """Return the keys in index order, for data of a format."""
        grids = _Grids().union(*(_grids(self._definition, version) for version in _MIGRATIONS[data_format]))
        found: dict[str, IndexKey] = {}
        patterns = 0
        characters = Bound(
            MOST_KEY_CHARACTERS, f"the paths of what the form indexes have more than {MOST_KEY_CHARACTERS} characters"
        )
        for complete in self._paths():
            path = _adapted(complete, grids)
            literal = "/".join(text for text, _ in path)
            characters.count(len(literal))
            if literal and literal not in found:
                steps = _steps((text, self._namespaces_of(bind)) for text, bind in path)
                is_plain = all(map(_is_plain, steps))
                patterns += not is_plain
                found[literal] = IndexKey(literal, steps if is_plain or patterns <= MOST_PATTERNS else ())
        return tuple(found.values())

    def _paths(self) -> Iterator[_Path]:
        """Yield all paths in index order: the paths of a part are read once, even if many sections show it."""
        main = self._definition.main
        uses = list(template_uses(self._definition))
        for is_indexed in (_has_index, _has_class):
            yield from self._of(main, is_indexed)
            listed: dict[int, list[_Path]] = {}
            for use in uses:
                if id(use.part) not in listed:
                    listed[id(use.part)] = list(self._of(use.part, is_indexed))
                around = _path(main, use.bind) + (((use.iteration, None),) if use.iteration else ())
                for path in listed[id(use.part)]:
                    self._steps.count(len(around) + len(path))
                    yield around + path

    def _of(self, part: FormPart, is_indexed: Callable[[Element], bool]) -> Iterator[_Path]:
        for element in () if part.body is None else part.body.iterdescendants("*"):
            bind = part.bind_named_by(element) if control_name(element) and is_indexed(element) else None
            path = () if bind is None else _path(part, bind)
            self._steps.count(len(path))
            if path:
                yield path

    def _namespaces_of(self, bind: Element | None) -> Mapping[str, str]:
        """Return the namespaces of the prefixes that a bind uses."""
        return {} if bind is None or ":" not in reference(bind) else self._namespaces[bind]

    @cached_property
    def _namespaces(self) -> dict[Element, dict[str, str]]:
        """The namespaces of the prefixes in all binds, found in one pass when the first is needed."""
        found = {}
        for element, scope in with_namespaces(self._definition.model.getroottree().getroot()):
            if element.tag == BIND:
                prefixes = {text.rpartition("/")[2] for text in reference(element).split(":")[:-1]}
                found[element] = {prefix: scope[prefix][-1] for prefix in prefixes if scope.get(prefix)}
        return found


def _has_index(element: Element) -> bool:
    return next(element.iterchildren("{*}index"), None) is not None


def _has_class(element: Element) -> bool:
    return not classes(element).isdisjoint(INDEXED)


def _path(part: FormPart, bind: Element) -> _Path:
    references = ((reference(each).removesuffix(_EACH_LANGUAGE), each) for each in part.lineage(bind))
    return tuple((text, each) for text, each in references if text != ".")


def _adapted(path: _Path, grids: _Grids) -> _Path:
    """Return the path without its last step but one, if it leads into one of the grids."""
    texts = tuple(text for text, _ in path)
    is_inside = any(texts[:length] in grids for length in range(1, len(texts)))
    return path[:-2] + path[-1:] if is_inside else path


def _grids(definition: DefinitionTree, version: str) -> _Grids:
    """Return the paths of the grids that the metadata lists for a migration; none where the list is malformed."""
    migrations = () if definition.metadata is None else definition.metadata.iterchildren("migration")
    found = next((each for each in migrations if each.get("version") == version), None)
    if found is None:
        return frozenset()
    try:
        return frozenset(_LISTS[version](json.loads(text_in(found))))
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return frozenset()


# JSON has values of any type: reading fails where it is not one of the lists (spec forms 1.5).
def _repeated_grids(listed: Any) -> Iterator[tuple[str, ...]]:
    for entry in listed:
        yield tuple(step.removeprefix("(").removesuffix(")") for step in entry["path"].split("/"))


def _plain_grids(listed: Any) -> Iterator[tuple[str, ...]]:
    for entry in listed["migrations"]:
        yield tuple(step["value"] for step in (*entry["containerPath"], entry["newGridElem"]))


_LISTS: dict[str, Callable[[Any], Iterator[tuple[str, ...]]]] = {V4_8_0: _repeated_grids, V2019_1_0: _plain_grids}


_NAME = r"[^\s/:@*=$'\"()\[\]]++"
_STEP = re.compile(rf"(?:({_NAME})(?::({_NAME}))?+|\*)(?:\s*+\[\s*+@id\s*+=\s*+(?:'([^']*+)'|\"([^\"]*+)\")\s*+\])?+/")
"""A step of a path: a prefix and a name, or a name, or any element; then perhaps an id. No text matches in two ways."""


def _steps(path: Iterable[tuple[str, Mapping[str, str]]]) -> tuple[PathStep, ...]:
    """Parse the steps of a path: elements by name, or any, either with a certain id; none where there are others."""
    found: list[PathStep] = []
    for text, namespaces in path:
        steps, at = f"{text}/", 0
        while at < len(steps):
            match = _STEP.match(steps, at)
            first, second, single, double = (None,) * 4 if match is None else match.groups()
            prefix, name = (None, first) if second is None else (first, second)
            if match is None or (name and not is_element_name(name)) or (prefix and prefix not in namespaces):
                return ()
            namespace = namespaces[prefix] if prefix else ""
            found.append(PathStep(name or "", namespace, single if single is not None else double))
            at = match.end()
    return tuple(found)


def _is_plain(step: PathStep) -> bool:
    return bool(step.name) and not step.namespace and step.id is None


_DESIGNER_METADATA = "xh:head/xf:model[@id = 'fr-form-model']/xf:instance[@id = 'fr-form-metadata']/*"
_DESIGNER_NAMES = ("application-name", "form-name", "title", "description", "thumbnail", "allow-template-use")


def _designer_key(name: str) -> IndexKey:
    path = f"{_DESIGNER_METADATA}/{name}"
    return IndexKey(path, _steps([(path, {"xh": XH[1:-1], "xf": XF[1:-1]})]))


DESIGNER_KEYS = tuple(map(_designer_key, _DESIGNER_NAMES))
"""The keys of the designer's own form, whose data are definitions (spec search 2.4)."""
