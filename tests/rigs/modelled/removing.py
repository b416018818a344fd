"""Clients that remove for good, and bring back: purges, retention, erasures and reverts, killed now and then.

Each has documents with attachments in forms of its own, and knows of each file which revisions are left of it. So it
knows what must be read, and what must be gone, also from the disk.
"""

from __future__ import annotations

import json
import random
import re
import subprocess
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from xml.etree import ElementTree as ET

from persistence.model.addresses import DATA_XML
from tests.rigs.clients import BINARY, GONE, XML, url
from tests.rigs.report import Tally
from tests.rigs.server import Actor, Server, Variant, kill_early, working
from tests.service import PUBLIC, Answer

KEPT, BRIEF = "removed/kept", "removed/brief"
"""Beginnings of the names of forms: of those that keep their history, and of those with a retention of none."""

RETENTION = "".join(f'"svc.persistence.retention.history.removed.brief{each}" = "none"\n' for each in range(4))
_DOCUMENTS = 2
_ATTACHMENTS = ("a.bin", "b.bin")
_KILLED = 0.3
_CONTENT = re.compile(rb"r\d{4}n\d{6}")


@dataclass(frozen=True, slots=True)
class _Revision:
    """A revision with its content, which is ``None`` for a deletion, and when the life of its file began."""

    instant: str
    content: bytes | None
    created: str


@dataclass(slots=True)
class _Document:
    """The revisions that are left of each file, the oldest first, and the instants of those that are gone.

    ``is_vague`` where the answer to a request was lost that was sent again: a revision may be there twice.
    """

    files: dict[str, list[_Revision]] = field(default_factory=dict)
    gone: set[tuple[str, str]] = field(default_factory=set)
    is_vague: bool = False

    @property
    def is_living(self) -> bool:
        return self.current(DATA_XML) is not None

    def current(self, name: str) -> bytes | None:
        revisions = self.files.get(name)
        return revisions[-1].content if revisions else None

    def newest(self) -> str:
        return max((each[-1].instant for each in self.files.values()), default="")

    def add(self, name: str, instant: str, content: bytes | None, created: str | None = None) -> None:
        revisions = self.files.setdefault(name, [])
        living = revisions[-1].created if revisions and (revisions[-1].content is not None or content is None) else None
        revisions.append(_Revision(instant, content, living or created or instant))

    def drop(self, name: str, revisions: list[_Revision]) -> None:
        left = [each for each in self.files[name] if each not in revisions]
        self.gone |= {(name, each.instant) for each in revisions}
        self.files[name] = left
        if not left:
            del self.files[name]


class Remover(Actor):
    """One client. ``roots`` are the directories with the contents, ``options`` those of its commands.

    The settings of these have a retention that those of the service lack, so that a save keeps what a purge removes.
    """

    def __init__(
        self, server: Server, options: tuple[str, ...], roots: tuple[Path, ...], number: int, seed: int
    ) -> None:
        super().__init__(lambda: server.service, number, seed)
        self._server = server
        self._options = options
        self._roots = roots
        self._documents = {
            (f"{form}{number}", f"d{number}-{document}"): _Document()
            for form in (KEPT, BRIEF)
            for document in range(_DOCUMENTS)
        }
        self._contents = set[bytes]()
        self._actions = {
            self.save: 30,
            self.delete: 8,
            self.delete_attachment: 6,
            self.revert: 12,
            self.purge_revisions: 6,
            self.purge_tombstones: 5,
            self.retain: 3,
            self.erase: 2,
            self.save_again: 4,
        }

    def save(self) -> None:
        """PUT of attachments and then, nearly always, of the data that names them."""
        key, document = self._any()
        for name in _ATTACHMENTS:
            if self._rng.random() < 0.4:
                self._put(key, document, name, self._content())
        if document.is_living or self._rng.random() < 0.8:
            self._save(key, document)

    def save_again(self) -> None:
        """Save a deleted document again, attachments first, while what was deleted before is purged."""
        key, document = self._any()
        if document.is_living:
            self._delete(key, document, DATA_XML)
            self._put(key, document, _ATTACHMENTS[0], self._content())
            self._purge_tombstones(key, document, document.newest())
            self._save(key, document)
            self._compare(key, document)

    def delete(self) -> None:
        key, document = self._any()
        if document.is_living:
            self._delete(key, document, DATA_XML)

    def delete_attachment(self) -> None:
        key, document = self._any()
        there = [name for name in _ATTACHMENTS if document.current(name) is not None]
        if document.is_living and there:
            self._delete(key, document, self._rng.choice(there))

    def revert(self) -> None:
        """Bring back an older revision of the data, with what it names as it was then, or not at all."""
        key, document = self._any()
        older = [each for each in document.files.get(DATA_XML, ()) if each.content is not None]
        if older:
            self._revert(key, document, self._rng.choice(older))

    def purge_revisions(self) -> None:
        """Purge older revisions of a document before an instant, often that of one of them."""
        key, document = self._any()
        instants = sorted(each.instant for revisions in document.files.values() for each in revisions)
        if not instants:
            return
        saved = [each for each in document.files.get(DATA_XML, ()) if each.content is not None]
        revision = self._rng.choice(saved) if saved and self._rng.random() < 0.6 else None
        cutoff = revision.instant if revision is not None else self._rng.choice((*instants, _now()))
        self._command("purge", "/".join(key), "--older-than", cutoff, "--revisions", "--yes")
        self._age(document, cutoff)
        if revision is not None:  # the attachments that it names were stored before it
            self._revert(key, document, revision)

    def purge_tombstones(self) -> None:
        key, document = self._any()
        newest = document.newest()
        if not newest:
            return
        self._purge_tombstones(key, document, self._rng.choice((newest, _now())))

    def retain(self) -> None:
        form = f"{BRIEF}{self._number}"
        if any(document.files for key, document in self._documents.items() if key[0] == form):
            self._command("purge", form, "--retention", "--yes")
            for key, document in self._documents.items():
                if key[0] == form:
                    self._age(document, "9")

    def erase(self) -> None:
        key, document = self._any()
        if not document.files:
            return
        self._count += 1
        certificate = self._server.directory / f"certificate-{self._number}-{self._count}.json"
        command = ("erase", f"{key[0]}/data/{key[1]}", "--yes", "--certificate", str(certificate))
        self._command(
            *command,
            is_done=lambda: certificate.exists() and json.loads(certificate.read_text()).get("ended") is not None,
        )
        self._forget(key)

    def look_back(self) -> None:
        for key, document in self._documents.items():
            self._compare(key, document)
        if any(document.is_vague for document in self._documents.values()):
            return
        every = [revisions for document in self._documents.values() for revisions in document.files.values()]
        left = {each.content for revisions in every for each in revisions}
        gone = {content for content in self._contents if not any(content in each for each in left if each)}
        for path in (path for root in self._roots for path in (root / "removed").rglob("*") if path.is_file()):
            if found := gone & set(_CONTENT.findall(path.read_bytes())):
                self.violations.append(f"{path} still has {sorted(found)}")

    def _compare(self, key: tuple[str, str], document: _Document) -> None:
        for name in (DATA_XML, *_ATTACHMENTS):
            if name != DATA_XML and not document.is_living:
                continue
            self._show(self._get(key, name), document.current(name), f"{key} {name}")
            for each in document.files.get(name, ()):
                answer = self._get(key, name, f"?last-modified-time={each.instant}")
                self._show(answer, each.content, f"{key} {name} of {each.instant}")
            for instant in (instant for gone, instant in document.gone if gone == name):
                self._show(self._get(key, name, f"?last-modified-time={instant}"), None, f"{key} {name} of {instant}")

    def _show(self, answer: Answer, content: bytes | None, what: str) -> None:
        if content is None:
            self._expect(answer, f"GET of {what}, which is gone,", *GONE)
        elif self._expect(answer, f"GET of {what}", 200) and answer.body != content:
            self.violations.append(f"{what} is {answer.body[:80]!r} instead of {content[:80]!r}")

    # How

    def _any(self) -> tuple[tuple[str, str], _Document]:
        return self._rng.choice(list(self._documents.items()))

    def _content(self) -> bytes:
        self._count += 1
        content = f"r{self._number:04d}n{self._count:06d}".encode()
        self._contents.add(content)
        return content

    def _get(self, key: tuple[str, str], name: str, query: str = "") -> Answer:
        return self.line.read("GET", url(f"{key[0]}/data/{key[1]}/{name}{query}"))

    def _asked(self, document: _Document, method: str, path: str, body: bytes | None = None, **own: str) -> Answer:
        headers = {"Content-Type": XML if path.endswith(DATA_XML) else BINARY, "Svc-Form-Definition-Version": "1"}
        while (answer := self.line.ask(method, path, body, headers, **own)) is None:
            document.is_vague = True
        return answer

    def _save(self, key: tuple[str, str], document: _Document) -> None:
        held = "".join(f'<f filename="{each}">{url(f"{key[0]}/data/{key[1]}/{each}")}</f>' for each in _ATTACHMENTS)
        self._put(key, document, DATA_XML, b"<form>%s%s</form>" % (self._content(), held.encode()))

    def _revert(self, key: tuple[str, str], document: _Document, revision: _Revision) -> None:
        before = document.files[DATA_XML][-1]
        expected = {name: _as_of(document, name, revision.instant) for name in _ATTACHMENTS}
        path = f"{PUBLIC}/history/{key[0]}/{key[1]}/restore?last-modified-time={revision.instant}"
        answer = self._asked(document, "POST", path)
        what = f"revert of {key} to {revision.instant}"
        if "purged" in expected.values():
            self._expect(answer, what, 409, *((201, 204) if document.is_vague else ()))
            if answer.status != 409:
                self._forget(key)
            return
        if not self._expect(answer, what, 204 if before.content is not None else 201, 204):
            return
        for name, found in expected.items():
            if isinstance(found, _Revision) and found.content != document.current(name):
                shown = self._get(key, name)
                if self._expect(shown, f"GET {name} after {what}", 200):
                    self._came_back(document, name, str(shown["Svc-Last-Modified"]), found)
        self._came_back(document, DATA_XML, str(answer["Svc-Last-Modified"]), revision)

    def _put(self, key: tuple[str, str], document: _Document, name: str, content: bytes) -> None:
        was_vague, document.is_vague = document.is_vague, False
        answer = self._asked(document, "PUT", url(f"{key[0]}/data/{key[1]}/{name}"), content)
        if not self._expect(answer, f"PUT {key} {name}", 201, 204):
            return
        if document.is_vague and (name == DATA_XML or document.is_living):  # where it was stored twice, it is known
            known = {each.instant for each in document.files.get(name, ())} | {at for _, at in document.gone}
            for instant in sorted(set(self._instants(key, name)) - known - {answer["Svc-Last-Modified"]}):
                document.add(name, instant, content)
            document.is_vague = False
        document.is_vague |= was_vague
        document.add(name, str(answer["Svc-Last-Modified"]), content)

    def _delete(self, key: tuple[str, str], document: _Document, name: str) -> None:
        answer = self._asked(document, "DELETE", url(f"{key[0]}/data/{key[1]}/{name}"))
        is_repeated = answer.status in GONE and document.is_vague  # the first one was carried out
        if is_repeated or self._expect(answer, f"DELETE {key} {name}", 204):
            instant = None if is_repeated else answer["Svc-Last-Modified"]
            # A service without a protection may have lost its history.
            document.add(name, instant or max(self._instants(key, name), default=""), None)

    def _instants(self, key: tuple[str, str], name: str) -> list[str]:
        of_file = "" if name == DATA_XML else f"/{name}"
        answer = self.line.read("GET", f"{PUBLIC}/history/{key[0]}/{key[1]}{of_file}?page-size=100")
        self._expect(answer, f"history of {key} {name}", 200)
        return [each.attrib["modified-time"] for each in ET.fromstring(answer.body)]  # noqa: S314 - the service's own

    def _came_back(self, document: _Document, name: str, instant: str, older: _Revision) -> None:
        last = document.files[name][-1] if name in document.files else None
        is_same_life = last is None or last.created <= older.created
        document.add(name, instant, older.content, older.created if is_same_life else None)

    def _purge_tombstones(self, key: tuple[str, str], document: _Document, cutoff: str) -> None:
        self._command("purge", "/".join(key), "--older-than", cutoff, "--tombstones", "--yes")
        self._bury(document, cutoff)

    def _age(self, document: _Document, cutoff: str) -> None:
        for name, revisions in list(document.files.items()):
            document.drop(name, [each for each in revisions[:-1] if each.instant < cutoff])

    def _bury(self, document: _Document, cutoff: str) -> None:
        """Let a deleted document go if nothing of it is newer, else deleted attachments."""
        main = document.files.get(DATA_XML)
        if main and main[-1].content is None and document.newest() < cutoff:
            for name in list(document.files):
                document.drop(name, document.files[name])
            return
        for name in _ATTACHMENTS:
            revisions = document.files.get(name)
            if revisions and revisions[-1].content is None and revisions[-1].instant < cutoff:
                document.drop(name, revisions)

    def _forget(self, key: tuple[str, str]) -> None:
        """Begin again with a document; one of a revert that the model cannot follow is erased first."""
        self._documents[key] = _Document()

    def _command(self, *command: str, is_done: Callable[[], bool] = lambda: False) -> None:
        """Run a command, which is killed now and then; then it is run again, and goes on."""
        is_killed = self._rng.random() < _KILLED
        if is_killed:
            self.done["commands killed"] += kill_early(self._started(command), self._rng, 1.0)
            if is_done():
                return
        process = self._started(command)
        said = " ".join(process.communicate(timeout=300))
        if process.returncode and not (is_killed and "has no document" in said):  # the first one has removed it
            self.violations.append(f"{' '.join(command)} ends with {process.returncode}: {said[-400:]}")

    def _started(self, command: tuple[str, ...]) -> subprocess.Popen[str]:
        return self._server.variant.start(*command, *self._options, directory=self._server.directory)


def _as_of(document: _Document, name: str, instant: str) -> _Revision | str | None:
    """Return the revision of an attachment that a revert to an instant brings back, or that it was purged."""
    revisions = document.files.get(name, [])
    before = [each for each in revisions if each.instant <= instant]
    found = before[-1] if before else next(iter(revisions), None)
    if found is None or found.content is None:
        return None
    return "purged" if not before and found.created <= instant else found


def _now() -> str:
    """Return an instant that is later than all that were answered."""
    time.sleep(0.05)
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


TREE, SPLIT, DATABASE = "tree", "attachments apart", "database"
_APART = '"svc.persistence.provider.*.*.data.attachments" = "big"\n"svc.persistence.big.base-path" = "{}"\n'
_PAUSES = 0.4, 1.5
_CLIENTS = 2
_LEAST, _LONGEST = 120, 120.0
_HEADINGS = (
    *("save", "revert", "purge_revisions", "purge_tombstones", "retain", "erase"),
    *("workers killed", "commands killed"),
)


def remove(
    kind: str, directory: Path, seconds: float, *, seed: int = 1, uri: str = "", variant: Variant | None = None
) -> Tally:
    """Let clients work for some seconds, while workers are killed; a database is at ``uri``."""
    home, tally = directory / "service", Tally(kind, _HEADINGS)
    big, settings = home / "big", [directory / f"{name}.toml" for name in ("service", "commands")]
    big.mkdir(parents=True)
    for file, own in zip(settings, ("", RETENTION), strict=True):
        file.write_text(own + (_APART.format(big) if kind == SPLIT else ""))
    place = uri if kind == DATABASE else str(home / "data")
    roots = () if kind == DATABASE else (home / "data", big)
    options = "--data", place, "--config"
    started = replace(variant or Variant(), options=(*options, str(settings[0])))
    with closing(Server(home, started)) as server:
        removers = [Remover(server, (*options, str(settings[1])), roots, number, seed) for number in range(_CLIENTS)]
        kill = partial(server.kill_worker, random.Random(seed))
        # Without a protection, so much is done that something needs it; kills would only cost a slow machine time.
        least, pauses = (0, _PAUSES) if variant is None else (_LEAST, None)
        end = time.monotonic() + _LONGEST
        with working([remover.act for remover in removers], [(kill, pauses)], seed) as over:
            over.wait(seconds)
            while sum(remover.done.total() for remover in removers) < least and time.monotonic() < end:
                over.wait(0.1)
        for remover in removers:
            remover.look_back()
            tally.violations += remover.violations
            tally.counts += remover.done
        tally.counts += server.kills
    return tally.ended()
