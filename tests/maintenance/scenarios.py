"""Scenarios in which commands are struck: repairs of all kinds of damage, and what else changes trees."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from tests.maintenance import kills
from tests.maintenance.cases import REPAIRED, Inflict
from tests.maintenance.rounds import Scenario, prepared
from tests.maintenance.workshop import ATTACHMENT, DATA, FORM, NEW, Workshop


def edit(workshop: Workshop) -> None:
    workshop.file(DATA).write_bytes(b"<d>edited</d>")


def edit_a_file_of_two(workshop: Workshop) -> None:
    """Edit a document in place whose file has a second name, as in a copy that was made of links."""
    (workshop.root.parent / "copied.xml").hardlink_to(workshop.file(DATA))
    edit(workshop)


def drop(workshop: Workshop) -> None:
    dropped = workshop.file("app/form/data/dropped")
    dropped.mkdir(mode=0o750)
    for name in ("data.xml", "picture.png"):
        (dropped / name).write_bytes(NEW)


def edit_a_definition(workshop: Workshop) -> None:
    workshop.file(FORM).write_bytes(b'<html xmlns="http://www.w3.org/1999/xhtml"><head/><body/></html>')


def lose_an_attachment(workshop: Workshop) -> None:
    workshop.file(ATTACHMENT).unlink()
    workshop.file(ATTACHMENT).mkdir()


def save_before(workshop: Workshop) -> None:
    done = kills.run(
        ["backup", f"{workshop.root.parent}/backups", "--data", str(workshop.root)], workshop.root.parent / "said"
    )
    assert done.status == 0, done.said
    workshop.put(DATA, b"<d>newest</d>")


def age(workshop: Workshop) -> None:
    """Bring the tree back to the format of the first version."""
    workshop.file("layout.json").write_text(json.dumps({"format": 1}))
    shutil.rmtree(workshop.file(".quarantine"))
    shutil.rmtree(workshop.file(".locks"))
    workshop.file(".locks").mkdir()


def export_all(workshop: Workshop) -> None:
    """Export what is current in a tree, and take everything out of it.

    Of a document with a history an import stores one revision after the other, each of which is current for a moment.
    """
    workshop.close()
    options = ("--drafts", "--data", str(workshop.root))
    done = kills.run(["export", f"{workshop.root.parent}/all.zip", *options], workshop.root.parent / "said")
    assert done.status == 0, done.said
    shutil.rmtree(workshop.file("app"))


def nothing(_workshop: Workshop) -> None:
    """Leave the tree as it is."""


REPAIR = ("check", "--repair")
ADOPT = ("check", "--repair", "--adopt", "--all")
BACKUP, RESTORE = ("backup", "{}/backups"), ("restore", "{}/backups")
PURGE = ("purge", "--revisions", "--tombstones", "--drafts", "--orphans", "--older-than", "{now}", "--yes")
ERASE = ("erase", "app/form/data/document", "--certificate", "{}/certificate.json", "--yes")
SCENARIOS: tuple[tuple[Scenario, Inflict], ...] = (
    *((Scenario(f"repair: {case}", REPAIR, keeps=case.keeps), case.inflict) for case in REPAIRED),
    (Scenario("repair: no file", REPAIR), lose_an_attachment),
    *(
        (Scenario(f"adopt: {each.__name__}", ADOPT, keeps=False), each)
        for each in (edit, edit_a_file_of_two, edit_a_definition)
    ),
    (Scenario("adopt: drop", ADOPT), drop),
    (Scenario("backup: the first", BACKUP), nothing),
    (Scenario("backup: another", BACKUP), save_before),
    (
        Scenario("restore", RESTORE, data="restored", checked="restored", step=5, refused="holds a tree already"),
        save_before,
    ),
    (Scenario("upgrade", ("upgrade",), step=20), age),
    (Scenario("purge", PURGE, again=(0,), keeps=False), nothing),
    (Scenario("erase", ERASE, again=(0,), keeps=False, step=3, refused="the erasure of "), nothing),
    (Scenario("revert", ("revert", "app/form/data/deleted"), again=(0,)), nothing),
    (Scenario("export", ("export", "{}/all.zip", "--history", "include"), again=(0,)), nothing),
    (
        Scenario(
            "move",
            ("move", "--from", "{}/data", "--to", "{}/moved"),
            again=(0,),
            checked="moved",
            step=5,
            copy="moved",
            left_by_errors=("unfinished-removal",),
        ),
        nothing,
    ),
    (Scenario("import", ("import", "{}/all.zip"), again=(0,), step=3, left=("unfinished-commit",)), export_all),
)


def directory(pristine: Path, scratch: Path, inflict: Inflict) -> Path:
    """Make everything that a scenario needs, to be copied for each strike."""
    return prepared(pristine, scratch / "prepared", inflict)
