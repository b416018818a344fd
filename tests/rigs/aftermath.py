"""After a disturbed request: the next write of everything, or ``check --repair``; and that nothing is left then."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from persistence.storage.layout import INDEX
from tests import search_faults
from tests.commands import persistence
from tests.rigs import scenarios, views
from tests.rigs.scenarios import AGAIN, NEXT, WRITTEN, Resource, Scenario, Step, send
from tests.rigs.views import Comparison, Kept, Views
from tests.service import Answer, Service

_REPAIRED = (0, 3)
"""Exit codes of ``persistence check --repair``: nothing found but notices, or everything repaired."""
_COMPLETED = {"DELETE": (200, 204, 410), "POST": (201, 204)}
"""Requests whose repetition completes them, and how it may be answered."""
_HISTORY = ".history"
_SIDECAR = ".json"
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
        return tuple(dict.fromkeys((*self.kept, *views.kept_of(found))))

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
    return Scene(form, scenario, kept, views.seen(service, form, scenario.resources))


def kept_by(scenario: Scenario, ask: Callable[[Step], Answer]) -> tuple[Kept, ...]:
    """Make what a scenario has before its request, and return the revisions of form data that were stored for it."""
    kept = []
    for step in scenario.prepare:
        answer = ask(step)
        assert answer.status in (200, 201, 204), answer.cause
        if step.method == "PUT" and step.path.startswith("data/"):
            kept.append(Kept(step.path, answer["Svc-Last-Modified"] or "", answer["ETag"] or "", step.body))
    return tuple(kept)


def undisturbed(service: Service, scene: Scene) -> Views:
    """What a client finds when nothing disturbs the request: as the scenario says, and nothing is left over."""
    answer = scene.ask(service)
    assert answer.status in (200, 201, 204), answer.cause
    return expected(service, scene)


def expected(service: Service, scene: Scene) -> Views:
    after = views.seen(service, scene.form, scene.scenario.resources)
    for resource, view in after.items():
        assert view.content == resource.after, f"{resource.path} is not what the request should give"
    return after


def written_again(service: Service, scene: Scene, found: Views) -> Iterator[str]:
    """Write every resource of the request once more: everything wrong with that, and with older revisions then.

    ``found`` is what a client found before that.
    """
    for step in scene.scenario.again:
        yield from _step_faults(service, scene, found, step)
    now = views.seen(service, scene.form, scene.scenario.resources)
    yield from views.history_faults(service, scene.form, scene.known(found), now)


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
    view = views.seen(service, scene.form, [written])[written]
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
    for resource, view in views.seen(service, scene.form, scene.scenario.resources).items():
        if view.content != resource.after:
            yield f"the repeated request leaves {resource.path}"


def _content(service: Service, scene: Scene, resource: Resource) -> bytes | None:
    return views.seen(service, scene.form, [resource])[resource].content


def _changes(service: Service, scene: Scene, comparison: Comparison) -> Iterator[str]:
    """What a check may not do: change what a client finds, but for completing what was committed, or leave anything."""
    now = views.seen(service, scene.form, scene.scenario.resources)
    to_complete = set(comparison.unfinished(scene.scenario))
    for resource, view in now.items():
        if resource in to_complete:
            if view.content != resource.after:
                yield f"check leaves {resource.path}"
        elif view != comparison.found[resource]:
            yield f"check changes {resource.path}: {view}"
    yield from views.history_faults(service, scene.form, scene.known(comparison.found), now)
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
            if name.startswith(".") and name != _HISTORY:
                yield f"{path} is a directory of no known use"
        elif name.startswith(".") or "~" in name:
            yield f"{path} is temporary"
        elif not name.endswith(_SIDECAR):
            if f"{name}{_SIDECAR}" not in entries:
                yield f"{path} has no sidecar"
        else:
            yield from _of_sidecar(path, path.with_name(name.removesuffix(_SIDECAR)))


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
