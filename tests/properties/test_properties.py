"""The properties of a form and of its providers."""

import tomllib
from dataclasses import replace

import pytest

from persistence.dialect import ORBEON, SVC, Dialect
from persistence.errors import BadRequestError, ConfigurationError, StartupError, status_of
from persistence.model.addresses import Form
from persistence.model.permissions import Permission
from persistence.model.texts import RetentionPeriods
from persistence.properties import properties as module
from persistence.properties.properties import (
    FormProperties,
    NameTree,
    Properties,
    PropertyEntry,
    ProviderProperties,
    RouteProperties,
    mirrored,
    remote_address,
)
from persistence.properties.property_table import ANY, DATA, FORM, KnownProperty, Value, ValueType, shown_address

LEAVE = Form("hr", "leave")
SHIPPED = FormProperties(
    route=RouteProperties(ProviderProperties("files"), ProviderProperties("files")),
    has_drafts=True,
    has_permissions=True,
    has_versions=True,
    needs_publication=False,
    has_leases=True,
    enforces_leases=False,
    data_format="4.0.0",
    data_format_name="4.0.0",
    permissions=None,
    is_singleton=False,
    has_flat_views=False,
    has_flat_prefixes=False,
    longest_flat_name=256,
    restricts_searches=True,
    token_validity=0,
    audits_reads=False,
    finds_encrypted=False,
    retention=RetentionPeriods(),
    keeps_history=True,
)
PREFIXES = "prefixes-in-main-view-column-names"
FILES = ProviderProperties("files")
IDLE = ProviderProperties("files", is_active=False)
A = ProviderProperties("a", mirrored=(("Versioning", "false"),))
UNVERSIONED = {"has_versions": False}
OF_A = '"persistence.a.autosave" = false\n"persistence.a.versioning" = false'


def properties(text: str = "", dialect: Dialect = SVC) -> Properties:
    """The properties of a file whose names stand without prefix."""
    table = {dialect.property_prefix + name: value for name, value in tomllib.loads(text).items()}
    return Properties.load(table, dialect.property_prefix, "file.toml")


@pytest.mark.parametrize("dialect", [SVC, ORBEON], ids=["svc", "orbeon"])
@pytest.mark.parametrize(
    ("text", "changes"),
    [
        ("", {}),
        ('"persistence.*.autosave" = false', {"has_drafts": False}),
        ('"persistence.*.permissions" = false', {"has_permissions": False}),
        ('"persistence.*.versioning" = false', {"has_versions": False}),
        ('"persistence.*.published-only" = true', {"needs_publication": True}),
        *(
            (f'"persistence.*.data-format-version" = "{each}"', {"data_format": "2019.1.0", "data_format_name": each})
            for each in ("2019.1.0", "2021.1.0")
        ),
        ('"persistence.*.data-format-version" = ""', {}),
        ('"persistence.*.active" = false', {"route": RouteProperties(IDLE, IDLE)}),
        ('"detail.singleton.enabled.hr.leave" = true', {"is_singleton": True}),
        ('"detail.singleton.enabled.*.*" = true\n"detail.singleton.enabled.hr.*" = false', {}),
        ('"detail.singleton.enabled.hr.travel" = true', {}),
        ('"persistence.*.create-flat-view" = true', {"has_flat_views": True}),
        ('"audit.reads.*.*" = true', {"audits_reads": True}),
        ('"field-encryption.searchable.*.*" = true', {"finds_encrypted": True}),
        ('"access-token.validity.*.*" = 60', {"token_validity": 60}),
        ('"access-token.validity.*.*" = 60\n"access-token.validity.hr.leave" = 0', {}),
        (f'"persistence.*.flat-view.{PREFIXES}" = true', {"has_flat_prefixes": True}),
        ('"persistence.files.flat-view.max-identifier-length" = 63', {"longest_flat_name": 63}),
        ('"persistence.files.autosave" = false', {"has_drafts": False}),
        ('"persistence.other.autosave" = false', {}),
        ('"persistence.*.search.restrict-to-readable" = true', {"restricts_searches": True}),
        ('"persistence.files.search.restrict-to-readable" = false', {"restricts_searches": False}),
        ('"persistence.*.autosave" = false\n"persistence.files.autosave" = true', {}),
        (f'"persistence.provider.hr.*.data" = "a"\n{OF_A}', {"route": RouteProperties(FILES, A), "has_drafts": False}),
        (f'"persistence.provider.*.leave.form" = "a"\n{OF_A}', {"route": RouteProperties(A, FILES), **UNVERSIONED}),
        (
            f'"persistence.provider.*.leave.*" = "a"\n{OF_A}',
            {"route": RouteProperties(A, A), "has_drafts": False, **UNVERSIONED},
        ),
    ],
)
def test_what_is_said_of_a_form(text: str, changes: dict[str, object], dialect: Dialect) -> None:
    expected = {"restricts_searches": dialect is SVC, **changes}
    assert properties(text, dialect).of(LEAVE) == replace(SHIPPED, **expected)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("json", "expected"),
    [("", None), ("  ", None), ("{}", ()), ('{"anyone": ["create"]}', (Permission(frozenset({"create"})),))],
)
def test_permissions_are_read_and_blank_ones_are_undefined(json: str, expected: object) -> None:
    text = f'"permissions.hr.*" = \'{json}\'\n"permissions.*.*" = \'{{"anyone": ["read"]}}\''
    assert properties(text).of(LEAVE).permissions == expected
    assert properties(text).of(Form("shop", "leave")).permissions == (Permission(frozenset({"read"})),)


@pytest.mark.parametrize("kind", ["data", "form", "*"])
def test_a_form_without_provider_is_an_error_of_the_configuration(kind: str) -> None:
    found = properties(f'"persistence.provider.hr.*.{kind}" = ""')
    named = "data" if kind == "*" else kind
    with pytest.raises(ConfigurationError, match=rf"svc\.persistence\.provider\.hr\.leave\.{named} is blank") as error:
        found.of(LEAVE)
    assert status_of(error.value) == 500
    assert found.of(Form("shop", "order")) == SHIPPED


def test_a_form_whose_name_has_a_dot_gets_what_holds_for_any_and_an_odd_one_the_defaults() -> None:
    text = '"detail.singleton.enabled.hr.*" = true\n"permissions.my.app" = "{}"\n"permissions.*.app" = ""'
    found = properties(text)
    assert found.of(Form("hr", "leave.2025")).is_singleton
    assert found.of(Form("my.app", "form")) == SHIPPED
    for name in ("\u202eleave", "le*ve", "*"):
        assert properties().of(Form("hr", name)) == properties().of(Form("hr", "leave"))


def test_only_so_many_forms_are_kept_and_all_get_their_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    assert module.FORMS_KEPT == 2048
    monkeypatch.setattr(module, "FORMS_KEPT", 3)
    found = properties('"detail.singleton.enabled.app.f7" = true')
    forms = [Form("app", f"f{number}") for number in range(10)]
    answers = [found.of(form) for form in forms]
    assert [form for form, answer in zip(forms, answers, strict=True) if answer.is_singleton] == [forms[7]]
    assert [found.of(form) is answer for form, answer in zip(forms[7:], answers[7:], strict=True)] == [True] * 3
    assert found.of(forms[0]) is not answers[0]
    assert found.of(forms[7]) is not answers[7]
    assert found.of(forms[7]) == answers[7]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("svc.persistence.files.data-format-version", "4.0.0"),
        ("svc.persistence.files.reindex", False),
        ("svc.persistence.files.max-batch-size", 1000),
        ("svc.persistence.files.uri", None),
        ("svc.permissions.hr.leave", None),
        ("svc.detail.singleton.enabled.hr.leave", False),
    ],
)
def test_where_nothing_matches_or_the_winner_is_blank_the_default_holds(name: str, value: object) -> None:
    assert properties('"persistence.*.data-format-version" = ""').explain(name).value == value
    answer = properties('"persistence.provider.hr.*.*" = "a"').explain("svc.persistence.provider.hr.leave.data")
    assert (answer.value, str(answer.entry)) == ("a", "svc.persistence.provider.hr.*.*")
    assert [".".join(reason.name) for reason in answer.explanation.losers] == ["svc.persistence.provider.*.*.*"]


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("svc.persistence.files.autosav", "the nearest valid name is 'svc.persistence.files.autosave'"),
        ("svc.persistence.*.autosave", "has a wildcard"),
        ("oxf.fr.permissions.hr.leave", "the nearest valid name is 'svc.permissions.hr.leave'"),
        ("svc.permissions.my.app.leave", "(an application or form is one token: no dot in it)"),
        ("svc.persistence.proxy.autosave", "no provider can be called 'proxy'"),
        ("", "unknown property"),
    ],
)
def test_only_a_literal_name_of_a_known_property_can_be_asked_for(name: str, cause: str) -> None:
    with pytest.raises(BadRequestError) as refused:
        properties().explain(name)
    assert cause in str(refused.value)


RETENTION = '"persistence.retention'


@pytest.mark.parametrize(
    ("text", "history", "keeps"),
    [
        (f'{RETENTION}.history.*.*" = "2y"', 730 * 86_400, True),
        (f'{RETENTION}.history.hr.leave" = "none"', 0, False),
        ('"persistence.proxy.disable-version-history.hr.*" = true', 0, False),
        (f'{RETENTION}.history.*.*" = "none"\n{RETENTION}.history.hr.*" = "forever"', None, True),
    ],
)
def test_how_long_a_history_is_kept(text: str, history: int | None, keeps: bool) -> None:  # noqa: FBT001 - a case
    found = properties(text).of(LEAVE)
    assert (found.retention.history, found.keeps_history) == (history, keeps)


@pytest.mark.parametrize(
    "entry", ['drafts.*.*" = "none"', 'history.*.*" = "2 years"', 'history.*.*" = 2', 'all.*.*" = "2y"']
)
def test_a_retention_that_is_none_is_refused(entry: str) -> None:
    with pytest.raises(StartupError):
        properties(f"{RETENTION}.{entry}")


# The providers of a form, their properties, and the headers that tell them (spec forms 5, crud 10)


ORDER = Form("shop", "order")


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
    assert list(NameTree([("a", ANY)]).reachable((ANY,))) == [], "no stored name has a token less"


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
        *(("", ""), ("  ", ""), ("file:", ""), ("http://127.0.0.1:8080", "http://127.0.0.1:8080")),
        *(("https://forms.example/base/", "https://forms.example/base"), ("http://[::1]:8080/", "http://[::1]:8080")),
    ],
)
def test_a_uri_says_whether_a_provider_is_elsewhere(uri: str, address: str) -> None:
    assert remote_address(uri) == address


@pytest.mark.parametrize(
    "uri",
    [
        *("/fr/service/mysql", "file:///srv", "file:/srv", "ftp://x", "a"),
        *("http://", "http://a:x", "http://a?b", "http://a#b", "http:/\t/a"),
        *("http://u:KEY@", "http://u:KEY@a:x", "http://u:KEY/@a", "http:/u:KEY@a", "u:KEY@a", "file://u:KEY@a"),
    ],
)
def test_other_uris_are_refused_without_their_password(uri: str) -> None:
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
