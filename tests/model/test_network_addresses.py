"""Addresses of peers, of this machine, and of other servers that ``publish_to`` allows (spec crud 8.3)."""

from ipaddress import ip_address

import pytest

from persistence.errors import BadRequestError, ForbiddenError, StartupError
from persistence.model.network_addresses import (
    UNIX,
    basic_authorization,
    binds_loopback,
    parse_authorization,
    parse_server_url,
    parse_trusted,
    peer_address,
    require_allowed,
)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        *(("10.0.0.1", "10.0.0.1"), ("::ffff:10.0.0.1", "10.0.0.1"), ("2001:db8::1", "2001:db8::1")),
        *((each, None) for each in ("", "localhost", "/run/socket", "10.0.0.1, 127.0.0.1")),
    ],
)
def test_an_address_is_what_sockets_show(text: str, found: str | None) -> None:
    assert peer_address(text) == (found and ip_address(found))


@pytest.mark.parametrize(
    ("entries", "peer", "is_trusted"),
    [
        ("", "127.0.0.1", False),
        ("10.0.0.1", "10.0.0.1", True),
        ("10.0.0.1", "10.0.0.2", False),
        ("10.0.0.1", "::ffff:10.0.0.1", True),
        ("10.0.0.0/8 192.168.1.0/24", "192.168.1.9", True),
        ("10.0.0.0/8 192.168.1.0/24", "192.168.2.9", False),
        ("::ffff:10.0.0.1", "10.0.0.1", True),
        ("::ffff:10.0.0.0/104", "10.255.0.1", True),
        ("2001:db8::/32", "2001:db8:1::7", True),
        ("fe80::/10", "fe80::1%eth0", True),
        ("2001:db8::/32", "2001:db9::", False),
        ("::/0", "10.0.0.1", False),
        ("0.0.0.0/0", "2001:db8::1", False),
        ("unix", UNIX, True),
        ("unix 10.0.0.1", UNIX, True),
        ("0.0.0.0/0 ::/0", UNIX, False),
        ("unix", "127.0.0.1", False),
        ("unix 0.0.0.0/0 ::/0", "not known", False),
    ],
)
def test_a_peer_is_trusted_by_its_address_or_network_and_the_unix_socket_by_its_word(
    entries: str, peer: str, *, is_trusted: bool
) -> None:
    assert parse_trusted(entries.split()).includes(peer if peer == UNIX else peer_address(peer)) is is_trusted


@pytest.mark.parametrize("entry", ["", "here", "10.0.0", "10.0.0.1/8", "10.0.0.0/33", "fe80::1%eth0", "UNIX"])
def test_an_entry_that_means_nothing_is_named(entry: str) -> None:
    with pytest.raises(StartupError) as refusal:
        parse_trusted(["127.0.0.1", entry])
    assert entry in str(refusal.value)


LOOPBACK = ("127.0.0.1:8080", "127.9.9.9:8080", "[::1]:8080", "[::ffff:127.0.0.1]:8080", "localhost:8080")
ELSEWHERE = (
    *("0.0.0.0:8080", "[::]:8080", "10.0.0.1:8080", "forms.example.org:8080", "127.0.0.1.example.org:8080"),
    *("unix:/run/persistence/socket", "unix:/run/127.0.0.1:8080"),
)


@pytest.mark.parametrize("bind", [*LOOPBACK, *ELSEWHERE])
def test_only_this_machine_reaches_loopback(bind: str) -> None:
    assert binds_loopback(bind) is (bind in LOOPBACK)


ALLOWED = tuple(
    map(
        parse_server_url,
        ("https://forms.example.org/runtime", "http://127.0.0.1:8080", "http://[::1]:81/a/b/", "http://open.test"),
    )
)


@pytest.mark.parametrize(
    ("text", "called"),
    [
        ("https://forms.example.org/runtime", "https://forms.example.org:443/runtime"),
        ("https://forms.example.org/runtime/", "https://forms.example.org:443/runtime"),
        ("HTTPS://Forms.Example.ORG:443/runtime/x", "https://forms.example.org:443/runtime/x"),
        ("http://127.0.0.1:8080", "http://127.0.0.1:8080"),
        ("http://127.0.0.1:08080/", "http://127.0.0.1:8080"),
        ("http://[0:0:0:0:0:0:0:1]:81/a/b/c", "http://[::1]:81/a/b/c"),
        ("http://open.test/any/where", "http://open.test:80/any/where"),
    ],
)
def test_a_server_that_is_allowed_is_called_in_its_one_spelling(text: str, called: str) -> None:
    assert str(require_allowed(text, ALLOWED)) == called


FORBIDDEN = """
    https://forms.example.org  https://forms.example.org/  https://forms.example.org/runtimes
    https://forms.example.org/Runtime  https://forms.example.org/x/runtime
    http://forms.example.org/runtime  https://forms.example.org:8443/runtime  http://forms.example.org:443/runtime
    https://forms.example.org.evil.test/runtime  https://evil.forms.example.org/runtime
    http://127.0.0.1  http://127.0.0.1:80  http://localhost:8080  http://127.1:8080  http://2130706433:8080
    http://0x7f.0.0.1:8080  http://0177.0.0.1:8080  http://0:8080  http://[::1]:8080  https://127.0.0.1:8080
    http://[::ffff:127.0.0.1]:8080  http://[::1]/a/b  http://[::1]:81/a  http://169.254.169.254/latest
    http://xn--opn-loa.test  http://open.test:8080
"""


@pytest.mark.parametrize("text", FORBIDDEN.split())
def test_another_server_port_scheme_or_path_is_not_allowed(text: str) -> None:
    with pytest.raises(ForbiddenError, match="publish_to"):
        require_allowed(text, ALLOWED)


MALFORMED = r"""
    forms.example.org  /runtime  //forms.example.org/runtime  https:forms.example.org/runtime
    https:/forms.example.org/runtime  https:///runtime  https://
    file:///etc/passwd  ftp://open.test  gopher://open.test
    https://secret@forms.example.org/runtime  https://a:secret@forms.example.org/runtime
    https://forms.example.org@evil.test/runtime  https://forms.example.org:443@evil.test/runtime
    https://forms.example.org/runtime?x=1  https://forms.example.org/runtime#x  https://forms.example.org/runtime?
    https://forms.example.org/runtime/../x  https://forms.example.org/runtime/..  https://forms.example.org/./runtime
    https://forms.example.org/runtime/%2e%2e/x  https://forms.example.org/%72untime
    https://forms.example.org//runtime  https://forms.example.org/runtime//
    https://forms.example.org\@evil.test/runtime  https:\\forms.example.org
    https://förms.example.org/runtime  https://forms。example.org/runtime  https://forms.example.org/rüntime
    https://ⓕorms.example.org/runtime  https://forms.example.org:/runtime  https://forms.example.org:0/runtime
    https://forms.example.org:65536/runtime  https://forms.example.org:-1/runtime
    https://forms.example.org:٤٤٣/runtime  https://forms.example.org:443:80/runtime
    https://.forms.example.org/runtime  https://forms.example.org./runtime  https://-/runtime
    http://[::1/a/b  http://[::1%25lo]:81/a/b  http://[]:81/a/b  http://[1]:81/a/b  http://::1:81/a/b
    http://[127.0.0.1]
"""
ODD = (
    *("", " ", "https://forms.example.org /runtime", " https://forms.example.org/runtime"),
    *("https://forms.example.org/runtime\n", "https://forms.example.org\r\nX: y/runtime"),
    *("https://forms.example.org\t/runtime", "https://forms.example.org/\0"),
    *("https://form\u017f.example.org/runtime", "http\u017f://forms.example.org/runtime"),
    "http://open.test/" + "x" * 1000,
)


@pytest.mark.parametrize("text", [*MALFORMED.split(), *ODD])
def test_a_server_that_could_be_read_in_two_ways_is_none(text: str) -> None:
    with pytest.raises(BadRequestError) as refusal:
        require_allowed(text, ALLOWED)
    assert "secret" not in str(refusal.value)


def test_nothing_is_allowed_where_nothing_is_set() -> None:
    with pytest.raises(ForbiddenError):
        require_allowed("https://forms.example.org", ())


@pytest.mark.parametrize(
    ("name", "password", "sent"),
    [
        *(("", "", None), ("lea", "pass:word", "Basic bGVhOnBhc3M6d29yZA==")),
        *(("", "x", "Basic Ong="), ("é", "", "Basic w6k6")),
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
