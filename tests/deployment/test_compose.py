"""The compose file of docs/cluster.md, as far as it can be checked without Docker."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from persistence.properties.property_table import full_address
from persistence.settings import Settings, load

_PROJECT = Path(__file__).parents[2]
_FOLDER = _PROJECT / "config/cluster"
_TEXT = (_FOLDER / "compose.yaml").read_text()
_FILE = yaml.safe_load(_TEXT)
_SERVICES: dict[str, dict[str, Any]] = _FILE["services"]
_PAGE = (_PROJECT / "docs/cluster.md").read_text()
_KNOWN = {"image", "build", "command", "user", "environment", "volumes", "ports", "networks", "depends_on", "restart"}
_DATABASES = ["db1", "db2", "db3"]
_INSTANCES = ["first", "second"]

each_service = pytest.mark.parametrize("name", _SERVICES)


def test_there_is_what_the_page_draws() -> None:
    assert set(_SERVICES) == {"etcd1", "etcd2", "etcd3", *_DATABASES, "prepare", *_INSTANCES, "haproxy"}
    assert {name for name in _FILE if not name.startswith("x-")} == {"services", "networks", "volumes"}


@each_service
def test_a_service_has_an_image_that_is_built_here(name: str) -> None:
    service = _SERVICES[name]
    assert set(service) <= _KNOWN
    builds = [each["build"] for each in _SERVICES.values() if each["image"] == service["image"] and "build" in each]
    assert builds
    for build in builds:
        context = (_FOLDER / build["context"]).resolve()
        assert context in (_FOLDER, _PROJECT)
        assert re.search(r"(?m)^FROM ", (context / build["dockerfile"]).read_text())
        assert all((_PROJECT / "config/requirements" / file).is_file() for file in build.get("args", {}).values())


@each_service
def test_what_a_service_refers_to_is_there(name: str) -> None:
    service = _SERVICES[name]
    assert set(service.get("depends_on", ())) <= set(_SERVICES)
    assert set(service["networks"]) <= set(_FILE["networks"])
    for volume in service.get("volumes", ()):
        source, target, *_ = volume.split(":")
        assert target.startswith("/")
        assert (_FOLDER / source).is_file() if source.startswith(".") else source in _FILE["volumes"]
    text = yaml.safe_dump(service["command"])
    for path in re.findall(r"/etc/\S+", text):
        assert any(f":{path}:ro" in volume for volume in service.get("volumes", ())) or name == "prepare"


def test_every_volume_is_of_one_service() -> None:
    used = [each.split(":")[0] for service in _SERVICES.values() for each in service.get("volumes", ())]
    assert sorted(each for each in used if not each.startswith(".")) == sorted(_FILE["volumes"])


@pytest.mark.parametrize("name", _INSTANCES)
def test_an_instance_takes_its_environment(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    environment = {key: value.replace("${FORMS_PASSWORD:?}", "s3cret") for key, value in _environment(name).items()}
    assert {key.removeprefix("PERSISTENCE_").lower() for key in environment} <= set(Settings.__struct_fields__)
    settings = load(None, {}, environment).settings
    address = full_address(settings.data)
    assert address == environment["PERSISTENCE_DATA"]
    assert settings.bind.endswith(":8080")
    hosts = re.fullmatch(r"postgresql://persistence:s3cret@(.*)/forms\?target_session_attrs=read-write", address)
    assert hosts[1].split(",") == _DATABASES
    assert _SERVICES[name]["command"] == "serve --init"


def test_haproxy_has_what_its_file_names_and_the_port_of_the_page() -> None:
    haproxy = _SERVICES["haproxy"]
    environment = _environment("haproxy")
    assert set(environment) == set(re.findall(r"\$\{(\w+)\}", (_FOLDER / "haproxy.cfg").read_text()))
    assert set(environment) <= set(re.findall(r"(?m)^(\w+)=", _PAGE))
    assert [environment[node] for node in ("NODE_A", "NODE_B")] == [f"{name}:8080" for name in _INSTANCES]
    (port,) = haproxy["ports"]
    assert port.split(":")[-1] == environment["BIND"].split(":")[1]
    assert f"http://localhost:{port.split(':')[-2]}/readyz" in _PAGE


@pytest.mark.parametrize("name", _DATABASES)
def test_a_database_has_the_environment_of_the_page(name: str) -> None:
    environment = _environment(name)
    documented = _PAGE + (_FOLDER / "patroni.conf").read_text()
    assert set(environment) == set(re.findall(r"\b(PATRONI_[A-Z0-9_]+)=", documented))
    assert environment["PATRONI_NAME"] == name
    for kind, port in (("RESTAPI", 8008), ("POSTGRESQL", 5432)):
        assert environment[f"PATRONI_{kind}_CONNECT_ADDRESS"] == f"{name}:{port}"
        assert environment[f"PATRONI_{kind}_LISTEN"].endswith(f":{port}")
    assert environment["PATRONI_ETCD3_HOSTS"] == "etcd1:2379,etcd2:2379,etcd3:2379"


@pytest.mark.parametrize("name", ["etcd1", "etcd2", "etcd3"])
def test_an_etcd_names_itself_and_the_others(name: str) -> None:
    words = _SERVICES[name]["command"].split()
    options = dict(zip(words[1::2], words[2::2], strict=True))
    assert options["--name"] == name
    assert options["--advertise-client-urls"] == f"http://{name}:2379"
    assert options["--initial-advertise-peer-urls"] == f"http://{name}:2380"
    assert f"{name}={options['--initial-advertise-peer-urls']}" in options["--initial-cluster"].split(",")
    assert options["--data-dir"].startswith(_SERVICES[name]["volumes"][0].split(":")[1])


def test_the_page_sets_each_variable() -> None:
    wanted = set(re.findall(r"(?<!\$)\$\{(\w+):\?\}", _TEXT))
    (exported,) = re.findall(r"(?m)^export (.+)$", _PAGE)
    assert {each.partition("=")[0] for each in exported.split()} == wanted


def _environment(name: str) -> dict[str, str]:
    environment: dict[str, str] = _SERVICES[name]["environment"]
    assert all(isinstance(value, str) for value in environment.values())
    return environment
