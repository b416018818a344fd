"""The keys: those of callers, those that sign access tokens, and those of encryption at rest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import urlencode

from flask import render_template, request, url_for
from markupsafe import Markup

from persistence import processors
from persistence.audit.audit_log import seals
from persistence.audit.verification import NewestLines, newest, outcome_of, subject_of
from persistence.crypto.encryption_keys import EncryptionKeys
from persistence.errors import BadRequestError, NotFoundError
from persistence.keys import SCOPES, WITHOUT_KEYS, Keys, Scope, distinct_forms, expires_after, require_name
from persistence.limits import AUDIT_LINES_SHOWN
from persistence.maintenance import findings
from persistence.maintenance.findings import LastBackup, LastCheck, last
from persistence.metrics.instruments import Span
from persistence.metrics.service import Metrics
from persistence.model import instants
from persistence.model.instants import next_after
from persistence.pages.health_page import BackgroundCommand
from persistence.pages.page_files import KeyUses, RecentErrors
from persistence.pages.site import ROOT, Action, Done, Question, Site, Values
from persistence.pages.svg_plots import Series, line_plot
from persistence.properties.properties import ProviderProperties
from persistence.providers.locations import effective_properties, effective_settings, served_locations, shown_location
from persistence.providers.opened import Providers
from persistence.settings import Effective, Settings

_PLOTTED = 3600.0
_MILLISECONDS = 1000
_LONGEST_GAP = 60.0
"""Seconds between two samples that are not joined by a line."""


@dataclass(frozen=True, slots=True)
class OverviewPage:
    """The page. ``metrics`` are ``None`` where the service does not count."""

    effective: Effective
    providers: Providers
    keys: Keys
    metrics: Metrics | None
    errors: RecentErrors
    at_rest: EncryptionKeys

    def add_to(self, site: Site) -> None:
        site.page(ROOT, "overview", self.show, "Overview")

    def show(self) -> str:
        spaces = {space.place: space for space in self.providers.free_space()}
        served = served_locations(self.effective.settings, self.effective.properties)
        home = self.effective.settings.home
        return render_template(
            "overview.html",
            facts=list(self._facts()),
            places=[(place, spaces.get(place.address)) for place in served],
            shortage=self.providers.shortage(),
            lacking=findings.remark(home, self.effective.settings.encryption_keys, self.at_rest),
            last_check=last(home, LastCheck),
            last_backup=last(home, LastBackup),
            reindexing=self.providers.router.reindexing_status(),
            plots=[] if self.metrics is None else _plots(self.metrics.spans(_PLOTTED)),
            errors=self.errors.newest(),
        )

    def _facts(self) -> Iterator[tuple[str, str]]:
        settings = self.effective.settings
        yield "Dialect", settings.dialect
        yield "Address", ", ".join(settings.binds)
        yield "Workers", f"{processors.workers(settings.workers)}, with {settings.threads} threads each"
        keys = len(self.keys.read())
        who = [f"callers with one of {keys} API keys" if keys > 1 else "callers with the API key"] if keys else []
        who += [f"without a key {', '.join(settings.trusted)}"] if settings.trusted else []
        everybody = "everybody" if settings.insecure else "every program of this machine, until there is an API key"
        yield "May call", everybody if settings.insecure or not who else ", ".join(who)
        yield "Audit", settings.audit_file if settings.audit == "file" else settings.audit


def _plots(spans: Sequence[Span]) -> list[Markup]:
    if not spans:
        return []
    shown = list(_with_gaps(spans))
    times = (spans[0].at, (spans[0].at + spans[-1].at) / 2, spans[-1].at)
    labels = list(dict.fromkeys(datetime.fromtimestamp(at, UTC).strftime("%H:%M") for at in times))
    rate = Series("requests", [None if each is None else each.rate for each in shown])
    errors = Series("errors", [None if each is None else each.error_rate for each in shown])
    rates = [rate, errors] if any(errors.values) else [rate]
    half = Series("half of the requests", [None if each is None else _ms(each.median) for each in shown])
    most = Series("95 of 100 requests", [None if each is None else _ms(each.slow) for each in shown])
    return [
        line_plot("Requests per second", rates, labels),
        line_plot("Latency", [half, most], labels, "ms"),
    ]


def _with_gaps(spans: Sequence[Span]) -> Iterator[Span | None]:
    before = spans[0].at
    for span in spans:
        if span.at - before > _LONGEST_GAP:
            yield None
        yield span
        before = span.at


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * _MILLISECONDS


@dataclass(frozen=True, slots=True)
class ShownProvider:
    """A provider of forms or attachments: where it keeps them, and whether it is asked where all are."""

    name: str
    keeps: str
    place: str
    is_active: bool


@dataclass(frozen=True, slots=True)
class SettingsPage:
    """The page. It changes nothing: settings are in a file, and the service reads them again on SIGHUP."""

    effective: Effective

    def add_to(self, site: Site) -> None:
        site.page("/admin/settings", "settings", self.show, "Settings")

    def show(self) -> str:
        properties = self.effective.properties
        providers = [self._shown(each, "forms") for each in properties.form_providers]
        providers += [self._shown(each, "attachments") for each in properties.attachment_providers]
        return render_template(
            "settings.html",
            file=self.effective.file,
            settings=list(effective_settings(self.effective)),
            properties=list(effective_properties(self.effective)),
            providers=providers,
        )

    def _shown(self, provider: ProviderProperties, keeps: str) -> ShownProvider:
        place = shown_location(provider, self.effective.settings.roots, is_of_forms=keeps == "forms")
        return ShownProvider(provider.name, keeps, place, provider.is_active)


_DAY = 86_400.0
_DATE = 10
_MOST_DIGITS = 5
_NAMED = "The setting administrators names it: it may export, import and purge, and sign in here."
_LIMITED = "The setting administrators names it, but a limited key opens no pages, and stays within its limits."


@dataclass(frozen=True, slots=True)
class KeysPage:
    """The page and its actions. ``administrators`` are the keys that the setting names."""

    keys: Keys
    administrators: frozenset[str]
    uses: KeyUses
    at_rest: EncryptionKeys

    def add_to(self, site: Site) -> None:
        site.page("/admin/keys", "keys", self.show, "Keys")
        site.action(Action("api-key-new", self._ask_to_add, self._add, ("name", "days", "scope", "forms")))
        site.action(Action("api-key-retire", self._ask_to_retire, self._retire, ("name",)))
        site.action(Action("signing-key-new", _ask_to_sign, self._add_signing))
        site.action(Action("signing-key-retire", self._ask_to_retire_signing, self._retire_signing, ("id",)))
        site.action(Action("encryption-key-new", _ask_for_encryption, self._new))

    def show(self) -> str:
        ring, made = self.at_rest.ring(), {each.id: each.created for each in self.at_rest.list()}
        return render_template(
            "keys.html",
            keys=self.keys.read(),
            used=self.uses.last(),
            administrators=self.administrators,
            passwords=self.keys.passwords(),
            signing=self.keys.signing(),
            encryption=[(each, made.get(each, ""), each == ring.writing) for each in ring.keys],
            are_given=self.at_rest.are_given,
        )

    def _ask_to_add(self, values: Values) -> Question:
        name = values["name"]
        require_name(name, "a key")
        scopes, forms = _scopes(values), _forms(values)
        effects = [f"The log and the audit call the holder of the new key {name}."]
        end = expires_after(next_after(None), _lifetime(values))
        effects.append("It does not expire." if end is None else f"It expires on {end[:_DATE]}.")
        if scopes:
            effects.append("It may only read: what it sends changes nothing.")
        if forms:
            effects.append(f"It may call for these forms or applications only: {', '.join(forms)}.")
        if name in self.administrators:
            effects.append(_LIMITED if scopes or forms else _NAMED)
        if not self.keys.read():
            effects.append("It is the first key: from now on, callers who are not trusted need one.")
        return Question(f"Make the API key {name}?", tuple(effects), "Make the key", _back())

    def _add(self, values: Values, _by: str) -> Done:
        secret = self.keys.add(values["name"], _lifetime(values), _scopes(values), _forms(values))
        return Done(f"The API key {values['name']} is made", _back(), secret=secret)

    def _ask_to_retire(self, values: Values) -> Question:
        name, known = values["name"], {key.name: key for key in self.keys.read()}
        if name not in known:
            raise NotFoundError(f"there is no key {name}")
        effects = ["Programs that call with it are refused from now on. It cannot be brought back."]
        if name in self.administrators and not known[name].is_limited:
            effects.append("The setting administrators names it: sessions that it has begun end at once.")
        if known.keys() == {name}:
            effects.append(f"It is the last key: {WITHOUT_KEYS}.")
        return Question(f"Retire the API key {name}?", tuple(effects), "Retire the key", _back(), is_dangerous=True)

    def _retire(self, values: Values, _by: str) -> Done:
        self.keys.remove(values["name"])
        return Done(f"The API key {values['name']} is retired.", _back())

    def _add_signing(self, _values: Values, _by: str) -> Done:
        return Done(f"The key {self.keys.add_signing()} signs access tokens from now on.", _back())

    def _ask_to_retire_signing(self, values: Values) -> Question:
        key_id = values["id"]
        if not any(key.id == key_id for key in self.keys.signing()):
            raise NotFoundError(f"there is no signing key {key_id}")
        effects = ("Access tokens that it has signed are refused from now on.",)
        return Question(f"Retire the signing key {key_id}?", effects, "Retire the key", _back(), is_dangerous=True)

    def _retire_signing(self, values: Values, _by: str) -> Done:
        self.keys.remove_signing(values["id"])
        return Done(f"The signing key {values['id']} is retired.", _back())

    def _new(self, _values: Values, _by: str) -> Done:
        made = self.at_rest.new()
        return Done(f"The encryption key {made} is made. Make a copy of its file, and keep it apart.", _back())


def _lifetime(values: Values) -> float | None:
    days = values["days"]
    if days and not (days.isascii() and days.isdecimal() and len(days) <= _MOST_DIGITS):
        raise BadRequestError("days is a number of days")
    return int(days) * _DAY if days else None


def _scopes(values: Values) -> tuple[Scope, ...]:
    found = tuple(each for each in SCOPES if each == values["scope"])
    if values["scope"] and not found:
        raise BadRequestError(f"the scope of a key is {' or '.join(SCOPES)}, or none")
    return found


def _forms(values: Values) -> tuple[str, ...]:
    return distinct_forms(each for line in values["forms"].splitlines() if (each := line.strip()))


def _ask_to_sign(_values: Values) -> Question:
    effects = (
        "Access tokens are signed with the new key from now on.",
        "Tokens that other keys have signed stay valid until they expire, or until their key is retired.",
    )
    return Question("Make a key that signs access tokens?", effects, "Make the key", _back())


def _ask_for_encryption(_values: Values) -> Question:
    effects = (
        "New data is encrypted with the new key. The keys before it stay, for reading.",
        "The file of these keys must be backed up, apart from the data: without it, what is encrypted is lost.",
    )
    return Question("Make an encryption key?", effects, "Make the key", _back())


def _back() -> str:
    return url_for("pages.keys")


_FILTERS = ("user", "key", "action", "app", "form", "document")
_LARGEST = 18
"""Digits of the number of a line."""


@dataclass(frozen=True, slots=True)
class AuditPage:
    """The page, and the action that verifies."""

    settings: Settings
    keys: Keys
    verification: BackgroundCommand

    def add_to(self, site: Site) -> None:
        site.page("/admin/audit", "audit", self.show, "Audit")
        site.action(Action("audit-verify", self._ask, self._verify))

    def show(self) -> str:
        asked = {name: request.args.get(name, "").strip() for name in (*_FILTERS, "since", "before")}
        found, problem = None, self._absence()
        if not problem:
            try:
                found = self._found(asked)
            except NotFoundError:
                problem = "There are no lines yet."
            except BadRequestError as error:
                problem = str(error)
        lines = found.lines if found else ()
        query = urlencode({**asked, "before": found.older}) if found and found.older else ""
        older = f"{url_for('pages.audit')}?{query}" if query else ""
        return render_template(
            "audit.html",
            asked=asked,
            rows=[{"place": subject_of(each), "outcome": outcome_of(each), **each} for each in lines],
            problem=problem,
            older=older,
            verified=self.verification.output(),
            can_verify=self.settings.audit == "file",
        )

    def _absence(self) -> str:
        kind = self.settings.audit
        if kind == "off":
            return 'The audit is off. The setting audit = "file" begins one.'
        return "" if kind == "file" else f"The audit goes to {kind}: look for its lines there."

    def _found(self, asked: Values) -> NewestLines:
        wanted = {name: asked[name] for name in _FILTERS if asked[name]}
        since = instants.from_datetime(instants.parse_time(asked["since"], "since")) if asked["since"] else ""
        before = asked["before"]
        if before and not (before.isascii() and before.isdecimal() and len(before) <= _LARGEST):
            raise BadRequestError("before is the number of a line")
        path, seal_of = self.settings.audit_file, seals(self.keys)
        return newest(path, seal_of, wanted, since=since, before=int(before or 0), most=AUDIT_LINES_SHOWN)

    def _ask(self, _values: Values) -> Question:
        if self._absence():
            raise NotFoundError(self._absence())
        effects = "All lines are read, and compared with their chain. Nothing is changed."
        return Question("Verify the audit?", (effects,), "Verify it", url_for("pages.audit"))

    def _verify(self, _values: Values, _by: str) -> Done:
        self.verification.begin(["verify"])
        return Done("The audit is being verified.", url_for("pages.audit"))
