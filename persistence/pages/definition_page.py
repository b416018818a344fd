"""The page of the definition of a form version: who may do what, and its sections, grids and controls."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from flask import render_template, request
from markupsafe import Markup

from persistence.maintenance.permission_words import SOURCES, unknown_operations, whom
from persistence.maintenance.reports import PermissionsSource, permissions_source
from persistence.model.permissions import OPERATIONS, Permissions
from persistence.pages.form_page import ShownVersion, shown_version
from persistence.pages.forms_page import ServedForms
from persistence.pages.rendering import cut, instant
from persistence.pages.site import Site
from persistence.services.access import is_singleton, permissions_of
from persistence.services.definition_outline import shown_definition


@dataclass(frozen=True, slots=True)
class ShownPermission:
    """A line of the table of permissions: ``allowed`` is parallel to ``OPERATIONS``, ``unknown`` names others."""

    whom: str
    allowed: tuple[bool, ...]
    unknown: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DefinitionPage:
    """The page."""

    forms: ServedForms

    def add_to(self, site: Site) -> None:
        site.page("/admin/forms/<app>/<form>/<int:version>/definition", "definition", self.show)

    def show(self, app: str, form: str, version: int) -> str:
        shown = shown_version(self.forms, app, form, version)
        language = request.args.get("lang") or None
        definition = shown_definition(shown.route, version, language)
        configured = shown.route.properties
        permissions, source = None, PermissionsSource.NOBODY
        if shown.published is not None:
            permissions = permissions_of(shown.published, configured)
            source = permissions_source(shown.published, configured)
        return render_template(
            "definition.html",
            shown=shown,
            definition=definition,
            language=language if language in definition.languages else next(iter(definition.languages), None),
            operations=OPERATIONS,
            permissions=list(_shown(permissions)),
            source=SOURCES[source],
            facts=list(_facts(shown)),
        )


def _shown(permissions: Permissions | None) -> Iterator[ShownPermission]:
    if permissions is None:
        yield ShownPermission("everyone", (True,) * len(OPERATIONS))
    elif not permissions:
        yield ShownPermission("nobody", (False,) * len(OPERATIONS))
    for each in permissions or ():
        allowed = tuple(operation in each.operations for operation in OPERATIONS)
        yield ShownPermission(whom(each), allowed, tuple(unknown_operations(each)))


def _facts(shown: ShownVersion) -> Iterator[tuple[str, str | Markup]]:
    published = shown.published
    if published is None:
        return
    for language, title in published.metadata.titles.items():
        yield f"Title ({language})" if language else "Title", cut(title)
    yield "Published", instant(published.created)
    by = f" by {cut(published.modifier)}" if published.modifier else ""
    yield "Last published", instant(published.modified) + by
    yield "Available", "yes" if published.metadata.available else "no"
    yield "Singleton", "yes" if is_singleton(published, shown.route.properties) else "no"
    yield "Stored data format", shown.route.properties.data_format
    yield "Data is with", shown.route.properties.route.data.name
