"""docs/reporting.md, literally: its queries and commands run, and tables are called as it says."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.http.test_flat_views import publish, reporting, save
from tests.service import running

DOCUMENT = Path(__file__).parents[2] / "docs/reporting.md"
_LEAVE = b"""<xh:html xmlns:xh="http://www.w3.org/1999/xhtml" xmlns:xf="http://www.w3.org/2002/xforms"
  xmlns:fr="http://orbeon.org/oxf/xml/form-runner"><xh:head><xf:model id="fr-form-model">
  <xf:instance id="fr-form-instance"><form/></xf:instance>
  <xf:instance id="fr-form-metadata"><metadata><application-name>hr</application-name>
  <form-name>leave</form-name>
  <migration version="4.8.0">[{"path":"person/days","iteration-name":"days-iteration"}]</migration></metadata>
  </xf:instance>
  <xf:bind id="fr-form-binds"><xf:bind id="person-bind" ref="person"><xf:bind id="name-bind" ref="name"/>
  <xf:bind id="days-bind" ref="days"><xf:bind id="days-iteration-bind" ref="days-iteration" name="days-iteration">
  <xf:bind id="date-bind" ref="date"/></xf:bind></xf:bind></xf:bind></xf:bind></xf:model></xh:head>
  <xh:body><fr:view><fr:body>
  <fr:section id="person-section">
  <fr:grid id="g-grid"><fr:c><xf:input id="name-control" bind="name-bind"/></fr:c></fr:grid>
  <fr:grid id="days-grid" repeat="content"><fr:c><xf:input id="date-control" bind="date-bind"/></fr:c></fr:grid>
  </fr:section>
</fr:body></fr:view></xh:body></xh:html>"""


def examples(language: str) -> list[str]:
    found = re.findall(rf"```{language}\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    assert found
    return found


def leave(name: str, *dates: str) -> bytes:
    days = "".join(f"<days><date>{date}</date></days>" for date in dates)
    return f"<form><person><name>{name}</name>{days}</person></form>".encode()


def test_the_queries_and_commands_work_literally(tmp_path: Path) -> None:
    with running(tmp_path) as service:
        for version in (1, 2):
            publish(service, "hr/leave", _LEAVE, version)
        save(service, "a", leave("Ada", "2026-03-02", "2026-03-03"), "hr/leave")
        save(service, "b", leave("Bob"), "hr/leave")
        save(service, "c", leave("Cid"), "hr/leave", version=2)
        with reporting(service) as report:
            joined, monthly, columns = examples("sql")
            expected = [("a", "Ada", 1, "2026-03-02"), ("a", "Ada", 2, "2026-03-03"), ("b", "Bob", None, None)]
            report.becomes(lambda: report.ask(joined), expected)
            assert [row[1] for row in report.ask(monthly)] == [2]
            assert report.ask(columns)[:2] == [
                ("svc_f_hr_leave_1", "name", "person/name"),
                ("svc_f_hr_leave_1_days", "date", "person/days/date"),
            ]
            assert report.path.relative_to(service.data).as_posix() in DOCUMENT.read_text()
        (tmp_path / "var").mkdir()
        (tmp_path / "var/data").symlink_to(service.data)
        for line in examples("sh")[1].splitlines():
            if shutil.which(line.split()[0]) is not None:
                done = subprocess.run(["bash", "-c", line], cwd=tmp_path, capture_output=True, text=True, check=False)
                assert (done.returncode, done.stderr, "Ada" in done.stdout) == (0, "", True)


@pytest.mark.skipif(shutil.which("curl") is None, reason="the example uses curl, which is not installed")
def test_the_publication_works_literally(tmp_path: Path) -> None:
    (tmp_path / "form.xhtml").write_bytes(_LEAVE)
    with running(tmp_path) as service:
        script = examples("sh")[0].replace("127.0.0.1:8080", f"127.0.0.1:{service.port}")
        subprocess.run(["bash", "-ec", script], cwd=tmp_path, capture_output=True, timeout=60, check=True)
        with reporting(service) as report:
            assert report.tables() == ["svc_f_hr_leave_1", "svc_f_hr_leave_1_days"]
