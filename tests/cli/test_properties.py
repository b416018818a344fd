"""``persistence config`` and ``persistence config property``: the values in force, with the reasons."""

from pathlib import Path

import pytest

from persistence.settings import Settings
from persistence.storage import root
from tests.cli.test_commands import persistence

OWN = "config/persistence.toml"
FILE = """
threads = 3
"svc.persistence.*.autosave" = false
"svc.persistence.*.reindex" = true
"svc.permissions.hr.*" = '{"anyone": ["create"]}'
[svc.persistence.provider]
"shop.*.form" = "a"
"*.order.*" = "b"
"*.*.data" = " "
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config").mkdir()
    (tmp_path / OWN).write_text(FILE)
    return tmp_path


def test_config_prints_settings_then_the_files_properties_then_the_defaults(folder: Path) -> None:
    lines = persistence("config", cwd=folder).stdout.splitlines()
    named = [line.partition(" = ")[0] for line in lines]
    assert f"threads = 3  # {OWN}, not 8: threads in each worker" in lines
    assert named[named.index(Settings.__struct_fields__[-1]) + 1 :] == [
        '"svc.persistence.*.autosave"',
        '"svc.persistence.*.reindex"',
        '"svc.permissions.hr.*"',
        '"svc.persistence.provider.shop.*.form"',
        '"svc.persistence.provider.*.order.*"',
        '"svc.persistence.provider.*.*.data"',
        '"svc.persistence.provider.*.*.*"',
        '"svc.persistence.*.active"',
        '"svc.persistence.*.permissions"',
        '"svc.persistence.*.versioning"',
        '"svc.persistence.*.lease"',
        '"svc.persistence.*.data-format-version"',
        '"svc.persistence.*.search.restrict-to-readable"',
    ]
    assert f'"svc.persistence.*.autosave" = false  # {OWN}: drafts can be stored; in effect' in lines
    assert '"svc.persistence.*.versioning" = true  # default: definitions have versions; in effect' in lines


def test_a_property_is_explained(folder: Path) -> None:
    done = persistence("config", "property", "svc.persistence.provider.shop.order.data", cwd=folder)
    before_last = "token 5 is *, where the winner has order"
    assert done.stdout.splitlines() == [
        'svc.persistence.provider.shop.order.data = "b"',
        "  provider of a form's definitions or data; in effect",
        f'  wins svc.persistence.provider.*.order.* = "b" ({OWN}): it is the most literal from the left',
        f'  loses svc.persistence.provider.*.*.data = " " ({OWN}): {before_last}',
        f'  loses svc.persistence.provider.*.*.* = "files" (default): {before_last}',
        "  left svc.persistence.provider.shop.*: no name continues there with data or *",
    ]


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        (
            "svc.persistence.provider.hr.leave.data",
            [
                "svc.persistence.provider.hr.leave.data is not configured",
                "  the winner is blank, and the search does not go on: not configured",
            ],
        ),
        ("svc.persistence.files.reindex", ["svc.persistence.files.reindex = true", "without effect in this version"]),
        ("svc.persistence.files.sort", ["svc.persistence.files.sort = false", "  nothing matches: the default"]),
        ("svc.permissions.hr.leave", ['= "{\\"anyone\\": [\\"create\\"]}"', "wins svc.permissions.hr.* = "]),
        ("svc.permissions.a.b", ["svc.permissions.a.b is not configured", "left svc.permissions: no name continues"]),
    ],
)
def test_what_is_said_of_a_property(folder: Path, name: str, lines: list[str]) -> None:
    done = persistence("config", "property", name, cwd=folder)
    assert (done.returncode, done.stderr) == (0, "")
    for line in lines:
        assert line in done.stdout


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("svc.persistence.files.autosav", "the nearest valid name is 'svc.persistence.files.autosave'"),
        ("svc.persistence.*.autosave", "has a wildcard"),
    ],
)
def test_what_is_no_property_is_an_error_in_one_line(folder: Path, name: str, cause: str) -> None:
    done = persistence("config", "property", name, cwd=folder)
    assert (done.returncode, done.stdout) == (1, "")
    assert cause in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_file_and_dialect_can_be_named_before_or_after(folder: Path) -> None:
    (folder / "other.toml").write_text('"oxf.fr.persistence.*.autosave" = false\n')
    question = ("property", "oxf.fr.persistence.files.autosave")
    options = ("--config", "other.toml", "--dialect", "orbeon")
    before = persistence("config", *options, *question, cwd=folder)
    after = persistence("config", *question, *options, cwd=folder)
    assert before.stdout == after.stdout
    assert after.stdout.startswith("oxf.fr.persistence.files.autosave = false\n")


ROUTED = """
"svc.persistence.provider.acme.*.data" = "orders"
"svc.persistence.orders.datasource" = "disk2"
"svc.persistence.orders.active" = false
"svc.persistence.provider.acme.*.*.attachments" = "filesystem"
"svc.persistence.filesystem.base-path" = "attachments"
[datasource.disk2]
data = "disk2"
"""


def test_a_route_is_explained(tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text(ROUTED)
    done = persistence("config", "route", "acme/order", "data", "--config", "own.toml", cwd=tmp_path)
    assert done.stdout.splitlines() == [
        'svc.persistence.provider.acme.order.data = "orders"',
        "  provider of a form's definitions or data; in effect",
        '  wins svc.persistence.provider.acme.*.data = "orders" (own.toml): it is the most literal from the left',
        '  loses svc.persistence.provider.*.*.* = "files" (default): token 4 is *, where the winner has acme',
        f"provider orders is a tree here, {tmp_path}/disk2 (the datasource disk2)",
        "  not active: requests to all providers leave it out",
        "  Svc-Datasource: disk2",
        'svc.persistence.provider.acme.order.data.attachments = "filesystem"',
        "  provider of the attachments of a form's data; in effect",
        '  wins svc.persistence.provider.acme.*.*.attachments = "filesystem" (own.toml): nothing else matches',
        "  left svc.persistence.provider.acme.*.data: no name continues there with attachments or *",
        f"attachments are below {tmp_path}/attachments",
    ]
    done = persistence("config", "route", "acme/order", "form", "--config", "own.toml", cwd=tmp_path)
    assert done.stdout.splitlines()[-2:] == [
        f"provider files is a tree here, {tmp_path.parent}/var/data (the default)",
        "attachments of definitions are always with it",
    ]


def test_a_route_of_what_is_no_form_is_wrong_usage(folder: Path) -> None:
    for path in ("acme", "acme/order/1", "acme/"):
        assert persistence("config", "route", path, "data", cwd=folder).returncode == 2
    assert persistence("config", "route", "acme/order", "draft", cwd=folder).returncode == 2


def test_no_command_shows_the_password_of_an_address(tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text(
        'data = "var/data"\n"svc.persistence.provider.*.*.*" = "far"\n'
        '"svc.persistence.far.uri" = "http://u:KEY@far/base"\n'
        '"svc.persistence.*.uri" = "http://u:KEY@other"\n"svc.persistence.far.xmldb-uri" = "xmldb://u:KEY@db"\n'
    )
    root.init(str(tmp_path / "var/data"))
    for more in ((), ("property", "svc.persistence.far.uri"), ("route", "acme/order", "data")):
        done = persistence("config", *more, "--config", "own.toml", cwd=tmp_path)
        assert done.returncode == 0
        assert "//far/base" in done.stdout
        assert "KEY" not in done.stdout + done.stderr
