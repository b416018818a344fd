"""After a kill: the next write of everything, or ``check --repair``, and that nothing is left of it then."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests import search_faults
from tests.crash import leases, remains, views
from tests.crash.kill import Scene
from tests.crash.requests import AGAIN, NEXT, WRITTEN, Resource, Step, send
from tests.service import Answer, Service

_REPAIRED = (0, 3)
"""Exit codes of ``persistence check --repair``: nothing found but notices, or everything repaired."""
_COMPLETED = {"DELETE": (200, 204, 410), "POST": (201, 204)}
"""Requests whose repetition completes them, and how it may be answered."""
_PATIENCE = 60.0


def written_again(service: Service, scene: Scene) -> list[str]:
    """Write every resource of the request once more: everything wrong with that, and with what it leaves."""
    faults = [fault for step in scene.request.again for fault in _step_faults(service, scene, step)]
    now = views.seen(service, scene.form, scene.request.resources)
    faults += views.history_faults(service, scene.form, scene.known, now)
    faults += search_faults.faults(service, scene.form, WRITTEN, AGAIN)
    return faults + [f"the next write leaves {text}" for text in remains.left(service.data, scene.form)]


def repaired(service: Service, scenes: Sequence[Scene]) -> list[list[str]]:
    """Let ``check --repair`` go over all of them while the service runs: what is wrong with each of them then."""
    faults = []
    for options, good in ((("--repair",), _REPAIRED), ((), (0,))):
        code, said = check(service.data, *options)
        if code not in good:
            faults.append(f"check {' '.join(options)} ends with {code}: {said}")
    return [[*faults, *_changes(service, scene)] for scene in scenes]


def check(data: Path, *options: str) -> tuple[int, str]:
    """Run ``persistence check`` on a data directory: its exit code, and what it said."""
    command = [sys.executable, "-m", "persistence.cli", "check", "--data", str(data), *options]
    done = subprocess.run(command, cwd=data, check=False, capture_output=True, text=True, timeout=_PATIENCE)
    return done.returncode, f"{done.stdout}{done.stderr}".strip()


def _step_faults(service: Service, scene: Scene, step: Step) -> Iterator[str]:
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
    if step.version == "next" and version != str(_latest(scene) + 1):
        yield f"next is version {version} after version {_latest(scene)}"
    written = Resource(step.path, None, NEXT, version)
    view = views.seen(service, scene.form, [written])[written]
    if view.content != NEXT or view.headers["etag"] != answer["ETag"]:
        yield f"{step.path} is not what was written after the kill"
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
    if _content(service, scene, Resource(step.path, None, None, is_lease=True)) != leases.expected(step):
        yield f"the lease is not what the {step.method} after the kill gives"
    if step.method == "LOCK" and (status := send(service, scene.form, leases.others_write(step.path)).status) != 423:
        yield f"a write by somebody else is answered {status}"


def _completion_faults(service: Service, scene: Scene, answer: Answer, good: tuple[int, ...]) -> Iterator[str]:
    if answer.status not in good:
        yield f"the repeated request is answered {answer.status}: {answer.cause}"
    for resource, view in views.seen(service, scene.form, scene.request.resources).items():
        if view.content != resource.after:
            yield f"the repeated request leaves {resource.path}"


def _latest(scene: Scene) -> int:
    """The latest published version that a client found, or 0."""
    found = scene.comparison.found.items()
    published = (view for one, view in found if one.path == "form/form.xhtml" and view.content is not None)
    return max((int(view.headers["svc-form-definition-version"]) for view in published), default=0)


def _content(service: Service, scene: Scene, resource: Resource) -> bytes | None:
    return views.seen(service, scene.form, [resource])[resource].content


def _changes(service: Service, scene: Scene) -> Iterator[str]:
    """What a check may not do: change what a client finds, but for completing what was committed, or leave anything."""
    now = views.seen(service, scene.form, scene.request.resources)
    to_complete = set(scene.comparison.unfinished(scene.request))
    for resource, view in now.items():
        if resource in to_complete:
            if view.content != resource.after:
                yield f"check leaves {resource.path}"
        elif view != scene.comparison.found[resource]:
            yield f"check changes {resource.path}: {view}"
    yield from views.history_faults(service, scene.form, scene.known, now)
    yield from search_faults.faults(service, scene.form, WRITTEN)
    yield from (f"check leaves {text}" for text in remains.left(service.data, scene.form, but_leases=True))
