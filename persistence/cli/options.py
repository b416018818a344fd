"""Options that several subcommands have, and the trees and databases that they choose and open."""

from __future__ import annotations

import os
import re
import resource
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import reduce
from itertools import islice
from typing import Any, Literal

import click
import msgspec

from persistence import errors, settings
from persistence.cli.declarations import FAILED, PLACES, Opened, Option, worst
from persistence.cli.terminal import safe, say_error
from persistence.dialect import DIALECTS
from persistence.keys import second_key_of
from persistence.maintenance import records
from persistence.maintenance.backup_files import attachments_name, tree_name
from persistence.maintenance.reports import TreeReader
from persistence.model.addresses import DATA_XML, Collection, DocumentAddress, Form
from persistence.model.network_addresses import Bucket, parse_addressed_bucket
from persistence.model.permissions import removing
from persistence.model.sidecar import LARGEST_VERSION
from persistence.model.texts import Instant, duration, parse_instant
from persistence.properties.properties import Properties
from persistence.properties.property_table import DATA, DATABASES, FORM, is_database
from persistence.providers.locations import (
    base_of,
    buckets_of,
    definitions_root,
    open_encryption_keys,
    open_keys,
    place_of,
)
from persistence.providers.opened import OpenedPlace, bucket_bodies, managing, with_calls_of_a_move
from persistence.providers.router import Router
from persistence.services.codec import EncryptionAtRest
from persistence.settings import DEFAULT_FILE, Effective, Settings
from persistence.storage import owner
from persistence.storage.storage import Bodies, Storage, keeps_all
from persistence.storage.stored_revision import HandEdits, Integrity

_VERSION = re.compile(r"[1-9][0-9]{0,18}", re.ASCII)

_BIND = click.option("--bind", metavar="HOST:PORT", help="Address and port to serve on.")
_DATA = click.option("--data", metavar="DIR", help="Directory of a tree of forms, or a database's address.")
_ONLY_DATA = click.option("--data", metavar="DIR", help="Only this directory of a tree of forms, or database.")
_DATASOURCE = click.option(
    "--datasource", metavar="NAME", help="Work only on the tree of this datasource of the settings."
)
_CONFIG = click.option("--config", "file", metavar="FILE", help=f"Settings file instead of {DEFAULT_FILE}.")
_DIALECT = click.option("--dialect", type=click.Choice(["svc", "orbeon"]), help="Names on the wire.")
_WORKERS = click.option("--workers", type=int, metavar="N", help="Worker processes; 0: one for each processor, 2 to 4.")
_THREADS = click.option("--threads", type=int, metavar="N", help="Threads in each worker.")
_INSECURE = click.option(
    "--insecure", is_flag=True, flag_value=True, default=None, help="Let everybody call who reaches the service."
)


def settings_options(command: Any) -> Any:
    options = (_INSECURE, _THREADS, _WORKERS, _DIALECT, _CONFIG, _DATA, _BIND)
    return reduce(lambda each, option: option(each), options, command)


def read_settings(*, file: str | None, **flags: object) -> Effective:
    return settings.load(file, flags)


def load(**options: Any) -> Effective:
    """Return the settings in force for a command that works on their trees, which root must own."""
    effective = read_settings(**options)
    for each in (*effective.settings.roots, effective.settings.home):
        owner.refuse_root(each)
    return effective


def second_key_name(settings: Settings) -> str:
    """Return the name of the second key with which a command may remove revisions; empty without one."""
    if not (settings.append_only and settings.second_key):
        return ""
    return second_key_of(settings.second_key, open_keys(settings).read(), settings.second_keys)


@contextmanager
def usage_errors(kind: type[click.UsageError] = click.UsageError) -> Iterator[None]:
    """Raise an error of click for a ``BadRequestError`` in a block, or as a decorator in a function."""
    try:
        yield
    except errors.BadRequestError as error:
        raise kind(str(error)) from error


@usage_errors(click.BadParameter)
def seconds(text: str) -> float:
    """Parse a duration such as 90s, 10m, 1h30m or 7d, as a type of click."""
    return float(duration(text))


def parts_of(path: str, *shapes: str, may_be_empty: Container[str] = ("VERSION",)) -> dict[str, str]:
    """Return the parts of a path by their names in the first shape that it has, such as ``APP/FORM/data/DOCUMENT``.

    Words in capitals stand for any part, others for themselves.
    """
    given = path.split("/")
    for shape in shapes:
        words = shape.split("/")
        if len(words) == len(given) and all(
            (part or word in may_be_empty) if word.isupper() else part == word
            for word, part in zip(words, given, strict=True)
        ):
            return dict(zip(words, given, strict=True))
    *others, last = shapes
    raise click.UsageError(f"{safe(path)} is not {' or '.join((', '.join(others), last)) if others else last}")


@usage_errors()
def form_and_version(text: str) -> tuple[Form, int | None]:
    parts = parts_of(text, "APP/FORM", "APP/FORM/VERSION")
    number = parts.get("VERSION")
    return Form(parts["APP"], parts["FORM"]), None if number is None else version_number(number)


def instant(text: str) -> Instant:
    """Parse the time of a revision, as a type of click, whose help has the name of this function."""
    try:
        return parse_instant(text)
    except (ValueError, OverflowError) as error:
        raise click.BadParameter(f"{safe(text)} is not a time such as 2025-03-04T05:06:07.089Z") from error


NAMES = frozenset({"APP", "FORM", "VERSION", "DOCUMENT", "FILE"})
"""Names of parts, where those that are empty are refused as an address says it."""


@usage_errors()
def data_address(text: str) -> DocumentAddress:
    parts = parts_of(text, "APP/FORM/data/DOCUMENT", "APP/FORM/data/DOCUMENT/FILE", may_be_empty=NAMES)
    form = Form(parts["APP"], parts["FORM"])
    return DocumentAddress(form, Collection.DATA, parts["DOCUMENT"], parts.get("FILE", DATA_XML))


def version_number(text: str) -> int:
    if not _VERSION.fullmatch(text) or int(text) > LARGEST_VERSION:
        raise errors.BadRequestError(f"{text!r} is not a version of a form, which is a number from 1")
    return int(text)


def allow_open_files() -> None:
    """Raise the limit of open files as far as the system allows: all attachments of a document are open at once."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


@dataclass(frozen=True, slots=True)
class ChosenTree:
    """A tree or database, with the name that output shows, and the settings and properties in force."""

    settings: Settings
    properties: Properties
    name: str
    place: str

    @property
    def is_database(self) -> bool:
        return is_database(self.place)

    @property
    def root(self) -> str:
        if self.is_database:
            raise errors.NotSupportedError(f"this command works on data directories, and not on {self.place}")
        return self.place

    def managing(self) -> AbstractContextManager[OpenedPlace]:
        return managing(self.settings, self.properties, self.place)

    def reader(self) -> TreeReader:
        properties, roots = self.properties, self.settings.roots
        integrity = Integrity(HandEdits(self.settings.hand_edits))
        return TreeReader.of(
            self.root, properties, lambda form: definitions_root(form, self.root, properties, roots), integrity
        )


@dataclass(frozen=True, slots=True)
class TreeChoice:
    """The trees and databases that a command works on, the default one first, and the settings and properties in force.

    ``is_named``: an option names the only tree. ``file`` is the settings file, empty without one.
    """

    settings: Settings
    properties: Properties
    trees: tuple[ChosenTree, ...]
    is_named: bool
    file: str

    @property
    def bases(self) -> dict[str, str]:
        """The directories of attachments, each once, by name."""
        first = dict[str, str]()
        for name, base in self.bases_by_name:
            first.setdefault(base, name)
        return {name: base for base, name in first.items()}

    @property
    def bases_by_name(self) -> list[tuple[str, str]]:
        """The names and paths of the directories of attachments; several names may have the same path."""
        found = ((attachments_name(each.name), base_of(each)) for each in self.properties.attachment_providers)
        return [(name, base) for name, base in found if base is not None]

    def tree_of(self, form: Form, kind: str = DATA) -> ChosenTree:
        """Return the tree of the data of a form, or of its definition: as an option says, else the properties."""
        if self.is_named:
            return self.trees[0]
        route = self.properties.of(form).route
        provider, subject = (route.definition, "definition") if kind == FORM else (route.data, "data")
        place = place_of(provider, self.settings.roots)
        if place is None:
            raise errors.NotSupportedError(
                f"the {subject} of {form} is with another service, {provider.uri}: look there"
            )
        return next(each for each in self.trees if each.place == place)

    def records_of(self, form: Form, place: str | Bucket) -> str | None:
        """Return the tree or database with the records of a form's bodies in a directory or bucket.

        It is empty if another service has them, and ``None`` if the properties lead to another place.
        """
        with suppress(errors.ConfigurationError, errors.StartupError):  # the form has no provider any more
            route = self.properties.of(form).route
            if route.attachments is not None and (route.attachments.place or base_of(route.attachments)) == place:
                return place_of(route.data, self.settings.roots) or ""
        return None


def choose_trees(*, datasource: str | None = None, **options: Any) -> TreeChoice:
    """Return the tree that the options name, else all trees of the settings. Datasource "" is the default one."""
    effective = load(**options)
    roots = effective.settings.roots
    is_named = datasource is not None or options.get("data") is not None
    if datasource and datasource not in roots.named:
        raise click.UsageError(f"the settings have no datasource {datasource!r}")
    trees = all_trees(effective)
    if is_named:
        place = roots.named[datasource] if datasource else roots.default
        trees = (replace(trees[0], name=tree_name(datasource or ""), place=place),)
    return TreeChoice(effective.settings, effective.properties, trees, is_named, effective.file)


def _permitted(choice: TreeChoice) -> AbstractContextManager[None]:
    """Let a command with a second key remove revisions, where they are only added."""
    return removing() if second_key_name(choice.settings) else nullcontext()


TREES = Opened("choice", (_ONLY_DATA, _DATASOURCE, _CONFIG, _DIALECT), choose_trees, _permitted)
"""The trees and databases of the settings, or the one that an option names."""
SETTINGS = Opened("effective", (_DATA, _CONFIG, _DIALECT), load)
"""The settings and properties in force, for all other commands."""
ADDRESS = Opened("effective", (_CONFIG, _DIALECT), read_settings)
"""Settings and properties, for commands that have another option for the place that they work on."""


def unread(place: Opened) -> Opened:
    """Return a place whose options a command reads itself, as its argument ``options``."""
    return Opened("options", place.options, dict)


def all_trees(effective: Effective) -> tuple[ChosenTree, ...]:
    roots = effective.settings.roots
    names = {roots.default: ""}
    for name, place in roots.named.items():
        names.setdefault(place, name)
    for provider in effective.properties.form_providers:
        if provider.kind in DATABASES:
            names.setdefault(provider.uri, provider.name)
    return tuple(
        ChosenTree(effective.settings, effective.properties, tree_name(name), place) for place, name in names.items()
    )


def choose_data(choice: TreeChoice, path: str | None) -> tuple[tuple[ChosenTree, ...], Form | None, int | None]:
    """Return the chosen trees, or that of the data of ``path``: a form, maybe with a version."""
    if path is None:
        return choice.trees, None, None
    form, version = form_and_version(path)
    return (choice.tree_of(form),), form, version


def encryption_remark(settings: Settings, properties: Properties, wanted: Iterable[str] | None = None) -> str | None:
    try:
        keys = open_encryption_keys(settings, properties)
    except errors.StartupError:  # no service starts with such a file, and says why
        return None
    return records.remark(settings.home, settings.encryption_keys, keys, wanted)


def say_where(effective: Effective, name: str) -> None:
    """Say on standard error where a file of keys is, if its path is the default: the service may use another one."""
    if not effective.file and effective.origins[name] == "default":
        path = getattr(effective.settings, name)
        say_error(f"persistence: without a settings file here, it is {path}: --config names the service's")


def on_each(trees: Sequence[ChosenTree], work: Callable[[ChosenTree, str], int], *, is_anywhere: bool = False) -> int:
    """Do ``work`` on each tree; return the worst exit status.

    If there are several trees, ``work`` gets a prefix for its lines, the name of the tree. A tree that cannot be used
    is then reported on standard error, and the others are worked on all the same. With ``is_anywhere``, what is in one
    of the trees may be missing in others.
    """
    statuses, unknown = list[int](), list[errors.NotFoundError]()
    for tree in trees:
        try:
            owner.require_closed(tree.settings.home_of(tree.place))
            statuses.append(work(tree, f"{tree.name}: " if len(trees) > 1 else ""))
        except errors.PersistenceError as error:
            if is_anywhere and isinstance(error, errors.NotFoundError):
                unknown.append(error)
            elif len(trees) == 1:
                raise
            else:
                say_failed(tree.name, error)
                statuses.append(FAILED)
    if unknown and len(unknown) == len(trees):
        raise unknown[0]
    return worst(statuses)


def say_failed(name: str, error: errors.PersistenceError) -> None:
    say_error(f"persistence: {name}: {errors.one_line(str(error))}")


def at_rest(settings: Settings, properties: Properties, router: Router) -> EncryptionAtRest:
    return EncryptionAtRest(router, DIALECTS[settings.dialect], open_encryption_keys(settings, properties))


def chosen_forms(found: list[Form], form: Form | None) -> list[Form]:
    if form is not None and form not in found:
        raise errors.NotFoundError(f"{form} does not exist")
    return found if form is None else [form]


def count_documents(storage: Storage, forms: Iterable[Form]) -> int:
    return sum(1 for form in forms for _ in storage.documents_and_drafts(form))


@contextmanager
def reading(tree: ChosenTree) -> Iterator[TreeReader]:
    """Open a place for reports, for a block; nothing is changed."""
    if not tree.is_database:
        yield tree.reader()
        return
    with tree.managing() as place:
        yield reader_of(tree, place)


def reader_of(tree: ChosenTree, place: OpenedPlace) -> TreeReader:
    router = place.providers.router
    return TreeReader(place.storage, None, tree.properties, lambda form: router.of(form).catalog)


def form_names(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the forms, as APP/FORM, that begin with the typed text; empty if they cannot be read."""
    options = {name: context.params.get(name) for name in PLACES}
    try:
        trees = [tree for tree in choose_trees(**options).trees if not tree.is_database]
        found = (str(form) for tree in trees for form in tree.reader().store.forms())
        return sorted(set(islice((name for name in found if name.startswith(incomplete)), 1000)))  # nobody reads more
    except (errors.PersistenceError, click.ClickException, OSError):  # the command itself will say so
        return []


WITH_DATA: Literal["with-data"] = "with-data"
"""The value of the option for attachments that come to their data."""

Attachments = Bucket | Literal["with-data"]


def attachments_option(text: str, *, takes_directory: bool = False, takes_word: bool = True) -> Option:
    """Return the option ``--attachments``; the value of a directory is its absolute path.

    Without ``takes_word`` the word with-data is a directory.
    """
    instead = f"; or {WITH_DATA}" if takes_word else ""

    def place(value: str) -> Attachments | str:
        if takes_word and value == WITH_DATA:
            return WITH_DATA
        if takes_directory and "://" not in value:
            return os.path.realpath(value)
        try:
            return parse_addressed_bucket(value)
        except errors.BadRequestError as error:
            raise click.BadParameter(f"{error}{instead}") from error

    metavar = f"{'DIR|' if takes_directory else ''}s3://BUCKET/PREFIX{f'|{WITH_DATA}' if takes_word else ''}"
    return click.option("--attachments", metavar=metavar, type=place, help=text)


def open_attachments(
    settings: Settings, properties: Properties, location: str, given: Attachments | None
) -> Bodies | None:
    """Open the place for the attachments of the tree or database ``location``; ``None`` if they come to their data.

    A place of a provider is in the store of that provider, unless the option names another endpoint or region.
    """
    if not isinstance(given, Bucket):
        return None
    place, known = given, buckets_of(properties)
    if not place.endpoint and not place.region:
        place = next((each for each in known if str(each) == str(place)), place)
    for each in known:
        if place.meets(each) and str(each) != str(place):
            raise click.UsageError(f"{place} overlaps {each}: each place needs a prefix of its own")
    # A service with that storage finds the notes there.
    there = msgspec.structs.replace(with_calls_of_a_move(settings), data=location)
    bodies = bucket_bodies(there, keeps_all)(place)
    next(bodies.objects.listed(), None)  # refused now, and not after the first document
    return bodies
