"""docs/orbeon.md, literally: its commands run, its settings are accepted, and its properties choose as it says."""

import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from persistence.client.runtime_proxy import RELEASES
from persistence.dialect import ORBEON
from persistence.maintenance.runtime_properties import RuntimeProperties
from persistence.model.addresses import Form
from persistence.properties.properties import Properties
from tests.commands import persistence
from tests.docs.markdown import DOCS, blocks
from tests.docs.sandbox import home_of, shell
from tests.in_process import serving
from tests.orders import found
from tests.service import PROVIDER, V1, running

HERE = {"oxf.fr.persistence.*.lease": True}
GUIDE = (DOCS / "orbeon.md").read_text()


def examples(language: str) -> list[str]:
    found = re.findall(rf"```{language}\n(.*?)```", re.sub(r"(?m)^ {3}(?=\S)", "", GUIDE), re.DOTALL)
    assert found
    return found


def test_the_check_works_literally(tmp_path: Path) -> None:
    """With the settings and the first block of properties of the page, all steps of each release are ok."""
    with running(tmp_path, dialect="orbeon") as service, shell(tmp_path, service.port) as sandbox:
        home, address = home_of(tmp_path), f"127.0.0.1:{service.port}"
        settings = examples("toml")[0].replace("127.0.0.1:8080", address)
        (home / "config").mkdir()
        (home / "config/persistence.toml").write_text(settings)
        (home / "properties-local.xml").write_text(examples("xml")[0])
        printed = [sandbox.run(block) for block in blocks(DOCS / "orbeon.md") if block.language == "sh"]
    assert re.search(r"2024\.1: \d+ steps ok, 0 failed, 1 skipped", printed[0]), printed[0]
    assert printed[1].splitlines()[-1] == "nothing is missing"


@pytest.mark.parametrize("settings", examples("toml"))
def test_the_settings_are_accepted(tmp_path: Path, settings: str) -> None:
    (tmp_path / "persistence.toml").write_text(settings)
    env = {"PERSISTENCE_CONFIG": str(tmp_path / "persistence.toml")}
    assert persistence("init", cwd=tmp_path, env=env).returncode == 0
    done = persistence("config", cwd=tmp_path, env=env)
    assert (done.returncode, done.stderr, 'dialect = "orbeon"' in done.stdout) == (0, "", True)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [("", [["D"]] * 4), (examples("toml")[-1], [["D"], [], ["D"], []])],
    ids=["nothing said", "permissions said"],
)
def test_data_without_definitions_is_searched_by_the_permissions_of_the_settings(
    tmp_path: Path, settings: str, expected: list[list[str]]
) -> None:
    with serving(tmp_path, dialect="orbeon", settings=settings) as service:
        provider = replace(service, face=PROVIDER)
        assert provider.put("hr/leave/data/D/data.xml", b"<d>Monday</d>", **V1, Username="lea").status == 201
        query = b"<search><query>monday</query></search>"
        shown = []
        for who in ({"Username": "lea"}, {"Username": "bob"}, {"Username": "eve", "Roles": "hr-admin"}, {}):
            headers = {f"Orbeon-{name}": value for name, value in who.items()} | {"Orbeon-Form-Definition-Version": "1"}
            shown.append(found(service.raw("POST", "/search/hr/leave", headers, query).body))
    assert shown == expected


@pytest.mark.parametrize("release", RELEASES)
def test_the_properties_choose_as_the_text_says(release: str, tmp_path: Path) -> None:
    """By the rule of the runtime and its own defaults (spec crud 10.1, runtime 8)."""
    own, *others = examples("xml")
    provider = "".join(line for line in own.splitlines(keepends=True) if ".persistence.files." in line)
    chosen = []
    for block in (own, *(f"<properties>{each}{provider}</properties>" for each in others)):
        (tmp_path / "p.xml").write_text(block)
        runtime = RuntimeProperties.load(str(tmp_path / "p.xml"), release)
        routes = [
            runtime.route(Form(*names)) for names in (("hr", "leave"), ("orbeon", "library"), ("orbeon", "builder"))
        ]
        chosen.append([(route.definition, route.data) for route in routes])
        assert runtime.needed(Properties.load(HERE, ORBEON.property_prefix).of(Form("*", "*"))) == []
        assert list(runtime.problems()) == []
    assert chosen == [
        [("files", "files"), ("files", "files"), ("", "files")],
        [("files", "sqlite"), ("files", "sqlite"), ("", "files")],
        [("sqlite", "files"), ("sqlite", "files"), ("", "sqlite")],
    ]


def test_the_lines_say_their_types() -> None:
    for block in examples("xml"):
        for each in ET.fromstring(f'<all xmlns:xs="http://www.w3.org/2001/XMLSchema">{block}</all>').iter("property"):  # noqa: S314 - our own
            is_boolean = each.attrib["value"] in {"true", "false"}
            expected = (
                "xs:boolean" if is_boolean else "xs:anyURI" if each.attrib["name"].endswith(".uri") else "xs:string"
            )
            assert each.attrib["as"] == expected


def test_it_is_one_page() -> None:
    assert len(GUIDE.encode()) <= 12_000
