"""The page of the health: findings of a check, repair, rebuilt indexes, re-encryption, and the processes that do it."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress

import msgspec
from flask import render_template, url_for
from msgspec.structs import asdict, replace

from persistence import processes
from persistence.errors import BadRequestError, BusyError, NotFoundError, PreconditionError, disk_errors
from persistence.limits import LONGEST_OUTPUT, LONGEST_OUTPUT_LINE, MOST_FINDINGS_SHOWN, MOST_OUTPUT
from persistence.maintenance.backup_files import tree_name
from persistence.maintenance.records import CheckTotals, LastBackup, LastCheck, last
from persistence.model.addresses import Form
from persistence.model.texts import to_datetime
from persistence.pages.languages import translated
from persistence.pages.site import Done, Question, Site, Values
from persistence.processes import Child
from persistence.providers.router import Router
from persistence.services.reencryption import ReencryptionJobs
from persistence.settings import GIVEN, Effective, passed_on
from persistence.storage import files, root
from persistence.storage.findings import Outcome, Remedy, Severity
from persistence.storage.layout import FOLDER_DEPTH, PAGES, Layout, unescape
from persistence.storage.locks import try_lock

# Commands that the pages begin: each runs in a process of its own, and its output is kept for all workers.
#
# The process holds a lock on a file while it lives, also when its worker is replaced: so all workers refuse a second
# one.


class Output(msgspec.Struct, frozen=True):
    """The output of a run, of which the file of a command has these fields as a first line.

    ``lines`` are what the command has printed, on standard error, too. Times are in seconds since the epoch.
    """

    began: float
    about: dict[str, str] = {}
    is_running: bool = False
    ended: float = 0.0
    lines: list[bytes] = []

    @property
    def text(self) -> str:
        """The lines that are not JSON: the result of most commands, and the errors of a check."""
        return b"\n".join(line for line in self.lines if not line.startswith(b"{")).decode(errors="replace").strip()

    @property
    def totals(self) -> CheckTotals | None:
        """The totals of a check; ``None`` until its end, and if it was stopped."""
        for line in reversed(self.lines):
            with suppress(msgspec.DecodeError):
                return _totals(line)
        return None


_BEGUN = b'{"began":'
_begun = msgspec.json.Decoder(Output).decode


class BackgroundCommand:
    """One command, in at most one process. ``purpose`` names its files if the command has several purposes."""

    def __init__(self, name: str, effective: Effective, purpose: str = "") -> None:
        self._name = name
        self._effective = effective
        self._path = f"{Layout(effective.settings.home).own(PAGES)}/{purpose or name}"
        self._process: Child | None = None

    def begin(
        self, arguments: Sequence[str], about: Mapping[str, str] | None = None, *, keeps_output: bool = False
    ) -> None:
        """Begin a run; ``keeps_output`` adds its output to that of the runs before."""
        with disk_errors(f"running persistence {self._name}"), ExitStack() as stack:
            root.ensure_pages(self._effective.settings.home)
            opened = (files.open_shared(f"{self._path}.{each}", os.O_APPEND) for each in ("lock", "out"))
            lock, out = (stack.enter_context(files.closing(each)) for each in opened)
            if self.is_running() or not try_lock(lock):
                raise BusyError(f"persistence {self._name} is running already: wait for its end")
            if not keeps_output:
                files.set_size(out, 0)
            elif os.fstat(out).st_size > MOST_OUTPUT - 2 * (LONGEST_OUTPUT + LONGEST_OUTPUT_LINE):
                raise PreconditionError("so much was repaired since the last check that you must check again first")
            files.write_all(out, b'%s%.3f,"about":%s}\n' % (_BEGUN, time.time(), msgspec.json.encode(about or {})))
            self._process = processes.start(  # it holds the lock from here on
                *("-m", "persistence.processes"),
                *("-m", "persistence.cli", self._name, "--config", GIVEN, *arguments),
                given=passed_on(self._effective),
                stdout=out,
                stderr=out,
                pass_fds=(lock,),
                start_new_session=True,
            )

    def outputs(self) -> list[Output]:
        """Return the output of each run that is kept, oldest first."""
        with disk_errors(f"looking at persistence {self._name}"):
            is_running = self.is_running()
            try:
                descriptor = files.open_to_read(f"{self._path}.out")
            except (FileNotFoundError, NotADirectoryError):
                return []
            with open(descriptor, "rb") as file:
                lines, ended = file.read(MOST_OUTPUT).splitlines(), os.fstat(descriptor).st_mtime
        runs: list[Output] = []
        for line in lines:
            if line.startswith(_BEGUN):
                with suppress(msgspec.DecodeError):  # the disk was full, or more is not read
                    runs.append(replace(_begun(line), ended=ended))
            elif runs:
                runs[-1].lines.append(line)
        return [*runs[:-1], *(replace(each, is_running=is_running) for each in runs[-1:])]

    def output(self) -> Output | None:
        """Return the output of the current or last run; ``None`` if it was never run from here."""
        return next(reversed(self.outputs()), None)

    def is_running(self) -> bool:
        """Tell whether it runs, also if another worker has begun it."""
        with (
            suppress(FileNotFoundError, NotADirectoryError),
            files.closing(files.open_to_read(f"{self._path}.lock")) as it,
        ):
            if not try_lock(it):
                return True
            process, self._process = self._process, None
            if process is not None:
                process.wait()  # it is ending, and would stay as a zombie
        return False


_LOOK = "The service goes on meanwhile. What it finds is shown here."
_MODES = {
    "look": ("Check everything?", "Check it", ("Everything that is stored is looked at. Nothing is changed.", _LOOK)),
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
_REPAIR, _ADOPT = Remedy.REPAIR.value, Remedy.ADOPT.value
_OPEN, _MENDED, _FAILED, _RUNNING = Outcome.FOUND.value, Outcome.MENDED.value, Outcome.FAILED.value, "running"
_STOPPED = "the command was stopped before its end"
_NOTICE = Severity.NOTICE.value
_DEEP = "Every content is read, and compared with its digest: on a large tree this takes long."


Key = tuple[str, str, str]  # The tree, path and kind of a finding


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
    def key(self) -> Key:
        return self.tree, self.path, self.kind

    @property
    def is_open(self) -> bool:
        """Tell whether it can be repaired or adopted alone. The service's own files are parts of a whole."""
        has_remedy = self.remedy in (_REPAIR, _ADOPT) and not self.path.startswith(".")
        return has_remedy and self.outcome in (_OPEN, _FAILED)

    @property
    def remains(self) -> bool:
        return self.outcome == _FAILED or (self.outcome != _MENDED and self.severity != _NOTICE)

    @property
    def page(self) -> str:
        """The path of the page of its document or version; empty if it has none."""
        match [] if self.path.startswith(".") else [unescape(part) for part in self.path.split("/")]:
            case [app, form, "data" | "draft" as collection, document, *_]:
                return url_for("pages.document", app=app, form=form, collection=collection, document=document)
            case [app, form, "form", version, *_] if version.isdecimal():
                return url_for("pages.version-definition", app=app, form=form, version=int(version))
        return ""


_finding = msgspec.json.Decoder(CheckFinding).decode
_totals = msgspec.json.Decoder(CheckTotals).decode


class HealthPage:
    """The page and its actions."""

    def __init__(self, effective: Effective, router: Router, reencrypts: ReencryptionJobs) -> None:
        self.router, self.reencrypts = router, reencrypts
        self.check, self.reindex = (BackgroundCommand(name, effective) for name in ("check", "reindex"))
        self.mend = BackgroundCommand("check", effective, "mend")
        self.home = effective.settings.home  # with the records of the last check and the last backup
        self.trees: Mapping[str, Sequence[str]] = {
            "": (),
            **{tree_name(name): ("--datasource", name) for name in ("", *effective.settings.roots.named)},
        }
        """The options that choose a tree for a check, by its name in findings."""

    def add_to(self, site: Site) -> None:
        site.page("/admin/health", "health", self.show, "Health")
        site.action("check", self._check, "mode", "deep")
        site.action("mend", self._mend, "tree", "path", "kind")
        site.action("reindex", self._reindex)
        site.action("reencrypt", self._reencrypt, "app", "form")

    def show(self) -> str:
        checked, reindexed = self.check.output(), self.reindex.output()
        findings = self._standing(checked)
        totals = None if checked is None else _counted(checked, findings)
        last_check = self.last_check()
        return render_template(
            "health.html",
            check=checked,
            is_mending=self.mend.is_running(),
            trees=self.trees,
            findings=findings[:MOST_FINDINGS_SHOWN],
            totals=totals,
            is_stopped=checked is not None and not checked.is_running and checked.totals is None,
            last_check=last_check,
            is_outdated=checked is not None and last_check is not None and _seconds(last_check) > checked.ended + 1,
            last_backup=last(self.home, LastBackup),
            reindex=reindexed,
            reindexing=self.router.reindexing_status(),
            reencryptions=self.reencrypts.states(),
        )

    def last_check(self) -> LastCheck | None:
        """Return the record of the last full check, with what was repaired on the page since."""
        record, checked = last(self.home, LastCheck), self.check.output()
        if record is None or checked is None or checked.totals is None:
            return record
        if not checked.began <= _seconds(record) <= checked.ended + 1:  # one by the command, earlier or later
            return record
        return replace(record, **asdict(_counted(checked, self._standing(checked))))

    def _standing(self, checked: Output | None) -> list[CheckFinding]:
        """Return the findings of a check, each with what came of its repair since, and those that repairs have met."""
        found = {each.key: each for each in _findings(checked)}
        for run in self.mend.outputs():
            asked = run.about.get("tree", ""), run.about.get("path", ""), run.about.get("kind", "")
            if checked is None or run.began < checked.began or asked not in found:
                continue
            found[asked] = replace(found[asked], outcome=_OPEN, said="")
            met = {each.key: each for each in (replace(each, tree=asked[0]) for each in _findings(run))}
            for key, each in met.items():
                if each.outcome != _OPEN or found.get(key, each).outcome == _MENDED or key not in found:
                    found[key] = each
            if found[asked].outcome == _OPEN:
                outcome, said = _MENDED, "it is no longer there"
                if run.is_running:
                    outcome, said = _RUNNING, ""
                elif run.totals is None:
                    outcome, said = _FAILED, (run.text or _STOPPED).splitlines()[-1].removeprefix("Error: ")
                elif asked in met:
                    outcome, said = _FAILED, "it cannot be repaired alone"
                found[asked] = replace(found[asked], outcome=outcome, said=said)
        return list(found.values())

    def _check(self, values: Values) -> Question:
        mode, is_deep = values["mode"], bool(values["deep"])
        if mode not in _MODES:
            raise BadRequestError(f"mode is one of: {', '.join(_MODES)}")

        def do(by: str) -> Done:
            options = {"look": [], "repair": ["--repair"], "adopt": ["--adopt", "--all", "--as", by]}[mode]
            self.check.begin(["--json", *options, *["--deep"] * is_deep])
            return Done("The check has begun. What it finds is listed below.")

        title, button, effects = _MODES[mode]
        return Question(title, (*effects, *[_DEEP] * is_deep), button, _back(), do)

    def _mend(self, values: Values) -> Question:
        asked, checked = {name: values[name] for name in ("tree", "path", "kind")}, self.check.output()
        standing = self._standing(checked) if values["tree"] in self.trees else ()
        finding = next((each for each in standing if each.key == tuple(asked.values()) and each.is_open), None)
        if finding is None:
            raise NotFoundError("the last check has found nothing there that can be repaired or adopted alone")
        path, is_repair = finding.path, finding.remedy == _REPAIR

        def do(by: str) -> Done:
            mended, remedy = self.mend.output(), [_REPAIR] if is_repair else [_ADOPT, "--as", by]
            is_of_check = mended is not None and checked is not None and mended.began >= checked.began
            arguments = ["--json", "--deep", *remedy, *self.trees[finding.tree], "--", path]
            self.mend.begin(arguments, asked, keeps_output=is_of_check)
            text = "The repair of {path} has begun." if is_repair else "The adoption of {path} has begun."
            return Done(f"{translated(text, path=path)} {translated('Its result is shown beside the finding.')}")

        found = {"what": translated(finding.what), "does": translated(finding.does)}
        if is_repair:
            folder = "/".join(path.split("/")[:FOLDER_DEPTH])
            others = f"Everything else that is safe to repair in {folder} is repaired with it."
            return Question(f"Repair {path}?", (translated("{what}: {does}.", **found), others), "Repair", _back(), do)
        effects = (translated("{what}: {does}, saved by you.", **found), "Nothing else is adopted.")
        return Question(f"Adopt {path}?", effects, "Adopt", _back(), do)

    def _reindex(self, _values: Values) -> Question:
        effects = (
            "The search indexes and the tables for reports of all forms are rebuilt from what is stored.",
            "The service answers from the old ones until the new ones are complete.",
        )

        def do(_by: str) -> Done:
            self.reindex.begin([])
            return Done("The indexes are being rebuilt.")

        return Question("Rebuild all indexes?", effects, "Rebuild them", _back(), do)

    def _reencrypt(self, values: Values) -> Question:
        if not values["app"] or not values["form"]:
            raise BadRequestError("name the form to re-encrypt: its application and its name")
        form = Form(values["app"], values["form"])
        effects = (
            "All data of the form is read and written again with the newest encryption key, older revisions, too.",
            "It is then encrypted where its definition says so now.",
        )

        def do(_by: str) -> Done:
            if not self.reencrypts.begin(form, None):
                raise NotFoundError(f"there is no form {form}")
            return Done(f"{form} is being re-encrypted.")

        return Question(f"Re-encrypt {form.app}/{form.name}?", effects, "Re-encrypt it", _back(), do)


def _findings(output: Output | None) -> list[CheckFinding]:
    found = list[CheckFinding]()
    for line in () if output is None else output.lines:
        with suppress(msgspec.DecodeError):
            found.append(_finding(line))
    return found


def _counted(checked: Output, standing: Iterable[CheckFinding]) -> CheckTotals:
    """Return the totals of a check with what came of repairs since. The file of its output may lack findings."""
    before, now = _count(_findings(checked)), _count(standing)
    whole = {"folders": 0, **before} if checked.totals is None else asdict(checked.totals)
    return CheckTotals(**{name: count + now[name] - before[name] for name, count in whole.items()})


def _count(findings: Iterable[CheckFinding]) -> Counter[str]:
    count = Counter(dict.fromkeys(CheckTotals.__struct_fields__, 0))
    for each in findings:
        is_edit = each.outcome == _OPEN and each.remedy == _ADOPT
        count[each.severity] += 1
        count.update(mended=each.outcome == _MENDED, remaining=each.remains, edits=is_edit)
    return count


def _seconds(record: LastCheck) -> float:
    return to_datetime(record.at).timestamp()


def _back() -> str:
    return url_for("pages.health")
