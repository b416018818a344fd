"""The two rounds: kills followed by the next writes, and kills followed by ``persistence check --repair``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests import rig_service
from tests.crash import aftermath
from tests.crash.kill import Killer, Point, Scene, Trial
from tests.service import running


@dataclass(frozen=True, slots=True)
class Outcome:
    """A kill, and everything wrong with what it left or with what came after it."""

    scene: Scene
    faults: tuple[str, ...]


@contextmanager
def ready(directory: Path, module: str = rig_service.__name__, properties: Iterable[str] = ()) -> Iterator[Killer]:
    """Someone to kill the only worker of a service of its own, which has one thread that serves; it runs ``module``.

    ``properties`` of its provider are switched on.
    """
    file = directory / "settings.toml"
    file.write_text("".join(f'"svc.persistence.files.{name}" = true\n' for name in properties))
    env, options = rig_service.ENVIRONMENT, ("--config", str(file))
    with running(directory, workers=1, threads=1, module=module, env=env, options=options) as service:
        service.put("first/form/data/document/data.xml")  # the first change of a tree makes directories of its own
        yield Killer(service, directory)


def writing_round(killer: Killer, trial: Trial, points: Iterable[Point]) -> list[Outcome]:
    """Kill at each point, and write everything again after each kill."""
    outcomes = []
    for point in points:
        scene = killer.kill(trial, point)
        outcomes.append(Outcome(scene, (*scene.faults, *aftermath.written_again(killer.service, scene))))
    return outcomes


def checking_round(killer: Killer, trial: Trial, points: Iterable[Point]) -> list[Outcome]:
    """Kill at each point, in a form each; repair them all at one time, and only then write everything again."""
    scenes = [killer.kill(trial, point) for point in points]
    repaired = aftermath.repaired(killer.service, scenes)
    return [
        Outcome(scene, (*scene.faults, *faults, *aftermath.written_again(killer.service, scene)))
        for scene, faults in zip(scenes, repaired, strict=True)
    ]
