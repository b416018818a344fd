"""Damage of every kind, one at a time, and what a client and ``check --deep`` say of it.

Two documents that differ in nothing but their texts stand beside one another, so that any file of one fits in the
place of the other's.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from pathlib import Path
from random import Random

from persistence.storage.layout import INDEX, LOCKS, QUARANTINE, SERVE, SPOOL, TRASH
from tests.maintenance.workshop import XHTML, Checked, Workshop, made

FIRST, SECOND = "app/form/data/first", "app/form/data/second"
_DRAFT, _FORM = "app/form/draft/first", "app/form/form/1"
CONTENTS = (
    *(f"{FIRST}/data.xml", f"{FIRST}/scan.bin", f"{SECOND}/data.xml", f"{SECOND}/scan.bin"),
    *(f"{_DRAFT}/data.xml", f"{_FORM}/form.xhtml", f"{_FORM}/logo.png"),
)
"""Every resource of the tree."""
BINARY = (f"{FIRST}/scan.bin", f"{_FORM}/logo.png")
OWN = (LOCKS, SPOOL, TRASH, SERVE, INDEX, QUARANTINE)
_NOBODY = 65534
_REMOVED = "older revisions that were"

View = tuple[int, Mapping[str, str | None], bytes]
Views = dict[str, View]
Choose = Callable[[Path, Random], Path]
Inflict = Callable[[Path, Random], str]


class Shown(Enum):
    """The findings that a kind of damage must lead to, and the answers that clients may get."""

    FOUND = "check --deep does not exit with 0 and names the place"
    EDIT = "the same; clients may be shown the edit, for it is XML that a person could have written"
    TOLD = "check --deep names the place; nothing is wrong for clients"
    MADE_AGAIN = "clients can write at once; a check finds at most that it was not needed yet"
    UNNOTICED = "docs/maintenance.md lists it as not noticed"


@dataclass(frozen=True)
class Kind:
    """A kind of damage: what is done to a tree, where a check must find it, and how; ``listed`` is in the docs.

    ``strict`` is damage that only ``verify = "digest"`` keeps from clients: size and time are as they were.
    """

    name: str
    inflict: Inflict
    shown: Shown = Shown.FOUND
    listed: str = ""
    strict: bool = False

    def __str__(self) -> str:
        return self.name


def furnished(root: Path, text: str = "") -> Path:
    """Make a tree with two documents of two revisions, their attachments, a draft and a definition with a file."""
    with made(root, _fill, text) as workshop:
        return workshop.root


def _fill(workshop: Workshop, text: str) -> None:
    people = {"Svc-Username": "lea", "Svc-Group": "staff", "Svc-Workflow-Stage": "started"}
    workshop.put(f"{_FORM}/form.xhtml", XHTML)
    workshop.put(f"{_FORM}/logo.png", b"a logo", {"Content-Type": "image/png"})
    for name in (FIRST, SECOND):
        document = name.rpartition("/")[2]
        for revision in ("one", "two", "six"):
            body = f"<d>{text}{document[:5]} {revision}</d>".encode()
            workshop.put(f"{name}/data.xml", body, people)
            workshop.put(f"{name}/scan.bin", body[3:-4] * 3, {"Content-Type": "image/png", **people})
    workshop.put(f"{_DRAFT}/data.xml", b"<d>draft</d>", people)


def served(root: Path, verify: str = "size") -> Workshop:
    """A service on a tree, which is started at once."""
    workshop = Workshop(root, verify)
    assert workshop.client
    return workshop


def views(workshop: Workshop, instants: Mapping[str, tuple[str, ...]], only: Sequence[str] = CONTENTS) -> Views:
    """Every answer by its path: each resource, and older revisions by the instants of an undamaged tree."""
    return {
        f"{path} {instant}".strip(): workshop.view(path, instant)
        for path in only
        for instant in ("", *instants.get(path, ()))
    }


def instants_of(root: Path) -> dict[str, tuple[str, ...]]:
    found = {}
    for path in CONTENTS:
        older = Workshop(root).history(path) if not path.startswith(_FORM) else []
        names = sorted(each.name[: -len(Path(path).name) - 1] for each in older)
        found[path] = tuple(f"{name[:11]}{name[11:].replace('-', ':')}" for name in names)
    return found


class Whole:
    """An undamaged tree and all its answers, to which damaged copies are compared."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.instants = instants_of(root)
        with served(root) as workshop:
            self.views = views(workshop, self.instants)
        assert {status for status, _, _ in self.views.values()} == {200}

    def faults(self, kind: Kind, copy: Path, random: Random, documentation: str) -> list[str]:
        """Inflict a kind of damage on a copy that is served; return what clients and checks fail to report."""
        with served(copy, "digest" if kind.strict else "size") as workshop:
            where = kind.inflict(copy, random)
            faults = self._of_clients(kind, workshop)
        checked = Workshop(copy).check("--deep")
        faults += _unsaid(kind, where, checked, documentation)
        return [f"{kind} ({where}): {fault}" for fault in faults]

    def _of_clients(self, kind: Kind, workshop: Workshop) -> list[str]:
        """Return the answers that are neither what was acknowledged nor an error, and a write that is refused."""
        faults = []
        if kind.shown not in (Shown.EDIT, Shown.UNNOTICED):
            faults = [
                f"GET {path} is answered 200, with {_difference(view, self.views[path])}"
                for path, view in views(workshop, self.instants).items()
                if view[0] == 200 and view != self.views[path]
            ]
        if kind.shown is Shown.MADE_AGAIN and (status := workshop.try_put(CONTENTS[0], b"<d>next</d>")) != 204:
            faults.append(f"PUT {CONTENTS[0]}: {status}")
        return faults


def _difference(view: View, expected: View) -> str:
    headers = {name: value for name, value in view[1].items() if expected[1].get(name) != value}
    return f"{view[2][:40]!r} and {headers}"


def _unsaid(kind: Kind, where: str, checked: Checked, documentation: str) -> list[str]:
    named = [found for found in checked.findings if _is_about(found["path"], where)]
    said = f"check --deep exits with {checked.status} and finds {checked.kinds}"
    if kind.shown is Shown.UNNOTICED:
        return [] if kind.listed in documentation else [f"not listed as not noticed: {kind.listed!r}"]
    if kind.shown is Shown.MADE_AGAIN:
        return [said] if {name for name, _ in checked.kinds} - {"own-missing"} else []
    if not named or (kind.shown is not Shown.TOLD and checked.status == 0):
        return [said]
    return []


def _is_about(found: str, where: str) -> bool:
    """Return whether a finding names a place, its directory, or something in it."""
    return found.startswith(where) or where.startswith(f"{found}/") or Path(found).parent == Path(where).parent


# What can happen to one file


def _older(root: Path, path: str, number: int = 0) -> Path:
    return Workshop(root).history(path)[number]


def _sidecar(content: Path) -> Path:
    return content.with_name(f"{content.name}.json")


def _relative(root: Path, path: Path) -> str:
    return str(path.relative_to(root))


def _any_content(root: Path, random: Random) -> Path:
    return random.choice([*(root / path for path in CONTENTS), _older(root, CONTENTS[0]), _older(root, CONTENTS[1])])


def _apart(path: Path) -> None:
    """Separate a file from its other names: a current content may be a link to one in the history."""
    status, data = path.stat(), path.read_bytes()
    path.unlink()
    path.write_bytes(data)
    path.chmod(status.st_mode)
    os.utime(path, ns=(status.st_mtime_ns,) * 2)


def _changed(path: Path, data: bytes, *, keeps_time: bool = False) -> None:
    _apart(path)
    nanoseconds = path.stat().st_mtime_ns
    path.write_bytes(data)
    if keeps_time:
        os.utime(path, ns=(nanoseconds, nanoseconds))


def flip(path: Path, bit: int, *, keeps_time: bool = True) -> None:
    """Flip one bit of a file, keeping size and time, as a fault of the disk does."""
    data = bytearray(path.read_bytes())
    data[bit // 8] ^= 1 << bit % 8
    _changed(path, bytes(data), keeps_time=keeps_time)


def _on(choose: Choose, act: Callable[[Path, Random], object]) -> Inflict:
    def inflict(root: Path, random: Random) -> str:
        path = choose(root, random)
        act(path, random)
        return _relative(root, path)

    return inflict


def _flipped(path: Path, random: Random, *, keeps_time: bool | None = None) -> None:
    at = random.randrange(path.stat().st_size * 8)
    flip(path, at, keeps_time=random.random() < 0.5 if keeps_time is None else keeps_time)


def _cut(path: Path, random: Random) -> None:
    _changed(path, path.read_bytes()[: random.randrange(path.stat().st_size)], keeps_time=random.random() < 0.5)


def _overwritten(path: Path, random: Random) -> None:
    """Overwrite five bytes, as ``dd`` does."""
    data = path.read_bytes()
    _changed(path, data[:1] + random.randbytes(5) + data[6:])


def _grown(path: Path, random: Random) -> None:
    _changed(path, path.read_bytes() + random.randbytes(8))


def _edited(path: Path, _random: Random) -> None:
    _changed(path, b"<d>by hand</d>")


def _removed(path: Path, _random: Random) -> None:
    path.unlink()


def _replaced_by(make: Callable[[Path], object]) -> Callable[[Path, Random], None]:
    return lambda path, _random: (path.unlink(), make(path))


# What can happen between two


def _swap(one: Path, other: Path) -> None:
    aside = one.with_name("aside~")
    for source, target in ((one, aside), (other, one), (aside, other)):
        source.rename(target)


def _swapped(name: str, *, content: bool = True, sidecar: bool = False, older: bool = False) -> Inflict:
    def inflict(root: Path, _random: Random) -> str:
        one, other = (_older(root, path) if older else root / path for path in (f"{FIRST}/{name}", f"{SECOND}/{name}"))
        if content:
            _swap(one, other)
        if sidecar:
            _swap(_sidecar(one), _sidecar(other))
        return _relative(root, one)

    return inflict


def _attachment_renamed(root: Path, _random: Random) -> str:
    for suffix in ("", ".json"):
        (root / f"{FIRST}/scan.bin{suffix}").rename(root / f"{FIRST}/other.bin{suffix}")
    return f"{FIRST}/other.bin"


def _elsewhere(how: Callable[[Path, Path], object], source: str, target: str) -> Inflict:
    def inflict(root: Path, _random: Random) -> str:
        how(root / source, root / target)
        return target

    return inflict


def _of_another_tree(root: Path, _random: Random) -> str:
    """Copy a document that another tree has under another name."""
    other = furnished(root.parent / f"{root.name}-other", "other ")
    shutil.copytree(other / SECOND, root / "app/form/data/third")
    return "app/form/data/third"


def _rolled_back(root: Path, _random: Random) -> str:
    """Copy the same document of another tree, for example of a backup: it is consistent in itself."""
    other = furnished(root.parent / f"{root.name}-other", "older ")
    shutil.rmtree(root / FIRST)
    shutil.copytree(other / FIRST, root / FIRST)
    return FIRST


def _without(own: str) -> Inflict:
    def inflict(root: Path, _random: Random) -> str:
        shutil.rmtree(root / own, ignore_errors=True)
        return own

    return inflict


def _current(*names: str) -> Choose:
    return lambda root, random: root / random.choice(names)


def _sidecar_of(choose: Choose) -> Choose:
    return lambda root, random: _sidecar(choose(root, random))


def _an_older(root: Path, random: Random) -> Path:
    return _older(root, random.choice(CONTENTS[:2]), random.randrange(2))


def _pair_removed(path: Path, _random: Random) -> None:
    path.unlink()
    _sidecar(path).unlink()


def _written(path: Path, _random: Random) -> None:
    path.write_bytes(b"stray")


KINDS = (
    Kind("a flipped bit of a sidecar", _on(_sidecar_of(_any_content), _flipped)),
    Kind("a flipped bit of a content", _on(_any_content, partial(_flipped, keeps_time=True)), strict=True),
    Kind("a content cut short", _on(_any_content, _cut), strict=True),
    Kind("a sidecar cut short", _on(_sidecar_of(_any_content), _cut)),
    Kind("a content with more at its end", _on(_any_content, _grown)),
    Kind("bytes of an attachment changed", _on(_current(*BINARY), _overwritten)),
    Kind("data that is no XML any more", _on(_current(CONTENTS[0]), lambda path, _: _changed(path, b"<d>no end"))),
    Kind("data edited by hand", _on(_current(CONTENTS[0]), _edited), Shown.EDIT),
    Kind("an older revision edited by hand", _on(lambda root, _: _older(root, CONTENTS[0]), _edited)),
    Kind("a content removed", _on(_any_content, _removed)),
    Kind("a sidecar removed", _on(_sidecar_of(_current(*CONTENTS[:4])), _removed)),
    Kind("a sidecar of the history removed", _on(_sidecar_of(_an_older), _removed)),
    Kind("an older revision and its sidecar removed", _on(_an_older, _pair_removed), Shown.UNNOTICED, _REMOVED),
    Kind("layout.json removed", _on(_current("layout.json"), _removed)),
    Kind("a directory in place of a content", _on(_current(*CONTENTS), _replaced_by(Path.mkdir))),
    Kind("a pipe in place of a content", _on(_current(*CONTENTS), _replaced_by(os.mkfifo))),
    Kind("a content of another user", _on(_any_content, lambda path, _: os.chown(path, _NOBODY, _NOBODY))),
    Kind("a content without permissions", _on(_any_content, lambda path, _: path.chmod(0))),
    Kind("data swapped between documents", _swapped("data.xml"), Shown.EDIT),
    Kind("sidecars of data swapped", _swapped("data.xml", content=False, sidecar=True)),
    Kind("data swapped with its sidecar", _swapped("data.xml", sidecar=True)),
    Kind("attachments swapped", _swapped("scan.bin")),
    Kind("sidecars of attachments swapped", _swapped("scan.bin", content=False, sidecar=True)),
    Kind("attachments swapped with their sidecars", _swapped("scan.bin", sidecar=True)),
    Kind("older data swapped", _swapped("data.xml", older=True)),
    Kind("older data swapped with its sidecar", _swapped("data.xml", sidecar=True, older=True)),
    Kind("older attachments swapped", _swapped("scan.bin", older=True)),
    Kind("older attachments swapped with their sidecars", _swapped("scan.bin", sidecar=True, older=True)),
    Kind("an attachment under another name", _attachment_renamed),
    Kind("a document copied", _elsewhere(shutil.copytree, FIRST, "app/form/data/copy")),
    Kind("a document moved", _elsewhere(Path.rename, FIRST, "app/form/data/moved")),
    Kind("a form moved", _elsewhere(Path.rename, "app/form", "app/other")),
    Kind("a version of a definition copied", _elsewhere(shutil.copytree, _FORM, "app/form/form/2")),
    Kind("a document of another tree", _of_another_tree),
    Kind("a document put back as it was", _rolled_back, Shown.UNNOTICED, "as it was at another time"),
    Kind("a note of somebody", _on(_current(f"{FIRST}/notes.txt"), _written), Shown.TOLD),
    Kind("a temporary content", _on(_current(f"{FIRST}/.data.xml.{'ab' * 20}"), _written)),
    *(Kind(f"{own} removed", _without(own), Shown.MADE_AGAIN) for own in OWN),
)
