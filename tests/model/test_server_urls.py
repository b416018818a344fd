"""Addresses of other servers: which are read, which of them the setting ``publish_to`` allows (spec crud 8.3)."""

import pytest

from persistence.errors import BadRequestError, ForbiddenError
from persistence.model.network_addresses import (
    basic_authorization,
    parse_authorization,
    parse_server_url,
    require_allowed,
)

ALLOWED = tuple(
    map(
        parse_server_url,
        ["https://forms.example.org/runtime", "http://127.0.0.1:8080", "http://[::1]:81/a/b/", "http://open.test"],
    )
)

ACCEPTED = [
    ("https://forms.example.org/runtime", "https://forms.example.org:443/runtime"),
    ("https://forms.example.org/runtime/", "https://forms.example.org:443/runtime"),
    ("HTTPS://Forms.Example.ORG:443/runtime/x", "https://forms.example.org:443/runtime/x"),
    ("http://127.0.0.1:8080", "http://127.0.0.1:8080"),
    ("http://127.0.0.1:08080/", "http://127.0.0.1:8080"),
    ("http://[0:0:0:0:0:0:0:1]:81/a/b/c", "http://[::1]:81/a/b/c"),
    ("http://open.test/any/where", "http://open.test:80/any/where"),
]


@pytest.mark.parametrize(("text", "called"), ACCEPTED)
def test_an_address_that_is_allowed_is_called_in_its_one_spelling(text: str, called: str) -> None:
    assert str(require_allowed(text, ALLOWED)) == called


FORBIDDEN = [
    *("https://forms.example.org", "https://forms.example.org/", "https://forms.example.org/runtimes"),
    *("https://forms.example.org/Runtime", "https://forms.example.org/x/runtime"),
    *(
        "http://forms.example.org/runtime",
        "https://forms.example.org:8443/runtime",
        "http://forms.example.org:443/runtime",
    ),
    *("https://forms.example.org.evil.test/runtime", "https://evil.forms.example.org/runtime"),
    *(
        "http://127.0.0.1",
        "http://127.0.0.1:80",
        "http://localhost:8080",
        "http://127.1:8080",
        "http://2130706433:8080",
    ),
    *(
        "http://0x7f.0.0.1:8080",
        "http://0177.0.0.1:8080",
        "http://0:8080",
        "http://[::1]:8080",
        "https://127.0.0.1:8080",
    ),
    *("http://[::ffff:127.0.0.1]:8080", "http://[::1]/a/b", "http://[::1]:81/a", "http://169.254.169.254/latest"),
    *("http://xn--opn-loa.test", "http://open.test:8080"),
]


@pytest.mark.parametrize("text", FORBIDDEN)
def test_another_server_port_scheme_or_path_is_not_allowed(text: str) -> None:
    with pytest.raises(ForbiddenError, match="publish_to"):
        require_allowed(text, ALLOWED)


MALFORMED = [
    *("", " ", "forms.example.org", "/runtime", "//forms.example.org/runtime", "https:forms.example.org/runtime"),
    *(
        "https:/forms.example.org/runtime",
        "https:///runtime",
        "https://",
        "file:///etc/passwd",
        "ftp://open.test",
        "gopher://open.test",
    ),
    *("https://secret@forms.example.org/runtime", "https://a:secret@forms.example.org/runtime"),
    *("https://forms.example.org@evil.test/runtime", "https://forms.example.org:443@evil.test/runtime"),
    *(
        "https://forms.example.org/runtime?x=1",
        "https://forms.example.org/runtime#x",
        "https://forms.example.org/runtime?",
    ),
    *(
        "https://forms.example.org/runtime/../x",
        "https://forms.example.org/runtime/..",
        "https://forms.example.org/./runtime",
    ),
    *(
        "https://forms.example.org/runtime/%2e%2e/x",
        "https://forms.example.org/%72untime",
        "https://forms.example.org//runtime",
    ),
    *(
        "https://forms.example.org/runtime//",
        "https://forms.example.org\\@evil.test/runtime",
        "https:\\\\forms.example.org",
    ),
    *(
        "https://forms.example.org /runtime",
        " https://forms.example.org/runtime",
        "https://forms.example.org/runtime\n",
    ),
    *(
        "https://forms.example.org\r\nX: y/runtime",
        "https://forms.example.org\t/runtime",
        "https://forms.example.org/\0",
    ),
    *("https://förms.example.org/runtime", "https://forms。example.org/runtime", "https://forms.example.org/rüntime"),
    *(
        "https://ⓕorms.example.org/runtime",
        "https://form\u017f.example.org/runtime",
        "http\u017f://forms.example.org/runtime",
    ),
    *(
        "https://forms.example.org:/runtime",
        "https://forms.example.org:0/runtime",
        "https://forms.example.org:65536/runtime",
    ),
    *(
        "https://forms.example.org:-1/runtime",
        "https://forms.example.org:٤٤٣/runtime",
        "https://forms.example.org:443:80/runtime",
    ),
    *("https://.forms.example.org/runtime", "https://forms.example.org./runtime", "https://-/runtime"),
    *(
        "http://[::1/a/b",
        "http://[::1%25lo]:81/a/b",
        "http://[]:81/a/b",
        "http://[1]:81/a/b",
        "http://::1:81/a/b",
        "http://[127.0.0.1]",
    ),
    "http://open.test/" + "x" * 1000,
]


@pytest.mark.parametrize("text", MALFORMED)
def test_an_address_that_could_be_read_in_two_ways_is_none(text: str) -> None:
    with pytest.raises(BadRequestError) as refusal:
        require_allowed(text, ALLOWED)
    assert "secret" not in str(refusal.value)


def test_nothing_is_allowed_where_nothing_is_set() -> None:
    with pytest.raises(ForbiddenError):
        require_allowed("https://forms.example.org", ())


@pytest.mark.parametrize(
    ("name", "password", "sent"),
    [
        ("", "", None),
        ("lea", "pass:word", "Basic bGVhOnBhc3M6d29yZA=="),
        ("", "x", "Basic Ong="),
        ("é", "", "Basic w6k6"),
    ],
)
def test_a_user_and_a_password_become_basic_authorization(name: str, password: str, sent: str | None) -> None:
    assert basic_authorization(name, password) == sent


@pytest.mark.parametrize(
    ("name", "password"), [("a:b", "x"), ("a\nb", "x"), ("a", "x\r\n"), ("a" * 1025, ""), ("", "a" * 1025)]
)
def test_a_user_or_a_password_that_cannot_be_sent_is_refused(name: str, password: str) -> None:
    with pytest.raises(BadRequestError, match="username"):
        basic_authorization(name, password)


@pytest.mark.parametrize("text", ["Basic w6k6", "bearer 5a.b-c_~+/=", "Basic Ong="])
def test_an_authorization_for_another_server_is_passed_on(text: str) -> None:
    assert parse_authorization(text) == text


@pytest.mark.parametrize(
    "text", ["Basic", "Bearer a b", "Digest x", "Bearer \u00e9", "Bearer a\r\nX: y", "Bearer " + "a" * 5000]
)
def test_any_other_authorization_is_refused(text: str) -> None:
    with pytest.raises(BadRequestError):
        parse_authorization(text)
