"""The pages on settings, statuses, commands and requests agree with the tables in the code and with openapi.yaml."""

import re
from pathlib import Path

import pytest
import yaml
from click import Context

from persistence.cli import commands
from persistence.dialect import SVC
from persistence.errors import STATUS
from persistence.properties.property_table import KNOWN, SHIPPED, SHIPPED_BY_PREFIX, Effect, KnownProperty
from persistence.settings import DEFAULT_FILE, SECRET, Settings, load

DOCS = Path(__file__).parents[1] / "docs"
_EMPTY = {"empty", "none"}


def rows(page: str) -> list[tuple[str, str]]:
    """Return the first two cells of every row of the tables of a page."""
    return re.findall(r"(?m)^\| (.+?) \| (.*?) \|", (DOCS / page).read_text())


def documented() -> dict[str, str]:
    """Return the default of each setting, as the page has it."""
    names = set(Settings.__struct_fields__)
    found = {name.strip("`"): default.strip("`") for name, default in rows("settings.md")}
    return {name: default for name, default in found.items() if name in names}


@pytest.mark.parametrize("name", Settings.__struct_fields__)
def test_every_setting_is_documented_with_its_default(name: str) -> None:
    default, said = getattr(Settings(), name), documented()[name]
    if said in _EMPTY:
        assert not default
    elif name in ("data", "local", "keys", "encryption_keys", "gunicorn", "audit_file"):
        assert (Path(DEFAULT_FILE).parent / said).as_posix().replace("config/../", "") == default
    elif isinstance(default, bool):
        assert said == str(default).lower()
    else:
        assert said == f"{default:g}" if isinstance(default, float) else said == str(default)


def test_the_sample_file_has_the_defaults() -> None:
    sample = load(str(DOCS.parent / DEFAULT_FILE), environment={}).settings
    without = load(None, environment={}).settings
    names = [name for name in Settings.__struct_fields__ if name not in SECRET]
    differ = [name for name in names if getattr(sample, name) != getattr(without, name)]
    assert differ == []


@pytest.mark.parametrize("known", [each for each in KNOWN if each.effect is Effect.ACTS], ids=lambda each: each.pattern)
def test_every_property_in_effect_is_documented(known: KnownProperty) -> None:
    page = (DOCS / "settings.md").read_text() + (DOCS / "providers.md").read_text()
    last = known.pattern.rpartition(".")[2]
    assert last.strip("<>").split("|")[0] in page


def test_documented_defaults_of_properties_are_the_shipped_ones() -> None:
    shipped = {**SHIPPED, **SHIPPED_BY_PREFIX[SVC.property_prefix]}
    said = {name.strip("`"): default.strip("`") for name, default in rows("settings.md")}
    for pattern, value in shipped.items():
        if not pattern.startswith("persistence.provider."):
            name = pattern.replace("persistence.*.", "svc.persistence.$provider.")
            assert said[name] == str(value).lower()


def test_every_status_of_an_error_is_documented() -> None:
    documented = {status for statuses, _ in rows("status-codes.md") for status in re.findall(r"\d{3}", statuses)}
    assert {str(status) for _, status in STATUS} <= documented


def test_every_command_is_documented() -> None:
    page = (DOCS / "cli.md").read_text()
    names = commands.list_commands(Context(commands))
    assert [name for name in names if f"`persistence {name}" not in page and f"`{name}`" not in page] == []


def samples() -> list[tuple[str, str]]:
    """Return the samples of settings in dialect svc, each with the name of its page."""
    pages = ("permissions.md", "providers.md", "reporting.md", "security.md", "settings.md")
    return [
        (page, block) for page in pages for block in re.findall(r"(?ms)^```toml\n(.*?)^```$", (DOCS / page).read_text())
    ]


@pytest.mark.parametrize(("page", "sample"), samples())
def test_every_sample_of_settings_is_accepted(page: str, sample: str, tmp_path: Path) -> None:
    file = tmp_path / "persistence.toml"
    file.write_text(sample)
    assert load(str(file), environment={}).file == str(file), page


def test_every_header_and_path_of_the_interface_is_documented() -> None:
    page = (DOCS / "http.md").read_text()
    interface = yaml.safe_load((DOCS / "openapi.yaml").read_text())
    components = interface["components"]
    sent = {each["name"] for each in components["parameters"].values() if each["in"] == "header"}
    own = {name for name in sent | set(components["headers"]) if name.startswith("Svc-")}
    assert [name for name in sorted(own) if f"`{name}`" not in page] == []
    last = {path.replace("{", "$").replace("}", "").rpartition("/")[2] for path in interface["paths"]}
    assert [name for name in sorted(last) if name and name not in page] == []
