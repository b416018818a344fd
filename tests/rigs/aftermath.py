"""A disturbed request: what a client finds before it and after it, what is left, and how the next write goes."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from email.utils import parsedate_to_datetime
from functools import partial
from http import HTTPStatus
from pathlib import Path, PurePosixPath

from persistence.model.texts import parse_instant, to_datetime
from persistence.storage.layout import INDEX
from tests import search_faults
from tests.commands import persistence
from tests.rigs import scenarios
from tests.rigs.judging import changes, key_of
from tests.rigs.scenarios import (
    AGAIN,
    NEXT,
    WRITTEN,
    Chain,
    Moment,
    Resource,
    Scenario,
    Step,
    lease_probe,
    lease_told,
    send,
)
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


Views = Mapping[Resource, View]


@dataclass(frozen=True, slots=True)
class Kept:
    path: str
    instant: str
    etag: str
    body: bytes


def seen(service: Service, form: str, resources: Iterable[Resource]) -> dict[Resource, View]:
    return {resource: _view(service, form, resource) for resource in resources}


def _view(service: Service, form: str, resource: Resource) -> View:
    if resource.is_lease:
        answer = send(service, form, lease_probe(resource.path))
        is_held = answer.status == HTTPStatus.LOCKED
        return View(200, lease_told(answer), {}) if is_held else View(answer.status, b"", {})
    return view_of(send(service, form, Step("GET", resource.path, version=resource.version)))


def view_of(answer: Answer) -> View:
    """What two reads of one revision have in common."""
    headers = {name.lower(): value for name, value in answer.headers.items()}
    return View(answer.status, answer.body, {name: headers[name] for name in sorted(headers.keys() - _OF_THE_ANSWER)})


@dataclass(frozen=True, slots=True)
class Comparison:
    """What was found after a request that may have been killed, beside what was there before and what should be."""

    before: Views
    found: Views
    reference: Views

    def committed(self, scenario: Scenario) -> list[bool]:
        return [self._is_new(moment[0]) for chain in scenario.chains for moment in chain]

    def unfinished(self, scenario: Scenario) -> Iterator[Resource]:
        """What has not changed yet, although what goes before it in its chain has."""
        for chain in scenario.chains:
            if self._is_new(chain[0][0]):
                yield from (resource for moment in chain for resource in moment if not self._is_new(resource))

    def faults(self, scenario: Scenario) -> Iterator[str]:
        """Everything that is neither as before nor as after."""
        for chain in scenario.chains:
            yield from self._chain_faults(chain)
        begun = [self._is_new(chain[0][0]) for chain in scenario.chains]
        if scenario.in_order and begun != sorted(begun, reverse=True):
            yield f"{scenario.chains[-1][0][0].path} has changed before {scenario.chains[0][0][0].path}"
        for resource in scenario.unchanged:
            if self.found[resource] != self.before[resource]:
                yield f"{resource.path} has changed: {_shown(self.found[resource])}"

    def _chain_faults(self, chain: Chain) -> Iterator[str]:
        for moment in chain:
            yield from self._moment_faults(moment)
        new = [self._is_new(moment[0]) for moment in chain]
        if new != sorted(new, reverse=True):
            yield f"{chain[-1][0].path} has changed before {chain[0][0].path}"

    def _moment_faults(self, moment: Moment) -> Iterator[str]:
        if len({self._is_new(resource) for resource in moment}) > 1:
            yield f"only a part of {[resource.path for resource in moment]} has changed"
        for resource in moment:
            if self._is_new(resource):
                yield from self._new_faults(resource)
            elif self.found[resource] != self.before[resource]:
                yield f"{resource.path} is neither old nor new: {_shown(self.found[resource])}"

    def _is_new(self, resource: Resource) -> bool:
        found, reference = self.found[resource], self.reference[resource]
        return found.status == reference.status and found.content == reference.content

    def _new_faults(self, resource: Resource) -> Iterator[str]:
        before, found, reference = self.before[resource], self.found[resource], self.reference[resource]
        if found.content is None or resource.is_lease:
            return
        if found.lasting != reference.lasting:
            yield f"{resource.path} has other headers than the request gives: {_shown(found)}"
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


def kept_of(views: Views) -> Iterator[Kept]:
    """The revisions of form data that were found, to be looked up by their instants later."""
    for resource, view in views.items():
        if view.content is not None and resource.path.startswith("data/") and not resource.is_lease:
            yield Kept(resource.path, view.headers["svc-last-modified"], view.headers["etag"], view.content)


def history_faults(service: Service, form: str, kept: Iterable[Kept], found: Views) -> Iterator[str]:
    """What of the older revisions cannot be read; attachments of a document that is gone cannot be asked for."""
    gone = {PurePosixPath(one.path).parent for one, view in found.items() if _is_main(one) and view.content is None}
    for revision in kept:
        path = PurePosixPath(revision.path)
        if path.name != "data.xml" and path.parent in gone:
            continue
        answer = send(service, form, Step("GET", f"{revision.path}?last-modified-time={revision.instant}"))
        if (answer.status, answer.body, answer["ETag"]) != (200, revision.body, revision.etag):
            yield f"{revision.path} of {revision.instant} is answered {answer.status}: {answer.body[-40:]!r}"


def _is_main(resource: Resource) -> bool:
    return resource.path.endswith("/data.xml") and not resource.is_lease


def _shown(view: View) -> str:
    return f"{view.status} {dict(view.headers)} {view.body[-40:]!r}"


# A request that is to be disturbed, and what comes after it.

_REPAIRED = (0, 3)
"""Exit codes of ``persistence check --repair``: nothing found but notices, or everything repaired."""
_COMPLETED = {"DELETE": (200, 204, 410), "POST": (201, 204)}
"""Requests whose repetition completes them, and how it may be answered."""
_OWN = (".spool", ".trash")


@dataclass(frozen=True, slots=True)
class Scene:
    """A form in which a request is to be disturbed: what was acknowledged there, and what a client finds before."""

    form: str
    scenario: Scenario
    kept: tuple[Kept, ...]
    before: Views

    def told(self, step: Step) -> Step:
        """A step with the instant of the first revision of the document, where it asks for that."""
        if "@" not in step.path:
            return step
        instants = [revision.instant for revision in self.kept if revision.path.endswith("/data.xml")]
        return replace(step, path=step.path.replace("@", instants[0]))

    def known(self, found: Views) -> tuple[Kept, ...]:
        return tuple(dict.fromkeys((*self.kept, *kept_of(found))))

    def ask(self, service: Service) -> Answer:
        return send(service, self.form, self.told(self.scenario.step))


def prepared(service: Service, form: str, scenario: Scenario) -> Scene:
    """Make everything ready: the form has an index, and everything has been looked at.

    A worker that meets its first definition makes calls that it makes only once, and they would be among those of the
    request in one case and not in another.
    """
    kept = kept_by(scenario, partial(send, service, form))
    if scenario.unindexed:  # as somebody may remove it: the next change is the first to be noted
        search_faults.await_index(service, form)
        shutil.rmtree(service.data / INDEX)
    search_faults.await_index(service, form)
    return Scene(form, scenario, kept, seen(service, form, scenario.resources))


def kept_by(scenario: Scenario, ask: Callable[[Step], Answer]) -> tuple[Kept, ...]:
    """Make what a scenario has before its request, and return the revisions of form data that were stored for it."""
    kept = []
    for step in scenario.prepare:
        answer = ask(step)
        assert answer.status in (200, 201, 204), answer.cause
        if step.method == "PUT" and step.path.startswith("data/"):
            kept.append(Kept(step.path, answer["Svc-Last-Modified"] or "", answer["ETag"] or "", step.body))
    return tuple(kept)


def expected(service: Service, scene: Scene) -> Views:
    """What a client finds after a request that nothing has disturbed, which is what the scenario says."""
    after = seen(service, scene.form, scene.scenario.resources)
    for resource, view in after.items():
        assert view.content == resource.after, f"{resource.path} is not what the request should give"
    return after


def written_again(service: Service, scene: Scene, found: Views) -> Iterator[str]:
    """Write every resource of the request once more: everything wrong with that, and with older revisions then.

    ``found`` is what a client found before that.
    """
    for step in scene.scenario.again:
        yield from _step_faults(service, scene, found, step)
    now = seen(service, scene.form, scene.scenario.resources)
    yield from history_faults(service, scene.form, scene.known(found), now)


def remaining(service: Service, scene: Scene, *, may_be_left: Sequence[str] = ()) -> Iterator[str]:
    yield from search_faults.faults(service, scene.form, WRITTEN, AGAIN)
    yield from (f"the next write leaves {text}" for text in left(service.data, scene.form) if text not in may_be_left)


def repaired(service: Service, scenes: Sequence[tuple[Scene, Comparison]]) -> list[list[str]]:
    """Let ``check --repair`` go over all of them while the service runs: what is wrong with each of them then."""
    faults = []
    for options, good in ((("--repair",), _REPAIRED), ((), (0,))):
        done = persistence("check", *options, data=service.data)
        if done.returncode not in good:
            faults.append(f"check {' '.join(options)} ends with {done.returncode}: {done.stdout}{done.stderr}")
    return [[*faults, *_changes(service, *scene)] for scene in scenes]


def _step_faults(service: Service, scene: Scene, found: Views, step: Step) -> Iterator[str]:
    if step.method in {"LOCK", "UNLOCK"}:
        yield from _lease_faults(service, scene, step)
        return
    was_there = _content(service, scene, Resource(step.path, None, None, step.version)) is not None
    answer = send(service, scene.form, scene.told(step))
    if step.method in _COMPLETED:
        yield from _completion_faults(service, scene, answer, _COMPLETED[step.method])
        return
    if answer.status not in (201, 204):
        yield f"PUT {step.path} is answered {answer.status}: {answer.cause}"
        return
    version = answer["Svc-Form-Definition-Version"]
    published = (view for one, view in found.items() if one.path == "form/form.xhtml" and view.content is not None)
    latest = max((int(view.headers["svc-form-definition-version"]) for view in published), default=0)
    if step.version == "next" and version != str(latest + 1):
        yield f"next is version {version} after version {latest}"
    written = Resource(step.path, None, NEXT, version)
    view = seen(service, scene.form, [written])[written]
    if view.content != NEXT or view.headers["etag"] != answer["ETag"]:
        yield f"{step.path} is not what was written afterwards"
    if not step.path.startswith("form/") and answer.status != (204 if was_there else 201):
        yield f"{step.path} is answered {answer.status}"
    if step.path.startswith("data/") and step.path.endswith("/data.xml"):
        draft = step.path.replace("data/", "draft/", 1)
        if _content(service, scene, Resource(draft, None, None)) is not None:
            yield f"the next write leaves {draft}"


def _lease_faults(service: Service, scene: Scene, step: Step) -> Iterator[str]:
    answer = send(service, scene.form, step)
    if answer.status != 200:
        yield f"{step.method} is answered {answer.status}: {answer.cause}"
    if _content(service, scene, Resource(step.path, None, None, is_lease=True)) != scenarios.lease_after(step):
        yield f"the lease is not what the {step.method} gives that comes next"
    if step.method == "LOCK" and (status := send(service, scene.form, scenarios.others_write(step.path)).status) != 423:
        yield f"a write by somebody else is answered {status}"


def _completion_faults(service: Service, scene: Scene, answer: Answer, good: tuple[int, ...]) -> Iterator[str]:
    if answer.status not in good:
        yield f"the repeated request is answered {answer.status}: {answer.cause}"
    for resource, view in seen(service, scene.form, scene.scenario.resources).items():
        if view.content != resource.after:
            yield f"the repeated request leaves {resource.path}"


def _content(service: Service, scene: Scene, resource: Resource) -> bytes | None:
    return seen(service, scene.form, [resource])[resource].content


def _changes(service: Service, scene: Scene, comparison: Comparison) -> Iterator[str]:
    """What a check may not do: change what a client finds, but for completing what was committed, or leave anything."""
    now = seen(service, scene.form, scene.scenario.resources)
    to_complete = set(comparison.unfinished(scene.scenario))
    for resource, view in now.items():
        if resource in to_complete:
            if view.content != resource.after:
                yield f"check leaves {resource.path}"
        elif view != comparison.found[resource]:
            yield f"check changes {resource.path}: {view}"
    yield from history_faults(service, scene.form, scene.known(comparison.found), now)
    yield from search_faults.faults(service, scene.form, WRITTEN)
    yield from (f"check leaves {text}" for text in left(service.data, scene.form, but_leases=True))


def left(data: Path, form: str, *, but_leases: bool = False) -> list[str]:
    """Everything below a form that a whole write does not leave, and everything in the store's own directories.

    What a killed LOCK leaves is in nobody's way, and the next one replaces it: ``check --repair`` removes it only when
    it is so old that nobody can be at work on it (``but_leases``).
    """
    found = [str(path) for name in _OWN for path in (data / name).iterdir()]
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
