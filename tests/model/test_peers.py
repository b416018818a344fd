"""Peers: which addresses are trusted, and what is loopback."""

from ipaddress import ip_address

import pytest

from persistence.errors import StartupError
from persistence.model.network_addresses import UNIX, Peer, binds_loopback, parse_trusted, peer_address


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("2001:db8::1", "2001:db8::1"),
        ("", None),
        ("localhost", None),
        ("/run/socket", None),
        ("10.0.0.1, 127.0.0.1", None),
    ],
)
def test_an_address_is_what_sockets_show(text: str, found: str | None) -> None:
    assert peer_address(text) == (found and ip_address(found))


@pytest.mark.parametrize(
    ("entries", "peer", "is_trusted"),
    [
        ([], "127.0.0.1", False),
        (["10.0.0.1"], "10.0.0.1", True),
        (["10.0.0.1"], "10.0.0.2", False),
        (["10.0.0.1"], "::ffff:10.0.0.1", True),
        (["10.0.0.0/8", "192.168.1.0/24"], "192.168.1.9", True),
        (["10.0.0.0/8", "192.168.1.0/24"], "192.168.2.9", False),
        (["::ffff:10.0.0.1"], "10.0.0.1", True),
        (["::ffff:10.0.0.0/104"], "10.255.0.1", True),
        (["2001:db8::/32"], "2001:db8:1::7", True),
        (["fe80::/10"], "fe80::1%eth0", True),
        (["2001:db8::/32"], "2001:db9::", False),
        (["::/0"], "10.0.0.1", False),
        (["0.0.0.0/0"], "2001:db8::1", False),
    ],
)
def test_an_address_is_trusted_by_itself_or_by_its_network(*, entries: list[str], peer: str, is_trusted: bool) -> None:
    assert parse_trusted(entries).includes(peer_address(peer)) == is_trusted


@pytest.mark.parametrize(
    ("entries", "peer", "is_trusted"),
    [
        (["unix"], UNIX, True),
        (["unix", "10.0.0.1"], UNIX, True),
        (["0.0.0.0/0", "::/0"], UNIX, False),
        (["unix"], peer_address("127.0.0.1"), False),
        (["unix", "0.0.0.0/0", "::/0"], None, False),
    ],
)
def test_the_unix_socket_is_trusted_by_its_word_only(*, entries: list[str], peer: Peer, is_trusted: bool) -> None:
    """And who is not known, by nothing."""
    assert parse_trusted(entries).includes(peer) == is_trusted


@pytest.mark.parametrize("entry", ["", "here", "10.0.0", "10.0.0.1/8", "10.0.0.0/33", "fe80::1%eth0", "UNIX"])
def test_an_entry_that_means_nothing_is_named(entry: str) -> None:
    with pytest.raises(StartupError) as refusal:
        parse_trusted(["127.0.0.1", entry])
    assert entry in str(refusal.value)


@pytest.mark.parametrize(
    ("bind", "is_loopback"),
    [
        ("127.0.0.1:8080", True),
        ("127.9.9.9:8080", True),
        ("[::1]:8080", True),
        ("[::ffff:127.0.0.1]:8080", True),
        ("localhost:8080", True),
        ("0.0.0.0:8080", False),
        ("[::]:8080", False),
        ("10.0.0.1:8080", False),
        ("forms.example.org:8080", False),
        ("127.0.0.1.example.org:8080", False),
        ("unix:/run/persistence/socket", False),
        ("unix:/run/127.0.0.1:8080", False),
    ],
)
def test_only_this_machine_reaches_loopback(*, bind: str, is_loopback: bool) -> None:
    assert binds_loopback(bind) == is_loopback
