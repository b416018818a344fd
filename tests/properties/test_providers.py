"""The providers of a form, their properties, and the headers that tell them (spec forms 5, crud 10)."""

import tomllib

import pytest

from persistence.dialect import ORBEON, SVC, Dialect
from persistence.errors import BadRequestError
from persistence.model.addresses import Form
from persistence.properties.properties import (
    NameTree,
    Properties,
    PropertyEntry,
    ProviderProperties,
    RouteProperties,
    mirrored,
    remote_address,
)
from persistence.properties.property_table import ANY, DATA, FORM, KnownProperty, Value, ValueType, shown_address

ORDER = Form("shop", "order")


def properties(text: str = "", dialect: Dialect = SVC) -> Properties:
    table = {dialect.property_prefix + name: value for name, value in tomllib.loads(text).items()}
    return Properties.load(table, dialect.property_prefix, "file.toml")


@pytest.mark.parametrize(
    ("asked", "reached"),
    [
        ("a.*.form", "a.b.form *.*.*"),
        ("d.*.form", "d.*.form"),
        ("a.b.data", "*.*.*"),
        ("*.*.form", "a.b.form d.*.form *.*.*"),
        ("a.b.form", "a.b.form"),
        ("d.b.form", "d.*.form"),
        ("x.y.data", "*.*.*"),
        ("a.*", ""),
    ],
)
def test_every_provider_that_could_be_involved_is_found(asked: str, reached: str) -> None:
    """Spec forms 5.1, reverse search."""
    names = NameTree(tuple(name.split(".")) for name in ("a.b.form", "d.*.form", "*.*.*"))
    assert [".".join(name) for name in names.reachable(tuple(asked.split(".")))] == reached.split()


def test_inactive_providers_are_not_asked_where_all_are() -> None:
    found = properties(
        '"persistence.provider.a.b.form" = "v1"\n"persistence.provider.d.*.form" = "v2"\n'
        '"persistence.provider.e.*.*" = ""\n"persistence.v2.active" = false'
    )
    assert [each.name for each in found.providers(FORM)] == ["v1", "files"]
    assert [each.name for each in found.providers(FORM, "d")] == []
    assert [each.name for each in found.providers(FORM, "a", "b")] == ["v1"]
    assert [each.name for each in found.providers(DATA, "a")] == ["files"]
    assert found.of(Form("d", "x")).route.definition.name == "v2", "what is asked for by name is found all the same"


@pytest.mark.parametrize(
    ("entries", "data", "form"),
    [
        ("", "files", "files"),
        ('"persistence.provider.*.*.data" = "a"', "a", "files"),
        ('"persistence.provider.shop.*.*" = "a"\n"persistence.provider.*.order.data" = "b"', "a", "a"),
        ('"persistence.provider.shop.*.data" = "a"\n"persistence.provider.shop.order.*" = "b"', "b", "b"),
        ('"persistence.provider.shop.order.form" = "a"', "files", "a"),
        ('"persistence.provider.shop.*.form" = "a"\n"persistence.provider.*.order.*" = "b"', "b", "a"),
    ],
)
def test_the_most_literal_from_the_left_wins(entries: str, data: str, form: str) -> None:
    """The table of spec forms 5.1."""
    route = properties(entries).of(ORDER).route
    assert (route.data.name, route.definition.name) == (data, form)


@pytest.mark.parametrize(
    ("entries", "name"),
    [
        ('"persistence.provider.*.*.*.attachments" = "fs"', "fs"),
        ('"persistence.provider.shop.*.data.attachments" = "fs"', "fs"),
        ('"persistence.provider.shop.*.form.attachments" = "fs"', None),
        ('"persistence.provider.hr.*.data.attachments" = "fs"', None),
        ('"persistence.provider.*.*.*.attachments" = "fs"\n"persistence.provider.shop.*.*.attachments" = ""', None),
    ],
)
def test_attachments_of_data_may_have_a_provider(entries: str, name: str | None) -> None:
    found = properties(entries)
    attachments = found.of(ORDER).route.attachments
    assert (attachments and attachments.name) == name
    assert [each.name for each in found.attachment_providers] == ([] if ".form.att" in entries else ["fs"])
    assert [each.name for each in found.form_providers] == ["files"]


@pytest.mark.parametrize("dialect", [SVC, ORBEON], ids=["svc", "orbeon"])
def test_a_provider_is_what_its_properties_say(dialect: Dialect) -> None:
    text = (
        '"persistence.provider.shop.*.data" = "far"\n"persistence.far.uri" = "http://far:8080/base/"\n'
        '"persistence.far.active" = false\n"persistence.far.datasource" = "db"\n'
        '"persistence.provider.*.*.*.attachments" = "fs"\n"persistence.fs.directory" = "/old"\n'
    )
    assert properties(text, dialect).of(ORDER).route == RouteProperties(
        ProviderProperties("files"),
        ProviderProperties("far", "http://far:8080/base", "db", is_active=False, mirrored=(("Datasource", "db"),)),
        ProviderProperties("fs", base_path="/old", mirrored=(("Directory", "/old"),)),
    )
    newer = properties(f'{text}"persistence.fs.base-path" = "/new"', dialect).provider("fs")
    assert newer.base_path == "/new"


def test_what_holds_for_every_provider_holds_for_one() -> None:
    found = properties('"persistence.*.datasource" = "db"\n"persistence.b.datasource" = " "')
    assert found.provider("a") == ProviderProperties("a", datasource="db")
    assert found.provider("b") == ProviderProperties("b"), "a blank one is not configured, and the search ends there"


@pytest.mark.parametrize(
    ("name", "value", "header"),
    [
        ("fs1.datasource", "main", ("Datasource", "main")),
        ("fs1.create-flat-view", False, ("Create-Flat-View", "false")),
        ("fs1.versioning", True, ("Versioning", "true")),
        ("fs1.xmldb-uri", "/db/x", ("Xmldb-Uri", "/db/x")),
        ("fs1.max-batch-size", 500, ("Max-Batch-Size", "500")),
        ("fs1.data-format-version", "4.8.0", ("Data-Format-Version", "4.8.0")),
        ("fs1.myOwn-THING", "v", ("Myown-Thing", "v")),
        ("fs1.a.b.c", "v", ("A", "v")),
        ("fs1.s3-config", "x", ("S3-Config", "x")),
        ("fs1.datasource", "", None),
        ("fs1.flat-view.max-identifier-length", 63, None),
        ("fs1.uri", "http://x", None),
        ("fs1.autosave", True, None),
        ("fs1.active", True, None),
        ("fs1.permissions", True, None),
        ("fs1", "v", None),
        ("*.lease", True, None),
        ("fs2.lease", True, None),
        ("fs1.enforce-lease", True, None),
        ("provider.fs1.b.data", "v", None),
    ],
)
@pytest.mark.parametrize("prefix", [("svc",), ("oxf", "fr")], ids=["svc", "orbeon"])
def test_the_headers_that_tell_a_provider_its_properties(
    name: str, value: Value, header: tuple[str, str] | None, prefix: tuple[str, ...]
) -> None:
    """Spec crud 10.3 and the table of spec forms 5.4."""
    known = KnownProperty("persistence.<provider>.any", ValueType.TEXT, "")
    entry = PropertyEntry((*prefix, "persistence", *name.split(".")), value, known, "file.toml")
    assert mirrored("fs1", [entry], prefix) == (() if header is None else (header,))


def test_of_two_properties_with_one_header_the_first_wins() -> None:
    known = KnownProperty("persistence.<provider>.any", ValueType.TEXT, "")
    entries = [
        PropertyEntry(("svc", "persistence", "a", *rest), value, known)
        for rest, value in ((("x", "y"), "1"), (("x",), "2"))
    ]
    assert mirrored("a", entries, ("svc",)) == (("X", "1"),)


@pytest.mark.parametrize(
    ("uri", "address"),
    [
        ("", ""),
        ("  ", ""),
        ("file:", ""),
        ("http://127.0.0.1:8080", "http://127.0.0.1:8080"),
        ("https://forms.example/base/", "https://forms.example/base"),
        ("http://[::1]:8080/", "http://[::1]:8080"),
    ],
)
def test_a_uri_says_whether_a_provider_is_elsewhere(uri: str, address: str) -> None:
    assert remote_address(uri) == address


@pytest.mark.parametrize(
    "uri",
    [
        "/fr/service/mysql",
        "file:///srv",
        "file:/srv",
        "ftp://x",
        "http://",
        "http://a:x",
        "http://a?b",
        "http://a#b",
        "http:/\t/a",
        "a",
    ],
)
def test_other_uris_are_refused(uri: str) -> None:
    with pytest.raises(BadRequestError):
        remote_address(uri)


@pytest.mark.parametrize(
    "uri", ["http://u:KEY@", "http://u:KEY@a:x", "http://u:KEY/@a", "http:/u:KEY@a", "u:KEY@a", "file://u:KEY@a"]
)
def test_a_refused_uri_does_not_show_its_password(uri: str) -> None:
    with pytest.raises(BadRequestError) as refused:
        remote_address(uri)
    assert "KEY" not in str(refused.value)


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("http://u:KEY@far:8080/base", "http://far:8080/base"),
        ("http://u:K@Y@far", "http://far"),
        ("xmldb:exist://u:KEY@far/db", "xmldb:exist://far/db"),
        ("http://far/a@b", "http://far/a@b"),
        ("lea@example.org", "lea@example.org"),
        ("postgresql://u:secret@h:1/d?schema=s", "postgresql://u:***@h:1/d?schema=s"),
        ("postgresql://u:se@cr/et@h/d", "postgresql://u:***@h/d"),
        ("postgresql://u:se?cret@h/d", "postgresql://***"),
        ("postgresql://h/d?password=secret&user=u", "postgresql://h/d?password=***&user=u"),
        ("postgresql://h/d?p%61ssword=secret", "postgresql://h/d?p%61ssword=***"),
        ("postgresql://h/d?password=se@cret", "postgresql://***"),
        ("postgresql://u:secret@h/d?password=se@cret", "postgresql://***"),
        ("postgres://u@h,i/d", "postgres://u@h,i/d"),
        ("postgresql:///d", "postgresql:///d"),
    ],
)
def test_an_address_is_shown_without_a_secret(uri: str, shown: str) -> None:
    assert shown_address(uri) == shown


def test_no_stored_name_has_a_token_less() -> None:
    assert list(NameTree([("a", ANY)]).reachable((ANY,))) == []
