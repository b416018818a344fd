"""The page of the health: findings of a check, repair, rebuilt indexes, re-encryption, and the processes that do it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass

import msgspec
from flask import render_template, url_for

from persistence import processes
from persistence.errors import BadRequestError, BusyError, NotFoundError, disk_errors
from persistence.limits import LONGEST_OUTPUT, LONGEST_OUTPUT_LINE, MOST_FINDINGS_SHOWN
from persistence.maintenance.records import LastBackup, LastCheck, last
from persistence.model.addresses import Form
from persistence.pages.site import Action, Done, Question, Site, Values
from persistence.processes import Child
from persistence.providers.router import Router
from persistence.services.reencryption import ReencryptionJobs
from persistence.settings import GIVEN, Effective, passed_on
from persistence.storage import files, root
from persistence.storage.findings import Outcome, Remedy
from persistence.storage.layout import FOLDER_DEPTH, PAGES, Layout
from persistence.storage.locks import try_lock

# Commands that the pages begin: each runs in a process of its own, and its output is kept for all workers.
#
# The process holds a lock on a file while it lives, also when its worker is replaced: so all workers refuse a second
# one.


@dataclass(frozen=True, slots=True)
class Output:
    """The output of a command: the first lines, at most ``LONGEST_OUTPUT`` bytes, and the last one.

    ``errors`` has what it printed on standard error. ``began`` is in seconds since the epoch.
    """

    is_running: bool
    began: float
    lines: tuple[bytes, ...]
    last: bytes
    errors: str


class BackgroundCommand:
    """One command, in at most one process. ``purpose`` names its files if the command has several purposes."""

    def __init__(self, name: str, effective: Effective, purpose: str = "") -> None:
        self._name = name
        self._effective = effective
        self._directory = Layout(effective.settings.home).own(PAGES)
        self._path = f"{self._directory}/{purpose or name}"
        self._process: Child | None = None

    def begin(self, arguments: Sequence[str]) -> None:
        with disk_errors(f"running persistence {self._name}"), ExitStack() as stack:
            root.ensure_pages(self._effective.settings.home)
            opened = (files.open_shared(f"{self._path}.{each}") for each in ("lock", "out", "err"))
            lock, out, err = (stack.enter_context(files.closing(each)) for each in opened)
            if not try_lock(lock):
                raise BusyError(f"persistence {self._name} is running already: wait for its end")
            for each in (out, err):
                files.set_size(each, 0)
            self._process = processes.start(  # it holds the lock from here on
                *("-m", "persistence.processes"),
                *("-m", "persistence.cli", self._name, "--config", GIVEN, *arguments),
                given=passed_on(self._effective),
                stdout=out,
                stderr=err,
                pass_fds=(lock,),
                start_new_session=True,
            )

    def output(self) -> Output | None:
        """Return the output of the current or last run; ``None`` if it was never run from here."""
        with disk_errors(f"looking at persistence {self._name}"):
            is_running = self.is_running()
            try:
                descriptor = files.open_to_read(f"{self._path}.out")
            except (FileNotFoundError, NotADirectoryError):
                return None
            with open(descriptor, "rb") as file:
                lines = file.read(LONGEST_OUTPUT + LONGEST_OUTPUT_LINE).splitlines()
            began = os.stat(f"{self._path}.err").st_mtime if is_running else os.stat(f"{self._path}.out").st_mtime
            with open(files.open_to_read(f"{self._path}.err"), "rb") as file:
                errors = file.read(LONGEST_OUTPUT).decode(errors="replace").strip()
            return Output(is_running, began, tuple(lines), lines[-1] if lines else b"", errors)

    def is_running(self) -> bool:
        """Tell whether it runs, also if another worker has begun it."""
        if self._process is not None and self._process.poll() is not None:  # or else it would stay as a zombie
            self._process = None
        with (
            suppress(FileNotFoundError, NotADirectoryError),
            files.closing(files.open_to_read(f"{self._path}.lock")) as it,
        ):
            return not try_lock(it)
        return False


_LOOK = "The service goes on meanwhile. What it finds is shown here."
_MODES = {
    "look": ("Check everything?", "Check", ("Everything that is stored is looked at. Nothing is changed.", _LOOK)),
    "repair": (
        "Repair what is safe?",
        "Repair",
        (
            "Everything is checked, and what is safe to repair is repaired.",
            "What cannot stay in its place is moved to .quarantine in the data directory.",
            "Edits by hand are left alone.",
        ),
    ),
    "adopt": (
        "Adopt all edits by hand?",
        "Adopt",
        (
            "Everything is checked. Each file that was edited or added by hand becomes a revision, saved by you.",
            "Damage is not adopted. To adopt a part only: persistence check --adopt PATH.",
        ),
    ),
}
_REPAIR, _ADOPT, _OPEN = Remedy.REPAIR.value, Remedy.ADOPT.value, Outcome.FOUND.value
_DEEP = "Every content is read, and compared with its digest: on a large tree this takes long."


class CheckFinding(msgspec.Struct, frozen=True):
    """A finding, as ``persistence check --json`` prints it."""

    path: str
    kind: str
    severity: str
    what: str
    outcome: str
    does: str = ""
    remedy: str = ""
    said: str = ""
    tree: str = ""

    @property
    def is_open(self) -> bool:
        """Tell whether it can be repaired or adopted alone. The service's own files are parts of a whole."""
        return self.outcome == _OPEN and self.remedy in (_REPAIR, _ADOPT) and not self.path.startswith(".")


_finding = msgspec.json.Decoder(CheckFinding).decode


@dataclass(frozen=True, slots=True)
class HealthPage:
    """The page and its actions. The directory ``home`` has the records of the last check and the last backup.

    ``trees`` has the options that choose a tree for a check, by its name in findings.
    """

    home: str
    trees: Mapping[str, Sequence[str]]
    router: Router
    check: BackgroundCommand
    mend: BackgroundCommand
    reindex: BackgroundCommand
    reencrypts: ReencryptionJobs

    def add_to(self, site: Site) -> None:
        site.page("/admin/health", "health", self.show, "Health")
        site.action(Action("check", _ask_to_check, self._check, ("mode", "deep")))
        site.action(Action("mend", self._ask_to_mend, self._mend, ("tree", "path", "kind")))
        site.action(Action("reindex", _ask_to_reindex, self._reindex))
        site.action(Action("reencrypt", _ask_to_reencrypt, self._reencrypt, ("app", "form")))

    def show(self) -> str:
        checked, mended, reindexed = self.check.output(), self.mend.output(), self.reindex.output()
        findings = _findings(checked)
        if checked is not None and mended is not None and mended.began >= checked.began:
            outcomes = {(each.path, each.kind): each for each in _findings(mended) if each.outcome != _OPEN}
            findings = [outcomes.get((each.path, each.kind), each) for each in findings]  # of one tree, unnamed
        return render_template(
            "health.html",
            check=checked,
            mend=mended,
            trees=self.trees,
            findings=findings[:MOST_FINDINGS_SHOWN],
            more=max(0, len(findings) - MOST_FINDINGS_SHOWN),
            is_stopped=checked is not None and not checked.is_running and b'"folders"' not in checked.last,
            last_check=last(self.home, LastCheck),
            last_backup=last(self.home, LastBackup),
            reindex=reindexed,
            reindexing=self.router.reindexing_status(),
            reencryptions=self.reencrypts.states(),
        )

    def _check(self, values: Values, by: str) -> Done:
        options = {"look": [], "repair": ["--repair"], "adopt": ["--adopt", "--all", "--as", by]}[values["mode"]]
        self.check.begin(["--json", *options, *(["--deep"] if values["deep"] else [])])
        return Done("The check has begun. Load this page again to see what it finds.", _back())

    def _ask_to_mend(self, values: Values) -> Question:
        finding = self._found(values)
        if finding.remedy == _REPAIR:
            folder = "/".join(finding.path.split("/")[:FOLDER_DEPTH])
            effects = (
                f"{finding.what}: {finding.does}.",
                f"Everything else that is safe to repair in {folder} is repaired with it.",
            )
            return Question(f"Repair {finding.path}?", effects, "Repair", _back())
        effects = (f"{finding.what}: {finding.does}, saved by you.", "Nothing else is adopted.")
        return Question(f"Adopt {finding.path}?", effects, "Adopt", _back())

    def _mend(self, values: Values, by: str) -> Done:
        finding = self._found(values)
        remedy = [_REPAIR] if finding.remedy == _REPAIR else [_ADOPT, "--as", by]
        self.mend.begin(["--json", *remedy, *self.trees[finding.tree], "--", finding.path])
        return Done(f"{finding.path} is being looked at. Load this page again to see what came of it.", _back())

    def _found(self, values: Values) -> CheckFinding:
        asked = (values["tree"], values["path"], values["kind"])
        for each in _findings(self.check.output()) if values["tree"] in self.trees else ():
            if (each.tree, each.path, each.kind) == asked and each.is_open:
                return each
        raise NotFoundError("the last check has found nothing there that can be repaired or adopted alone")

    def _reindex(self, _values: Values, _by: str) -> Done:
        self.reindex.begin([])
        return Done("The indexes are being rebuilt.", _back())

    def _reencrypt(self, values: Values, _by: str) -> Done:
        form = Form(values["app"], values["form"])
        if not self.reencrypts.begin(form, None):
            raise NotFoundError(f"there is no form {form}")
        return Done(f"{form} is being re-encrypted.", _back())


def _ask_to_check(values: Values) -> Question:
    if values["mode"] not in _MODES:
        raise BadRequestError(f"mode is one of: {', '.join(_MODES)}")
    title, button, effects = _MODES[values["mode"]]
    return Question(title, (*effects, *([_DEEP] if values["deep"] else [])), button, _back())


def _ask_to_reindex(_values: Values) -> Question:
    effects = (
        "The search indexes and the tables for reports of all forms are rebuilt from what is stored.",
        "The service answers from the old ones until the new ones are complete.",
    )
    return Question("Rebuild all indexes?", effects, "Rebuild them", _back())


def _ask_to_reencrypt(values: Values) -> Question:
    if not values["app"] or not values["form"]:
        raise BadRequestError("name the form to re-encrypt: its application and its name")
    effects = (
        "All data of the form is read and written again with the newest encryption key, older revisions, too.",
        "It is then encrypted where its definition says so now.",
    )
    return Question(f"Re-encrypt {values['app']}/{values['form']}?", effects, "Re-encrypt it", _back())


def _findings(output: Output | None) -> list[CheckFinding]:
    found = []
    for line in () if output is None else output.lines:
        try:
            found.append(_finding(line))
        except msgspec.DecodeError:
            continue
    return found


def _back() -> str:
    return url_for("pages.health")
