"""Random damage to a furnished tree, and what must hold after its repair."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

from lxml import etree

from persistence.storage.layout import INDEX, LOCKS
from tests.maintenance.kills import copied
from tests.maintenance.workshop import ATTACHMENT, DATA, DELETED, DRAFT, FORM, Workshop

RESOURCES = (FORM, DATA, ATTACHMENT, DELETED, DRAFT)
_MOST = 4
_ROUNDS = 2
Tree = dict[str, tuple[int, bytes]]


def blank(path: Path) -> None:
    """Fill the file with zeros, keeping size and time, as a file system without ordered data does after a crash."""
    status = path.stat()
    path.write_bytes(bytes(status.st_size))
    os.utime(path, ns=(status.st_mtime_ns,) * 2)


def instead(make: Callable[[Path, Path], object]) -> Damage:
    """Put something else in the place of a file, which is then beside it."""
    return lambda _random, path, _other: make(path, path.rename(f"{path}~"))


def over(make: Callable[[Path, Path], object]) -> Damage:
    return lambda _random, path, other: (other.unlink(missing_ok=True), make(path, other))


Damage = Callable[[Random, Path, Path], object]
ALONE: dict[str, Damage] = {
    "delete": lambda _random, path, _other: path.unlink(),
    "garble": lambda random, path, _other: path.write_bytes(
        random.randbytes(random.choice((0, 1, path.stat().st_size, 300)))
    ),
    "truncate": lambda random, path, _other: os.truncate(path, random.randrange(path.stat().st_size + 1)),
    "blank": lambda _random, path, _other: blank(path),
    "touch": lambda _random, path, _other: os.utime(path),
    "close": lambda random, path, _other: path.chmod(random.choice((0, 0o040, 0o646, 0o777))),
    "put a directory": instead(lambda path, _aside: path.mkdir()),
    "put a link": instead(lambda path, aside: path.symlink_to(aside.name)),
    "put a pipe": lambda _random, path, _other: (path.unlink(), os.mkfifo(path)),
}
"""Damage to one file; the other kinds need a second file, or a second name."""
DAMAGES: dict[str, Damage] = {
    **ALONE,
    "rename": lambda _random, path, other: path.rename(other),
    "copy": over(shutil.copy2),
    "copy without time": over(shutil.copy),
    "link": over(os.link),
}


@dataclass(frozen=True)
class Inflicted:
    """The damage done to a tree: a line each, and the folders concerned, relative to the root."""

    lines: tuple[str, ...]
    folders: frozenset[str]


def inflict(root: Path, random: Random) -> Inflicted:
    """Damage one to four random files of a tree."""
    lines, folders = [], set[str]()
    for _ in range(random.randint(1, _MOST)):
        paths = _files(root)
        path = random.choice(paths)
        other = random.choice([other for other in _names_near(random, path, paths) if other != path] or [path])
        damage = random.choice([*(DAMAGES if other != path else ALONE)])
        DAMAGES[damage](random, path, other)
        lines.append(f"{damage} {path.relative_to(root)} {other.relative_to(root)}")
        folders |= {_folder(root, path), _folder(root, other)}
    return Inflicted(tuple(lines), frozenset(folders))


def _files(root: Path) -> list[Path]:
    paths = (root / "layout.json", *(root / "app").rglob("*"))
    return sorted(path for path in paths if path.is_file() and not path.is_symlink())


def _names_near(random: Random, path: Path, paths: list[Path]) -> list[Path]:
    """Return where a file may get to by mistake: another's place, or a name that means something to the service."""
    if path.name == "layout.json":
        return [path]
    main = path.name.removesuffix(".json")
    content_id = _id_of(path.with_name(f"{main}.json")) or random.randbytes(20).hex()
    return [
        *(other for other in paths if other.name != "layout.json"),
        path.with_name(f".{main}.json"),
        path.with_name(f".{main}.{content_id}"),
        path.with_name(f".{main}.{random.randbytes(20).hex()}"),
        path.with_name(f"new-{main}"),
    ]


def _id_of(sidecar: Path) -> str | None:
    if not sidecar.is_file():
        return None
    try:
        return str(json.loads(sidecar.read_bytes())["id"])
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _folder(root: Path, path: Path) -> str:
    return "/".join(path.relative_to(root).parts[:4])


def files_of(root: Path) -> Tree:
    return {
        str(path.relative_to(root)): (path.stat().st_mtime_ns, path.read_bytes())
        for path in (root / "app").rglob("*")
        if path.is_file() and not path.is_symlink()
    }


def acknowledged(root: Path) -> set[str]:
    """Return the digests of all contents, except those of prepared sidecars: they were never acknowledged."""
    unfinished = {
        path.with_name(f"{path.name.removesuffix('.json')}.{_id_of(path)}") for path in root.rglob("**/.*.json")
    }
    return {
        hashlib.sha256(path.read_bytes()).hexdigest()
        for path in root.rglob("*")
        if path.is_file()
        and not path.is_symlink()
        and path not in unfinished
        and not path.name.endswith((".json", ".jsonl"))
        and not {LOCKS, INDEX} & set(path.parts)
    }


def case(pristine: Path, root: Path, seed: int) -> tuple[Inflicted, list[str]]:
    """Damage a copy of a tree by a seed and repair it; return the damage and the broken promises."""
    copied(pristine, root)
    inflicted = inflict(root, Random(seed))
    return inflicted, faults(root, inflicted)


def faults(root: Path, inflicted: Inflicted) -> list[str]:
    before, contents = files_of(root), acknowledged(root)
    with Workshop(root) as workshop:
        return _faults(workshop, inflicted, before, contents)


def _faults(workshop: Workshop, inflicted: Inflicted, before: Tree, contents: set[str]) -> list[str]:
    root = workshop.root
    for _ in range(_ROUNDS):
        repaired = workshop.check("--repair")
    failed = {finding["path"] for finding in repaired.findings if finding["outcome"] == "failed"}
    checked = workshop.check()
    found = [
        f"still to repair: {finding['kind']} {finding['path']}"
        for finding in checked.findings
        if finding["remedy"] == "--repair" and finding["path"] not in failed
    ]
    if not contents <= acknowledged(root):
        found.append("content is gone")
    after = files_of(root)
    for path, state in before.items():
        if not path.startswith(tuple(inflicted.folders)) and after.get(path) != state:
            found.append(f"changed: {path}")
    reported = [finding["path"] for finding in checked.findings if finding["severity"] == "damage"]
    return found + list(_served(workshop, reported))


def _served(workshop: Workshop, reported: list[str]) -> Iterator[str]:
    known = [path for path in RESOURCES if not any(other.startswith(str(Path(path).parent)) for other in reported)]
    refused = {500} if _has_lost_its_permissions(workshop.root) else set[int]()
    missing = set[str]()
    for path in known:
        status, _ = workshop.get(path)
        if status == 404:
            missing.add(path)
        elif status not in {200} | refused:
            yield f"GET {path}: {status}"
    for path in known:
        status = workshop.try_put(path, b"<d>next</d>")
        if path != FORM and (status in refused or (status == 500 and path in missing and FORM not in known)):
            continue  # what is new needs the definition
        if status not in {201, 204} and not (status == 404 and path == ATTACHMENT):
            yield f"PUT {path}: {status}"
        elif workshop.get(path) != (200, b"<d>next</d>") and path != ATTACHMENT:
            yield f"GET {path} after its PUT: {workshop.get(path)}"


def _has_lost_its_permissions(root: Path) -> bool:
    """Whether neither file of the definition can be read, so that nobody may read the data (docs/security.md)."""
    content, sidecar = root / FORM, root / f"{FORM}.json"
    return not (_is_readable(content, etree.parse) or _is_readable(sidecar, _loaded))


def _is_readable(path: Path, parse: Callable[[Path], object]) -> bool:
    if path.is_symlink() or not path.is_file():
        return False
    try:
        parse(path)
    except (etree.XMLSyntaxError, ValueError):
        return False
    return True


def _loaded(path: Path) -> object:
    return json.loads(path.read_bytes())
