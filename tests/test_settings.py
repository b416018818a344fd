"""Settings: defaults < file < environment < flags, and no unknown names."""

from pathlib import Path

import pytest

from persistence.errors import StartupError
from persistence.settings import MEANINGS, Settings, load

PROJECT = Path(__file__).parents[1]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "persistence.toml"


def test_every_layer_wins_over_the_one_before(file: Path) -> None:
    file.write_text('threads = 3\nworkers = 3\nbind = "127.0.0.1:3"\n')
    environment = {"PERSISTENCE_THREADS": "4", "PERSISTENCE_WORKERS": "4", "PATH": "/bin"}
    effective = load(str(file), {"workers": 5, "threads": None}, environment)
    settings = effective.settings
    assert (settings.dialect, settings.bind, settings.threads, settings.workers) == ("svc", "127.0.0.1:3", 4, 5)
    origins = effective.origins
    assert (origins["dialect"], origins["bind"]) == ("default", str(file))
    assert (origins["threads"], origins["workers"]) == ("environment", "flag")


def test_the_file_can_be_named_in_the_environment(file: Path) -> None:
    file.write_text("threads = 3\n")
    assert load(environment={"PERSISTENCE_CONFIG": str(file)}).settings.threads == 3


def test_unknown_names_are_refused_with_the_nearest_valid_one(file: Path) -> None:
    file.write_text('datta = "x"\n')
    with pytest.raises(StartupError, match=r"unknown setting 'datta'; the nearest valid name is 'data'"):
        load(str(file), environment={})
    with pytest.raises(StartupError, match=r"environment: unknown setting 'max_boddy'.*'max_body'"):
        load(environment={"PERSISTENCE_MAX_BODDY": "1"})


@pytest.mark.parametrize(
    "line",
    [
        'dialect = "klingon"',
        "workers = 0",
        'bind = "8080"',
        'bind = "127.0.0.1:65536"',
        'bind = "127.0.0.1:"',
        'workers = "2"',
        "lock_timeout = -1",
        'accel_redirect = "protected"',
        "[table]\nx = 1",
        "not toml",
    ],
)
def test_values_that_are_not_acceptable_are_refused_in_one_line(file: Path, line: str) -> None:
    file.write_text(line)
    with pytest.raises(StartupError) as refusal:
        load(str(file), environment={})
    assert str(file) in str(refusal.value)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("bind", ["127.0.0.1:0", "0.0.0.0:65535", "[::1]:8080", "localhost:80", "unix:/run/p.sock"])
def test_addresses_to_serve_on(bind: str) -> None:
    assert load(flags={"bind": bind}, environment={}).settings.bind == bind


def test_a_missing_file_is_an_error_only_if_it_was_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert load(environment={}).settings == Settings()
    with pytest.raises(StartupError, match="does not exist"):
        load("nowhere.toml", environment={})


def test_every_setting_has_a_meaning_and_the_example_names_them_all() -> None:
    assert set(MEANINGS) == set(Settings.__struct_fields__)
    example = load(str(PROJECT / "config/persistence.toml"), environment={})
    assert set(example.origins.values()) == {str(PROJECT / "config/persistence.toml")}
    assert example.settings == Settings()
