"""What the pages show: the overview, the health, the audit and the settings."""

import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

import msgspec
import pytest
from lxml import html

from persistence import limits, processes
from persistence.keys import Keys
from persistence.pages.health_page import BackgroundCommand
from persistence.pages.service_pages import KeyUses, RecentErrors, line_plot, settings_page
from persistence.properties.property_table import shown_address
from persistence.settings import load
from tests import forkserver
from tests.initialised import initialised
from tests.opened import close
from tests.pages.administrator import NAME, Browser, administrator, browser, settings
from tests.published import definition
from tests.waiting import eventually


def save(found: Browser, document: str = "one") -> None:
    """Save a document of a form."""
    for path, body in (("form/form.xhtml", b"<html/>"), (f"data/{document}/data.xml", b"<form/>")):
        answer = found.crud("PUT", f"hr/leave/{path}", body, Username="lea")
        assert answer.status_code in {201, 204}, answer.text


def test_the_overview_says_what_is_served(found: Browser) -> None:
    served = ("Dialect svc", shown_address(found.given.data), "callers with the API key")
    found.shows("/admin/", *served, "Last check never", "Last backup never", "Errors none No server errors recorded.")


def test_the_overview_warns_of_what_an_administrator_should_mend(found: Browser, keys: Keys) -> None:
    keys.add("desk", 86_400.0)
    for name, permissions in (("open", ""), ("closed", "<permissions/>")):
        assert found.crud("PUT", f"hr/{name}/form/form.xhtml", definition(permissions)).status_code == 201
    everybody = "1 form has a version without permissions: every caller may read and change its data. Forms"
    found.shows("/admin/", everybody, "the audit is off. Settings", "The API key desk expires on ")
    assert "there is no API key" not in found.text


def test_values_that_were_set_come_first(found: Browser) -> None:
    """Within each subject, in the order of docs/settings.md."""
    found.get("/admin/settings")
    places = [
        found.text.index(text)
        for text in (
            *(" Where and how it serves ", " data ", " 8 with their defaults ", " dialect "),
            *(" Who may call ", " administrators ", " 8 with their defaults Name Value From Meaning trusted "),
            *(" Limits ", " 9 with their defaults ", " max_xml "),
        )
    ]
    assert places == sorted(places)


def test_the_origin_of_a_setting_breaks_at_slashes(tmp_path: Path) -> None:
    file = tmp_path / "config/persistence.toml"
    file.parent.mkdir()
    file.write_text("threads = 7\n")
    with administrator(tmp_path).client.application.test_request_context("/admin/settings"):
        page = settings_page(load(str(file), environment={}))
    assert "/<wbr>config/<wbr>persistence.toml<br>" in page


def test_a_single_value_is_a_dot_in_a_plot(tmp_path: Path) -> None:
    both = {"half": [None, 2.0, None], "most": [4.0, 4.0, 4.0]}
    with administrator(tmp_path).client.application.app_context():
        drawing = line_plot("Latency", both, ["10:00"], "ms")
        alone = line_plot("Latency", {"": [5.0]}, ["10:00"], "ms")
        empty = line_plot("Latency", {"": [None]}, ["10:00"], "ms")
    assert drawing.count('class="dot"') == drawing.count('class="line second"') == 1
    assert 'd="M300 72h0"' in drawing
    assert 'class="dot"' in alone
    assert 'class="area"' not in alone
    assert "There are no values yet." not in alone
    assert "There are no values yet." in empty


def test_an_answer_from_500_on_is_in_the_overview_by_its_id(found: Browser) -> None:
    errors = RecentErrors(found.given.home)
    errors.add({"id": "abc123", "method": "GET", "path": "/<b>", "status": 500, "cause": "the disk"})
    page = found.get("/admin/").text
    assert "abc123" in page
    assert "GET /&lt;b&gt;" in page


def test_recent_errors_are_bounded(tmp_path: Path) -> None:
    errors = RecentErrors(str(initialised(tmp_path / "data")))
    kept = tmp_path / "data/.pages/errors.jsonl"
    for number in range(2000):
        errors.add({"id": str(number), "method": "GET", "path": "/x" * 5000, "status": 503})
    assert [each.id for each in errors.newest()] == [str(number) for number in range(1999, 1949, -1)]
    assert kept.stat().st_size <= limits.LARGEST_ERRORS + 1000
    kept.write_text("{\n")
    assert errors.newest() == []


def ended(found: Browser, name: str) -> None:
    """Wait for the end of a command, and look at the page then."""
    places = {"PERSISTENCE_DATA": found.given.data, "PERSISTENCE_LOCAL": found.given.local}
    command = BackgroundCommand(name, load(environment=places))  # as another worker has it
    eventually(lambda: not command.is_running(), 60)
    found.get("/admin/health")


def test_a_check_runs_once_and_its_findings_stay(tmp_path: Path, found: Browser) -> None:
    save(found)
    (tmp_path / "data/hr/leave/data/one/stray").write_text("x")
    assert found.get("/admin/actions/check?mode=look").status_code == 200
    assert "Nothing is changed" in found.text
    assert found.send().status_code == 303
    second = Browser(found.client)
    second.get("/admin/actions/check?mode=repair")
    assert second.send().status_code == 503  # the first one is running
    ended(found, "check")
    assert "hr/leave/data/one/stray" in found.text
    found.do("/admin/actions/check?mode=adopt&deep=yes")
    ended(found, "check")
    assert "hr/leave/data/one/stray" in found.text
    assert "every content was read" in found.text
    assert "Last check none yet" not in (found.get("/admin/") and found.text)
    assert found.get("/admin/actions/check?mode=x").status_code == 400


def test_one_finding_is_repaired_or_adopted_and_the_others_are_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "start", start)
    found = administrator(tmp_path, audit="file")
    for document in ("one", "two"):
        save(found, document)
        (tmp_path / f"data/hr/leave/data/{document}/note.txt").write_text("by hand")
        os.utime(tmp_path / f"data/hr/leave/data/{document}/data.xml", (1, 1))
    found.do("/admin/actions/check?mode=look")
    ended(found, "check")
    one = "/admin/actions/mend?tree=&path=hr/leave/data/one"
    found.do(f"{one}/note.txt&kind=no-sidecar")
    ended(found, "mend")
    assert found.get(f"{one}/note.txt&kind=no-sidecar").status_code == 404  # it is done
    assert (tmp_path / "data/hr/leave/data/one/note.txt.json").exists()
    found.do(f"{one}/data.xml&kind=times-lost")
    ended(found, "mend")
    for document, is_taken_care_of in (("one", True), ("two", False)):
        folder = tmp_path / "data/hr/leave/data" / document
        assert ((folder / "data.xml").stat().st_mtime != 1) == is_taken_care_of
        assert (folder / "note.txt.json").exists() == is_taken_care_of
    assert found.text.count(" done ") == 2
    lines = (tmp_path / "audit/audit.jsonl").read_text()
    assert lines.count('"action":"mend"') == 2
    for path in (f"{one}/data.xml&kind=no-sidecar", f"{one}/none&kind=times-lost", "/admin/actions/mend?path=--all"):
        assert found.get(path).status_code == 404


@dataclass
class Damaged:
    """A service with damage, its administrator, and a list of what a check has found."""

    browser: Browser
    data: Path

    def row(self, path: str) -> str:
        """Return the line of the list about a path, without markup."""
        rows = [" ".join(each.text_content().split()) for each in html.fromstring(self.browser.page.text).iter("tr")]
        return next(each for each in rows if path in each)

    def mend(self, path: str, kind: str) -> None:
        """Repair or adopt one finding, and look at the page when that is done."""
        self.browser.do(f"/admin/actions/mend?tree=&path=hr/leave/{path}&kind={kind}")
        ended(self.browser, "mend")

    def check(self, mode: str = "look") -> None:
        """Check everything, and look at the page when that is done."""
        self.browser.do(f"/admin/actions/check?mode={mode}")
        ended(self.browser, "check")


def start(*arguments: str, given: bytes, stdout: int, stderr: int, pass_fds: Sequence[int], **_: object) -> object:
    """Start a command of the pages by a fork, without the process that bounds its output."""
    with tempfile.TemporaryFile() as file:
        file.write(given)
        file.seek(0)
        module, *rest = arguments[3:]
        streams = {"stdout": stdout, "stderr": stderr, "stdin": file.fileno()}
        return forkserver.start(module, rest, cwd=Path("/"), env=os.environ, **streams, held=pass_fds)


@pytest.fixture(scope="module")
def checked(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A tree with three notices, a leftover and three damaged documents, after a check, and an administrator's key."""
    directory = tmp_path_factory.mktemp("damaged")
    found = administrator(directory)
    for document in ("one", "two", "three", "four"):
        save(found, document)
    for path, body in (("data/three/scan.bin", b"x" * 100), ("draft/four/data.xml", b"<form/>")):
        assert found.crud("PUT", f"hr/leave/{path}", body).status_code == 201
    forms = directory / "data/hr/leave"
    for path in ("data/one/note.txt", "draft/four/note.txt", "form/1/note.txt"):
        (forms / path).write_text("by hand")
    (forms / f"data/four/.data.xml.{'0' * 40}").write_text("of a crash")
    (forms / "data/one/data.xml").unlink()
    (forms / "data/two/data.xml.json").write_text("no sidecar")
    (forms / "data/three/scan.bin").write_bytes(b"y" * 90)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(processes, "start", start)
        Damaged(found, forms).check()
    close(found.client.application)
    return directory, found.secret


@pytest.fixture
def damaged(checked: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Damaged:
    """A service over a copy of that, and its administrator, who looks at what was found."""
    monkeypatch.setattr(processes, "start", start)
    planted, secret = checked
    shutil.copytree(planted, tmp_path, dirs_exist_ok=True)
    found = browser(settings(tmp_path, administrators=(NAME,)))
    found.secret = secret
    found.log_in(NAME, secret)
    found.get("/admin/health")
    return Damaged(found, tmp_path / "data/hr/leave")


def test_each_finding_keeps_what_came_of_its_repair(damaged: Damaged) -> None:
    there = damaged.browser
    assert (
        "7 findings: damage 3, leftovers 1, notices 3; taken care of 0. 4 findings remain, notices apart." in there.text
    )
    damaged.mend("data/one/data.xml", "content-missing")
    damaged.mend("data/one/note.txt", "no-sidecar")
    damaged.mend("data/two/data.xml.json", "sidecar-unreadable")
    stray = f"data/four/.data.xml.{'0' * 40}"
    (damaged.data / stray).unlink()  # somebody else was quicker
    damaged.mend(stray, "stray-file")
    shutil.rmtree(damaged.data / "draft/four")
    damaged.mend("draft/four/note.txt", "no-sidecar")
    for path, said in (
        ("data/one/data.xml", "done nothing of it is left: it counts as never stored; its sidecar is in .quarantine"),
        ("data/one/note.txt", "done takes it in as a new resource"),
        (
            "data/two/data.xml.json",
            "failed nothing tells its form version; with --adopt it becomes that of a new document",
        ),
        (stray, "done it is no longer there"),
        ("draft/four/note.txt", "failed hr/leave/draft/four/note.txt is not in the data directory"),
    ):
        assert said in damaged.row(path)
        assert "Repair this" not in damaged.row(path)
        assert ("Try again" in damaged.row(path)) == ("failed" in said)
    counts = "damage 3, leftovers 1, notices 3; taken care of 3"
    assert f"7 findings: {counts}. 3 findings remain, notices apart." in there.text
    assert "Last check 3 findings remain notices apart Ended" in there.text
    assert there.text.count(counts) == 2
    there.shows("/admin/", "Last check 3 remain")
    (damaged.data / "data/two/data.xml.json").unlink()  # the content is then one without a sidecar
    damaged.mend("data/two/data.xml.json", "sidecar-unreadable")
    assert "done it is no longer there" in damaged.row("data/two/data.xml.json")
    assert "Adopt this" in damaged.row("data/two/data.xml no-sidecar")
    (damaged.data / "data/one/note.txt.json").unlink()  # the same finding again
    damaged.check()
    assert "Adopt this" in damaged.row("data/one/note.txt")
    assert " done " not in there.text
    assert "taken care of 0" in there.text


def test_what_only_a_deep_check_finds_is_repaired(damaged: Damaged) -> None:
    scan = damaged.data / "data/four/scan.bin"
    for body in (b"a" * 100, b"b" * 100):
        damaged.browser.crud("PUT", "hr/leave/data/four/scan.bin", body)
    before = scan.stat()
    scan.write_bytes(b"x" * 100)
    os.utime(scan, ns=(before.st_atime_ns, before.st_mtime_ns))
    damaged.check("look&deep=yes")
    assert "Repair this" in damaged.row("data/four/scan.bin")
    damaged.mend("data/four/scan.bin", "digest-wrong")
    assert "done went back to the revision of" in damaged.row("data/four/scan.bin")
    assert scan.read_bytes() == b"a" * 100


def test_results_are_those_of_their_tree_and_may_be_missing(found: Browser) -> None:
    """As they are in the files: of a service with two trees, whose commands were killed, and a disk that was full."""
    pages = Path(found.given.home, ".pages")
    finding = {"kind": "stray-file", "severity": "leftover", "what": "lost", "remedy": "--repair", "outcome": "found"}
    totals = {"folders": 4, "damage": 0, "leftover": 3, "notice": 0, "mended": 0, "remaining": 3, "edits": 0}

    def run(lines: Iterable[dict[str, object]], **about: str) -> str:
        begun = {"began": 5.0, "about": {**about, "kind": "stray-file"}}
        return "".join(f"{msgspec.json.encode(each).decode()}\n" for each in (begun, *lines))

    def row(tree: str) -> str:
        page = html.fromstring(found.get("/admin/health").text)
        return next(" ".join(each.itertext()) for each in page.iter("tr") if f"({tree})" in "".join(each.itertext()))

    trees = ("data", "datasource/x", "datasource/y")
    (pages / "check.out").write_text(run([*({**finding, "path": "hr/a", "tree": tree} for tree in trees), totals]))
    mended = {**finding, "path": "hr/a", "outcome": "mended", "said": "moved it"}
    runs = run([mended, totals], tree="data", path="hr/a") + run([], tree="datasource/x", path="hr/a")
    (pages / "mend.out").write_text(f'{runs}{{"began":6.0,"abo\n')
    assert "done moved it" in " ".join(row("data").split())
    assert "failed the command was stopped before its end" in " ".join(row("datasource/x").split())
    assert "lost --repair" in " ".join(row("datasource/y").split())
    assert "taken care of 1. 2 findings remain." in found.text
    with (pages / "mend.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert "running Look again" in " ".join(row("datasource/x").split())


def test_results_that_would_be_too_many_are_refused(damaged: Damaged) -> None:
    damaged.mend("data/one/note.txt", "no-sidecar")
    with Path(damaged.browser.given.home, ".pages/mend.out").open("a") as kept:
        kept.write(f'{{"path":"{"x" * 1000}"}}\n' * 500)
    damaged.browser.get("/admin/actions/mend?tree=&path=hr/leave/form/1/note.txt&kind=no-sidecar")
    assert damaged.browser.send().status_code == 412
    assert "check again first" in damaged.browser.text
    assert damaged.browser.get("/admin/health").text.count(">done<") == 1
    damaged.check()
    damaged.mend("form/1/note.txt", "no-sidecar")
    assert "done" in damaged.row("form/1/note.txt")


def test_nothing_is_offered_where_nothing_can_be_repaired(damaged: Damaged) -> None:
    assert damaged.row("data/three/scan.bin").endswith("is whole restore it from a backup, or name the file to --adopt")
    path = "/admin/actions/mend?tree=&path=hr/leave/data/three/scan.bin&kind=content-damaged"
    assert damaged.browser.get(path).status_code == 404


def test_findings_and_the_pages_of_their_documents_lead_to_each_other(damaged: Damaged) -> None:
    page = html.fromstring(damaged.browser.page.text)
    links = {each.text_content(): each.get("href") for each in page.findall(".//td/a[code]")}
    for path, to in (
        ("hr/leave/data/three/scan.bin", "/admin/forms/hr/leave/data/three"),
        ("hr/leave/draft/four/note.txt", "/admin/forms/hr/leave/draft/four"),
        ("hr/leave/form/1/note.txt", "/admin/forms/hr/leave/1/definition"),
    ):
        assert links[path] == to
        assert damaged.browser.get(to).status_code == 200
    for document in ("one", "two", "three"):
        answer = damaged.browser.get(f"/admin/forms/hr/leave/data/{document}")
        assert 'href="/admin/health#findings"' in answer.text
    assert 'href="/admin/health#findings"' not in damaged.browser.get("/admin/forms/hr/leave/data/four").text


def test_a_list_that_is_older_than_the_last_check_says_so(damaged: Damaged) -> None:
    said = "The last check is later than this list."
    assert said not in damaged.browser.text
    record = Path(damaged.browser.given.home, ".pages/LastCheck.json")
    later = json.loads(record.read_text())
    record.write_text(json.dumps({**later, "at": "2100-01-01T00:00:00.000Z", "remaining": 9}))
    damaged.mend("data/one/data.xml", "content-missing")
    assert said in damaged.browser.text
    assert "9 findings remain" in damaged.browser.text


def test_the_output_of_a_command_is_bounded() -> None:
    program = (
        "import sys; [print('line', n) for n in range(200_000)]; print('x' * 100_000, file=sys.stderr); sys.exit(3)"
    )
    command = [sys.executable, "-m", "persistence.processes", "-c", program]
    done = subprocess.run(command, capture_output=True, check=False)
    assert done.returncode == 3
    assert len(done.stdout) <= limits.LONGEST_OUTPUT + limits.LONGEST_OUTPUT_LINE
    lines = done.stdout.splitlines()
    assert (lines[0], lines[-1]) == (b"line 0", b"line 199999")
    assert lines[:-1] == [b"line %d" % number for number in range(len(lines) - 1)]
    assert len(done.stderr) == 100_001


def test_indexes_are_rebuilt_from_the_page(found: Browser) -> None:
    found.do("/admin/actions/reindex")
    ended(found, "reindex")
    assert "Rebuilt from here" in found.text


def test_reencryption_needs_a_key_and_shows_its_progress(found: Browser) -> None:
    save(found)
    found.get("/admin/actions/reencrypt?app=hr&form=leave")
    assert found.send().status_code == 501
    found.do("/admin/actions/encryption-key-new")
    assert "encrypts" in found.text
    found.get("/admin/actions/reencrypt?app=hr&form=other")
    assert found.send().status_code == 404
    assert "there is no form hr/other" in found.text
    found.do("/admin/actions/reencrypt?app=hr&form=leave")
    eventually(lambda: "1 of 1 documents finished" in (found.get("/admin/health") and found.text))


def test_the_audit_is_shown_by_kind_and_page_after_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("persistence.limits.AUDIT_LINES_SHOWN", 2)
    found = administrator(tmp_path, audit="file")
    for document in ("one", "two", "three"):
        save(found, document)
    found.shows("/admin/audit?document=two", "hr/leave/data/two/data.xml")
    assert "hr/leave/data/one" not in found.text
    found.shows("/admin/audit?action=create&user=lea&collection=data", "hr/leave/data/three/data.xml")
    older = found.page.text.partition('href="/admin/audit?user')[2].partition('"')[0].replace("&amp;", "&")  # type: ignore[union-attr]
    found.get(f"/admin/audit?user{older}")
    assert "hr/leave/data/three" not in found.text
    for query, said in (
        ("since=x", "a day is such as 2026-03-04, not 'x'"),
        ("until=x", "a day is such as 2026-03-04, not 'x'"),
        ("before=x", "number of a line"),
        ("user=nobody", "No line is of this kind"),
    ):
        assert said in (found.get(f"/admin/audit?{query}") and found.text)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ({"status": 303, "details": {"name": "<b>"}}, "<th>name &lt;b&gt;</th><th>done</th>"),
        ({"status": 412, "app": "hr"}, "<th>hr</th><th>refused: 412 Precondition Failed</th>"),
        ({"status": 507}, "<th></th><th>failed: 507 Insufficient Storage</th>"),
        ({"status": 599}, "<th></th><th>failed: 599</th>"),
        ({"command": "persistence init", "outcome": "done"}, "<th>persistence init</th><th>done</th>"),
        ({"details": {"document": ["d-1", "d-2"], "deep": True}}, "<th>document d-1, d-2; deep</th><th></th>"),
        ({"outcome": "status 4"}, "<th></th><th>incomplete: something is left or damaged</th>"),
        ({"outcome": "status 9"}, "<th></th><th>failed: status 9</th>"),
        ({"phase": "begin"}, "<th></th><th>begun</th>"),
        ({"details": {"document": ["d-1"] * 200}}, "<th>{cut}{whole}</th><th></th>"),
    ],
)
def test_a_line_of_the_audit_says_what_was_done_and_with_which_result(
    tmp_path: Path, line: dict[str, object], said: str
) -> None:
    found = administrator(tmp_path, audit="file")
    line = {"n": 2, "at": "2026-03-04T05:06:07.089Z", "action": "x", **line}
    (tmp_path / "audit/audit.jsonl").write_bytes(msgspec.json.encode(line) + b"\n")
    row = html.fromstring(found.get("/admin/audit").text).xpath("//tbody/tr")[0]
    cells = ["".join(each.itertext()).strip() for each in row]
    whole = "document " + ", ".join(["d-1"] * 200)
    expected = said.format(cut=f"{whole[:200]}…", whole=whole)
    assert f"<th>{escape(cells[3])}</th><th>{cells[6]}</th>" == expected
    assert (cells[8], "<code" in html.tostring(row, encoding="unicode")) == ("", False)


@pytest.mark.parametrize(
    ("since", "until", "days"),
    [
        ("", "", "6 5 4 3"),
        ("2026-03-05", "", "6 5"),
        ("2026-03-04", "2026-03-05", "5 4"),
        ("", "2026-03-03", "3"),
        ("2026-03-07", "", ""),
    ],
)
def test_the_audit_is_shown_from_day_to_day_in_the_zone_of_the_pages(
    tmp_path: Path, since: str, until: str, days: str
) -> None:
    """Each line is of the last minute of its day in Berlin, which is an hour earlier in UTC."""
    found = administrator(tmp_path, audit="file", time_zone="Europe/Berlin")
    lines = [{"n": day, "at": f"2026-03-0{day}T22:59:59.000Z", "action": "x", "user": f"u{day}"} for day in range(3, 7)]
    (tmp_path / "audit/audit.jsonl").write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
    page = found.get(f"/admin/audit?since={since}&until={until}").text
    assert " ".join(re.findall(r'data-label="Line">(\d+)<', page)) == days
    assert f'<input type="date" id="until" name="until" value="{until}">' in page


def test_the_audit_page_says_where_there_is_none(found: Browser) -> None:
    found.shows("/admin/audit", "The audit is off")
    assert found.get("/admin/actions/audit-verify").status_code == 404


def test_settings_and_properties_are_shown_as_the_settings_file_has_them_without_secrets(tmp_path: Path) -> None:
    found = administrator(tmp_path, trusted=("10.1.2.3",), encryption_key=("k1:" + "0" * 64,), workers=7)
    found.shows("/admin/settings", 'trusted ["10.1.2.3"] ', "insecure false ", 'dialect "svc" ', "*.active true ")
    assert ("(not shown)" in found.text, "workers 7" in found.text, "0" * 64 in found.page.text) == (True, True, False)


def test_the_last_use_of_a_key_is_noted_at_most_once_a_minute(found: Browser) -> None:
    found.shows("/admin/keys", "never")
    found.client.get("/fr/service/persistence/form", headers={"Authorization": f"Bearer {found.secret}"})
    assert "0 seconds ago" in (found.get("/admin/keys") and found.text) or "1 second ago" in found.text
    file = Path(found.given.home, ".pages/key-uses.json")
    uses = KeyUses(found.given.home)
    uses.use(NAME)
    uses.use("gone")
    uses.note(frozenset({NAME}))
    assert NAME in file.read_text()
    assert "gone" not in file.read_text()
    written = file.stat().st_mtime_ns
    uses.use(NAME)
    uses.note(frozenset({NAME}))
    assert file.stat().st_mtime_ns == written


def test_uses_that_cannot_be_noted_are_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("persistence.limits.KEY_USE_NOTED", 0)
    home = str(initialised(tmp_path / "data"))
    directory = Path(home) / ".pages"
    directory.write_text("a file is in the way")
    uses = KeyUses(home)
    uses.use(NAME)
    uses.note(frozenset({NAME}))
    directory.unlink()
    uses.note(frozenset({NAME}))
    assert NAME in (directory / "key-uses.json").read_text()


def test_signing_keys_are_made_and_removed(found: Browser, keys: Keys) -> None:
    found.do("/admin/actions/signing-key-new")
    (only,) = keys.signing()
    assert only.id in found.text
    found.do(f"/admin/actions/signing-key-retire?id={only.id}")
    assert keys.signing() == ()
    assert found.get("/admin/actions/signing-key-retire?id=x").status_code == 404
