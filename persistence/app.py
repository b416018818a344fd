"""The application factory: settings become store, services and blueprints. The only wiring."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from flask import Flask

from persistence import settings as configuration
from persistence.dialect import DIALECTS
from persistence.encryption.keys import EncryptionKeys
from persistence.errors import DamagedError, DiskError, PersistenceError, StartupError
from persistence.http import callers, failures, health, logs
from persistence.http.attachments import AttachmentLists
from persistence.http.callers import CallersOnly, Policy
from persistence.http.contents import Contents
from persistence.http.crud import Crud
from persistence.http.datasources import Datasources, ServicesOf
from persistence.http.forms import Forms
from persistence.http.forwarding import Forwarding
from persistence.http.logs import RequestLog
from persistence.http.names import header_names
from persistence.http.parsing import RequestParser
from persistence.http.paths import CleanPaths
from persistence.http.proxied import ProxiedParser, unknown_paths
from persistence.http.publish import Publish
from persistence.http.reencrypt import Reencrypt
from persistence.http.reindex import Reindex
from persistence.http.responses import ResponseHeaders
from persistence.http.search import Search
from persistence.index.forms import FORGETFUL
from persistence.index.index import Index
from persistence.index.indexer import Indexer
from persistence.keys import Keys
from persistence.model import peers
from persistence.model.addresses import Form
from persistence.model.holders import PUBLIC_PREFIX
from persistence.places import (
    Place,
    PlaceOf,
    base_of,
    bases_of,
    check,
    elsewhere,
    everywhere,
    root_of,
    with_attachments,
)
from persistence.properties.properties import Properties
from persistence.properties.providers import Provider
from persistence.remote.client import Limits
from persistence.service.controls import Controls
from persistence.service.encrypting import Encrypting
from persistence.service.reencrypting import Reencryption
from persistence.service.reencryption_jobs import Job, Reencrypts
from persistence.services import Remotes, Wiring, index_of, memory_of, pending_in, place_of_tree
from persistence.settings import Settings
from persistence.store.bodies import FileBodies
from persistence.store.holding import Holding
from persistence.store.observing import NOBODY, Observer
from persistence.store.routed import RoutedStorage, RoutedView
from persistence.store.storage import Bodies, Storage
from persistence.store.store import Store

_GUNICORN_GIVES_UP = 4


def create_app(
    settings: Settings | None = None, properties: Properties | None = None, policy: Policy | None = None
) -> Flask:
    """The WSGI application; without settings those of the file and the environment, as ``gunicorn`` wants it.

    With settings and without properties, these are the shipped ones. ``policy`` is what ``policy_of`` said when the
    service started, else what it says now.

    Raises:
        StartupError: the data directory cannot be used, or nobody could call.
        SystemExit: without settings, with status 4, at which gunicorn stops instead of starting workers anew.
    """
    if settings is not None:
        shipped = Properties.load({}, DIALECTS[settings.dialect].property_prefix)
        return _wire(settings, properties or shipped, policy or policy_of(settings))
    try:
        loaded = configuration.load()
        policy = policy_of(loaded.settings)
        warn_of_properties(loaded.properties)
        warn_of(probe(loaded.settings, loaded.properties))
        return _wire(loaded.settings, loaded.properties, policy)
    except PersistenceError as error:
        sys.stderr.write(f"persistence: {error}\n")
        sys.exit(_GUNICORN_GIVES_UP)


def open_store(settings: Settings, root: str, observer: Observer = NOBODY) -> Store:
    """The store of the tree of a root; ``observer`` hears which documents are changed through it."""
    return Store(root, lock_timeout=settings.lock_timeout, observer=observer)


def open_index(settings: Settings, properties: Properties, root: str) -> Index:
    """The index of the tree of a root, for whoever changes no documents."""
    there = elsewhere(root, properties, settings.roots)
    return index_of(root, DIALECTS[settings.dialect], properties, pending_in(root), there)


def probe(settings: Settings, properties: Properties) -> str | None:
    """Try out every tree; returns what keeps the service from writing into one of them for now.

    Raises:
        StartupError: one cannot be used, or a provider has no place.
        BusyError: one is being restored or upgraded.
        DiskError: one cannot be prepared.
    """
    check(properties, settings.roots)
    for base in bases_of(properties):
        FileBodies(base)
    found = [open_store(settings, root).probe() for root in settings.roots]
    return next((cause for cause in found if cause is not None), None)


def open_keys(settings: Settings) -> Keys:
    """The API keys of the settings."""
    return Keys(settings.keys, tree=settings.data)


def open_encryption_keys(settings: Settings, properties: Properties) -> EncryptionKeys:
    """The keys of encryption at rest of the settings, and the real system's passwords of the properties.

    Raises:
        StartupError: they lie in a data directory, or those of the environment are none.
    """
    return EncryptionKeys(
        settings.encryption_keys,
        trees=(*settings.roots, *bases_of(properties)),
        given=settings.encryption_key,
        passwords=properties.passwords,
    )


def policy_of(settings: Settings) -> Policy:
    """Who may call, by the settings and whether there are keys now.

    Raises:
        StartupError: nobody could, or the keys cannot be read.
    """
    try:
        has_keys = not settings.insecure and bool(open_keys(settings).read())
    except (DiskError, DamagedError) as error:
        raise StartupError(str(error)) from error
    return callers.policy(
        peers.parse(settings.trusted),
        insecure=settings.insecure,
        on_loopback=peers.binds_loopback(settings.bind),
        has_keys=has_keys,
    )


def warn_of(cause: str | None) -> None:
    """Say what keeps the service from writing; what is stored can be read all the same."""
    if cause is not None:
        sys.stderr.write(f"persistence: only reading for now: {cause}\n")


def warn_of_properties(properties: Properties) -> None:
    """Say which properties of the file are not acted on."""
    for entry in properties.without_effect:
        sys.stderr.write(f"persistence: the property {entry} has no effect in this version\n")
    for entry in properties.without_form:
        sys.stderr.write(f"persistence: the property {entry} has no effect: no form has that provider\n")


def _wire(settings: Settings, properties: Properties, policy: Policy) -> Flask:
    # Nothing is tried out here: a worker that starts anew on a full disk must be able to go on reading.
    logs.configure()
    dialect, roots = DIALECTS[settings.dialect], settings.roots
    check(properties, roots)
    wiring = Wiring(dialect, properties, settings.admin)
    trees = {root: _open_tree(settings, properties, root) for root in roots}
    places = {root: tree.place for root, tree in trees.items()}

    def place_of(provider: Provider) -> Place:
        return remotes[provider.name] if provider.is_remote else places[root_of(provider, roots)]

    calling = _calling(settings, properties, place_of)
    remotes = {each.name: calling.place(each) for each in properties.form_providers if each.is_remote}

    bodies = {base: FileBodies(base) for base in bases_of(properties)}

    def bodies_of(provider: Provider, main: Storage) -> Bodies:
        return calling.bodies(provider, main) if provider.is_remote else bodies[base_of(provider)]

    data_of = with_attachments(properties, place_of, bodies_of)
    memory = memory_of(roots.default)
    own = {
        root: wiring.of_provider(place, place_of, FORGETFUL if roots.named else memory)
        for root, place in places.items()
    }
    keys = open_encryption_keys(settings, properties)
    stored = RoutedStorage(everywhere(properties, lambda provider: place_of(provider).storage, data_of))
    vault = Encrypting(stored, dialect, properties, Controls(stored), keys)
    public = wiring.of_all(place_of, stored, vault, memory)

    def job_of(form: Form, version: int | None) -> Job:
        root = root_of(properties.of(form).route.data, roots)

        def reindex(form: Form) -> None:
            for number in stored.versions(form):
                trees[root].place.reindexing.version(form, number)

        return Job(Reencryption(trees[root].store, vault), root, form, version, reindex)

    parser = RequestParser(dialect)
    named = {name: own[root] for name, root in roots.named.items()}
    proxied = ProxiedParser(dialect) if dialect.has_proxy else parser
    faces: tuple[tuple[str, str, ServicesOf, RequestParser], ...] = (
        ("public", PUBLIC_PREFIX, lambda: public, parser),
        ("provider", "", Datasources(parser, own[roots.default], named), proxied),
    )
    contents = Contents(trees[roots.default].store, settings.accel_redirect)
    headers = ResponseHeaders(header_names(dialect))
    app = Flask("persistence", static_folder=None)
    app.url_map.merge_slashes = False  # CleanPaths has merged them; a redirect would lose a PUT's body
    failures.register(app, dialect)
    for name, prefix, services, of_resources in faces:
        crud = Crud(services, dialect, of_resources, headers, contents, settings.max_body)
        app.register_blueprint(crud.blueprint(name, prefix))
        app.register_blueprint(Forms(services, parser).blueprint(f"{name}-forms", prefix))
        app.register_blueprint(Search(services, parser).blueprint(f"{name}-search", prefix))
        app.register_blueprint(Reindex(services, parser).blueprint(f"{name}-reindex", prefix))
    reencrypts = Reencrypts(tuple(roots), job_of, _log_not_reencrypted)
    app.register_blueprint(Reencrypt(reencrypts, parser).blueprint("public-reencrypt", PUBLIC_PREFIX))
    if dialect.has_proxy:
        app.register_blueprint(unknown_paths())
    app.register_blueprint(Publish(public.publishing, dialect, parser).blueprint())
    app.register_blueprint(AttachmentLists(public.attachments, parser).blueprint())
    written: list[health.Stored] = [*(tree.store for tree in trees.values()), *bodies.values()]
    app.register_blueprint(health.blueprint(written, min_free=settings.min_free))
    served = CleanPaths(app.wsgi_app)
    admitted = CallersOnly(Forwarding(served) if remotes else served, policy, open_keys(settings))
    app.wsgi_app = RequestLog(admitted)  # type: ignore[method-assign]  # how Flask documents middleware
    return app


def _calling(settings: Settings, properties: Properties, place_of: PlaceOf) -> Remotes:
    """What calls other services have in common; their locks and spool are in the default tree."""

    def of_data(form: Form) -> Storage:
        return place_of(properties.of(form).route.data).storage

    seen = RoutedView(everywhere(properties, lambda provider: place_of(provider).storage, of_data))
    limits = Limits(settings.remote_connect, settings.remote_timeout, settings.remote_calls)
    holding = Holding(settings.roots.default, lock_timeout=settings.lock_timeout)
    return Remotes(DIALECTS[settings.dialect], properties, limits, holding, seen)


@dataclass(frozen=True, slots=True)
class _Tree:
    store: Store
    place: Place


def _open_tree(settings: Settings, properties: Properties, root: str) -> _Tree:
    """A tree that is served: what changes in it is taken in from now on."""
    dialect, pending = DIALECTS[settings.dialect], pending_in(root)
    index = index_of(root, dialect, properties, pending, elsewhere(root, properties, settings.roots))
    indexer = Indexer(index, pending, _log_given_up)
    store = open_store(settings, root, indexer)
    indexer.start()
    return _Tree(store, place_of_tree(store, index, dialect, properties))


def open_reencryption(settings: Settings, properties: Properties, observer: Observer) -> Reencryption:
    """What encrypts the default tree anew; ``observer`` hears of it. Definitions may be in any tree."""
    dialect, roots = DIALECTS[settings.dialect], settings.roots
    check(properties, roots)
    stores = {root: open_store(settings, root, observer) for root in roots}

    def store_of(provider: Provider) -> Store:
        return stores[root_of(provider, roots)]

    stored = RoutedStorage(everywhere(properties, store_of, lambda form: store_of(properties.of(form).route.data)))
    keys = open_encryption_keys(settings, properties)
    return Reencryption(stores[roots.default], Encrypting(stored, dialect, properties, Controls(stored), keys))


def _log_not_reencrypted(form: Form, cause: str) -> None:
    logs.write("not-reencrypted", is_error=True, form=str(form), cause=cause)


def _log_given_up(form: Form | None, error: Exception) -> None:
    if form is None:
        logs.write("index-fault", is_error=True, exc_info=error)
    else:
        logs.write("index-given-up", is_error=True, form=str(form), cause=str(error))
