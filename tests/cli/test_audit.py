"""``persistence audit``, with lines of every sort and damaged files.

The lines of requests and commands, and what ``audit show`` selects, are in ``golden/audit.txt``.
"""

import json
import os
from pathlib import Path

import pytest

from persistence.audit.audit_log import AuditEvent, AuditTrail, prepare
from tests.cli.command_runner import Command, Ended
from tests.initialised import initialised


class Place:
    """A tree with an audit, and the command."""

    def __init__(self, directory: Path, command: Command) -> None:
        self.directory, self.path = directory, prepare(f"{directory}/audit/audit.jsonl")
        self._command = command
        initialised(directory / "data")
        self.settings()

    def settings(self, more: str = "") -> None:
        (self.directory / "settings.toml").write_text(
            f'data = "data"\nkeys = "keys.json"\naudit = "file"\naudit_file = "audit/audit.jsonl"\n{more}'
        )

    def run(self, *arguments: str) -> Ended:
        return self._command(*arguments, "--config", f"{self.directory}/settings.toml")

    def write(self, *events: AuditEvent) -> None:
        with AuditTrail(self.path) as trail:
            for event in events:
                trail.append(event.encoded())

    def lines(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in Path(self.path).read_text().splitlines()]


@pytest.fixture
def place(tmp_path: Path, command: Command) -> Place:
    return Place(tmp_path, command)


SAVED = AuditEvent(action="update", app="hr", form="leave", collection="data", document="D", status=204, user="lea")
REFUSED = AuditEvent(action="delete", app="hr", form="trip", document="E\x1b", status=403, user="bob", key="runtime")


def test_it_verifies_and_prints_the_head(place: Place) -> None:
    assert place.run("audit", "verify").status == 1
    place.write(SAVED, REFUSED)
    done = place.run("audit", "verify")
    count, head = done.out.splitlines()
    assert (done.status, count) == (0, "2 lines, nothing is wrong")
    kept = head.removeprefix("head ")
    place.write(SAVED)
    assert place.run("audit", "verify", "--head", kept).status == 0
    assert place.run("audit", "verify", "--head", "2:zz").status == 2
    assert place.run("audit", "verify", "--head", f"2:{'0' * 64}").status == 4
    text = Path(place.path).read_bytes()
    Path(place.path).write_bytes(text.replace(b"bob", b"eve"))
    done = place.run("audit", "verify")
    assert done.status == 4
    assert done.out.splitlines()[0] == "audit.jsonl, line 2: it was changed or damaged"


def test_it_shows_details_and_a_definition_under_its_own_name(place: Place) -> None:
    published = AuditEvent(action="publish", app="hr", form="leave", collection="form", document="D", status=200)
    exported = AuditEvent(action="export", command="persistence export", details={"target": "x.zip", "drafts": True})
    place.write(published, exported, REFUSED)
    first, second, third = place.run("audit", "show").out.splitlines()
    assert third.split()[1:] == ["bob", "delete", "hr/trip/E\ufffd", "403", "from", "runtime"]
    assert first.split()[1:] == ["-", "publish", "hr/leave/form", "200"]
    assert second.split()[2:] == ["export", "persistence", "export", "target=x.zip,", "drafts=True"]


def test_a_command_does_not_begin_without_its_line_if_one_is_needed(place: Place) -> None:
    os.mkdir(place.path)
    done = place.run("api-key", "new", "one")
    assert (done.status, "audit: " in done.errors[-1]) == (0, True)
    place.settings("audit_required = true\n")
    done = place.run("api-key", "new", "two")
    assert (done.status, "cannot be used" in done.errors[0]) == (1, True)
    assert "two" not in place.run("api-key", "list").out
    os.rmdir(place.path)
    place.run("api-key", "new", "two")
    begin, end = place.lines()
    assert (begin["phase"], end["begun"], end["outcome"]) == ("begin", 1, "done")


def test_a_line_by_a_key_that_is_gone_is_a_finding_unless_the_key_is_named(place: Place) -> None:
    place.settings("audit_signed = true\n")
    place.run("api-key", "new", "one")
    seal = str(place.lines()[0]["seal"])
    assert place.run("audit", "verify").status == 0
    assert place.run("signing-key", "new").status == 0
    assert place.run("signing-key", "retire", seal).status == 0
    done = place.run("audit", "verify")
    gone = sum(line["seal"] == seal for line in place.lines())
    assert done.status == 4
    assert done.out.splitlines()[0].endswith(f'the digests name the signing key "{seal}", which is missing')
    assert place.run("audit", "verify", "--retired-key", "00000000").status == 4
    assert gone < len(place.lines())
    place.run("api-key", "new", "two")
    named = place.run("audit", "verify", "--retired-key", "00000000", "--retired-key", seal)
    assert (named.status, f"note: {gone} lines were not compared" in named.out) == (0, True)
    text = Path(place.path).read_bytes()
    Path(place.path).write_bytes(text.replace(b'"name":"two"', b'"name":"owt"').replace(b"api-key-new", b"api-key-old"))
    assert place.run("audit", "verify", "--retired-key", seal).status == 4


def test_other_files_are_verified_and_shown_beside_one_that_cannot_be_unpacked(place: Place) -> None:
    place.write(SAVED, REFUSED)
    Path(f"{place.path}-y.gz").write_bytes(b"no gzip")
    done = place.run("audit", "verify")
    finding, count, _ = done.out.splitlines()
    assert (done.status, count) == (4, "2 lines, 1 finding")
    assert finding.startswith("audit.jsonl-y.gz: it cannot be unpacked")
    shown = place.run("audit", "show")
    assert (shown.status, len(shown.out.splitlines())) == (0, 2)
    assert "audit.jsonl-y.gz: it cannot be unpacked" in shown.errors[0]
