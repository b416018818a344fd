"""The headers that another service gets of a request, and their names."""

from urllib.parse import quote

import pytest

from persistence.client_request import ClientRequest
from persistence.dialect import ORBEON, SVC
from persistence.model.addresses import Collection, DefinitionAddress, DocumentAddress, Form
from persistence.remote.remote_calls import ProviderNames

NAMES = ProviderNames(SVC, ORBEON, (("Datasource", "fr"), ("Versioning", "true")))


def forwarded(*fields: tuple[str, str], names: ProviderNames = NAMES) -> list[tuple[str, str]]:
    return [(name, value.decode("latin-1")) for name, value in names.forwarded(ClientRequest("PUT", "", fields))]


MIRRORED = [("Orbeon-Datasource", "fr"), ("Orbeon-Versioning", "true")]


@pytest.mark.parametrize(
    "name",
    [
        *("Connection", "Transfer-Encoding", "Content-Length", "Content-Type", "Host", "Cookie", "Cookie2"),
        *("Accept-Encoding", "Keep-Alive", "Te", "Trailer", "Upgrade", "Proxy-Authorization", "Expect"),
        *("X-Http-Method", "X-Http-Method-Override", "X-Method-Override", "X-Original-Url", "X-Rewrite-Url"),
        *("Range", "If-Range", "If-Match", "If-None-Match", "If-Modified-Since", "If-Unmodified-Since"),
        *("Content-Digest", "Content-MD5", "Content-Range", "Repr-Digest"),
        *("Svc-Form-Definition-Version", "Svc-For-Document-Id", "Svc-For-Document-Isdraft"),
        *("Svc-Created-Existing", "Svc-Username-Existing", "Svc-Group-Existing", "Svc-Singleton", "Svc-Token"),
        *("Svc-Hash-Value", "Svc-Hash-Algorithm", "Svc-Workflow-Stage", "Svc-Decrypt", "Svc-Datasource"),
        *("Svc-Versioning", "svc-versioning"),
        *("Svc-Lease", "Svc-Autosave", "Svc-Sort", "Svc-Operations", "Svc-Created", "Svc-Last-Modified", "Svc-Valid"),
        *("Svc-Last-Modified-By-Existing", "Svc-Workflow-Stage-Existing", "Svc-Organization", "Svc-Of-Nobody", "Svc-"),
    ],
)
def test_what_is_decided_here_or_is_of_the_connection_is_not_told(name: str) -> None:
    assert forwarded((name, "x")) == MIRRORED


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        (("Accept-Language", "fr"), ("Accept-Language", "fr")),
        (("Accept", "application/xml"), ("Accept", "application/xml")),
        (("Authorization", "Bearer theirs"), ("Authorization", "Bearer theirs")),
        (("Svc-Path-To-Holder", "zo\xc3\xab"), ("Orbeon-Path-To-Holder", "zo\xeb")),
        (("Svc-Path-To-Holder", "a/b"), ("Orbeon-Path-To-Holder", "a/b")),
        (("Svc-Create-Flat-View", "true"), ("Orbeon-Create-Flat-View", "true")),
    ],
)
def test_other_fields_are_told_under_the_providers_names(sent: tuple[str, str], expected: tuple[str, str]) -> None:
    assert forwarded(sent) == [expected, *MIRRORED]


@pytest.mark.parametrize("accepted", ["application/json", "application/problem+json, */*;q=0.1"])
def test_json_is_made_here_and_not_asked_for_elsewhere(accepted: str) -> None:
    assert forwarded(("Accept", accepted), ("X-Own", "1")) == [("X-Own", "1"), *MIRRORED]


def test_a_field_of_the_other_dialect_that_nobody_has_judged_is_not_told() -> None:
    assert forwarded(("Orbeon-Username", "admin"), ("Svc-Username", "kim")) == [("Orbeon-Username", "kim"), *MIRRORED]


def test_fields_that_the_connection_names_are_not_told() -> None:
    assert forwarded(("Connection", "close, X-Own"), ("X-Own", "1"), ("X-Other", "2")) == [("X-Other", "2"), *MIRRORED]


@pytest.mark.parametrize("name", ["Username", "Group", "Roles", "Credentials"])
def test_who_calls_is_told_even_if_the_connection_names_it(name: str) -> None:
    sent = (f"Svc-{name}", "{}" if name == "Credentials" else "kim")
    for connection in (f"close, Svc-{name}", f"svc-{name},X-Request-Id".lower()):
        assert forwarded(("Connection", connection), sent, ("X-Request-Id", "7")) == [
            (f"Orbeon-{name}", sent[1]),
            ("X-Request-Id", "7"),
            *MIRRORED,
        ]


def test_credentials_are_told_in_fields_of_their_own_too_and_win() -> None:
    sent = '{"username":"lea","groups":["staff"],"roles":[{"name":"a"},{"name":"b","organization":"o"},{"name":"c"}]}'
    assert forwarded(("Svc-Credentials", sent), ("Svc-Username", "admin"), ("Svc-Roles", "boss")) == [
        ("Orbeon-Credentials", sent),
        ("Orbeon-Username", "lea"),
        ("Orbeon-Group", "staff"),
        ("Orbeon-Roles", "a"),
        ("Orbeon-Roles", "c"),
        *MIRRORED,
    ]


@pytest.mark.parametrize(("name", "plain"), [("zoë", "zo\xeb"), ("李", "?")])
def test_a_name_that_is_not_ascii_is_told_in_latin_1_and_whole_in_credentials(name: str, plain: str) -> None:
    sent, raw = name.encode().decode("latin-1"), '{"username":"%s","groups":["%s"],"roles":[{"name":"a"}]}'
    whole = ("Orbeon-Credentials", raw % (quote(name), quote(name)))
    fields = [("Orbeon-Username", plain), ("Orbeon-Group", plain), ("Orbeon-Roles", "a")]
    by_fields = forwarded(("Svc-Username", sent), ("Svc-Group", sent), ("Svc-Roles", "a"))
    assert by_fields == [*fields, whole, *MIRRORED]
    assert forwarded(("Svc-Credentials", raw % (sent, sent))) == [whole, *fields, *MIRRORED]
    assert forwarded(("Svc-Username", sent), names=ProviderNames(SVC, SVC)) == [("Svc-Username", sent)]


def test_credentials_cannot_smuggle_fields() -> None:
    sent = '{"username":"lea","roles":[{"name":"a%0D%0AOrbeon-Token: x"}]}'
    assert forwarded(("Svc-Credentials", sent))[1:] == [("Orbeon-Username", "lea"), *MIRRORED]


@pytest.mark.parametrize(
    ("address", "path"),
    [
        (DefinitionAddress(Form("hr", "leave"), 2, "form.xhtml"), "/crud/hr/leave/form/form.xhtml"),
        (
            DocumentAddress(Form("svc", "builder"), Collection.DATA, "d", "a b/.bin"),
            "/crud/orbeon/builder/data/d/a%20b%2F.bin",
        ),
        (DocumentAddress(Form("orbeon", "x"), Collection.DRAFT, "d%", "data.xml"), "/crud/svc/x/draft/d%25/data.xml"),
    ],
)
def test_paths_are_encoded_and_the_designers_applications_change_places(
    address: DefinitionAddress | DocumentAddress, path: str
) -> None:
    assert NAMES.path(address) == path
    assert NAMES.app(NAMES.app(address.form.app)) == address.form.app


def test_in_one_dialect_nothing_changes_its_name() -> None:
    names = ProviderNames(ORBEON, ORBEON)
    assert names.app("orbeon") == "orbeon"
    assert forwarded(("Orbeon-Username", "kim"), names=names) == [("Orbeon-Username", "kim")]
