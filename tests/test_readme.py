"""The README's tour, literally: every line of it runs, and does what the text says."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.service import running

README = Path(__file__).parents[1] / "README.md"


def tour() -> str:
    """The shell lines of the tour."""
    text = README.read_text()
    section = text.partition("## A five-minute tour")[2].partition("\n## ")[0]
    return "\n".join(re.findall(r"```sh\n(.*?)```", section, re.DOTALL))


@pytest.mark.skipif(shutil.which("curl") is None, reason="the tour uses curl, which is not installed")
def test_the_tour_works_literally(tmp_path: Path) -> None:
    with running(tmp_path) as service:
        (tmp_path / "var").mkdir()
        (tmp_path / "var/data").symlink_to(service.data)
        script = tour().replace("127.0.0.1:8080", f"127.0.0.1:{service.port}").replace("/tmp/", f"{tmp_path}/")
        script = script.replace('cd "$(git rev-parse --show-toplevel)"', f"cd {tmp_path}")
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script], capture_output=True, text=True, timeout=60, check=False
        )
    assert done.returncode == 0, done.stderr
    statuses = re.findall(r"^HTTP/1.1 (\d+)", done.stdout, re.MULTILINE)
    assert statuses == ["201", "201", "201", "201", "204", "412", "200", "200", "404", "204"]
    assert "same bytes" in done.stdout
    assert "var/data/hr/leave/form/1/form.xhtml.json" in done.stdout
    assert "< <form><name>Lea</name><scan/></form>" in done.stdout
    assert '"creator": "lea"' in done.stdout
    assert '"modifier": "bob"' in done.stdout
