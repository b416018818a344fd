"""Settings: defaults < file < environment < flags, and no unknown names."""

import re
import tomllib
from pathlib import Path

import msgspec
import pytest

from persistence.errors import StartupError
from persistence.model.addresses import Form
from persistence.model.permissions import Admin
from persistence.properties.property_table import full_address
from persistence.providers.locations import effective_properties, effective_settings
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


NAMES = {
    'datta = "x"': r"unknown setting 'datta'; the nearest valid name is 'data'",
    'server = "gunicorn"': r"the setting 'server' was removed with granian: see docs/running\.md",
    'data_format_version = "4.0.0"': r"'svc\.persistence\.\*\.data-format-version', a property of the file",
}
VARIABLES = {
    "MAX_BODDY": r"environment: unknown setting 'max_boddy'.*'max_body'",
    "PROXIES": "environment: the setting 'proxies' was removed",
    "DATA_FORMAT_VERSION": r"environment: .* 'oxf\.fr\.persistence\.\*\.data-format-version'",
}


def test_unknown_names_are_refused_with_the_nearest_valid_one_and_old_ones_with_what_to_do(file: Path) -> None:
    for line, cause in NAMES.items():
        file.write_text(f"{line}\n")
        with pytest.raises(StartupError, match=cause):
            load(str(file), environment={})
    for name, cause in VARIABLES.items():
        with pytest.raises(StartupError, match=cause):
            load(environment={f"PERSISTENCE_{name}": "1", "PERSISTENCE_DIALECT": "orbeon"})


def test_properties_stand_in_the_file_beside_the_settings(file: Path) -> None:
    file.write_text(
        '"svc.persistence.*.autosave" = false\nthreads = 3\n[svc.detail.singleton.enabled.hr]\nleave = true'
    )
    effective = load(str(file), environment={})
    assert effective.settings.threads == 3
    own = [(str(entry), entry.origin) for entry in effective.properties.entries if entry.file]
    assert own == [("svc.persistence.*.autosave", str(file)), ("svc.detail.singleton.enabled.hr.leave", str(file))]
    assert [entry.origin for entry in effective.properties.entries[2:]] == ["default"] * 7


@pytest.mark.parametrize(
    ("flags", "environment"), [({"dialect": "orbeon"}, {}), ({}, {"PERSISTENCE_DIALECT": "orbeon"})]
)
def test_the_dialect_in_force_decides_how_properties_begin(
    file: Path, flags: dict[str, object], environment: dict[str, str]
) -> None:
    file.write_text('"oxf.fr.persistence.*.autosave" = false\n')
    assert not load(str(file), flags, environment).properties.of(Form("hr", "leave")).has_drafts
    with pytest.raises(StartupError, match="are of dialect 'orbeon', and the one in force is 'svc'"):
        load(str(file), environment={})


ADMINS = ("role = 3", 'role = "chief"', 'role = "a"\napp = "b"\nform = "c"\nforms = "d"')
DATASOURCES = (
    '[datasource.a]\nroot = "x"',
    '[datasource]\na = "x"',
    '[datasource."a b"]\ndata = "x"',
    'datasource = "x"',
)
WRONG = (
    *('dialect = "klingon"', "workers = -1", "worker_memory = 1024", 'workers = "2"', "lock_timeout = -1"),
    *('bind = "8080"', 'bind = "127.0.0.1:65536"', 'bind = "127.0.0.1:"', "[bind]", "lock_timeout = inf"),
    *('accel_redirect = "protected"', 'trusted = "127.0.0.1"', 'trusted = ["127.0.0.1", "10.0.0.1/8"]'),
    *('insecure = "yes"', "[table]\nx = 1", '"svc.persistence.*.autosave" = "false"'),
    *('"svc.persistence.*.autosav" = false', "svc = 1", f"a = {'[' * 5000}", f"workers = {'1' * 5000}", "not toml"),
)


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ('time_zone = "Berlin"', "'Berlin' is not the name of a time zone, such as Europe/Berlin, or empty"),
        ('time_zone = "../etc/passwd"', "is not the name of a time zone"),
        ('dialect = "Orbeon"', "'Orbeon' is not 'svc' or 'orbeon'; the nearest is 'orbeon'"),
        ('audit = "on"', "'on' is not 'off', 'file', 'syslog' or 'stdout'"),
        ("hand_edits = true", "True is not 'xml', 'none' or 'all'"),
        ('workers = "8"', "'8' is not a whole number from 0 to 100000: write it without quotation marks"),
        ("threads = 0", "0 is not a whole number from 1 on"),
        ('max_body = "1 gigabyte"', """is not a number of bytes, or a size such as "500M" or "1GiB\""""),
        ('max_body = "500MB"', 'or a size such as "500M"'),
        ("max_body = -1", "-1 is not a number of bytes"),
        ('lock_timeout = "10s"', "'10s' is not a number of seconds above 0, at most 3600"),
        ('metrics = "yes"', "'yes' is not true or false"),
        ("keys = 3", "3 is not a text in quotation marks"),
        ('token_issuers = "desk"', "'desk' is not a list of names of API keys"),
        ('publish_to = "https://forms"', """is not a list of texts: write ["https://forms"]"""),
        ('hosts = ["forms-data:8080"]', "hosts = ['forms-data:8080'] is not a list of names"),
        ('hosts = ["[::1]"]', "without port and brackets"),
        ('hosts = "forms-data"', "is not a list of names"),
        ('origins = ["https://forms.example.org/"]', "such as https://forms.example.org, without a path"),
        ('origins = ["forms.example.org"]', "is not a list of origins"),
        *(
            (f"[[admin]]\n{entry}", "is not tables [[admin]] of role, app and form, each a name or *")
            for entry in ADMINS
        ),
        ('[datasource.a]\ndata = ""', "datasource = {'a': {'data': ''}} is not tables [datasource.NAME] of data"),
        *((text, "is not tables [datasource.NAME] of data") for text in DATASOURCES),
        *((line, "") for line in WRONG),
    ],
)
def test_a_wrong_value_is_refused_in_one_line_with_the_values_that_are_allowed(
    file: Path, line: str, cause: str
) -> None:
    file.write_text(line)
    with pytest.raises(StartupError) as refusal:
        load(str(file), environment={})
    said = str(refusal.value)
    assert cause in said
    assert (str(file) in said, "\n" in said, "regex" in said) == (True, False, False)


@pytest.mark.parametrize(("text", "size"), [("1K", 1 << 10), ("500MiB", 500 << 20), ("2G", 2 << 30), ("1TiB", 1 << 40)])
def test_sizes_take_units(file: Path, text: str, size: int) -> None:
    file.write_text(f'max_body = "{text}"')
    assert load(str(file), environment={}).settings.max_body == size
    assert load(environment={"PERSISTENCE_MAX_BODY": text}).settings.max_body == size


@pytest.mark.parametrize("bind", ["127.0.0.1:0", "0.0.0.0:65535", "[::1]:8080", "localhost:80", "unix:/run/p.sock"])
def test_addresses_to_serve_on(bind: str) -> None:
    assert load(flags={"bind": bind}, environment={}).settings.bind == bind


@pytest.mark.parametrize("value", ["10.0.0.0/8,unix,::1", " 10.0.0.0/8 , unix, ::1,"])
def test_a_list_in_the_environment_has_commas(file: Path, value: str) -> None:
    file.write_text('trusted = ["10.0.0.0/8", "unix", "::1"]')
    assert load(environment={"PERSISTENCE_TRUSTED": value}).settings.trusted == ("10.0.0.0/8", "unix", "::1")
    assert load(str(file), environment={}).settings.trusted == ("10.0.0.0/8", "unix", "::1")
    assert load(environment={"PERSISTENCE_TRUSTED": ""}).settings.trusted == ()


def test_administrators_are_tables_of_the_file(file: Path) -> None:
    """Spec search 4.4."""
    file.write_text(
        '[[admin]]\nrole = "chief"\napp = "*"\nform = "*"\n[[admin]]\nrole = "*"\napp = "hr"\nform = "leave"\n'
    )
    settings = load(str(file), environment={}).settings
    assert settings.admin == (Admin("chief", "*", "*"), Admin("*", "hr", "leave"))


@pytest.mark.parametrize("name", ["admin", "datasource", "webhook"])
def test_tables_cannot_come_from_the_environment(name: str) -> None:
    with pytest.raises(StartupError, match=f"environment: {name} can only be set in the settings file"):
        load(environment={f"PERSISTENCE_{name.upper()}": "[]"})


def placed(project: Path) -> Settings:
    """The defaults, of a project whose settings file lies in ``config``, there or not."""
    paths = {
        "data": "var/data",
        "local": "var/local",
        "gunicorn": "config/gunicorn.conf.py",
        "keys": "var/keys.json",
        "encryption_keys": "var/encryption-keys.json",
        "audit_file": "var/audit/audit.jsonl",
    }
    return Settings(**{name: str(project / path) for name, path in paths.items()})


def test_paths_of_the_file_start_where_it_lies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The issue: a service that is started in another folder has the same tree."""
    (tmp_path / "etc").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "etc/own.toml").write_text(
        'data = "../tree"\nkeys = "keys.json"\nencryption_keys = "/run/ring.json"\ngunicorn = "g.py"\n'
        '"svc.persistence.big.base-path" = "../big"\n"svc.persistence.old.directory" = "old"\n'
        '"svc.persistence.none.base-path" = " "\n[datasource.second]\ndata = "second"\n'
    )
    for start, file in ((tmp_path, "etc/own.toml"), (tmp_path / "elsewhere", "../etc/own.toml")):
        monkeypatch.chdir(start)
        effective = load(file, environment={})
        settings, properties = effective.settings, effective.properties
        assert (settings.data, settings.keys) == (f"{tmp_path}/tree", f"{tmp_path}/etc/keys.json")
        assert (settings.encryption_keys, settings.gunicorn) == ("/run/ring.json", f"{tmp_path}/etc/g.py")
        assert dict(settings.roots.named) == {"second": f"{tmp_path}/etc/second"}
        assert properties.provider("big").base_path == f"{tmp_path}/big"
        assert properties.provider("old").base_path == f"{tmp_path}/etc/old"
        assert properties.provider("none").base_path == ""


def test_paths_of_environment_and_flags_start_in_the_current_directory(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_text('data = "of-the-file"\n')
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    settings = load(str(file), {"data": "by/flag"}, {"PERSISTENCE_KEYS": "../by-environment.json"}).settings
    assert (settings.data, settings.keys) == (f"{here}/by/flag", f"{tmp_path}/by-environment.json")


def test_defaults_of_paths_follow_the_file_and_not_the_current_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line that says the default may be left out; and no start elsewhere loses the keys."""
    (tmp_path / "config").mkdir()
    (tmp_path / "config/persistence.toml").write_text("threads = 3\n")
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    found = load("../config/persistence.toml", environment={}).settings
    assert msgspec.structs.replace(found, threads=8) == placed(tmp_path)


def test_what_is_in_force_is_shown_as_a_settings_file_that_says_the_same(file: Path) -> None:
    file.write_text(
        'trusted = ["10.1.2.3"]\ninsecure = true\nadmin = [{ role = "a \\"b\\"", app = "h\\u007fr", form = "*" }]\n'
        '"svc.persistence.*.autosave" = false\n\n[datasource.far]\ndata = "far"\n'
    )
    before = load(str(file), environment={})
    named = {each.name: each.value for each in effective_settings(before)}
    assert (named.pop("encryption_key"), named.pop("second_key")) == ("[]", '""')  # only the environment may have them
    shown = [f"{name} = {value}" for name, value in named.items()]
    shown += [f'"{each.name}" = {each.value}' for each in effective_properties(before) if each.origin != "default"]
    content = "\n".join(shown)
    assert tomllib.loads(content)["admin"] == [{"role": 'a "b"', "app": "h\x7fr", "form": "*"}]
    assert "\x7f" not in content  # a terminal would obey it
    file.write_text(content)
    after = load(str(file), environment={})
    assert after.settings == before.settings
    assert after.properties.entries == before.properties.entries


@pytest.mark.parametrize("name", ["keys", "encryption_keys"])
def test_keys_that_lie_where_earlier_versions_looked_are_not_overlooked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Without keys a service lets more callers in: it must not lose them in silence."""
    (tmp_path / "config").mkdir()
    (tmp_path / "config/persistence.toml").write_text(f'{name} = "var/it.json"\n')
    (tmp_path / "var").mkdir()
    (tmp_path / "var/it.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StartupError, match=rf"{name} = 'var/it.json' .* write '../var/it.json'"):
        load(environment={})
    (tmp_path / "config/var").mkdir()
    (tmp_path / "config/var/it.json").write_text("{}")
    assert getattr(load(environment={}).settings, name) == f"{tmp_path}/config/var/it.json"


def test_a_missing_file_is_an_error_only_if_it_was_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert load(environment={}).settings == placed(tmp_path)
    with pytest.raises(StartupError, match="does not exist"):
        load("nowhere.toml", environment={})


def test_every_setting_has_a_meaning_and_the_example_names_them_all(tmp_path: Path) -> None:
    assert set(MEANINGS) == set(Settings.__struct_fields__)
    file = tmp_path / "config/persistence.toml"
    shipped = (PROJECT / "config/persistence.toml").read_text()
    example = load(str(PROJECT / "config/persistence.toml"), environment={})
    assert [name for name, origin in example.origins.items() if origin != "default"] == ["data"]
    file.parent.mkdir()
    file.write_text(re.sub(r"(?m)^#(?=[a-z_]+ = )", "", shipped))
    example = load(str(file), environment={})
    defaults = [name for name, origin in example.origins.items() if origin == "default"]
    assert defaults == ["admin", "encryption_key", "datasource", "second_key", "webhook"]
    assert example.settings == placed(file.parents[1])


def test_the_administrator_of_the_example_is_valid(file: Path) -> None:
    """It stands in comments, because an empty list in its place would keep anybody from adding tables."""
    before, _, table = (PROJECT / "config/persistence.toml").read_text().partition("# [[admin]]")
    file.write_text(before + "[[admin]]" + table.replace("# ", ""))
    assert load(str(file), environment={}).settings.admin == (Admin("form-admin", "hr", "*"),)


def test_the_properties_of_the_example_are_valid(file: Path) -> None:
    lines = (PROJECT / "config/persistence.toml").read_text().splitlines()
    file.write_text("\n".join(line.removeprefix("# ") for line in lines if line.startswith(("# svc", '# "svc'))))
    assert len([entry for entry in load(str(file), environment={}).properties.entries if entry.file]) == 10


@pytest.mark.parametrize("scheme", ["postgresql", "postgres"])
def test_a_place_of_forms_may_be_a_database(tmp_path: Path, scheme: str) -> None:
    address = f"{scheme}://app:secret@db.example.org/forms"
    (tmp_path / "own.toml").write_text(
        f'data = "{address}?schema=a"\nlocal = "here"\n'
        f'[datasource.second]\ndata = "{address}?schema=b"\n[datasource.third]\ndata = "tree"\n'
    )
    settings = load(str(tmp_path / "own.toml"), environment={}).settings
    shown = f"{scheme}://app:***@db.example.org/forms"
    assert list(map(str, settings.roots.places)) == [f"{shown}?schema=a", f"{shown}?schema=b", f"{tmp_path}/tree"]
    assert [full_address(each) for each in settings.roots.databases] == [f"{address}?schema=a", f"{address}?schema=b"]
    assert "secret" not in f"{settings} {settings!r} {settings.roots.default}"
    assert list(settings.roots) == [f"{tmp_path}/tree"]
    assert settings.home == f"{tmp_path}/here"


def test_a_bad_value_is_not_repeated_where_it_may_be_a_password() -> None:
    with pytest.raises(StartupError) as refused:
        load(environment={"PERSISTENCE_BIND": "postgresql:///forms?user=a&password=secret"})
    assert "secret" not in str(refused.value)
