"""The properties of a configuration file, and the errors for wrong ones."""

import tomllib

import pytest

from persistence.dialect import DIALECTS, ORBEON, SVC, Dialect
from persistence.errors import StartupError
from persistence.properties.properties import Properties, from_file
from persistence.properties.property_table import ANY, KNOWN, SHIPPED, SHIPPED_BY_PREFIX, Effect, known_property


def entries(text: str, dialect: Dialect = SVC) -> dict[str, object]:
    """Names and values of a file."""
    return {str(entry): entry.value for entry in from_file(tomllib.loads(text), dialect.property_prefix, "file.toml")}


def refusal(text: str, dialect: Dialect = SVC) -> str:
    """Return the error for a file that is refused."""
    with pytest.raises(StartupError) as refused:
        entries(text, dialect)
    said = str(refused.value)
    assert said.startswith("file.toml: ")
    assert "\n" not in said
    return said


@pytest.mark.parametrize(
    "text",
    [
        "svc.detail.singleton.enabled.hr.leave = true",
        '"svc.detail.singleton.enabled.hr.leave" = true',
        "[svc.detail.singleton]\nenabled.hr.leave = true",
        '[svc]\n"detail.singleton".enabled = {"hr.leave" = true}',
    ],
)
def test_every_spelling_of_toml_means_the_same(text: str) -> None:
    assert entries(text) == {"svc.detail.singleton.enabled.hr.leave": True}


def test_entries_keep_the_order_of_the_file() -> None:
    text = '[svc.persistence]\n"b.sort" = true\n[svc.persistence.a]\nsort = true\nlease = true\n'
    assert list(entries(text)) == ["svc.persistence.b.sort", "svc.persistence.a.sort", "svc.persistence.a.lease"]
    assert entries("[svc]\n[svc.persistence.files]\n# lease = true\n") == {}, "a table whose lines are commented out"
    twice = '"svc.persistence.*.lease" = true\n[svc.persistence."*"]\nlease = false\n'
    assert refusal(twice) == "file.toml: svc.persistence.*.lease is given twice"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('"svc.persistence.*.autosave" = "false"', "must be true or false, not 'false'"),
        ('"svc.persistence.*.autosave" = 0', "must be true or false, not 0"),
        ('"svc.persistence.*.autosave" = ""', "must be true or false, not ''"),
        ('"svc.persistence.*.autosave" = 1.0', "must be true or false, not 1.0"),
        ('"svc.persistence.*.autosave" = [true]', "must be true or false, not [True]"),
        ('"svc.persistence.*.max-batch-size" = true', "must be an integer from 1 to 2147483647, not True"),
        ('"svc.persistence.*.max-batch-size" = 0', "must be an integer from 1 to 2147483647, not 0"),
        ('"svc.persistence.*.max-batch-size" = 99999999999999999999', "must be an integer from 1 to 2147483647"),
        ('"svc.persistence.*.max-batch-size" = "5"', "must be an integer from 1 to 2147483647, not '5'"),
        ('"svc.persistence.*.max-batch-size" = 5.0', "must be an integer from 1 to 2147483647, not 5.0"),
        ('"svc.persistence.*.datasource" = 5', "must be a string, not 5"),
        (
            '"svc.persistence.*.data-format-version" = 4.8',
            "must be one of the strings 4.0.0, 4.8.0, 2019.1.0, or a later one such as 2021.1.0, not 4.8",
        ),
        ('"svc.persistence.*.data-format-version" = "4.8"', "must be one of the strings 4.0.0, 4.8.0, 2019.1.0"),
        ('"svc.persistence.provider.*.*.*" = true', "must be the name of a provider"),
        ('"svc.persistence.provider.*.*.*" = "proxy"', "none of attachments, persistence, provider, proxy"),
        ('"svc.persistence.provider.*.*.*" = "my.files"', "a string without dots"),
        ('"svc.persistence.provider.*.*.*" = "*"', "must be the name of a provider"),
        ('"svc.permissions.*.*" = {anyone = ["read"]}', "unknown property 'svc.permissions.*.*.anyone'"),
        ('"svc.permissions.h*.leave" = "{}"', "unknown property 'svc.permissions.h*.leave'"),
        ('"svc.permissions.*.*" = true', "must be a string of JSON, not True"),
        ('"svc.permissions.*.*" = "{"', "malformed permissions: "),
        (""""svc.permissions.*.*" = '{"anyone": ["fly"]}' """, "malformed permissions: 'fly' is not an operation"),
        (""""svc.permissions.*.*" = '{"everyone": ["read"]}' """, "malformed permissions: "),
        ('"svc.persistence.*.uri" = ["http://u:KEY@far"]', "must be "),
        ('"svc.persistence.*.uri" = "ftp://x"', "must be file:, or the address of a service that begins with http://"),
        ('"svc.persistence.*.uri" = "/fr/service/mysql"', "must be file:, or the address of a service"),
        ('"svc.persistence.*.uri" = "file:///srv/forms"', "the property datasource names the root of a tree"),
        ('"svc.persistence.*.uri" = "http://:99999"', "must be file:, or the address of a service"),
        ('"svc.persistence.*.uri" = "http://x/?a=1"', "must be file:, or the address of a service"),
        ('"svc.persistence.provider.a.*.data.attachments" = "a.b"', "the name of a provider"),
    ],
)
def test_a_value_of_another_type_is_refused(line: str, expected: str) -> None:
    said = refusal(line)
    assert expected in said
    assert line.split('"')[1] in said
    assert "KEY" not in said


@pytest.mark.parametrize(
    "name",
    [
        "persistence.provider.*.*.*",
        "persistence.*.data-format-version",
        "permissions.*.*",
        "persistence.*.uri",
        "persistence.provider.hr.*.data.attachments",
    ],
)
def test_a_blank_string_is_always_accepted(name: str) -> None:
    assert entries(f'"svc.{name}" = " "') == {f"svc.{name}": " "}


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("svc.persistence.*.autosav", "svc.persistence.*.autosave"),
        ("svc.persistence.files.autosav", "svc.persistence.files.autosave"),
        ("svc.persistance.provider.hr.leave.data", "svc.persistence.provider.hr.leave.data"),
        ("svc.persistence.provider.hr.leave.dta", "svc.persistence.provider.hr.leave.data"),
        ("svc.persistence.provider.hr.leave", "svc.persistence.provider.hr.leave.*"),
        ("svc.permision.hr.leave", "svc.permissions.hr.leave"),
        ("svc.permissions.hr", "svc.permissions.hr.*"),
        ("svc.detail.singelton.enabled.hr.leave", "svc.detail.singleton.enabled.hr.leave"),
        ("svc.detail.singleton.hr.leave", "svc.detail.singleton.enabled.hr.leave"),
        ("svc.persistence.*.data_format_version", "svc.persistence.*.data-format-version"),
        ("oxf.fr.persistence.*.autosave", "svc.persistence.*.autosave"),
        ("oxf.fr.persistence.provider.hr.*.data", "svc.persistence.provider.hr.*.data"),
        ("oxf.fr.permissions.hr.leave", "svc.permissions.hr.leave"),
        ("persistence.files.autosave", "svc.persistence.files.autosave"),
        ("svc.persistence.files..autosave", "svc.persistence.files.autosave"),
        ("svc..files.autosave", "svc.persistence.files.autosave"),
    ],
)
def test_an_unknown_name_leads_to_the_nearest_one(name: str, nearest: str) -> None:
    said = refusal(f'"{name}" = true')
    assert said == f"file.toml: unknown property {name!r}; the nearest valid name is {nearest!r}"


def test_other_unknown_names() -> None:
    """No provider is called like a part of other properties; names of the other dialect lead to those of this one."""
    for word in ("provider", "persistence", "attachments", "proxy"):
        said = refusal(f"svc.persistence.{word}.autosave = true")
        assert (
            said == f"file.toml: unknown property 'svc.persistence.{word}.autosave': no provider can be called {word!r}"
        )
    said = refusal('"svc.persistence.*.autosave" = true', ORBEON)
    assert said.endswith("the nearest valid name is 'oxf.fr.persistence.*.autosave'")
    assert "unknown property" in refusal(f"{'.'.join('a' * 3000)} = 1")
    assert "unknown property 'srv'" in refusal("[srv]\n")


@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=lambda dialect: dialect.name)
@pytest.mark.parametrize("pattern", [each.pattern for each in KNOWN])
def test_every_known_property_is_accepted_in_both_dialects(dialect: Dialect, pattern: str) -> None:
    property_ = next(each for each in KNOWN if each.pattern == pattern)
    name = ".".join(ANY if place.startswith("<") else place for place in property_.places)
    value = {"BOOLEAN": "true", "INTEGER": "7", "MINUTES": "0", "RETENTION": '"2y"', "HISTORY": '"none"'}.get(
        property_.kind.name, '""'
    )
    assert list(entries(f'"{dialect.property_prefix}{name}" = {value}', dialect)) == [dialect.property_prefix + name]
    assert known_property(tuple(name.split("."))) is property_


def test_what_has_no_effect_is_named_and_defaults_are_not() -> None:
    text = '"svc.persistence.*.sort" = true\n"svc.persistence.*.autosave" = true\nsvc.persistence.a.xmldb-uri = "x"\n'
    properties = Properties.load(tomllib.loads(text), SVC.property_prefix)
    assert list(map(str, properties.without_effect)) == ["svc.persistence.*.sort", "svc.persistence.a.xmldb-uri"]
    assert Properties.load({}, SVC.property_prefix).without_effect == ()


def test_the_shipped_entries_are_known_and_stand_where_the_seed_overrides_them() -> None:
    names = (*SHIPPED, *(name for of_one in SHIPPED_BY_PREFIX.values() for name in of_one))
    properties = {name: known_property(tuple(name.split("."))) for name in names}
    assert None not in properties.values()
    assert all(each and each.effect is Effect.ACTS for each in properties.values())
