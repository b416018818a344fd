"""The README's tour and the examples of two pages, literally: every line runs, and does what the text says."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.service import running

ROOT = Path(__file__).parents[1]


def shell(text: str) -> str:
    """Return the shell commands of a text."""
    found = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
    assert found
    return "\n".join(found)


def section(heading: str) -> str:
    """Return the section of the README with a heading."""
    return (ROOT / "README.md").read_text().partition(f"## {heading}\n")[2].partition("\n## ")[0]


def run(script: str, directory: Path, port: int, data: Path) -> str:
    """Return what commands print, with the service and the files of a test."""
    script = script.replace("127.0.0.1:8080", f"127.0.0.1:{port}").replace("/tmp/", f"{directory}/")
    script = script.replace('cd "$(git rev-parse --show-toplevel)"', f"cd {directory}")
    script = script.replace(".venv/bin/", f"{Path(sys.executable).parent}/")
    environment = {**os.environ, "PERSISTENCE_DATA": str(data)}
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def statuses(output: str) -> list[str]:
    return re.findall(r"HTTP/1.1 (\d+) ", output)


@pytest.mark.skipif(shutil.which("curl") is None, reason="the tour uses curl, which is not installed")
def test_the_tour_works_literally(tmp_path: Path) -> None:
    with running(tmp_path) as service:
        (tmp_path / "var").mkdir()
        (tmp_path / "var/data").symlink_to(service.data)
        output = run(shell(section("A two-minute tour")), tmp_path, service.port, service.data)
    assert statuses(output) == ["201", "201", "201", "201", "204", "412", "200", "200", "404", "204"]
    assert "same bytes" in output
    assert "var/data/hr/leave/form/1/form.xhtml.json" in output
    assert "< <form><name>Lea</name><scan/></form>" in output
    assert '"creator": "lea"' in output
    assert '"modifier": "bob"' in output
    assert "3 revisions, 1 deletion" in output
    assert "1 file came back" in output


@pytest.mark.skipif(shutil.which("curl") is None, reason="the example uses curl, which is not installed")
def test_the_examples_of_permissions_and_searches_work_literally(tmp_path: Path) -> None:
    script = "\n".join(shell((ROOT / "docs" / page).read_text()) for page in ("permissions.md", "searching.md"))
    with running(tmp_path) as service:
        output = run(script, tmp_path, service.port, service.data)
    assert statuses(output) == ["200", "201", "200", "403", "200"]
    assert "<published-version>1</published-version>" in output
    assert re.findall(r'search-total="(\d+)"', output) == ["2", "3"]
    assert re.findall(r'name="to-([^"]+)"', output) == ["Lisbon", "Paris", "New-York", "Lisbon"]
    assert "<value>Lisbon</value><value>New York</value><value>Paris</value>" in output
    assert re.findall(r"to-(\S+) +.*(?:Paris|Lisbon|New York)", output.rpartition("</distinct-values>")[2]) != []
    assert output.count("Svc-Operations: create read update list") == 2
