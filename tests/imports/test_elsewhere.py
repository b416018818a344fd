"""Forms whose data, attachments or reports are not in one tree, and what properties ask of their data."""

import sqlite3
from pathlib import Path

from lxml import etree

from persistence.keys import Keys
from tests.commands import persistence
from tests.encrypted_form import UNMARKED, data
from tests.imports.archives import tree
from tests.imports.test_json_lines import T1, T2, T3, line
from tests.imports.test_over_http import LINES, a_service, exported, sent
from tests.imports.test_round_trip import fill
from tests.initialised import initialised
from tests.service import PUBLIC, pair


def _apart(directory: Path) -> str:
    (directory / "big").mkdir(parents=True)
    return (
        '"svc.persistence.provider.acme.*.data.attachments" = "big"\n'
        f'"svc.persistence.big.base-path" = "{directory}/big"\n'
    )


def test_attachments_that_are_kept_apart_are_imported_to_their_place(tmp_path: Path) -> None:
    source, to = tmp_path / "from", tmp_path / "to"
    with a_service(source, more=_apart(source)) as service:
        fill(service)
        (tmp_path / "all.zip").write_bytes(exported(service))
    own = _apart(to)
    initialised(to / "data")
    (to / "persistence.toml").write_text(own)
    for known in ("11 new, 0 known", "0 new, 11 known"):
        done = persistence(
            "import", str(tmp_path / "all.zip"), "--config", str(to / "persistence.toml"), data=to / "data"
        )
        assert (done.returncode, f"revisions of documents: {known}" in done.stderr) == (0, True), done.stderr
        assert tree(to / "data") == tree(source / "data")
        assert tree(to / "big") == tree(source / "big")
    assert any(path.endswith("scan.bin") for path in tree(to / "big"))


def test_a_form_of_another_service_gets_the_newest_revisions(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text('keys = "keys.json"\nadministrators = ["boss"]\n')
    secret = Keys(f"{tmp_path}/keys.json", tree=f"{tmp_path}/front").add("boss")
    scan = [{"name": "scan.bin", "content": "AAAA"}]
    lines = line(document="d", version=1, data="<one/>", modified=T1, attachments=scan, creator="anna")
    lines += line(document="d", version=1, data="<two/>", modified=T2)
    with pair(tmp_path, options=("--config", str(file))) as (service, behind):
        service.extra = {"Authorization": f"Bearer {secret}"}
        report = etree.fromstring(sent(service, lines[: lines.index(b"\n") + 1], LINES).body)
        assert (report.get("refused"), report.find("documents").get("imported")) == ("0", "1"), etree.tostring(report)
        assert "another service gives its own times" in report.findtext("note")
        again = etree.fromstring(sent(service, lines[: lines.index(b"\n") + 1], LINES).body)
        assert again.find("documents").get("unchanged") == "1", etree.tostring(again)
        other = etree.fromstring(sent(service, lines, LINES).body)
        assert (other.get("refused"), "newer revision here" in other.findtext("refused")) == ("1", True)
        assert service.raw("GET", f"{PUBLIC}/crud/a/f/data/d/data.xml").body == b"<one/>"
        assert tree(behind.data)["a/f/data/d/scan.bin"][0] == b"\0\0\0"


def test_flat_views_are_made_of_what_is_imported(tmp_path: Path) -> None:
    with a_service(tmp_path / "from") as service:
        kind = {"Content-Type": "application/xml"}
        answer = service.put("hr/leave/form/form.xhtml", UNMARKED, kind, Create_Flat_View="true")
        assert answer.status == 201, answer.cause
        service.put("hr/leave/data/1/data.xml", data(), Form_Definition_Version=1)
        archive = exported(service)
    with a_service(tmp_path / "to") as service:
        assert etree.fromstring(sent(service, archive).body).get("refused") == "0"
        service.raw(
            "POST", f"{PUBLIC}/search/hr/leave", {"Content-Type": "application/xml"}, b"<search><query/></search>"
        )
        with sqlite3.connect(service.data / ".index/.flat/flat.sqlite") as reports:
            names = [name for (name,) in reports.execute("SELECT name FROM sqlite_master")]
        assert [name for name in names if name.startswith("svc_f_")], names


def test_a_leased_document_is_refused_where_a_property_asks_for_that(tmp_path: Path) -> None:
    more = '"svc.persistence.*.lease" = true\n"svc.persistence.*.enforce-lease" = true\n'
    body = (
        b'<d:lockinfo xmlns:d="DAV:"><d:lockscope><d:exclusive/></d:lockscope><d:locktype><d:write/></d:locktype>'
        b'<d:owner xmlns:fr="http://orbeon.org/oxf/xml/form-runner"><fr:username>anna</fr:username>'
        b"<fr:groupname>x</fr:groupname></d:owner></d:lockinfo>"
    )
    with a_service(tmp_path, more=more) as service:
        sent(service, line(document="d", data="<d/>", modified=T1), LINES)
        timeout = {"Timeout": "Second-600", "Content-Type": "application/xml"}
        assert service.ask("LOCK", "a/f/data/d/data.xml", body, timeout).status == 200
        report = etree.fromstring(sent(service, line(document="d", data="<e/>", modified=T3), LINES).body)
        assert report.get("refused") == "1"
        assert "anna" in report.findtext("refused") or "leased" in report.findtext("refused")
