"""What the pages show: the overview, the health, the audit and the settings."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from persistence import limits
from persistence.pages.health_page import BackgroundCommand
from persistence.pages.service_pages import KeyUses, RecentErrors, Series, line_plot
from persistence.properties.property_table import shown_address
from persistence.settings import Settings, load
from tests.initialised import initialised
from tests.pages.administrator import NAME, Browser, administrator, browser, keys_of, settings
from tests.published import definition
from tests.waiting import eventually

CRUD = "/fr/service/persistence/crud/hr/leave"


def save(found: Browser, document: str = "one", secret: str = "") -> None:
    """Save a document of a form."""
    headers = {"Authorization": f"Bearer {secret}", "Svc-Username": "lea"}
    for path, body in (("form/form.xhtml", b"<html/>"), (f"data/{document}/data.xml", b"<form/>")):
        sent = headers if path.startswith("form/") else {**headers, "Svc-Form-Definition-Version": "1"}
        answer = found.client.put(f"{CRUD}/{path}", data=body, content_type="application/xml", headers=sent)
        assert answer.status_code in {201, 204}, answer.text


def test_the_overview_says_what_is_served(tmp_path: Path) -> None:
    found = administrator(tmp_path)
    found.get("/admin/")
    place = shown_address(settings(tmp_path).data)
    for each in (
        "Dialect svc",
        place,
        "callers with the API key",
        "Last check never",
        "Last backup never",
        "Errors none",
    ):
        assert each in found.text


def test_the_overview_warns_of_what_an_administrator_should_mend(tmp_path: Path) -> None:
    found = administrator(tmp_path)
    secret = keys_of(settings(tmp_path)).add("desk", 86_400.0)
    for name, permissions in (("open", ""), ("closed", "<permissions/>")):
        path, headers = f"{CRUD[:-5]}{name}/form/form.xhtml", {"Authorization": f"Bearer {secret}"}
        assert found.client.put(path, data=definition(permissions), headers=headers).status_code == 201
    found.get("/admin/")
    for each in (
        "1 form has a version without permissions: every caller may read and change its data. Forms",
        "the audit is off. Settings",
        "The API key desk expires on ",
    ):
        assert each in found.text
    assert "there is no API key" not in found.text


def test_values_that_were_set_come_first(tmp_path: Path) -> None:
    found = administrator(tmp_path)
    found.get("/admin/settings")
    assert (
        found.text.index(" administrators ") < found.text.index(" with their defaults ") < found.text.index(" max_xml ")
    )


def test_a_single_value_is_a_dot_in_a_plot(tmp_path: Path) -> None:
    one, most = Series("half", [None, 2.0, None]), Series("most", [4.0, 4.0, 4.0])
    with administrator(tmp_path).client.application.app_context():
        drawing = line_plot("Latency", [one, most], ["10:00"], "ms")
        alone = line_plot("Latency", [Series("", [5.0])], ["10:00"], "ms")
        empty = line_plot("Latency", [Series("", [None])], ["10:00"], "ms")
    assert drawing.count('class="dot"') == drawing.count('class="line second"') == 1
    assert 'd="M300 72h0"' in drawing
    assert 'class="dot"' in alone
    assert 'class="area"' not in alone
    assert "There are no values yet." not in alone
    assert "There are no values yet." in empty


def test_an_answer_from_500_on_is_in_the_overview_by_its_id(tmp_path: Path) -> None:
    found = administrator(tmp_path)
    errors = RecentErrors(settings(tmp_path).home)
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


def ended(found: Browser, name: str, given: Settings) -> None:
    """Wait for the end of a command, and look at the page then."""
    command = BackgroundCommand(
        name, load(environment={"PERSISTENCE_DATA": given.data, "PERSISTENCE_LOCAL": given.local})
    )  # as another worker has it
    eventually(lambda: not command.is_running(), 60)
    found.get("/admin/health")


def test_a_check_runs_once_and_its_findings_stay(tmp_path: Path) -> None:
    given = settings(tmp_path, administrators=(NAME,))
    secret, found = keys_of(given).add(NAME), browser(given)
    save(found, secret=secret)
    found.log_in(NAME, secret)
    (tmp_path / "data/hr/leave/data/one/stray").write_text("x")
    assert found.get("/admin/actions/check?mode=look").status_code == 200
    assert "Nothing is changed" in found.text
    assert found.send().status_code == 303
    second = Browser(found.client)
    second.get("/admin/actions/check?mode=repair")
    assert second.send().status_code == 503  # the first one is running
    ended(found, "check", given)
    assert "hr/leave/data/one/stray" in found.text
    found.do("/admin/actions/check?mode=adopt&deep=yes")
    ended(found, "check", given)
    assert "hr/leave/data/one/stray" in found.text
    assert "every content was read" in found.text
    assert "Last check none yet" not in (found.get("/admin/") and found.text)
    assert found.get("/admin/actions/check?mode=x").status_code == 400


def test_one_finding_is_repaired_or_adopted_and_the_others_are_left_alone(tmp_path: Path) -> None:
    given = settings(tmp_path, administrators=(NAME,), audit="file")
    secret, found = keys_of(given).add(NAME), browser(given)
    for document in ("one", "two"):
        save(found, document, secret)
        (tmp_path / f"data/hr/leave/data/{document}/note.txt").write_text("by hand")
        os.utime(tmp_path / f"data/hr/leave/data/{document}/data.xml", (1, 1))
    found.log_in(NAME, secret)
    found.do("/admin/actions/check?mode=look")
    ended(found, "check", given)
    one = "/admin/actions/mend?tree=&path=hr/leave/data/one"
    found.do(f"{one}/note.txt&kind=no-sidecar")
    ended(found, "mend", given)
    assert "Adopt hr/leave/data/one/note.txt?" in (found.get(f"{one}/note.txt&kind=no-sidecar") and found.text)
    assert (tmp_path / "data/hr/leave/data/one/note.txt.json").exists()
    found.do(f"{one}/data.xml&kind=times-lost")
    ended(found, "mend", given)
    for document, is_taken_care_of in (("one", True), ("two", False)):
        folder = tmp_path / "data/hr/leave/data" / document
        assert ((folder / "data.xml").stat().st_mtime != 1) == is_taken_care_of
        assert (folder / "note.txt.json").exists() == is_taken_care_of
    assert "done" in found.text
    lines = (tmp_path / "audit/audit.jsonl").read_text()
    assert lines.count('"action":"mend"') == 2
    for path in (f"{one}/data.xml&kind=no-sidecar", f"{one}/none&kind=times-lost", "/admin/actions/mend?path=--all"):
        assert found.get(path).status_code == 404


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


def test_indexes_are_rebuilt_from_the_page(tmp_path: Path) -> None:
    found = administrator(tmp_path)
    found.do("/admin/actions/reindex")
    ended(found, "reindex", settings(tmp_path))
    assert "Rebuilt from here" in found.text


def test_reencryption_needs_a_key_and_shows_its_progress(tmp_path: Path) -> None:
    given = settings(tmp_path, administrators=(NAME,))
    secret, found = keys_of(given).add(NAME), browser(given)
    save(found, secret=secret)
    found.log_in(NAME, secret)
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
    monkeypatch.setattr("persistence.pages.service_pages.AUDIT_LINES_SHOWN", 2)
    given = settings(tmp_path, administrators=(NAME,), audit="file")
    secret, found = keys_of(given).add(NAME), browser(given)
    for document in ("one", "two", "three"):
        save(found, document, secret)
    found.log_in(NAME, secret)
    found.get("/admin/audit?document=two")
    assert "hr/leave/data/two/data.xml" in found.text
    assert "hr/leave/data/one" not in found.text
    found.get("/admin/audit?action=create&user=lea&collection=data")
    assert "hr/leave/data/three/data.xml" in found.text
    older = found.page.text.partition('href="/admin/audit?user')[2].partition('"')[0].replace("&amp;", "&")  # type: ignore[union-attr]
    found.get(f"/admin/audit?user{older}")
    assert "hr/leave/data/three" not in found.text
    for query, said in (
        ("since=x", "since"),
        ("before=x", "number of a line"),
        ("user=nobody", "No line is of this kind"),
    ):
        assert said in (found.get(f"/admin/audit?{query}") and found.text)


def test_the_audit_page_says_where_there_is_none(tmp_path: Path) -> None:
    found = administrator(tmp_path)
    assert "The audit is off" in (found.get("/admin/audit") and found.text)
    assert found.get("/admin/actions/audit-verify").status_code == 404


def test_settings_are_shown_without_secrets(tmp_path: Path) -> None:
    found = administrator(tmp_path, encryption_key=("k1:" + "0" * 64,), workers=7)
    page = found.get("/admin/settings")
    assert "0" * 64 not in page.text
    assert "(not shown)" in found.text
    assert "workers 7" in found.text


def test_settings_and_properties_are_shown_as_the_settings_file_has_them(tmp_path: Path) -> None:
    found = administrator(tmp_path, trusted=("10.1.2.3",))
    found.get("/admin/settings")
    for name, value in (
        ("trusted", '["10.1.2.3"]'),
        ("insecure", "false"),
        ("dialect", '"svc"'),
        ("svc.persistence.*.active", "true"),
    ):
        assert f"{name} {value} " in found.text


def test_the_last_use_of_a_key_is_noted_at_most_once_a_minute(tmp_path: Path) -> None:
    given = settings(tmp_path, administrators=(NAME,))
    secret, found = keys_of(given).add(NAME), browser(given)
    found.log_in(NAME, secret)
    assert "never" in (found.get("/admin/keys") and found.text)
    found.client.get("/fr/service/persistence/form", headers={"Authorization": f"Bearer {secret}"})
    assert "0 seconds ago" in (found.get("/admin/keys") and found.text) or "1 second ago" in found.text
    file = Path(given.home, ".pages/key-uses.json")
    uses = KeyUses(given.home)
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
    monkeypatch.setattr("persistence.pages.service_pages.KEY_USE_NOTED", 0)
    home = str(initialised(tmp_path / "data"))
    directory = Path(home) / ".pages"
    directory.write_text("a file is in the way")
    uses = KeyUses(home)
    uses.use(NAME)
    uses.note(frozenset({NAME}))
    directory.unlink()
    uses.note(frozenset({NAME}))
    assert NAME in (directory / "key-uses.json").read_text()


def test_signing_keys_are_made_and_removed(tmp_path: Path) -> None:
    found, keys = administrator(tmp_path), keys_of(settings(tmp_path))
    found.do("/admin/actions/signing-key-new")
    (only,) = keys.signing()
    assert only.id in found.text
    found.do(f"/admin/actions/signing-key-retire?id={only.id}")
    assert keys.signing() == ()
    assert found.get("/admin/actions/signing-key-retire?id=x").status_code == 404
