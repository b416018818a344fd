"""The application factory: settings become services, and blueprints that call them."""

from __future__ import annotations

import atexit
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from functools import partial

from persistence import settings as configuration
from persistence.audit.audit_log import AuditLog, open_audit
from persistence.closable import Closable, closed_after_error
from persistence.dialect import DIALECTS
from persistence.errors import DamagedError, DiskError, NotSupportedError, PersistenceError, StartupError
from persistence.http import application, logs
from persistence.http.application import (
    AllowedSites,
    CallersOnly,
    CleanRequests,
    ExactFlask,
    Forwarding,
    KeySetting,
    Policy,
    SecondKeys,
    ServedApi,
    Shared,
    api_blueprint,
)
from persistence.http.audit import RequestAudit
from persistence.http.form_routes import behind_proxy, designer, form_services, reindex_status, runtime
from persistence.http.logs import RequestLog, announce, choose
from persistence.http.parsing import RequestParser, environ_key, parsers
from persistence.http.responses import Contents, ResponseHeaders
from persistence.http.service_routes import about, administration, health
from persistence.keys import warnings_of
from persistence.maintenance import records
from persistence.metrics.service import Metrics
from persistence.model import network_addresses
from persistence.model.addresses import PUBLIC_PREFIX, SERVICE_PREFIX, Form
from persistence.pages.pages import add_pages
from persistence.pages.service_pages import KeyUses, RecentErrors
from persistence.pages.site import Administrators
from persistence.properties.properties import Properties
from persistence.providers.locations import open_encryption_keys, open_keys, own_directories
from persistence.providers.opened import Providers, PublicationServers, probe
from persistence.providers.router import Route
from persistence.providers.webhooks import Deliveries, poster
from persistence.services.apis import Services
from persistence.services.changes import ChangeFeed
from persistence.services.codec import EncryptionAtRest, EncryptionCodec
from persistence.services.definitions import Definitions, Publishing
from persistence.services.documents import Documents
from persistence.services.exporting import Export
from persistence.services.forced_deletes import PurgeOf, PurgeRequests
from persistence.services.importing import Importer, SpooledImports
from persistence.services.purging import StoragePurge
from persistence.services.reencryption import Reencryption, ReencryptionJob, ReencryptionJobs
from persistence.services.rules import Access, AccessTokens, AdministratorAccess, Issuing
from persistence.services.transforms import Duplicating
from persistence.settings import Effective, Settings

_GUNICORN_GIVES_UP = 4


class Service(ExactFlask, Closable):
    """The WSGI application, which owns everything behind it; a process that ends closes it."""

    def __init__(self, opened: ExitStack, settings: Settings) -> None:
        super().__init__(DIALECTS[settings.dialect])
        self.worker_memory = settings.worker_memory
        self.progress_timeout = settings.progress_timeout
        self.tick: Callable[[], None] = lambda: None
        self._opened = opened
        atexit.register(self.close)

    def close(self) -> None:
        """Close everything; requests that come nevertheless and would change or search something are answered 503."""
        atexit.unregister(self.close)
        self._opened.close()


def create_app(settings: Settings | None = None, properties: Properties | None = None) -> Service:
    """Return the WSGI application; without settings, by the file and the environment, as gunicorn wants it."""
    if settings is not None:
        shipped = Properties.load({}, DIALECTS[settings.dialect].property_prefix)
        origins = dict.fromkeys(Settings.__struct_fields__, "given")
        return wired(Effective(settings, origins, properties or shipped, ""), policy_of(settings))
    try:
        loaded = configuration.load()
        choose(loaded.settings.log_format, loaded.settings.log_level)
        policy = policy_of(loaded.settings)
        warn(loaded.settings, loaded.properties)
        return wired(loaded, policy)
    except PersistenceError as error:
        sys.stderr.write(f"persistence: {error}\n")
        sys.exit(_GUNICORN_GIVES_UP)


def policy_of(settings: Settings) -> Policy:
    try:
        has_keys = not settings.insecure and bool(open_keys(settings).read())
    except (DiskError, DamagedError) as error:
        raise StartupError(str(error)) from error
    return application.policy(
        network_addresses.parse_trusted(settings.trusted),
        insecure=settings.insecure,
        on_loopback=network_addresses.binds_loopback(settings.bind),
        has_keys=has_keys,
    )


def open_settled_audit(settings: Settings, properties: Properties) -> AuditLog:
    own = own_directories(settings, properties)
    return open_audit(settings, open_keys(settings), own, lambda cause: logs.write("audit-fault", "error", cause=cause))


def warn(settings: Settings, properties: Properties) -> None:
    """Say in the log what is wrong with keys, properties and places and does not keep the service from starting."""
    for cause in warnings_of(open_keys(settings), settings.administrators, settings.token_issuers):
        announce(cause, "warning")
    for entry in properties.without_effect:
        announce(f"the property {entry} has no effect in this version", "warning")
    for entry in properties.without_form:
        announce(f"the property {entry} has no effect: no form has that provider", "warning")
    if (fault := probe(settings, properties)) is not None:  # stored content can be read nevertheless
        announce(f"only reading for now: {fault}", "warning")


def warn_of_encryption_keys(settings: Settings, properties: Properties) -> None:
    """Note the encryption keys that are here, and say which are missing."""
    keys = open_encryption_keys(settings, properties)
    records.note_all(settings.home, keys)
    remark = records.remark(settings.home, settings.encryption_keys, keys)
    if remark is not None:
        announce(remark, "warning")


def wired(effective: Effective, policy: Policy) -> Service:
    settings, properties = effective.settings, effective.properties
    dialect = DIALECTS[settings.dialect]
    choose(settings.log_format, settings.log_level)
    keys = open_keys(settings)
    with ExitStack() as opened:
        providers = opened.enter_context(Providers(settings, properties, _log_given_up))
        keys_at_rest = open_encryption_keys(settings, properties)
        at_rest = EncryptionAtRest(providers.router, dialect, keys_at_rest)
        jobs = opened.enter_context(_reencryption_jobs(settings, providers, at_rest))
        audit = opened.enter_context(open_settled_audit(settings, properties))
        feed = _follow(opened, settings, providers)
        app = Service(opened.pop_all(), settings)
    administrators = Administrators(keys, frozenset(settings.administrators))
    with closed_after_error(app):
        request_audit = RequestAudit(audit, dialect, lambda form: properties.of(form).audits_reads)
        _route(app, settings, providers, at_rest, jobs, AccessTokens(keys.signing_secrets), request_audit, feed)
        metrics = _metrics(
            app, settings, providers, lambda: records.missing(records.needed(settings.home), keys_at_rest)
        )
        # The directory of the keys may be one that the service can only read.
        errors, uses = RecentErrors(settings.home), KeyUses(settings.home)
        add_pages(
            app, administrators, effective, providers, metrics, errors, uses, keys_at_rest, jobs, request_audit, feed
        )
        request_audit.look_after(app)
        count = app.tick

        def tick() -> None:
            count()
            records.note_all(settings.home, keys_at_rest)
            with suppress(PersistenceError):  # the keys cannot be read: every request says so
                uses.note(frozenset(key.name for key in keys.read()))

        app.tick = tick
        if settings.log_users:
            application.note_users(app, dialect)
    served = CleanRequests(app.wsgi_app, dialect, accepts_foreign=settings.foreign_headers != "refuse")
    sites = AllowedSites(settings.binds, settings.hosts, settings.origins)
    scrapers, bind = network_addresses.parse_trusted(settings.metrics_from), settings.admin_bind
    second = frozenset(settings.second_keys if settings.append_only else ())
    with_key = SecondKeys(served, environ_key(dialect.header("Second-Key")), keys, second) if second else served
    callees = Forwarding(with_key) if providers.calls_others or settings.publish_to else with_key
    admitted = CallersOnly(callees, policy, keys, sites, scrapers, bind, administrators.exist, uses.use)
    app.wsgi_app = RequestLog(admitted, None if metrics is None else metrics.requests.add, errors.add)  # type: ignore[method-assign]  # how Flask documents middleware
    return app


def _follow(opened: ExitStack, settings: Settings, providers: Providers) -> ChangeFeed:
    """Begin to number and deliver events, where they are recorded, and return their feed."""

    def report(target: str, cause: str) -> None:
        logs.write("event-not-delivered", "warning", target=target, cause=cause)

    places = [(each.outbox, each.storage) for each in providers.places.values() if each.outbox is not None]
    if places:
        opened.enter_context(Deliveries(settings, places, poster(settings), report))
    return opened.enter_context(ChangeFeed(providers.outboxes))


def _metrics(
    app: Service, settings: Settings, providers: Providers, missing: Callable[[], Sequence[str]]
) -> Metrics | None:
    metrics = None
    if settings.metrics:
        try:
            metrics = Metrics(settings, providers, missing, open_keys(settings).next_expiry)
        except DiskError as error:
            logs.write("no-metrics", "error", cause=str(error))
        else:
            app.tick = metrics.tick
    app.register_blueprint(about(DIALECTS[settings.dialect], metrics))
    return metrics


def _route(  # noqa: PLR0913, PLR0917 - each is a thing that some route needs
    app: Service,
    settings: Settings,
    providers: Providers,
    at_rest: EncryptionAtRest,
    reencrypts_of_forms: ReencryptionJobs,
    access_tokens: AccessTokens,
    audit: RequestAudit,
    feed: ChangeFeed,
) -> None:
    dialect, router, codec = DIALECTS[settings.dialect], providers.router, EncryptionCodec(at_rest)
    access = Access(dialect, access_tokens)
    local = {provider: StoragePurge(provider.storage, providers.bodies_by_form) for provider in providers.local}

    def purge_of(route: Route) -> StoragePurge | None:
        return local.get(route.data)

    services = Services.public(router, access, settings.admin, codec, purge_of)
    shared = Shared(
        dialect,
        Contents(lambda read: providers.serving_link(read.found), settings.accel_redirect),
        settings.max_body,
        settings.largest_xml,
        KeySetting("administrators", frozenset(settings.administrators), may_be_trusted=True),
        KeySetting("token_issuers", frozenset(settings.token_issuers)),
        PurgeRequests(tuple(local.values()), purge_of, router),
        Documents(router, dialect, AdministratorAccess(dialect)),
        partial(Export, router, codec),
        SpooledImports(Importer(router, codec, settings.max_body, settings.largest_xml), providers.spooled),
        Issuing(router, access_tokens),
        Publishing(dialect, Documents(router, dialect, access), Definitions(router), PublicationServers(settings)),
        Duplicating(services.documents),
        reencrypts_of_forms,
        feed,
    )
    parser, proxied = parsers(dialect)
    public = ServedApi(shared, parser, ResponseHeaders(dialect), services)
    provider = _provider_api(settings, providers, shared, proxied, access, purge_of)
    of_public, of_provider = [runtime, administration], [runtime]
    if dialect.has_proxy:
        of_public.append(reindex_status)
        of_provider.append(behind_proxy)
    app.register_blueprint(api_blueprint("public", PUBLIC_PREFIX, public, audit, of_public))
    app.register_blueprint(api_blueprint("provider", "", provider, audit, of_provider))
    app.register_blueprint(api_blueprint("service", SERVICE_PREFIX, public, audit, (form_services,)))
    form = f"{SERVICE_PREFIX}/{dialect.designer}"
    app.register_blueprint(api_blueprint("designer", form, public, audit, (designer,)))
    remark = partial(records.remark, settings.home, settings.encryption_keys, at_rest.keys)
    app.register_blueprint(health(providers.shortage, remark))


def _provider_api(  # noqa: PLR0913, PLR0917 - as above
    settings: Settings, providers: Providers, shared: Shared, parser: RequestParser, access: Access, purge_of: PurgeOf
) -> ServedApi:
    of_places = {
        place: Services.of_provider(provider, providers.within(place), access, settings.admin, purge_of)
        for place, provider in providers.places.items()
    }
    named = {name: of_places[place] for name, place in settings.roots.named.items()}
    headers = ResponseHeaders(shared.dialect, is_behind_proxy=shared.dialect.has_proxy)
    return ServedApi(shared, parser, headers, of_places[settings.roots.default], named)


def _reencryption_jobs(settings: Settings, providers: Providers, at_rest: EncryptionAtRest) -> ReencryptionJobs:
    def job_of(form: Form, version: int | None) -> ReencryptionJob:
        route = providers.router.of(form)
        if route.data.storage.is_remote:
            raise NotSupportedError(f"the data of {form} is with another service, where nothing is re-encrypted")
        reencryption = Reencryption(route.data.storage, providers.bodies_by_form, at_rest)
        return ReencryptionJob(reencryption, form, version, partial(route.data.reindexer.version, number=None))

    def failed(form: Form, cause: str) -> None:
        logs.write("not-reencrypted", "error", form=str(form), cause=cause)

    records = [each.storage.reencryption for each in providers.local]
    return ReencryptionJobs(records, job_of, failed, is_append_only=settings.append_only)


def _log_given_up(form: Form | None, error: Exception) -> None:
    if form is None:
        logs.write("index-fault", "error", exception=error)
    else:
        logs.write("index-given-up", "error", form=str(form), cause=str(error))
