"""A disturbed request: what a client finds before it and after it, what is left, and how the next write goes."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from pathlib import Path, PurePosixPath

from persistence.model.texts import parse_instant, to_datetime
from persistence.storage.layout import INDEX
from tests import search_faults
from tests.commands import persistence
from tests.rigs import scenarios
from tests.rigs.judging import changes, key_of
from tests.rigs.scenarios import Resource, Scenario, Step, Stored
from tests.service import Answer, Service

_OF_THE_ANSWER = {"date", "x-request-id", "server", "connection"}
_OF_THE_REVISION = {"etag", "last-modified", "svc-last-modified", "created", "svc-created", "svc-form-definition-app"}
_VERSION = "svc-form-definition-version"
_ETAG = re.compile(r'"[0-9a-f]{40}"')


@dataclass(frozen=True, slots=True)
class View:
    """An answer to a read: status, content, and the headers in small letters that do not belong to the answer alone."""

    status: int
    body: bytes
    headers: Mapping[str, str]

    @property
    def content(self) -> bytes | None:
        return self.body or None if self.status == 200 else None

    @property
    def lasting(self) -> dict[str, str]:
        """The headers that the same request made twice gives twice."""
        return {name: value for name, value in self.headers.items() if name not in _OF_THE_REVISION}

    def __str__(self) -> str:
        return f"{self.status} {dict(self.headers)} {self.body[-40:]!r}"


Views = Mapping[Resource, View]


def view_of(answer: Answer) -> View:
    """What two reads of one revision have in common."""
    headers = {name.lower(): value for name, value in answer.headers.items()}
    return View(answer.status, answer.body, {name: headers[name] for name in sorted(headers.keys() - _OF_THE_ANSWER)})


@dataclass(frozen=True, slots=True)
class Comparison:
    """What was found after a request that may have been killed, beside what was there before and what should be."""

    scenario: Scenario
    before: Views
    found: Views
    reference: Views

    @property
    def committed(self) -> list[bool]:
        return [self._is_new(moment[0]) for chain in self.scenario.chains for moment in chain]

    def unfinished(self) -> Iterator[Resource]:
        """What has not changed yet, although what goes before it in its chain has."""
        for chain in self.scenario.chains:
            if self._is_new(chain[0][0]):
                yield from (resource for moment in chain for resource in moment if not self._is_new(resource))

    def faults(self) -> Iterator[str]:
        """Everything that is neither as before nor as after."""
        chains = self.scenario.chains
        for moment in (moment for chain in chains for moment in chain):
            if len({self._is_new(resource) for resource in moment}) > 1:
                yield f"only a part of {[resource.path for resource in moment]} has changed"
            for resource in moment:
                if self._is_new(resource):
                    yield from self._new_faults(resource)
                elif self.found[resource] != self.before[resource]:
                    yield f"{resource.path} is neither old nor new: {self.found[resource]}"
        orders = [*chains, tuple(chain[0] for chain in chains)] if self.scenario.in_order else chains
        for moments in orders:
            new = [self._is_new(moment[0]) for moment in moments]
            if new != sorted(new, reverse=True):
                yield f"{moments[-1][0].path} has changed before {moments[0][0].path}"
        for resource in self.scenario.unchanged:
            if self.found[resource] != self.before[resource]:
                yield f"{resource.path} has changed: {self.found[resource]}"

    def _is_new(self, resource: Resource) -> bool:
        found, reference = self.found[resource], self.reference[resource]
        return found.status == reference.status and found.content == reference.content

    def _new_faults(self, resource: Resource) -> Iterator[str]:
        before, found, reference = self.before[resource], self.found[resource], self.reference[resource]
        if found.content is None or resource.is_lease:
            return
        if found.lasting != reference.lasting:
            yield f"{resource.path} has other headers than the request gives: {found}"
        if not _ETAG.fullmatch(found.headers["etag"]) or found.headers["etag"] == before.headers.get("etag"):
            yield f"{resource.path} has the entity tag {found.headers['etag']}, of another content"
        if not before.headers.get("svc-last-modified", "") < found.headers["svc-last-modified"]:
            yield f"{resource.path} is not younger than what it replaces"
        same = before.headers.get(_VERSION) == found.headers[_VERSION]
        if same and before.headers["svc-created"] != found.headers["svc-created"]:
            yield f"{resource.path} was created at another time than before"
        for name in ("last-modified", "created"):
            exact = to_datetime(parse_instant(found.headers[f"svc-{name}"])).replace(microsecond=0)
            if parsedate_to_datetime(found.headers[name]) != exact:
                yield f"{resource.path} has two different instants for {name}"


@dataclass(frozen=True, slots=True)
class Kept:
    """A revision of form data, to be looked up by its instant later."""

    path: str
    instant: str
    etag: str
    body: bytes


_DONE = {"PUT": (201, 204), "POST": (201, 204), "DELETE": (200, 204, 410), "LOCK": (200,), "UNLOCK": (200,)}
"""How the next request may be answered: where it repeats one that was stopped, it completes that."""


@dataclass(frozen=True, slots=True)
class Scene:
    """A form in which a request is to be disturbed: what was acknowledged there, and what a client finds before."""

    service: Service
    form: str
    scenario: Scenario
    kept: tuple[Kept, ...] = ()
    before: Views = field(default_factory=dict)

    @classmethod
    def prepared(cls, service: Service, form: str, scenario: Scenario) -> Scene:
        """Make everything ready: the form has an index, and everything has been looked at.

        A worker that meets its first definition makes calls that it makes only once, and they would be among those of
        the request in one case and not in another.
        """
        scene = cls(service, form, scenario)
        kept = scene.keep(scene.send)
        if scenario.unindexed:  # as somebody may remove it: the next change is the first to be noted
            search_faults.await_index(service, form)
            shutil.rmtree(service.data / INDEX)
        search_faults.await_index(service, form)
        return replace(scene, kept=kept, before=scene.seen())

    def keep(self, ask: Callable[[Step], Answer]) -> tuple[Kept, ...]:
        """Make what the scenario has before its request, and return the revisions of data that were stored for it."""
        kept = []
        for step in self.scenario.prepare:
            answer = ask(step)
            assert answer.status in (200, 201, 204), answer.cause
            if step.method == "PUT" and step.path.startswith("data/"):
                kept.append(Kept(step.path, answer["Svc-Last-Modified"] or "", answer["ETag"] or "", step.body))
        return tuple(kept)

    def send(self, step: Step) -> Answer:
        """Send a step, with the instant of the first revision of the document where it asks for that."""
        if "@" in step.path:
            instants = [revision.instant for revision in self.kept if revision.path.endswith("/data.xml")]
            step = replace(step, path=step.path.replace("@", instants[0]))
        return scenarios.send(self.service, self.form, step)

    def ask(self) -> Answer:
        return self.send(self.scenario.step)

    def seen(self, resources: Iterable[Resource] | None = None) -> dict[Resource, View]:
        return {each: self._view(each) for each in (self.scenario.resources if resources is None else resources)}

    def _view(self, resource: Resource) -> View:
        if not resource.is_lease:
            return view_of(self.send(Step("GET", resource.path, version=resource.version)))
        answer = self.send(scenarios.lease_probe(resource.path))
        is_held = answer.status == HTTPStatus.LOCKED
        return View(200, scenarios.lease_told(answer), {}) if is_held else View(answer.status, b"", {})

    def expected(self) -> Views:
        """What a client finds after a request that nothing has disturbed, which is what the scenario says."""
        after = self.seen()
        for resource, view in after.items():
            assert view.content == resource.after, f"{resource.path} is not what the request should give"
        return after

    def history_faults(self, found: Views, *more: Kept) -> Iterator[str]:
        """What of the older revisions cannot be read; attachments of a document that is gone cannot be asked for."""
        mains = [one for one in found if one.path.endswith("/data.xml") and not one.is_lease]
        gone = {PurePosixPath(one.path).parent for one in mains if found[one].content is None}
        for revision in dict.fromkeys((*self.kept, *more)):
            path = PurePosixPath(revision.path)
            if path.name != "data.xml" and path.parent in gone:
                continue
            answer = self.send(Step("GET", f"{revision.path}?last-modified-time={revision.instant}"))
            if (answer.status, answer.body, answer["ETag"]) != (200, revision.body, revision.etag):
                yield f"{revision.path} of {revision.instant} is answered {answer.status}: {answer.body[-40:]!r}"

    def written_again(self, found: Views) -> Iterator[str]:
        """Write every resource of the request once more: everything wrong with that, and with older revisions then.

        ``found`` is what a client found before that; from there the model says what each request changes.
        """
        stored = Stored(self.scenario.prepare, {resource: view.content for resource, view in found.items()})
        for step in self.scenario.again:
            yield from self._next_faults(step, stored)
        yield from self.history_faults(self.seen(), *self.kept_of(found))

    @staticmethod
    def kept_of(found: Views) -> Iterator[Kept]:
        for resource, view in found.items():
            if view.content is not None and resource.path.startswith("data/") and not resource.is_lease:
                yield Kept(resource.path, view.headers["svc-last-modified"], view.headers["etag"], view.content)

    def _next_faults(self, step: Step, stored: Stored) -> Iterator[str]:
        changed = [one for chain in stored.do(step) for moment in chain for one in moment]
        answer, what = self.send(step), f"the next {step.method} of {step.path}"
        is_written = step.method == "PUT"
        is_saved = is_written and not step.path.startswith("form/")
        if answer.status not in ((204 if changed[0].before else 201,) if is_saved else _DONE[step.method]):
            yield f"{what} is answered {answer.status}: {answer.cause}"
            return
        for resource, view in self.seen(changed).items():
            if view.content != resource.after:
                yield f"{what} leaves {resource.path}: {view}"
            elif is_written and resource.path == step.path and view.headers["etag"] != answer["ETag"]:
                yield f"{what} has another entity tag than is read"
        others = self.send(scenarios.others_write(step.path)).status if step.method == "LOCK" else HTTPStatus.LOCKED
        if others != HTTPStatus.LOCKED:
            yield f"a write by somebody else is answered {others}"

    def remaining(self, may_be_left: Iterable[str] = ()) -> Iterator[str]:
        yield from search_faults.faults(self.service, self.form, scenarios.WRITTEN, scenarios.AGAIN)
        found = left(self.service.data, self.form)
        yield from (f"the next write leaves {text}" for text in found if text not in may_be_left)

    def changes_by_check(self, comparison: Comparison) -> Iterator[str]:
        """What a check may not do: change what is found, but for completing what was committed, or leave anything."""
        now, to_complete = self.seen(), set(comparison.unfinished())
        for resource, view in now.items():
            if resource in to_complete:
                if view.content != resource.after:
                    yield f"check leaves {resource.path}"
            elif view != comparison.found[resource]:
                yield f"check changes {resource.path}: {view}"
        yield from self.history_faults(now, *self.kept_of(comparison.found))
        yield from search_faults.faults(self.service, self.form, scenarios.WRITTEN)
        yield from (f"check leaves {text}" for text in left(self.service.data, self.form, but_leases=True))


def repaired(service: Service) -> list[str]:
    """Let ``check --repair`` go over a tree while the service runs; then there is nothing to find."""
    faults = []
    for options, good in ((("--repair",), (0, 3)), ((), (0,))):
        done = persistence("check", *options, data=service.data)
        if done.returncode not in good:
            faults.append(f"check {' '.join(options)} ends with {done.returncode}: {done.stdout}{done.stderr}")
    return faults


def left(data: Path, form: str, *, but_leases: bool = False) -> list[str]:
    """Everything below a form that a whole write does not leave, and everything in the store's own directories.

    What a killed LOCK leaves is in nobody's way, and the next one replaces it: ``check --repair`` removes it only when
    it is so old that nobody can be at work on it (``but_leases``).
    """
    found = [str(path) for name in (".spool", ".trash") for path in (data / name).iterdir()]
    if not but_leases:
        found += _left_of_a_lease(lease(data, form.partition("/")[0]))
    for directory in (data / form).glob("*/**/"):
        if directory.parent != data / form:  # a collection may be empty
            found += _left_in(directory)
    return sorted(text.replace(f"{data}/", "") for text in found)


def lease(data: Path, document: str) -> Path:
    digest = hashlib.sha256(document.encode()).hexdigest()
    return data / ".leases" / digest[:2] / digest


def _left_of_a_lease(path: Path) -> Iterator[str]:
    for each in path.parent.glob(f"{path.name}*"):
        if each != path:
            yield f"{each} is temporary"
        elif json.loads(each.read_bytes()).get("document") is None:
            yield f"{each} is no lease"


def _left_in(directory: Path) -> Iterator[str]:
    entries = {path.name: path for path in directory.iterdir()}
    if not entries:
        yield f"{directory} is empty"
    for name, path in entries.items():
        if path.is_dir():
            if name.startswith(".") and name != ".history":
                yield f"{path} is a directory of no known use"
        elif name.startswith(".") or "~" in name:
            yield f"{path} is temporary"
        elif not name.endswith(".json"):
            if f"{name}.json" not in entries:
                yield f"{path} has no sidecar"
        else:
            yield from _of_sidecar(path, path.with_name(name.removesuffix(".json")))


def _of_sidecar(path: Path, content: Path) -> Iterator[str]:
    sidecar = json.loads(path.read_bytes())
    if sidecar.get("deleted"):
        if content.exists():
            yield f"{content} is deleted and there"
        if path.parents[1].name == "draft":
            yield f"{path} is a tombstone of a draft"
    elif not content.exists():
        yield f"{content} is missing"
    elif sidecar["digest"] != f"sha256:{hashlib.sha256(content.read_bytes()).hexdigest()}":
        yield f"{content} is not what its sidecar describes"


def event_faults(service: Service, forms: Iterable[str], patience: float = 0.0) -> dict[str, list[str]]:
    """Compare the feed with what was committed in forms: what is wrong with each after some seconds at most."""
    committed, ends = {form: _committed(service.data / form) for form in forms}, time.monotonic() + patience
    while True:
        shown = defaultdict[str, defaultdict[str, list[str]]](lambda: defaultdict(list))
        for change in changes(service):
            app, form, name = key_of(change)
            shown[f"{app}/{form}"][name].append(change["timestamp"])
        wrong = {form for form, instants in committed.items() if shown[form] != instants}
        if not wrong or time.monotonic() > ends:
            break
        time.sleep(0.1)
    return {
        form: [f"the events are {dict(shown[form])}, and the revisions {instants}"] if form in wrong else []
        for form, instants in committed.items()
    }


def _committed(form: Path) -> dict[str, list[str]]:
    """The instants of all revisions on disk of each document and each version of the definition."""
    found = defaultdict[str, set[str]](set)
    for collection, name in (("data", "data.xml"), ("form", "form.xhtml")):
        for pattern in (f"{collection}/*/{name}.json", f"{collection}/*/.history/*.{name}.json"):
            for path in form.glob(pattern):
                found[path.relative_to(form).parts[1]].add(json.loads(path.read_bytes())["modified"])
    return {name: sorted(instants) for name, instants in found.items()}
