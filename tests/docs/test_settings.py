"""docs/settings.md has every setting and property with its default, and no other; samples of settings are accepted."""

import re
from pathlib import Path

import pytest

from persistence.dialect import SVC
from persistence.pages.service_pages import SUBJECTS
from persistence.properties.property_table import (
    KNOWN,
    SHIPPED,
    SHIPPED_BY_PREFIX,
    Effect,
    KnownProperty,
    known_property,
)
from persistence.settings import DEFAULT_FILE, SECRET, Settings, load
from tests.docs.markdown import DOCS, PAGES, ROOT, Block, blocks, rows, spans

PAGE = DOCS / "settings.md"
_EMPTY = {"empty", "none"}
_PATHS = ("data", "local", "keys", "encryption_keys", "gunicorn", "audit_file")


def described_settings(text: str) -> dict[str, str]:
    """Return the default of each setting, as a page has it."""
    return {spans(cells[0])[0]: cells[1].strip("`") for cells in rows(text, "Setting")}


def described_properties(text: str) -> dict[str, KnownProperty | None]:
    """Return the properties that a page has, by their names there; ``None`` where there is none of that name."""
    names = [name for cells in rows(text, "Property") for name in spans(cells[0])]
    return {name: known_property(tuple(name.replace("$", "a-").removeprefix("svc.").split("."))) for name in names}


@pytest.mark.parametrize("name", Settings.__struct_fields__)
def test_every_setting_is_described_with_its_default(name: str) -> None:
    default, said = getattr(Settings(), name), described_settings(PAGE.read_text())[name]
    if said in _EMPTY:
        assert not default
    elif name in _PATHS:
        assert (Path(DEFAULT_FILE).parent / said).as_posix().replace("config/../", "") == default
    elif isinstance(default, bool):
        assert said == str(default).lower()
    else:
        assert said == f"{default:g}" if isinstance(default, float) else said == str(default)


def test_no_other_setting_is_described() -> None:
    assert set(described_settings(PAGE.read_text())) == set(Settings.__struct_fields__)


def test_the_subjects_of_settings_are_those_of_the_page() -> None:
    page = PAGE.read_text().partition("## Properties")[0]
    parts = [part.partition("\n") for part in page.split("\n## ")[1:]]
    described = [(title, list(described_settings(text))) for title, _, text in parts]
    assert [(subject, list(names)) for subject, names in SUBJECTS.items()] == described


def test_every_property_in_effect_is_described_and_the_reverse() -> None:
    described = described_properties(PAGE.read_text())
    assert [name for name, known in described.items() if known is None] == []
    acting = {each.pattern for each in KNOWN if each.effect is Effect.ACTS}
    assert {known.pattern for known in described.values() if known} == acting


def test_what_is_left_out_and_what_does_not_exist_are_found() -> None:
    page = PAGE.read_text().replace("`hand_edits`", "`hand_edit`", 1)
    assert set(described_settings(page)) ^ set(Settings.__struct_fields__) == {"hand_edit", "hand_edits"}
    page = PAGE.read_text().replace("`svc.persistence.$provider.autosave`", "`svc.persistence.$provider.autosafe`")
    described = described_properties(page)
    assert described["svc.persistence.$provider.autosafe"] is None
    assert "persistence.<provider>.autosave" not in {known.pattern for known in described.values() if known}


def test_the_sample_file_has_the_defaults() -> None:
    sample = load(str(ROOT / DEFAULT_FILE), environment={}).settings
    without = load(None, environment={}).settings
    names = [name for name in Settings.__struct_fields__ if name not in SECRET]
    differ = [name for name in names if getattr(sample, name) != getattr(without, name)]
    assert differ == []


def test_described_defaults_of_properties_are_the_shipped_ones() -> None:
    shipped = {**SHIPPED, **SHIPPED_BY_PREFIX[SVC.property_prefix]}
    said = {name: cells[1].strip("`") for cells in rows(PAGE.read_text(), "Property") for name in spans(cells[0])}
    for pattern, value in shipped.items():
        if not pattern.startswith("persistence.provider."):
            name = pattern.replace("persistence.*.", "svc.persistence.$provider.")
            assert said[name] == str(value).lower()


def samples() -> list[Block]:
    """Return the samples of settings."""
    return [block for page in PAGES for block in blocks(page) if block.language == "toml"]


@pytest.mark.parametrize("sample", samples(), ids=lambda sample: f"{sample.page}:{sample.line}")
def test_every_sample_of_settings_is_accepted(sample: Block, tmp_path: Path) -> None:
    file = tmp_path / "persistence.toml"
    file.write_text(sample.text)
    assert load(str(file), environment={}).file == str(file)


def test_the_samples_are_found() -> None:
    assert {sample.page for sample in samples()} >= {"permissions.md", "providers.md", "security.md", "settings.md"}
    assert re.search(r"(?m)^\[\[admin\]\]|^\[datasource\.", "\n".join(sample.text for sample in samples()))
