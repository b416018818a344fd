"""What is promised about a disk after a power cut, checked through the service that was started on it."""

from __future__ import annotations

import gc
import hashlib
import json
import signal
import sqlite3
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

from persistence.errors import DamagedError
from persistence.index.sqlite import tree_outbox
from persistence.index.sync import staleness
from persistence.model.addresses import DATA_XML, FORM_XHTML, DefinitionAddress, Form
from persistence.model.texts import Instant
from persistence.storage import stored_revision
from persistence.storage.layout import EVENTS, Layout
from persistence.storage.stored_revision import Integrity
from tests.in_process import InProcess
from tests.maintenance.workshop import Workshop
from tests.rigs.ledger import FORM, Expected, Resource, State
from tests.service import PUBLIC, Answer, Service

FeedChange = dict[str, Any]
"""A change of the feed as it is sent."""

EventKey = tuple[str, str, str]
"""App, form, and the document or the version."""

WITH_EVENTS = {"PERSISTENCE_EVENTS": "true", "PERSISTENCE_ADMINISTRATORS": "trusted"}
"""The environment of a service that has a feed of changes, and shows it."""

_REWRITTEN = 3
_RECOVERED = 10.0
NOTHING_FOUND, ALL_REPAIRED = 0, 3


@dataclass(slots=True)
class Verdict:
    violations: list[str] = field(default_factory=list)
    states: int = 0
    older: int = 0


def prepare_process(log: str) -> None:
    """Make this process one that judges: Ctrl-C is for the process that mounts, and requests are logged to a file.

    The index takes a picture for the disk itself after a start of the machine: it compares what is left of it with the
    tree, where it would rebuild the index of a copy.
    """
    staleness._place = lambda _identity: ""  # noqa: SLF001 - the picture is a copy
    staleness._boot = lambda: "the start after the cut"  # noqa: SLF001 - as Linux gives each start its own
    tree_outbox._place = _recorded_place  # noqa: SLF001 - as above
    tree_outbox._boot = staleness._boot  # noqa: SLF001
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.freeze()  # what is imported by now stays; looking through it again for each disk takes longer than the rest
    sys.stderr = open(log, "a", encoding="utf-8")  # noqa: SIM115 - open as long as the process lives


def _recorded_place(root: str) -> str:
    """Return the place that the outbox in a picture was made for, where there is one."""
    for file in sorted(Path(root, EVENTS).glob("outbox-*.sqlite"))[-1:]:
        with closing(sqlite3.connect(file)) as connection:
            for (place,) in connection.execute("SELECT value FROM outbox_fact WHERE name = 'place'"):
                return str(place)
    return ""


def start_and_judge(data: Path, expected: Sequence[Expected], shown: Sequence[FeedChange] | None = None) -> Verdict:
    """Start the service in a fork of this process, and judge it; afterwards nothing holds the disk."""
    with fork() as own:
        return own.submit(started_and_judged, data, expected, shown).result()


def fork() -> ProcessPoolExecutor:
    return ProcessPoolExecutor(1, mp_context=get_context("fork"))


def started_and_judged(
    data: Path, expected: Sequence[Expected], shown: Sequence[FeedChange] | None = None, **how: bool
) -> Verdict:
    try:
        service = InProcess(data)
    except Exception as error:  # noqa: BLE001 - whatever it is, the service does not start
        return Verdict([f"the service does not start: {error}"])
    with service:
        verdict = judge(service, data, expected, shown, **how)
    if service.refusal is not None:
        verdict.violations.append(f"the service would only read: {service.refusal}")
    return verdict


def judge(
    service: Service,
    data: Path,
    expected: Sequence[Expected],
    shown: Sequence[FeedChange] | None = None,
    *,
    is_written: bool = True,
    in_order: bool = False,
) -> Verdict:
    """Read every resource and every older revision, then write to some, unless there is more to come.

    ``in_order``: the files of a document must be as far as its data. ``shown`` are changes that a follower has seen
    before; without any events are not looked at.
    """
    judging = _Judge(service, data, expected)
    judging.read()
    if shown is not None:
        judging.follow(shown)
    if in_order:
        judging.compare_files()
    if is_written:
        judging.write()
    return judging.verdict


def changes(service: Service, since: str = "start") -> list[FeedChange]:
    found, has_more = list[FeedChange](), True
    while has_more:
        answer = service.raw("GET", f"{PUBLIC}/changes?since={since}&limit=1000")
        if answer.status != 200:
            raise AssertionError(f"changes are answered {answer.status}: {answer.cause}")
        page = json.loads(answer.body)
        found += page["changes"]
        since, has_more = page["next"], page["has_more"]
    return found


def _fit(events: Sequence[str], instants: Sequence[str]) -> bool:
    """Compare the instants of events with those of changes; ``+`` after one stands for any later one."""
    return len(events) == len(instants) and all(
        event > instant[:-1] if instant.endswith("+") else event == instant
        for event, instant in zip(events, instants, strict=True)
    )


def key_of(change: FeedChange) -> EventKey:
    about = change["data"]
    return about["app"], about["form"], about.get("document") or str(about["version"])


def check_and_repair(data: Path) -> list[str]:
    """What ``persistence check`` finds that a power cut must not leave, or cannot put right.

    Leftovers of interrupted writes are no fault; damage is.
    """
    with fork() as own:
        return own.submit(_check_faults, data).result()


def _check_faults(data: Path) -> list[str]:
    code, faults = check(data)
    if code == NOTHING_FOUND:
        return faults
    for option, codes in (("--repair", (NOTHING_FOUND, ALL_REPAIRED)), ("--deep", (NOTHING_FOUND,))):
        code, damage = check(data, option)
        if damage or code not in codes:
            faults.append(f"persistence check {option} ends with {code}: {damage}")
    return faults


def check(data: Path, *options: str) -> tuple[int, list[str]]:
    """The exit code, and the damage; whatever else it says is kept where it could not check."""
    try:
        checked = Workshop(data).check(*options)
    except AssertionError as error:
        return -1, [f"persistence check: {error}"]
    damage = [finding for finding in checked.findings if finding["severity"] == "damage"]
    return checked.status, [f"persistence check: {finding['path']}: {finding['what']}" for finding in damage]


class _Judge:
    """One disk; ``found`` is which of its states each resource is in."""

    def __init__(self, service: Service, data: Path, expected: Sequence[Expected]) -> None:
        self._service = service
        self._layout = Layout(str(data))
        self._expected = {each.resource: each for each in expected}
        self._found: dict[Resource, int] = {}
        self.verdict = Verdict()

    def read(self) -> None:
        # Documents first: without them their attachments are not served.
        for resource, each in sorted(self._expected.items(), key=lambda pair: pair[0] != pair[0].main):
            if self._is_served(resource):
                self._note(resource, self._state_faults(each))
            else:
                self._note(resource, self._unserved_faults(resource))
        for resource, current in self._found.items():
            if resource == resource.main or self._is_served(resource):
                self._note(resource, self._older_faults(self._expected[resource], current))
            self._note(resource, self._removal_faults(self._expected[resource].states[current]))
        self._note(_SEARCHED, self._search_faults())

    def follow(self, shown: Sequence[FeedChange]) -> None:
        """Look for the event of every change, and for those that a follower has seen."""
        expected = dict(self._with_events())
        ends = time.monotonic() + (0.0 if self.verdict.violations else _RECOVERED)  # one fault is enough
        while True:
            found = changes(self._service)
            events = defaultdict[EventKey, list[str]](list)
            for each in found:
                events[key_of(each)].append(each["timestamp"])
            every = expected.keys() | events.keys()
            wrong = [key for key in every if not any(_fit(events[key], each) for each in expected.get(key, []))]
            if not wrong or time.monotonic() > ends:
                break
            time.sleep(0.1)
        self.verdict.violations += [
            f"{key}: the events are {events[key]}, and the revisions {expected.get(key, [])}" for key in wrong
        ]
        numbers = {each["number"]: each for each in found}
        self.verdict.violations += [
            f"change {each['number']}, which a follower has seen, is {numbers.get(each['number'])} after the cut"
            for each in shown
            if numbers.get(each["number"]) != each
        ]

    def _with_events(self) -> Iterator[tuple[EventKey, list[list[str]]]]:
        """Yield the instants of the events that each resource may have: those up to a state that looks as it does."""
        for resource, current in self._found.items():
            app, form, _, *names = resource.path.split("/")
            if resource.is_draft or names[-1] not in {DATA_XML, FORM_XHTML}:
                continue
            states = self._expected[resource].states
            possible = [
                number for number in range(current, len(states)) if states[number].served == states[current].served
            ]
            key = (app, form, str(resource.version) if resource.is_published else names[0])
            yield key, [[state.instant for state in states[1 : number + 1]] for number in possible]

    def compare_files(self) -> None:
        for resource, each in self._expected.items():
            if resource != resource.main and not resource.is_draft and resource in self._found:
                self._note(resource, self._order_faults(each, self._state(resource.main).instant))

    def write(self) -> None:
        for resource in self._to_rewrite():
            self._note(resource, self._write_faults(resource))
        self._note(_NEW, self._write_faults(_NEW))

    def _note(self, resource: Resource, faults: Iterator[str]) -> None:
        version = "" if resource.version is None else f" version {resource.version}"
        self.verdict.violations += [f"{resource.path}{version}: {fault}" for fault in faults]

    def _is_served(self, resource: Resource) -> bool:
        main = resource.main
        return main == resource or (main in self._found and self._state(main).revision is not None)

    def _state(self, resource: Resource) -> State:
        return self._expected[resource].states[self._found[resource]]

    def _get(self, resource: Resource, instant: str = "") -> Answer:
        self.verdict.states += not instant
        own = {} if resource.version is None else {"Form_Definition_Version": resource.version}
        query = f"?last-modified-time={instant}" if instant else ""
        return self._service.ask("GET", f"{resource.path}{query}", **own)

    def _state_faults(self, each: Expected) -> Iterator[str]:
        answer = self._get(each.resource)
        if answer.status not in (200, 404):
            yield f"is answered {answer.status}: {answer.cause}"
            return
        current = each.current(answer["ETag"] if answer.status == 200 else None)
        if current is None:
            yield self._lost(each, answer)
            return
        self._found[each.resource] = current
        yield from mismatch(answer, each.states[current], each.resource)

    @staticmethod
    def _lost(each: Expected, answer: Answer) -> str:
        state, old = each.states[each.settled], each.position(answer["ETag"] or "")
        acknowledged = f"state {each.settled}, {state.revision.size} bytes" if state.revision else "nothing"
        seen = f"state {old}" if old < len(each.states) else "an unknown state"
        found = "nothing" if answer.status == 404 else f"{seen}, {len(answer.body)} bytes,"
        return f"{found} is there; acknowledged was {acknowledged}"

    def _unserved_faults(self, resource: Resource) -> Iterator[str]:
        answer = self._get(resource)
        if answer.status != 404 and resource.main in self._found:
            yield f"is answered {answer.status}, though its document is gone"

    def _older_faults(self, each: Expected, current: int) -> Iterator[str]:
        for state in each.older(current):
            self.verdict.older += 1
            if each.resource.is_published:
                yield from self._older_definition_faults(each.resource, state)
                continue
            answer = self._get(each.resource, state.instant)
            if answer.status != 200:
                yield f"the revision of {state.instant} is answered {answer.status}: {answer.cause}"
            else:
                yield from mismatch(answer, state, each.resource)

    def _older_definition_faults(self, resource: Resource, state: State) -> Iterator[str]:
        """Older definitions are not served; they are files."""
        app, form, _, name = resource.path.split("/")
        place = self._layout.paths(DefinitionAddress(Form(app, form), resource.version or 0, name))
        try:
            found = stored_revision.read(place.revision(Instant(state.instant)), Integrity(), content=True)
        except DamagedError as error:
            yield f"the revision of {state.instant} is damaged: {error}"
            return
        if found is None or found.file is None:
            yield f"the revision of {state.instant} is not in the history"
            return
        with found.file:
            digest = hashlib.sha256(found.file.read()).hexdigest()
        if (f'"{found.etag}"', digest) != (state.etag, state.revision.digest):
            yield f"the revision of {state.instant} is not in the history as it was"

    def _removal_faults(self, state: State) -> Iterator[str]:
        """A draft must not be gone before what removed it is there."""
        if not state.removed_by:
            return
        for each in self._expected.values():
            remover = each.position(state.removed_by)
            if each.resource not in self._found or remover == len(each.states):
                continue
            served = each.states[self._found[each.resource]].served
            newest = max(number for number, other in enumerate(each.states) if other.served == served)
            if newest < remover:  # a document that is gone may have gone before or after it
                yield "the draft is gone, and the change that removes it is not there"

    def _order_faults(self, each: Expected, instant: str) -> Iterator[str]:
        """A file that is older than the data has it; a deletion does not tell which one it is."""
        due = max(number for number, state in enumerate(each.states) if state.instant <= instant)
        found = self._found[each.resource]
        is_gone_since = not each.states[found].served and any(not state.served for state in each.states[due:])
        if found < due and not is_gone_since:
            yield f"state {found} is there, and the data that was stored after state {due}"

    def _search_faults(self) -> Iterator[str]:
        """A search must find what is served, and nothing else."""
        served = {}
        for resource, current in self._found.items():
            state = self._expected[resource].states[current]
            if resource.path.startswith(f"{FORM}/") and resource == resource.main and state.revision is not None:
                served[resource.path.split("/")[3], resource.is_draft] = state.instant
        answer = self._searched()
        if answer.status != 200:
            yield f"a search is answered {answer.status}: {answer.cause}"
            return
        found = {
            (each.attrib["name"], each.attrib["draft"] == "true"): each.attrib["last-modified"]
            for each in ET.fromstring(answer.body)  # noqa: S314 - the service's own answer
        }
        if found != served:
            differing = sorted({*found.items()} ^ {*served.items()})
            yield f"a search finds other than what is there: {differing[:3]}"

    def _searched(self) -> Answer:
        headers = {"Content-Type": "application/xml", "Svc-Username": "judge"}
        while True:
            answer = self._service.raw("POST", f"/search/{FORM}", headers, _ALL)
            if answer.status != 503:
                return answer
            time.sleep(0.1)

    def _to_rewrite(self) -> list[Resource]:
        found = [resource for resource in self._found if resource == resource.main and not resource.is_draft]
        return sorted(found, key=lambda resource: -self._found[resource])[:_REWRITTEN]

    def _write_faults(self, resource: Resource) -> Iterator[str]:
        """A PUT must be answered, be there, and keep what it replaces."""
        before = self._found.get(resource, 0)
        body = f"<after>{resource.path}</after>".encode()
        own = {"Form_Definition_Version": resource.version or 1}
        written = self._service.ask("PUT", resource.path, body, {"Content-Type": "application/xml"}, **own)
        if written.status not in (201, 204):
            yield f"the next write is answered {written.status}: {written.cause}"
            return
        again = self._get(resource)
        if (again.status, again.body, again["ETag"]) != (200, body, written["ETag"]):
            yield f"the next write is not there: {again.status}"
        if resource in self._expected and self._state(resource).revision is not None:
            each = self._expected[resource]
            yield from self._older_faults(Expected(resource, each.states[before : before + 1], 0), 1)


_SEARCHED = Resource(f"{FORM}/data")
_ALL = b"<search><page-size>9999</page-size></search>"
_NEW = Resource(f"{FORM}/data/after-the-cut/data.xml")


def mismatch(answer: Answer, state: State, resource: Resource) -> Iterator[str]:
    """How an answer differs from the revision whose entity tag or instant it was found by."""
    if state.revision is None:
        return
    revision = state.revision
    if (len(answer.body), hashlib.sha256(answer.body).hexdigest()) != (revision.size, revision.digest):
        yield f"the content of {state.etag[:8]} is torn, or another's: {len(answer.body)} bytes of {revision.size}"
    headers = {
        "ETag": state.etag,
        "Content-Type": revision.content_type,
        "Content-Length": str(revision.size),
        "Svc-Last-Modified": state.instant,
        "Svc-Created": revision.created,
        "Svc-Form-Definition-Version": revision.version,
        "Svc-Workflow-Stage": revision.stage,
        "Svc-Last-Modified-By-Username": revision.user,
        "Svc-Username": None if resource.is_published else revision.owner,
    }
    for name, value in headers.items():
        if answer[name] != value:
            yield f"{name} of {state.etag[:8]} is {answer[name]!r} instead of {value!r}"
