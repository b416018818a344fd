"""The properties of a form."""

import tomllib
from dataclasses import replace

import pytest

from persistence.dialect import ORBEON, SVC, Dialect
from persistence.errors import BadRequestError, ConfigurationError, StartupError, status_of
from persistence.model.addresses import Form
from persistence.model.permissions import Permission
from persistence.model.texts import RetentionPeriods
from persistence.properties import properties as module
from persistence.properties.properties import FormProperties, Properties, ProviderProperties, RouteProperties

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
        (
            '"persistence.*.data-format-version" = "2019.1.0"',
            {"data_format": "2019.1.0", "data_format_name": "2019.1.0"},
        ),
        (
            '"persistence.*.data-format-version" = "2021.1.0"',
            {"data_format": "2019.1.0", "data_format_name": "2021.1.0"},
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
        (
            f'"persistence.provider.*.leave.form" = "a"\n{OF_A}',
            {"route": RouteProperties(A, FILES), "has_versions": False},
        ),
        (
            f'"persistence.provider.*.leave.*" = "a"\n{OF_A}',
            {"route": RouteProperties(A, A), "has_drafts": False, "has_versions": False},
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


def test_a_form_whose_name_has_a_dot_gets_what_holds_for_any() -> None:
    text = '"detail.singleton.enabled.hr.*" = true\n"permissions.my.app" = "{}"\n"permissions.*.app" = ""'
    found = properties(text)
    assert found.of(Form("hr", "leave.2025")).is_singleton
    assert found.of(Form("my.app", "form")) == SHIPPED


@pytest.mark.parametrize("name", ["\u202eleave", "le*ve", "*"])
def test_a_form_whose_name_no_property_can_have_gets_the_defaults(name: str) -> None:
    usual, odd = (Properties.load({}, SVC.property_prefix).of(Form("hr", each)) for each in ("leave", name))
    assert odd == usual


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


def test_an_answer_tells_value_entry_and_reasons() -> None:
    answer = properties('"persistence.provider.hr.*.*" = "a"').explain("svc.persistence.provider.hr.leave.data")
    assert (answer.value, str(answer.entry)) == ("a", "svc.persistence.provider.hr.*.*")
    assert [".".join(reason.name) for reason in answer.explanation.losers] == ["svc.persistence.provider.*.*.*"]


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


@pytest.mark.parametrize(
    ("text", "history", "keeps"),
    [
        ('"svc.persistence.retention.history.*.*" = "2y"', 730 * 86_400, True),
        ('"svc.persistence.retention.history.hr.leave" = "none"', 0, False),
        ('"svc.persistence.proxy.disable-version-history.hr.*" = true', 0, False),
        (
            '"svc.persistence.retention.history.*.*" = "none"\n"svc.persistence.retention.history.hr.*" = "forever"',
            None,
            True,
        ),
    ],
)
def test_how_long_a_history_is_kept(text: str, history: int | None, keeps: bool) -> None:  # noqa: FBT001 - a case
    found = Properties.load(tomllib.loads(text), "svc.").of(Form("hr", "leave"))
    assert (found.retention.history, found.keeps_history) == (history, keeps)


@pytest.mark.parametrize(
    "entry", ['drafts.*.*" = "none"', 'history.*.*" = "2 years"', 'history.*.*" = 2', 'all.*.*" = "2y"']
)
def test_a_retention_that_is_none_is_refused(entry: str) -> None:
    with pytest.raises(StartupError):
        Properties.load(tomllib.loads(f'"svc.persistence.retention.{entry}'), "svc.")
