"""The trees that a command works on, one after the other, and its exit status."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import click

from persistence import settings
from persistence.cli.options import form_and_version
from persistence.errors import BadRequestError, NotSupportedError, PersistenceError, one_line
from persistence.maintenance.manifest import attachments_name, tree_name
from persistence.maintenance.tree_reader import TreeReader
from persistence.model.addresses import Form
from persistence.properties.properties import Properties
from persistence.properties.property_table import DATA, FORM
from persistence.providers.locations import base_of, definitions_root, root_of
from persistence.settings import Settings
from persistence.storage import owner
from persistence.storage.integrity import HandEdits, Integrity

FAILED = 1
"""Exit status: the work could not be done. Status 2 is for wrong usage."""
REPAIRED = 3
"""Exit status: everything that was found has been taken care of."""
REMAINS = 4
"""Exit status: damage remains."""
EDITED = 5
"""Exit status: nothing is worse than edits by hand that nobody has adopted."""
_FROM_BEST = (0, REPAIRED, EDITED, REMAINS, FAILED)


def worst(statuses: Iterable[int]) -> int:
    """Return the worst exit status; not having looked at a tree is worse than damage in it."""
    return max(statuses, key=_FROM_BEST.index, default=0)


@dataclass(frozen=True, slots=True)
class ChosenTree:
    """The settings and properties in force, and the root of a tree with the name that people know."""

    settings: Settings
    properties: Properties
    name: str
    root: str

    def reader(self) -> TreeReader:
        """Open the tree for reports. Raises as ``TreeReader.of``."""
        properties, roots = self.properties, self.settings.roots
        integrity = Integrity(HandEdits(self.settings.hand_edits))
        return TreeReader.of(
            self.root, properties, lambda form: definitions_root(form, self.root, properties, roots), integrity
        )


@dataclass(frozen=True, slots=True)
class TreeChoice:
    """The settings and properties in force, and the trees that a command works on, the default one first.

    ``is_named`` tells whether an option names the one tree. ``file`` is the settings file, empty without one.
    """

    settings: Settings
    properties: Properties
    trees: tuple[ChosenTree, ...]
    is_named: bool
    file: str

    @property
    def bases(self) -> dict[str, str]:
        """The directories of attachments, each once, by name. Raises ``StartupError`` if a provider has none."""
        by_name = self.bases_by_name
        first = {base: name for name, base in reversed(by_name)}
        return {name: base for name, base in by_name if first[base] == name}

    @property
    def bases_by_name(self) -> list[tuple[str, str]]:
        """The names and paths of the directories of attachments; several names may have the same path."""
        found = ((attachments_name(each.name), base_of(each)) for each in self.properties.attachment_providers)
        return [(name, base) for name, base in found if base is not None]

    def with_data(self, form: Form) -> ChosenTree:
        """Return the tree of the data of a form: the one that an option names, else as the properties say.

        Raises:
            NotSupportedError: another service has the data.
            ConfigurationError, StartupError: it has no provider, or the provider has no tree.
        """
        return self._of(form, DATA)

    def with_definition(self, form: Form) -> ChosenTree:
        """Return the tree of the definition of a form. Raises as ``with_data``."""
        return self._of(form, FORM)

    def root_of_records(self, form: Form, base: str) -> str | None:
        """Return the root of the tree with the records of a form's bodies below ``base``.

        It is empty if another service has the tree, and ``None`` if the properties lead to another directory.

        Raises:
            ConfigurationError, StartupError: the form has no provider, or the provider no tree.
        """
        route = self.properties.of(form).route
        if route.attachments is None or base_of(route.attachments) != base:
            return None
        return root_of(route.data, self.settings.roots) or ""

    def _of(self, form: Form, kind: str) -> ChosenTree:
        if self.is_named:
            return self.trees[0]
        route = self.properties.of(form).route
        provider = route.data if kind == DATA else route.definition
        root = root_of(provider, self.settings.roots)
        if root is None:
            what = "data" if kind == DATA else "definition"
            raise NotSupportedError(f"the {what} of {form} is with another service, {provider.address}: look there")
        return next(each for each in self.trees if each.root == root)


def choose_trees(options: Mapping[str, object]) -> TreeChoice:
    """Return the tree that one of ``tree_options`` names, else all trees of the settings.

    Raises:
        StartupError: as ``settings.load``.
        click.UsageError: there is no such datasource.
    """
    flags = {name: value for name, value in options.items() if name not in ("file", "datasource")}
    file, datasource = options["file"], options["datasource"]
    effective = settings.load(None if file is None else str(file), flags)
    roots = effective.settings.roots
    is_named = datasource is not None or flags.get("data") is not None
    if datasource is not None:
        if str(datasource) not in roots.named:
            raise click.UsageError(f"the settings have no datasource {datasource!r}")
        names = {str(datasource): roots.named[str(datasource)]}
    else:
        names = {"": roots.default, **({} if is_named else roots.named)}
    by_root = {root: name for name, root in reversed(names.items())}
    trees = tuple(
        ChosenTree(effective.settings, effective.properties, tree_name(name), root)
        for name, root in names.items()
        if by_root[root] == name
    )
    return TreeChoice(effective.settings, effective.properties, trees, is_named, effective.file)


def choose_data(
    options: Mapping[str, object], path: str | None
) -> tuple[tuple[ChosenTree, ...], Form | None, int | None]:
    """Return the trees that ``tree_options`` choose, or that of the data of ``path``: a form, maybe with a version.

    Raises:
        click.UsageError: ``path`` is neither.
    """
    choice = choose_trees(options)
    if path is None:
        return choice.trees, None, None
    try:
        form, version = form_and_version(path)
    except BadRequestError as error:
        raise click.UsageError(str(error)) from error
    return (choice.with_data(form),), form, version


def on_each(trees: Sequence[ChosenTree], work: Callable[[ChosenTree, str], int]) -> int:
    """Do ``work`` on each tree as its owner; return the worst exit status.

    If there are several trees, ``work`` gets a prefix for its lines, the name of the tree. A tree that cannot be used
    is then reported on standard error, and the others are worked on all the same.

    Raises:
        PersistenceError: the work on a single tree raises it.
    """
    if len(trees) == 1:
        with owner.acting(trees[0].root):
            return work(trees[0], "")
    statuses = []
    for tree in trees:
        try:
            with owner.acting(tree.root):
                statuses.append(work(tree, f"{tree.name}: "))
        except PersistenceError as error:
            say_failed(tree.name, error)
            statuses.append(FAILED)
    return worst(statuses)


def say_failed(name: str, error: PersistenceError) -> None:
    """Report a tree, or a directory of attachments, that cannot be used."""
    click.echo(f"persistence: {name}: {one_line(str(error))}", err=True)
