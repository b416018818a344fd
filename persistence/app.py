"""The application factory: settings become store, services and blueprints. The only wiring."""

from __future__ import annotations

import sys

from flask import Flask

from persistence import settings as configuration
from persistence.dialect import DIALECTS
from persistence.errors import DamagedError, DiskError, PersistenceError, StartupError
from persistence.http import callers, failures, health, logs
from persistence.http.attachments import AttachmentLists
from persistence.http.callers import CallersOnly, Policy
from persistence.http.contents import Contents
from persistence.http.crud import Crud
from persistence.http.forms import Forms
from persistence.http.logs import RequestLog
from persistence.http.names import header_names
from persistence.http.parsing import RequestParser
from persistence.http.paths import CleanPaths
from persistence.http.publish import Publish
from persistence.http.reindex import Reindex
from persistence.http.responses import ResponseHeaders
from persistence.http.search import Search
from persistence.index.index import Index
from persistence.index.indexer import Indexer
from persistence.keys import Keys
from persistence.model import peers
from persistence.model.addresses import Form
from persistence.model.holders import PUBLIC_PREFIX
from persistence.properties.properties import Properties
from persistence.services import index_of, pending_in, services_of
from persistence.settings import Settings
from persistence.store.observing import NOBODY, Observer
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
        warn_of(open_store(loaded.settings).probe())
        return _wire(loaded.settings, loaded.properties, policy)
    except PersistenceError as error:
        sys.stderr.write(f"persistence: {error}\n")
        sys.exit(_GUNICORN_GIVES_UP)


def open_store(settings: Settings, observer: Observer = NOBODY) -> Store:
    """The store of the settings' data directory; ``observer`` hears which documents are changed through it."""
    return Store(settings.data, lock_timeout=settings.lock_timeout, observer=observer)


def open_index(settings: Settings, properties: Properties) -> Index:
    """The index of the settings' data directory, for whoever changes no documents."""
    return index_of(settings.data, DIALECTS[settings.dialect], properties, pending_in(settings.data))


def open_keys(settings: Settings) -> Keys:
    """The API keys of the settings."""
    return Keys(settings.keys, tree=settings.data)


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
    dialect = DIALECTS[settings.dialect]
    pending = pending_in(settings.data)
    index = index_of(settings.data, dialect, properties, pending)
    indexer = Indexer(index, pending, _log_given_up)
    store = open_store(settings, indexer)
    services = services_of(store, dialect, properties, settings.admin, index=index)
    indexer.start()
    parser = RequestParser(dialect)
    crud = Crud(
        definitions=services.definitions,
        documents=services.documents,
        dialect=dialect,
        parser=parser,
        headers=ResponseHeaders(header_names(dialect)),
        contents=Contents(store, settings.accel_redirect),
        max_body=settings.max_body,
    )
    faces = (
        ("forms", Forms(services.forms, parser)),
        ("search", Search(services.searching, parser)),
        ("reindex", Reindex(services.reindexing, parser)),
    )
    app = Flask("persistence", static_folder=None)
    app.url_map.merge_slashes = False  # CleanPaths has merged them; a redirect would lose a PUT's body
    failures.register(app, dialect)
    app.register_blueprint(crud.blueprint("public", PUBLIC_PREFIX))
    app.register_blueprint(crud.blueprint("provider", ""))
    app.register_blueprint(Publish(services.publishing, dialect, parser).blueprint())
    app.register_blueprint(AttachmentLists(services.attachments, parser).blueprint())
    for name, handlers in faces:
        app.register_blueprint(handlers.blueprint(f"public-{name}", PUBLIC_PREFIX))
        app.register_blueprint(handlers.blueprint(f"provider-{name}", ""))
    app.register_blueprint(health.blueprint(store, min_free=settings.min_free))
    admitted = CallersOnly(CleanPaths(app.wsgi_app), policy, open_keys(settings))
    app.wsgi_app = RequestLog(admitted)  # type: ignore[method-assign]  # how Flask documents middleware
    return app


def _log_given_up(form: Form | None, error: Exception) -> None:
    if form is None:
        logs.write("index-fault", is_error=True, exc_info=error)
    else:
        logs.write("index-given-up", is_error=True, form=str(form), cause=str(error))
