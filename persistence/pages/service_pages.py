"""The pages of the service: its overview with plots, its settings, its keys, its events, and its audit."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from http import HTTPStatus
from http.client import responses
from itertools import groupby, islice
from urllib.parse import urlencode

import msgspec
from flask import render_template, request, url_for
from markupsafe import Markup

from persistence import limits, processes
from persistence.audit.audit_log import seals
from persistence.audit.verification import Facts, NewestLines, newest, outcome_of, subject_of
from persistence.crypto import EncryptionKeys
from persistence.errors import BadRequestError, NotFoundError, PersistenceError
from persistence.keys import SCOPES, WITHOUT_KEYS, Keys, distinct_forms, expires_after, require_name, warnings_of
from persistence.maintenance import records
from persistence.maintenance.records import LastBackup, LastCheck, last
from persistence.metrics.service import Metrics, Span
from persistence.model.texts import next_after
from persistence.pages.health_page import BackgroundCommand
from persistence.pages.languages import translated
from persistence.pages.site import ROOT, Done, Question, Site, Values, midnight, time_zone
from persistence.providers import locations
from persistence.providers.opened import Providers
from persistence.providers.router import Route
from persistence.services.changes import ChangeFeed, facts_of, targets_of
from persistence.services.rules import permissions_of
from persistence.settings import Effective, Settings, Webhook
from persistence.storage import files, root
from persistence.storage.layout import PAGES, Layout
from persistence.storage.root import KeyFile


class RecentError(msgspec.Struct, frozen=True):
    """An answer as in the log; ``at`` is in seconds since the epoch."""

    at: float
    id: str
    method: str
    path: str
    status: int
    cause: str = ""


_decode_error = msgspec.json.Decoder(RecentError).decode


class RecentErrors:
    """The file of the newest errors, at most ``LARGEST_ERRORS`` bytes and a line."""

    def __init__(self, home: str) -> None:
        self._home = home
        self._path = f"{Layout(home).own(PAGES)}/errors.jsonl"

    def add(self, facts: Mapping[str, object]) -> None:
        method, path, cause = (str(facts.get(name, "")) for name in ("method", "path", "cause"))
        status = int(str(facts.get("status", 0)))
        error = RecentError(
            time.time(),
            str(facts["id"]),
            method[:16],
            path[: limits.LONGEST_DETAIL],
            status,
            cause[: limits.LONGEST_CAUSE],
        )
        with suppress(OSError):
            root.ensure_pages(self._home)
            with files.closing(files.open_shared(self._path, os.O_APPEND)) as descriptor:
                files.write_all(descriptor, msgspec.json.encode(error) + b"\n")
                is_large = os.fstat(descriptor).st_size > limits.LARGEST_ERRORS
            if is_large:  # two workers may do so at once, and lose a line
                kept = self._lines()[-limits.ERRORS_KEPT :]
                files.write_durably(self._path, b"".join(line + b"\n" for line in kept))

    def newest(self) -> list[RecentError]:
        """Return the answers, the newest first; empty if they cannot be read."""
        found = []
        with suppress(OSError):
            for line in reversed(self._lines()[-limits.ERRORS_KEPT :]):
                with suppress(msgspec.DecodeError, UnicodeError):  # two lines may have been written at once
                    found.append(_decode_error(line))
        return found

    def _lines(self) -> list[bytes]:
        try:
            return files.read_file(self._path).splitlines()
        except FileNotFoundError:
            return []


class _Uses(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Seconds since the epoch by the name of a key."""

    used: dict[str, float] = {}


class KeyUses:
    """The uses in a file of a home directory, and those of this worker. After a failure it waits a minute."""

    def __init__(self, home: str) -> None:
        path = f"{Layout(home).own(PAGES)}/key-uses.json"
        self._file = KeyFile(path, tree=home, what="uses of keys", nothing=_Uses())
        self._due: dict[str, float] = {}
        self._next = 0.0

    def use(self, name: str) -> None:
        self._due[name] = time.time()

    def note(self, known: frozenset[str]) -> None:
        """Write the uses if that is due; called about once a second. Only ``known`` keys are kept."""
        now = time.monotonic()
        if not self._due or now < self._next:
            return
        self._next = now + limits.KEY_USE_NOTED
        due, self._due = self._due, {}
        try:
            with self._file.changing() as noted:
                newest = {name: max(at, noted.used.get(name, 0.0)) for name, at in due.items()}
                used = {**noted.used, **newest}
                self._file.write(_Uses({name: at for name, at in used.items() if name in known}))
        except PersistenceError:
            for name, at in due.items():
                self._due.setdefault(name, at)

    def last(self) -> dict[str, float]:
        """Return the last use of each key in seconds since the epoch, with those that this worker has not written."""
        return {**self._file.read().used, **self._due}


WIDTH, HEIGHT = 600, 120  # The units of a drawing

_STEPS = (1, 2, 5, 10)
_BAR = 0.8  # Width of a bar, as a part of its place


Series = Mapping[str, Sequence[float | None]]
"""Values at equal distances, ``None`` for a gap, by the names in the legend of several."""


def line_plot(title: str, series: Series, labels: Sequence[str], unit: str = "") -> Markup:
    """Return a plot of lines; ``labels`` are a few texts below it, from the first value to the last."""
    top = _top(value for values in series.values() for value in values)
    runs = [_runs(values[-limits.MOST_PLOTTED :], top) for values in series.values()]
    return _rendered(title, series, labels, top, unit, runs=runs)


def bar_plot(title: str, values: Sequence[float], labels: Sequence[str]) -> Markup:
    """Return a plot of bars, one for each value; ``labels`` as for ``line_plot``."""
    values = values[-limits.MOST_PLOTTED :]
    top, place = _top(values), WIDTH / max(1, len(values))
    bars = [
        (place * (number + (1 - _BAR) / 2), HEIGHT - HEIGHT * value / top, place * _BAR, HEIGHT * value / top)
        for number, value in enumerate(values)
        if value > 0
    ]
    return _rendered(title, {"": values}, labels, top, "", bars=bars)


def _rendered(title: str, series: Series, labels: Sequence[str], top: float, unit: str, **drawn: object) -> Markup:
    text = render_template(
        "plot.html",
        title=title,
        names=list(series),
        labels=labels,
        scale=[_text(top, unit), _text(top / 2, unit), "0"],
        is_empty=all(value is None for values in series.values() for value in values),
        sentence="; ".join(_sentence(name, values, unit) for name, values in series.items()),
        width=WIDTH,
        height=HEIGHT,
        **drawn,
    )
    return Markup(text)  # noqa: S704 - a template has escaped it


def _top(values: Iterable[float | None]) -> float:
    highest = max((value for value in values if value is not None), default=0.0)
    if highest <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(highest))
    return next(step * power for step in (*_STEPS, 2 * _STEPS[-1]) if step * power >= highest)


def _runs(values: Sequence[float | None], top: float) -> list[list[tuple[float, float]]]:
    """Return the points of each run of values without a gap."""
    step = WIDTH / max(1, len(values) - 1)
    points = [
        None if value is None else (round(number * step, 1), round(HEIGHT - HEIGHT * value / top, 1))
        for number, value in enumerate(values)
    ]
    return [list(filter(None, run)) for is_known, run in groupby(points, bool) if is_known]


def _sentence(name: str, values: Sequence[float | None], unit: str) -> str:
    known = [value for value in values if value is not None]
    if not known:
        return f"{name} {translated('no values')}".strip()
    most, last = _text(max(known), unit), _text(known[-1], unit)
    return f"{name} {translated('at most {most}, last {last}', most=most, last=last)}".strip()


def _text(value: float, unit: str) -> str:
    return f"{value:,.4g}{f' {unit}' if unit else ''}"


_PLOTTED = 3600.0
_MILLISECONDS = 1000
_LONGEST_GAP = 60.0  # Seconds between two samples that are not joined by a line


@dataclass(frozen=True, slots=True)
class OverviewPage:
    """The page. ``metrics`` are ``None`` where the service does not count."""

    effective: Effective
    providers: Providers
    keys: Keys
    metrics: Metrics | None
    errors: RecentErrors
    at_rest: EncryptionKeys
    routes: Callable[[], Iterable[Route]]
    last_check: Callable[[], LastCheck | None]

    def add_to(self, site: Site) -> None:
        site.page(ROOT, "overview", self.show, "Overview")

    def show(self) -> str:
        spaces = {space.place: space for space in self.providers.free_space()}
        served = locations.served_locations(self.effective.settings, self.effective.properties)
        return render_template(
            "overview.html",
            warnings=list(self._warnings()),
            facts=list(self._facts()),
            places=[(place, spaces.get(place.address)) for place in served],
            last_check=self.last_check(),
            last_backup=last(self.effective.settings.home, LastBackup),
            reindexing=self.providers.router.reindexing_status(),
            plots=[] if self.metrics is None else _plots(self.metrics.spans(_PLOTTED)),
            errors=self.errors.newest(),
        )

    def _warnings(self) -> Iterator[tuple[str, str, str]]:
        """Yield what an administrator should do something about, with the page and its part that help."""
        settings, keys = self.effective.settings, self.keys.read()
        if shortage := self.providers.shortage():
            yield translated("The service cannot write: {cause}", cause=translated(shortage)), "overview", "served"
        if settings.insecure:
            yield (
                translated("Everybody who reaches the address may call: the setting insecure is true."),
                "settings",
                "settings",
            )
        elif not keys and not settings.trusted:
            yield translated("Every program of this machine may call, because there is no API key."), "keys", ""
        open_to_all = sum(map(_is_open, islice(self.routes(), limits.FORMS_COUNTED)))
        if open_to_all:
            one = "1 form has a version without permissions: every caller may read and change its data."
            several = "{count} forms have a version without permissions: every caller may read and change its data."
            yield translated(one if open_to_all == 1 else several, count=open_to_all), "forms", ""
        if settings.audit == "off":
            yield translated("Nobody records who changed what: the audit is off."), "settings", "settings"
        lacking = records.remark(settings.home, settings.encryption_keys, self.at_rest)
        named = warnings_of(self.keys, settings.administrators, settings.token_issuers)
        for text in map(translated, [lacking, *named] if lacking else named):
            yield f"{text[0].upper()}{text[1:]}.", "keys", ""

    def _facts(self) -> Iterator[tuple[str, str]]:
        settings = self.effective.settings
        yield "Dialect", settings.dialect
        yield "Address", ", ".join(settings.binds)
        yield (
            "Workers",
            translated(
                "{count}, with {threads} threads each",
                count=processes.workers(settings.workers),
                threads=settings.threads,
            ),
        )
        keys = len(self.keys.read())
        with_keys = "callers with one of {count} API keys" if keys > 1 else "callers with the API key"
        who = [translated(with_keys, count=keys)] if keys else []
        who += [translated("without a key {names}", names=", ".join(settings.trusted))] if settings.trusted else []
        everybody = "everybody" if settings.insecure else "every program of this machine, until there is an API key"
        yield "May call", translated(everybody) if settings.insecure or not who else ", ".join(who)
        yield "Audit", settings.audit_file if settings.audit == "file" else settings.audit


def _is_open(route: Route) -> bool:
    try:
        published = route.catalog.published(route.form, skips_damaged=True)
        return any(permissions_of(each, route.properties) is None for each in published)
    except PersistenceError:  # the service that has them does not answer
        return False


def _plots(spans: Sequence[Span]) -> list[Markup]:
    if not spans:
        return []
    shown, before = list[Span | None](), spans[0].at
    for span in spans:
        shown += [None] if span.at - before > _LONGEST_GAP else []
        shown.append(span)
        before = span.at
    times = (spans[0].at, (spans[0].at + spans[-1].at) / 2, spans[-1].at)
    labels = list(dict.fromkeys(datetime.fromtimestamp(at, time_zone()).strftime("%H:%M") for at in times))
    rates = {translated("requests"): [None if each is None else each.rate for each in shown]}
    if any(errors := [None if each is None else each.error_rate for each in shown]):
        rates[translated("errors")] = errors
    times_taken = {
        translated("median"): [None if each is None else _ms(each.median) for each in shown],
        translated("95th percentile"): [None if each is None else _ms(each.slow) for each in shown],
    }
    return [
        line_plot(translated("Requests per second"), rates, labels),
        line_plot(translated("Latency"), times_taken, labels, "ms"),
    ]


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * _MILLISECONDS


SUBJECTS: Mapping[str, Sequence[str]] = {
    subject: names.split()
    for subject, names in {
        "Where and how it serves": "data local bind admin_bind time_zone dialect workers threads gunicorn "
        "accel_redirect",
        "Who may call": "trusted keys insecure hosts origins foreign_headers administrators token_issuers "
        "publish_to admin",
        "Limits": "max_xml max_body lock_timeout min_free progress_timeout worker_memory remote_connect "
        "remote_timeout remote_calls",
        "Integrity and encryption": "hand_edits append_only second_keys second_key verify verify_up_to "
        "encryption_keys encryption_key",
        "Audit": "audit audit_file audit_required audit_sync audit_signed audit_size audit_days audit_keep "
        "audit_syslog",
        "Log": "log_format log_level log_users log_file",
        "Metrics": "metrics metrics_from",
        "Events": "events events_days webhook",
        "More trees": "datasource",
    }.items()
}  # The names of the settings by subject, as in docs/settings.md


def settings_page(effective: Effective) -> str:
    """Show the settings. Nothing is changed here: they are in a file, which the service reads again on SIGHUP."""
    properties, roots = effective.properties, effective.settings.roots
    shown = {each.name: each for each in locations.effective_settings(effective)}
    kept = [(each, "forms") for each in properties.form_providers]
    kept += [(each, "attachments") for each in properties.attachment_providers]
    # Its name, what it keeps and where, and whether it is asked where all are.
    providers = [
        (each.name, what, locations.shown_location(each, roots, is_of_forms=what == "forms"), each.is_active)
        for each, what in kept
    ]
    return render_template(
        "settings.html",
        file=effective.file,
        settings=[(name, *_own_first(shown[each] for each in names)) for name, names in SUBJECTS.items()],
        properties=_own_first(locations.effective_properties(effective)),
        providers=providers,
    )


def _own_first(values: Iterable[locations.ShownValue]) -> tuple[list[locations.ShownValue], list[locations.ShownValue]]:
    every = list(values)
    return [each for each in every if each.differs], [each for each in every if not each.differs]


_FILTERS = ("user", "key", "action", "app", "form", "document")
_OUTCOMES = {
    "begin": "begun",
    "done": "done",
    "failed": "failed",
    "interrupted": "interrupted",
    "status 1": "failed",
    "status 2": "failed: wrong usage",
    "status 3": "done: all that was found is repaired",
    "status 4": "incomplete: something is left or damaged",
    "status 5": "done: edits by hand are left",
}  # Outcomes of commands in words, as docs/cli.md has their exit statuses
_MOST_DIGITS = 18


def _number(text: str, refusal: str, most: int = _MOST_DIGITS) -> int | None:
    """Return the whole number in a field, of so many digits at most; ``None`` where the field is empty."""
    if text and not (text.isascii() and text.isdecimal() and len(text) <= most):
        raise BadRequestError(refusal)
    return int(text) if text else None


@dataclass(frozen=True, slots=True)
class AuditPage:
    """The page, and the action that verifies."""

    settings: Settings
    keys: Keys
    verification: BackgroundCommand

    def add_to(self, site: Site) -> None:
        site.page("/admin/audit", "audit", self.show, "Audit")
        site.action("audit-verify", self._verify)

    def show(self) -> str:
        asked = {name: request.args.get(name, "").strip() for name in (*_FILTERS, "since", "until", "before")}
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
            rows=[_row(each) for each in lines],
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
        since = midnight(asked["since"]) if asked["since"] else ""
        until = midnight(asked["until"], 1) if asked["until"] else ""
        number = _number(asked["before"], "before is the number of a line") or 0
        path, seal_of = self.settings.audit_file, seals(self.keys)
        return newest(path, seal_of, wanted, since=since, until=until, before=number, most=limits.AUDIT_LINES_SHOWN)

    def _verify(self, _values: Values) -> Question:
        if absence := self._absence():
            raise NotFoundError(absence)

        def do(_by: str) -> Done:
            self.verification.begin(["verify"])
            return Done("The audit is being verified.")

        effects = ("All lines are read, and compared with their chain. Nothing is changed.",)
        return Question("Verify the audit?", effects, "Verify it", url_for("pages.audit"), do)


def _row(facts: Facts) -> dict[str, object]:
    status, outcome = facts.get("status"), outcome_of(facts)
    if isinstance(status, int):
        text = "failed: {result}" if status >= HTTPStatus.INTERNAL_SERVER_ERROR else "refused: {result}"
        text = text if status >= HTTPStatus.BAD_REQUEST else "done"
        outcome = f"{status} {responses.get(status, '')}".rstrip()
    else:
        text = _OUTCOMES.get(outcome, "failed: {result}" if outcome.startswith("status ") else "{result}")
    result, is_bad = translated(text, result=outcome), text.startswith(("failed", "refused"))
    details = facts.get("details")
    given = details.items() if isinstance(details, dict) else ()
    texts = ((name, ", ".join(map(str, each)) if isinstance(each, list) else each) for name, each in given)
    said = "; ".join(name if text is True else f"{name} {text}" for name, text in texts)[: limits.LONGEST_VALUE]
    return {**facts, "place": subject_of(facts), "said": said, "outcome": result, "is_bad": is_bad}


@dataclass(frozen=True, slots=True)
class EventsPage:
    """The page and its actions. ``webhooks`` are those of the settings."""

    feed: ChangeFeed
    webhooks: Mapping[str, Webhook]

    def add_to(self, site: Site) -> None:
        site.page("/admin/events", "events", self.show, "Events")
        site.action("events-pause", partial(self._pause, is_paused=True), "datasource", "target")
        site.action("events-resume", partial(self._pause, is_paused=False), "datasource", "target")
        site.action("events-replay", self._replay, "datasource", "target", "after")

    def show(self) -> str:
        outboxes = [(name, self.feed.outbox(name)) for name in self.feed.datasources]
        places = [(name, facts_of(outbox), targets_of(outbox)) for name, outbox in outboxes]
        return render_template("events.html", places=places, webhooks=self.webhooks)

    def _pause(self, values: Values, *, is_paused: bool) -> Question:
        name = self._target(values)

        def do(_by: str) -> Done:
            self.feed.outbox(values["datasource"]).pause(name, is_paused=is_paused)
            text = "The delivery to {name} is paused." if is_paused else "The delivery to {name} goes on."
            return Done(translated(text, name=name))

        title = "Pause the delivery to {name}?" if is_paused else "Go on with the delivery to {name}?"
        effect = "Events are kept until they are too old." if is_paused else "The next event is delivered at once."
        button = "Pause" if is_paused else "Go on"
        return Question(translated(title, name=name), (effect,), button, url_for("pages.events"), do)

    def _replay(self, values: Values) -> Question:
        name, after = self._target(values), _number(values["after"], "the number of an event is a whole number")

        def do(_by: str) -> Done:
            number = self.feed.outbox(values["datasource"]).replay(name, after)
            return Done(translated("{name} gets the events after number {number} again.", name=name, number=number))

        effect = "It gets the events again from the first one on that was given up, in order."
        if after is not None:
            effect = translated("It gets all events after number {number} again, in order.", number=after)
        title = translated("Deliver events to {name} again?", name=name)
        return Question(title, (effect,), "Deliver again", url_for("pages.events"), do)

    def _target(self, values: Values) -> str:
        if all(each.name != values["target"] for each in targets_of(self.feed.outbox(values["datasource"]))):
            raise NotFoundError(f"nothing was delivered to {values['target']} yet")
        return values["target"]


_DAY = 86_400.0
_DATE = 10
_MOST_DIGITS_OF_DAYS = 5
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
        site.action("api-key-new", self._new, "name", "days", "scope", "forms")
        site.action("api-key-retire", self._retire, "name")
        site.action("signing-key-new", self._new_signing)
        site.action("signing-key-retire", self._retire_signing, "id")
        site.action("encryption-key-new", self._new_encryption)

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

    def _new(self, values: Values) -> Question:
        name = values["name"]
        require_name(name, "a key")
        scopes = tuple(each for each in SCOPES if each == values["scope"])
        if values["scope"] and not scopes:
            raise BadRequestError(f"the scope of a key is {' or '.join(SCOPES)}, or none")
        forms = distinct_forms(each for line in values["forms"].splitlines() if (each := line.strip()))
        days = _number(values["days"], "days is a number of days", _MOST_DIGITS_OF_DAYS)
        lifetime = None if days is None else days * _DAY
        effects = [translated("The log and the audit call the holder of the new key {name}.", name=name)]
        end = expires_after(next_after(None), lifetime)
        effects.append("It does not expire." if end is None else translated("It expires on {day}.", day=end[:_DATE]))
        if scopes:
            effects.append("It may only read: what it sends changes nothing.")
        if forms:
            of = ", ".join(forms)
            effects.append(translated("It may call for these forms or applications only: {forms}.", forms=of))
        if name in self.administrators:
            effects.append(_LIMITED if scopes or forms else _NAMED)
        if not self.keys.read():
            effects.append("It is the first key: from now on, callers who are not trusted need one.")

        def do(_by: str) -> Done:
            secret = self.keys.add(name, lifetime, scopes, forms)
            return Done(translated("The API key {name} is made", name=name), secret)

        return Question(translated("Make the API key {name}?", name=name), tuple(effects), "Make the key", _back(), do)

    def _retire(self, values: Values) -> Question:
        name, known = values["name"], {key.name: key for key in self.keys.read()}
        if name not in known:
            raise NotFoundError(f"there is no key {name}")
        effects = ["Programs that call with it are refused from now on. It cannot be brought back."]
        if name in self.administrators and not known[name].is_limited:
            effects.append("The setting administrators names it: sessions that it has begun end at once.")
        if known.keys() == {name}:
            effects.append(f"It is the last key: {WITHOUT_KEYS}.")

        def do(_by: str) -> Done:
            self.keys.remove(name)
            return Done(translated("The API key {name} is retired.", name=name))

        title = translated("Retire the API key {name}?", name=name)
        return Question(title, tuple(effects), "Retire the key", _back(), do, is_dangerous=True)

    def _new_signing(self, _values: Values) -> Question:
        effects = (
            "Access tokens are signed with the new key from now on.",
            "Tokens that other keys have signed stay valid until they expire, or until their key is retired.",
        )

        def do(_by: str) -> Done:
            return Done(translated("The key {name} signs access tokens from now on.", name=self.keys.add_signing()))

        return Question("Make a key that signs access tokens?", effects, "Make the key", _back(), do)

    def _retire_signing(self, values: Values) -> Question:
        key_id = values["id"]
        if not any(key.id == key_id for key in self.keys.signing()):
            raise NotFoundError(f"there is no signing key {key_id}")
        effects = ("Access tokens that it has signed are refused from now on.",)

        def do(_by: str) -> Done:
            self.keys.remove_signing(key_id)
            return Done(translated("The signing key {name} is retired.", name=key_id))

        title = translated("Retire the signing key {name}?", name=key_id)
        return Question(title, effects, "Retire the key", _back(), do, is_dangerous=True)

    def _new_encryption(self, _values: Values) -> Question:
        effects = (
            "New data is encrypted with the new key. The keys before it stay, for reading.",
            "The file of these keys must be backed up, apart from the data: without it, what is encrypted is lost.",
        )

        def do(_by: str) -> Done:
            text = "The encryption key {name} is made. Make a copy of its file, and keep it apart."
            return Done(translated(text, name=self.at_rest.new()))

        return Question("Make an encryption key?", effects, "Make the key", _back(), do)


def _back() -> str:
    return url_for("pages.keys")
