"""The dependencies have upper bounds, and the locked versions with their digests are ones that setup.cfg allows."""

import re
from configparser import ConfigParser
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
LOCKED = ROOT / "config" / "requirements"


def declared() -> dict[str, list[Requirement]]:
    """The requirements that each file of locked versions serves, as setup.cfg or, for benchmarks, peers.in has them."""
    config = ConfigParser()
    config.read(ROOT / "setup.cfg")
    own = config["options"]["install_requires"]
    extras = config["options.extras_require"]
    run = own + extras["build"]
    texts = {"run": run, "engines": run + extras["postgresql"] + extras["s3"]}
    texts |= {name: own + extras[name] for name in ("dev", "audit", "generated")}
    texts["peers"] = "\n".join((LOCKED / "peers.in").read_text().splitlines()[1:])  # below its comment
    return {name: [Requirement(line) for line in text.splitlines() if line.strip()] for name, text in texts.items()}


def locked(name: str) -> dict[str, str]:
    text = (LOCKED / f"{name}.txt").read_text()
    return {canonicalize_name(package): at for package, at in re.findall(r"(?m)^([\w.-]+)==(\S+)", text)}


@pytest.mark.parametrize("name", ["run", "engines", "dev", "audit", "generated", "peers"])
def test_locked_versions_are_allowed_and_have_digests(name: str) -> None:
    versions = locked(name)
    for requirement in declared()[name]:
        assert versions[canonicalize_name(requirement.name)] in requirement.specifier, requirement
    entries = re.split(r"(?m)^(?=[\w.-]+==)", (LOCKED / f"{name}.txt").read_text())[1:]
    assert len(entries) == len(versions)
    assert [entry for entry in entries if "--hash=sha256:" not in entry] == []


def test_every_dependency_has_an_upper_bound() -> None:
    for requirements in declared().values():
        for requirement in requirements:
            assert any(bound.operator == "<" for bound in requirement.specifier), requirement


def test_files_of_locked_versions_agree() -> None:
    dev = locked("dev")
    for name in ("run", "engines", "audit", "generated"):
        assert {package: at for package, at in locked(name).items() if dev.get(package, at) != at} == {}
    for name in ("run", "engines"):  # of which dev has all: what it has no more, nothing needs
        assert set(locked(name)) - set(dev) == set()


def test_installed_is_what_is_locked() -> None:
    for name, at in locked("run").items():
        assert version(name) == at
