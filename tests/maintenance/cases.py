"""Damage of a furnished tree: what is done, what ``persistence check`` finds, and what is there after the repair."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from persistence.model.sidecar import Sidecar, fresh_id, stamp
from tests.maintenance.workshop import ATTACHMENT, DATA, DELETED, DOCUMENT, FORM, NEW, OLD, XHTML, Workshop
from tests.sidecars import resealed, said

HISTORY = f"{DOCUMENT}/.history"
Inflict = Callable[[Workshop], object]


def rewrite(workshop: Workshop, path: str, **changes: object) -> None:
    """Change what the sidecar of a content says, keeping the rest."""
    resealed(workshop.file(f"{path}.json"), **changes)


def write(path: str, body: bytes) -> Inflict:
    return lambda workshop: workshop.file(path).write_bytes(body)


def remove(*paths: str) -> Inflict:
    def inflict(workshop: Workshop) -> None:
        for path in paths:
            workshop.file(path).unlink()

    return inflict


def copy_older(how: Callable[[Path, Path], object], path: str) -> Inflict:
    """Put the older content of a resource into the place of the current one."""
    return lambda workshop: how(workshop.history(path)[0], workshop.file(path))


def older_sidecar(workshop: Workshop) -> Path:
    content = workshop.history(DATA)[0]
    return content.with_name(f"{content.name}.json")


def know_nothing_of_the_schema(workshop: Workshop) -> None:
    workshop.file(f"{DATA}.json").write_text(json.dumps(workshop.sidecar(DATA) | {"schema": 7}))


def spoil(how: Callable[[Path], object]) -> Inflict:
    """Do something to the sidecar of the data."""
    return lambda workshop: how(workshop.file(f"{DATA}.json"))


def keep_sidecar_twice(workshop: Workshop) -> None:
    kept = f"{HISTORY}/{str(workshop.sidecar(DATA)['modified']).replace(':', '-')}.data.xml.json"
    os.link(workshop.file(f"{DATA}.json"), workshop.file(kept))


def keep_twice(workshop: Workshop) -> None:
    keep_sidecar_twice(workshop)
    os.link(workshop.file(DATA), max(workshop.file(HISTORY).glob("*.data.xml.json")).with_suffix(""))


def lose_content_kept_in_history(workshop: Workshop) -> None:
    keep_twice(workshop)
    workshop.file(DATA).unlink()


def interrupt_write(workshop: Workshop) -> None:
    content_id = fresh_id()
    prepared = workshop.file(f"{DOCUMENT}/.data.xml.json")
    prepared.write_bytes(workshop.file(f"{DATA}.json").read_bytes())
    resealed(prepared, id=content_id)
    workshop.file(f"{DOCUMENT}/.data.xml.{content_id}").write_bytes(b"<d>never acknowledged</d>")


def keep_pending_name(workshop: Workshop) -> None:
    workshop.file(DATA).rename(workshop.file(f"{DOCUMENT}/.data.xml.{workshop.sidecar(DATA)['id']}"))


def lose_sidecar_of_older(workshop: Workshop) -> None:
    shutil.copyfile(workshop.history(DATA)[0], workshop.file(DATA))
    workshop.file(f"{DATA}.json").unlink()


def misname_older_revision(workshop: Workshop) -> None:
    for path in (workshop.history(DATA)[0], older_sidecar(workshop)):
        path.rename(path.with_name(f"2001{path.name[4:]}"))


def put_long_ago(path: str) -> Inflict:
    """Store a resource, and date its revision back."""

    def inflict(workshop: Workshop) -> None:
        workshop.put(path, b"<d>long ago</d>")
        rewrite(workshop, path, modified="2001-02-03T04:05:06.789Z")
        os.utime(workshop.file(path), ns=(stamp(msgspec.convert(workshop.sidecar(path), Sidecar)),) * 2)

    return inflict


def half_remove_from_draft(workshop: Workshop) -> None:
    workshop.put(IN_DRAFT, b"scanned")
    rewrite(workshop, IN_DRAFT, deleted=True, size=0)


def open_access(workshop: Workshop) -> None:
    workshop.root.chmod(0o755)
    workshop.file(DATA).chmod(0o646)


@dataclass(frozen=True)
class Case:
    """A kind of damage: the finding with its path, and what a resource holds after the repair."""

    name: str
    inflict: Inflict
    kind: str
    path: str = DATA
    severity: str = "damage"
    read: str = DATA
    after: tuple[int, bytes] = (200, NEW)
    keeps: bool = True
    """Whether the repair must keep every content: what was never acknowledged may vanish."""

    def __str__(self) -> str:
        return self.name


BAD, LEFT, NOTICE = "damage", "leftover", "notice"
GONE, BEFORE = (404, b""), (200, OLD)
SIDECAR, SCAN, XHTML_SIDECAR, TOMBSTONE = (f"{path}.json" for path in (DATA, ATTACHMENT, FORM, DELETED))
PENDING = f"{DOCUMENT}/.data.xml."
ABANDONED, OUTDATED = "app/form/data/never-saved/scan.bin", "app/form/draft/document"
EMPTY, IN_DRAFT = "app/form/data/empty", "app/form/draft/draft/scan.bin"
UNREADABLE = "sidecar-unreadable"
lose_content, lose_first_content, garble_sidecar = remove(DATA), remove(ATTACHMENT), write(SIDECAR, b'{"schema": 1, "i')
REPAIRED = (
    Case("garbled sidecar", garble_sidecar, UNREADABLE, SIDECAR),
    Case("garbled sidecar of an attachment", write(SCAN, b""), UNREADABLE, SCAN, BAD, ATTACHMENT, (200, b"scanned")),
    Case("garbled definition", write(XHTML_SIDECAR, b"\0" * 300), UNREADABLE, XHTML_SIDECAR, BAD, FORM, (200, XHTML)),
    Case("garbled tombstone", write(TOMBSTONE, b"[]"), UNREADABLE, TOMBSTONE, BAD, DELETED, GONE),
    Case("unknown schema", know_nothing_of_the_schema, UNREADABLE, SIDECAR),
    Case("lost content", lose_content, "content-missing", after=BEFORE),
    Case("lost first content", lose_first_content, "content-missing", ATTACHMENT, BAD, ATTACHMENT, GONE),
    Case("lost content kept in the history", lose_content_kept_in_history, "content-missing"),
    Case("older content beside a new sidecar", copy_older(shutil.copy2, DATA), "torn-copy", after=BEFORE),
    Case("content under its pending name", keep_pending_name, "unfinished-commit", PENDING, LEFT),
    Case("interrupted write", interrupt_write, "unfinished-write", f"{PENDING}json", LEFT, keeps=False),
    Case("early interrupted write", write(f"{PENDING}json", b""), "unfinished-write", f"{PENDING}json", LEFT),
    Case("stray content", write(f"{PENDING}{fresh_id()}", b"<d>whose?</d>"), "stray-file", PENDING, LEFT),
    Case("deleted content", copy_older(os.link, DELETED), "unfinished-removal", DELETED, LEFT, DELETED, GONE),
    Case(
        "copied deleted content", copy_older(shutil.copy2, DELETED), "unfinished-removal", DELETED, LEFT, DELETED, GONE
    ),
    Case("kept twice", keep_twice, "kept-twice", HISTORY, NOTICE),
    Case("sidecar kept twice", keep_sidecar_twice, "kept-twice", HISTORY, NOTICE),
    Case("lost current revision", remove(DATA, SIDECAR), "orphaned-history", after=BEFORE),
    Case("lost sidecar", remove(SIDECAR), "sidecar-missing"),
    Case("lost sidecar of an older content", lose_sidecar_of_older, "sidecar-missing", after=BEFORE),
    Case("lost older content", lambda tree: tree.history(DATA)[0].unlink(), "revision-damaged", HISTORY),
    Case("garbled older sidecar", lambda tree: older_sidecar(tree).write_bytes(b"{}"), "revision-damaged", HISTORY),
    Case("lost older sidecar", lambda tree: older_sidecar(tree).unlink(), "stray-file", HISTORY, LEFT),
    Case("misnamed older revision", misname_older_revision, "revision-damaged", HISTORY),
    Case("forgotten times", lambda tree: os.utime(tree.file(DATA)), "times-lost", DATA, NOTICE),
    Case("abandoned attachment", put_long_ago(ABANDONED), "orphaned-attachment", ABANDONED, LEFT),
    Case("outdated draft", put_long_ago(f"{OUTDATED}/data.xml"), "outdated-draft", OUTDATED, LEFT),
    Case("half removed from a draft", half_remove_from_draft, "unfinished-removal", f"{IN_DRAFT}.json", LEFT),
    Case("empty directory", lambda tree: tree.file(EMPTY).mkdir(mode=0o750), "empty-directory", EMPTY, LEFT),
    Case("no access", lambda tree: tree.file(DATA).chmod(0o040), "no-access"),
    Case("open access", open_access, "open-access", DATA, NOTICE),
    Case("lost layout", remove("layout.json"), "layout", "layout.json"),
    Case("garbled layout", write("layout.json", b"\0\0"), "layout", "layout.json"),
)
IMPOSSIBLE = tuple(
    Case(name, spoil(how), UNREADABLE, SIDECAR)
    for name, how in {
        "empty": lambda file: os.truncate(file, 0),
        "huge": lambda file: os.truncate(file, 1 << 25),
        "nested": lambda file: file.write_bytes(b'{"x":' + b"[" * 200_000),
        "no object": lambda file: file.write_bytes(b"null"),
        "no text": lambda file: file.write_bytes(b"\xff"),
        "a schema alone": lambda file: file.write_bytes(b'{"schema": 2}'),
        "an older schema alone": lambda file: file.write_bytes(b'{"schema": 1}'),
        "a newer schema": lambda file: file.write_bytes(file.read_bytes().replace(b'"schema": 2', b'"schema": 3')),
        "a version of 41 digits": lambda file: file.write_text(json.dumps(said(file) | {"version": 10**40})),
        "the end of the calendar": lambda file: resealed(file, modified="9999-12-31T23:59:59.999Z"),
        "a day of no calendar": lambda file: resealed(file, modified="2026-99-99T04:05:06.789Z"),
    }.items()
)
"""Sidecars that say impossible things."""
