"""Notices beside an answer: forms, versions and controls that were asked for and do not exist.

A caller who has misspelt a name gets an answer without documents, as the specification has it (spec search 1.1, 1.4),
and beside it the name that was probably meant.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice

from persistence.dialect import Dialect
from persistence.errors import DamagedError
from persistence.model.addresses import Form
from persistence.model.search import VisibleOwners
from persistence.model.texts import alike, nearest
from persistence.model.users import User
from persistence.model.versions import Searched
from persistence.services.form_list import PublishedForms
from persistence.services.search_scope import SearchedVersions

_MOST_SHOWN = 3
"""Controls that are named in one notice, and versions."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A search: ``version`` as it was asked for, the versions that are ``searched``, and the ``paths`` of controls."""

    version: int | Searched
    searched: SearchedVersions
    paths: Collection[str]
    user: User


class Notices:
    """Finds out what was asked for and is not there. Methods raise ``DiskError``."""

    def __init__(self, forms: PublishedForms, dialect: Dialect) -> None:
        """Tell a user no names of forms but those of ``forms``."""
        self._forms = forms
        self._dialect = dialect

    def of(self, asked: Asked, seen: VisibleOwners, *, found: bool) -> str | None:
        """One notice, if there is one; ``seen`` is what the user may see, ``found`` says whether anything was."""
        definition = asked.searched.definition
        if asked.user.is_nameless and seen.of_version(definition.version):
            return f"roles and groups count only together with a user name ({self._dialect.header('Username')})"
        notice = None if found or asked.searched.is_designer else self._unpublished(asked)
        if notice is not None or not asked.paths:
            return notice
        indexed = asked.searched.index_paths
        return None if indexed is None else unknown_controls(definition.form, definition.version, indexed, asked.paths)

    def _unpublished(self, asked: Asked) -> str | None:
        """Nothing is said of a form with a damaged version: searches find what they can all the same."""
        form, version = asked.searched.definition.form, asked.version
        catalog = asked.searched.catalog
        with suppress(DamagedError):
            published = tuple(islice((each.version for each in catalog.published(form)), _MOST_SHOWN + 1))
            if not published:
                return unpublished_form(form, lambda app: self._forms.names(app, asked.user))
            if isinstance(version, int) and catalog.of(form, version).published is None:
                return unpublished_version(form, version, published)
        return None


def unknown_controls(form: Form, version: int, indexed: Sequence[str], asked: Iterable[str]) -> str | None:
    """Say which of the paths that were asked for are those of no indexed control; ``None`` where all are."""
    known = frozenset(indexed)
    unknown = [path for path in dict.fromkeys(asked) if path not in known]
    if not unknown:
        return None
    said = [_with(path, nearest(path, indexed)) for path in unknown[:_MOST_SHOWN]]
    more = f" and {len(unknown) - _MOST_SHOWN} more" if len(unknown) > _MOST_SHOWN else ""
    return f"version {version} of {form} has no indexed control {', '.join(said)}{more}"


def unpublished_version(form: Form, version: int, published: Iterable[int]) -> str:
    """Say that a version is not published, and which are."""
    numbers = tuple(islice(published, _MOST_SHOWN + 1))
    shown = ", ".join(map(str, numbers[:_MOST_SHOWN])) + (" …" if len(numbers) > _MOST_SHOWN else "")
    return f"{form} has no published version {version}; it has {shown or 'none'}"


def unpublished_form(form: Form, names: Callable[[str | None], Iterable[Form]]) -> str:
    """Say that a form is not published; ``names`` gives those that may be told, of one application or of all.

    The nearest one is looked for in the same application first, where it is most likely.
    """
    within = {str(each) for each in names(form.app)} or {str(each) for each in names(None)}
    near = alike(str(form), sorted(within - {str(form)}))
    return f"{form} is not published" + ("" if near is None else f"; the nearest name is {near}")


def _with(path: str, near: str | None) -> str:
    return repr(path) + ("" if near is None else f" (the nearest is {near!r})")
