"""docs/orbeon.md, literally: its commands run, its settings are accepted, and its properties choose as it says."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from persistence.dialect import ORBEON
from persistence.model.addresses import Form
from persistence.properties.properties import Properties
from tests import forkserver
from tests.docs.sandbox import statuses
from tests.in_process import serving
from tests.orders import found
from tests.service import PROVIDER, running

GUIDE = (Path(__file__).parents[2] / "docs/orbeon.md").read_text()


def examples(language: str) -> list[str]:
    found = re.findall(rf"```{language}\n(.*?)```", re.sub(r"(?m)^ {3}(?=\S)", "", GUIDE), re.DOTALL)
    assert found
    return found


@pytest.mark.skipif(shutil.which("curl") is None, reason="the check uses curl, which is not installed")
def test_the_check_works_literally(tmp_path: Path) -> None:
    with running(tmp_path, dialect="orbeon") as service:
        script = "".join(examples("sh")).replace("127.0.0.1:8080", f"127.0.0.1:{service.port}")
        script = script.replace("/tmp/", f"{tmp_path}/")
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script], capture_output=True, text=True, timeout=60, check=False
        )
    assert done.returncode == 0, done.stderr
    assert statuses(done.stdout) == ["400", "201", "200", "404", "201", "204", "200", "204", "410", "204"]
    assert "<form-version>1</form-version>" in done.stdout
    assert 'permission operations="create read update delete"' in done.stdout
    read = done.stdout.partition("<form><from>Tuesday")[0].rpartition("HTTP/1.1")[2]
    assert "Orbeon-Username: lea\n" in read
    assert "Orbeon-Last-Modified-By-Username: bob" in read
    assert re.findall(r'search-total="(\d)"', done.stdout) == ["1", "1", "0"]  # of the form, then of the searches


@pytest.mark.parametrize("settings", examples("toml"))
def test_the_settings_are_accepted(tmp_path: Path, settings: str) -> None:
    (tmp_path / "persistence.toml").write_text(settings)
    env = {**os.environ, "PERSISTENCE_CONFIG": str(tmp_path / "persistence.toml")}
    done = forkserver.run("persistence.cli", ["config"], cwd=tmp_path, env=env)
    assert (done.returncode, done.stderr) == (0, "")
    assert 'dialect = "orbeon"' in done.stdout


@pytest.mark.parametrize(
    ("settings", "expected"),
    [("", [["D"]] * 4), (examples("toml")[-1], [["D"], [], ["D"], []])],
    ids=["nothing said", "permissions said"],
)
def test_data_without_definitions_is_searched_by_the_permissions_of_the_settings(
    tmp_path: Path, settings: str, expected: list[list[str]]
) -> None:
    file = tmp_path / "persistence.toml"
    file.write_text(settings)
    with serving(tmp_path, dialect="orbeon", env={"PERSISTENCE_CONFIG": str(file)}) as service:
        provider = replace(service, face=PROVIDER)
        put = provider.put("hr/leave/data/D/data.xml", b"<d>Monday</d>", Form_Definition_Version=1, Username="lea")
        assert put.status == 201
        query = b"<search><query>monday</query></search>"
        shown = []
        for who in ({"Username": "lea"}, {"Username": "bob"}, {"Username": "eve", "Roles": "hr-admin"}, {}):
            headers = {f"Orbeon-{name}": value for name, value in who.items()} | {"Orbeon-Form-Definition-Version": "1"}
            shown.append(found(service.raw("POST", "/search/hr/leave", headers, query).body))
    assert shown == expected


def test_the_properties_choose_as_the_text_says() -> None:
    """The rule is the runtime's own (spec crud 10.1); what it ships with is the first two."""
    shipped = {"oxf.fr.persistence.provider.*.*.*": "sqlite", "oxf.fr.persistence.provider.orbeon.builder.form": "own"}
    both, forms, data = (_read(block) for block in examples("xml"))
    here = {name: value for name, value in both.items() if ".provider." not in name}
    assert here.pop("oxf.fr.persistence.files.uri") == "http://127.0.0.1:8080"
    chosen = []
    for said in (both, forms, data):
        providers = {name: value for name, value in said.items() if ".provider." in name}
        properties = Properties.load({**shipped, **providers, **_typed(here)}, ORBEON.property_prefix)
        routes = [properties.of(Form(*names)).route for names in (("hr", "leave"), ("orbeon", "builder"))]
        chosen.append([(route.definition.name, route.data.name) for route in routes])
    assert chosen == [
        [("files", "files"), ("own", "files")],
        [("files", "sqlite"), ("own", "files")],
        [("sqlite", "files"), ("own", "sqlite")],
    ]


def _read(block: str) -> dict[str, str]:
    root = ET.fromstring(f'<all xmlns:xs="http://www.w3.org/2001/XMLSchema">{block}</all>')  # noqa: S314 - our own
    found = {each.attrib["name"]: each.attrib["value"] for each in root.iter("property")}
    kinds = {each.attrib["as"] for each in root.iter("property")}
    assert kinds <= {"xs:string", "xs:anyURI", "xs:boolean"}
    return found


def _typed(properties: dict[str, str]) -> dict[str, object]:
    return {name: {"true": True, "false": False}.get(value, value) for name, value in properties.items()}
