"""Places: what each provider keeps forms in, and which of them has the definitions and the data of a form."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import TypeVar

from persistence.errors import StartupError
from persistence.index.protocol import Reindexer, ReportTables, SearchIndex
from persistence.index.sources import Elsewhere
from persistence.limits import FORMS_KEPT
from persistence.model.addresses import Form
from persistence.properties.lookup import ANY
from persistence.properties.properties import Properties, ProviderProperties
from persistence.properties.property_table import DATA, FORM
from persistence.settings import Roots
from persistence.storage.attachment_bodies import BodiesReader
from persistence.storage.integrity import HandEdits
from persistence.storage.reader import StoreReader
from persistence.storage.routed import Where
from persistence.storage.split_attachments import SplitStorage
from persistence.storage.storage import Bodies, Readable, Storage

R = TypeVar("R", bound=Readable)


@dataclass(frozen=True, slots=True)
class Place:
    """What one provider has: revisions, and what searches, reports on and indexes its data."""

    storage: Storage
    index: SearchIndex
    flat: ReportTables
    reindexing: Reindexer


PlaceOf = Callable[[ProviderProperties], Place]
"""Leads to the place of a provider, always the same one."""


def root_of(provider: ProviderProperties, roots: Roots) -> str:
    """The root of the tree of a provider.

    Raises:
        StartupError: it names a datasource that there is not.
    """
    root = roots.root(provider.datasource)
    if root is None:
        known = ", ".join(sorted(roots.named)) or "none"
        raise StartupError(
            f"provider {provider.name!r} has the datasource {provider.datasource!r}; the settings have {known}"
        )
    return root


def base_of(provider: ProviderProperties) -> str:
    """The directory of a provider of attachments.

    Raises:
        StartupError: it has none, or an expression, which is not evaluated.
    """
    if not provider.base_path or "{" in provider.base_path:
        raise StartupError(
            f"provider {provider.name!r} keeps attachments: its base-path must be a directory, not"
            f" {provider.base_path!r}"
        )
    return os.path.realpath(provider.base_path)


def bases_of(properties: Properties) -> list[str]:
    """The directories of all providers of attachments that are here; raises as ``base_of``."""
    return [base_of(provider) for provider in properties.attachment_providers if not provider.is_remote]


def check(properties: Properties, roots: Roots) -> None:
    """Make sure that every provider of a form has its place, and that none lies in another's.

    Raises:
        StartupError: it has not, or one does.
    """
    every = dict.fromkeys((*roots, *bases_of(properties)))
    for place in every:
        for other in every:
            if other != place and os.path.commonpath((place, other)) == place:
                raise StartupError(f"the directory {other} lies within {place}: each tree needs one of its own")
    for provider in properties.form_providers:
        if not provider.is_remote:
            root_of(provider, roots)


def with_attachments(
    properties: Properties, place_of: PlaceOf, bodies_of: Callable[[ProviderProperties, Storage], Bodies]
) -> Callable[[Form], Storage]:
    """What has the data of a form with its attachments, whoever keeps the bodies of these."""

    @cache
    def attached(main: str, attachments: str) -> Storage:
        storage = place_of(properties.provider(main)).storage
        return SplitStorage(storage, bodies_of(properties.provider(attachments), storage))

    def data_of(form: Form) -> Storage:
        route = properties.of(form).route
        if route.attachments is None:
            return place_of(route.data).storage
        return attached(route.data.name, route.attachments.name)

    return data_of


B = TypeVar("B", bound=BodiesReader)


def bodies_by_form(properties: Properties, at: Callable[[str], B]) -> Callable[[Form], B | None]:
    """What is ``at`` the directory where the bodies of a form's attachments are, if they have one."""

    def of(form: Form) -> B | None:
        provider = properties.of(form).route.attachments
        return None if provider is None or provider.is_remote else at(base_of(provider))

    return of


def everywhere(
    properties: Properties, storage_of: Callable[[ProviderProperties], R], data_of: Callable[[Form], R]
) -> Where[R]:
    """Where the properties say that forms are."""
    return Where(
        definition=_kept(lambda form: storage_of(properties.of(form).route.definition)),
        data=_kept(data_of),
        defining=lambda app: _distinct(map(storage_of, properties.providers(FORM, app or ANY))),
    )


def beside(tree: R, properties: Properties, storage_of: Callable[[ProviderProperties], R]) -> Where[R]:
    """Where those are who ask for the data of one tree: its own definitions count, unless properties say others do.

    Whoever comes by the tree's own name must not find data without the permissions of its form.
    """

    def definition(form: Form) -> R:
        route = properties.of(form).route
        is_here = not route.data.is_remote and storage_of(route.data) is tree
        return storage_of(route.definition) if is_here else tree

    return Where(
        definition=_kept(definition),
        data=lambda _: tree,
        defining=lambda app: _distinct((tree, *map(storage_of, properties.providers(FORM, app or ANY)))),
    )


def _kept(of: Callable[[Form], R]) -> Callable[[Form], R]:
    """The same, asked once for each form: every look at a revision asks."""
    return lru_cache(FORMS_KEPT)(of)


def elsewhere(root: str, properties: Properties, roots: Roots, hand_edits: HandEdits) -> Elsewhere:
    """Which definitions are in other trees than that of a root, which has the data of their forms."""
    root = os.path.realpath(root)

    def root_of_definition(form: Form) -> str:
        route = properties.of(form).route
        if route.data.is_remote or route.definition.is_remote or root_of(route.data, roots) != root:
            return ""
        there = root_of(route.definition, roots)
        return "" if there == root else there

    def forms() -> Iterator[Form]:
        for other in roots:
            if other != root and os.path.isdir(other):
                yield from (form for form in StoreReader(other).forms() if root_of_definition(form) == other)

    return Elsewhere(root_of_definition, forms, hand_edits)


def reindexed(properties: Properties, place_of: PlaceOf) -> list[Reindexer]:
    """What makes the indexes of all active providers anew."""
    return list(_distinct(place_of(provider).reindexing for provider in properties.providers(DATA)))


T = TypeVar("T")


def _distinct(things: Iterable[T]) -> Iterable[T]:
    return {id(thing): thing for thing in things}.values()
