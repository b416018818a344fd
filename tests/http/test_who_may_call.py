"""Who may call, as a table: the policy of a start, and what becomes of each request (spec crud 6.1)."""

import base64
import hashlib
from ipaddress import ip_address

import pytest

from persistence.errors import ForbiddenError, StartupError, UnauthorizedError
from persistence.http.middleware import Opens, Policy, caller, policy, presented
from persistence.keys import Key
from persistence.model.instants import Instant
from persistence.model.network_addresses import UNIX, Peer, Trusted, parse_trusted

SECRET = "5" * 64
KEYS = tuple(
    Key(name, hashlib.sha256(secret.encode()).hexdigest(), Instant("2025-03-04T05:06:07.089Z"))
    for name, secret in (("batch", "1" * 64), ("runtime", SECRET))
)
HERE, NEAR, FAR = ip_address("127.0.0.1"), ip_address("10.0.0.1"), ip_address("192.0.2.1")
NEVER = Policy(Opens.NEVER, parse_trusted(["10.0.0.0/8", "unix"]))
UNTRUSTING = Policy(Opens.NEVER, Trusted())
LOOPBACK = Policy(Opens.WHILE_KEYLESS, Trusted())
INSECURE = Policy(Opens.ALWAYS, Trusted())
BEARER, WRONG = f"Bearer {SECRET}", "Bearer wrong"


def basic(text: str) -> str:
    return "Basic " + base64.b64encode(text.encode()).decode()


@pytest.mark.parametrize(
    ("trusted", "insecure", "on_loopback", "has_keys", "opens"),
    [
        ([], False, True, False, Opens.WHILE_KEYLESS),
        ([], False, True, True, Opens.NEVER),
        (["10.0.0.1"], False, True, False, Opens.NEVER),
        (["unix"], False, True, False, Opens.NEVER),
        (["unix"], False, False, False, Opens.NEVER),
        ([], False, False, True, Opens.NEVER),
        ([], True, False, False, Opens.ALWAYS),
        (["10.0.0.1"], True, False, True, Opens.ALWAYS),
    ],
)
def test_a_service_is_open_only_if_told_so_or_on_loopback_without_keys_and_trusted(
    *, trusted: list[str], insecure: bool, on_loopback: bool, has_keys: bool, opens: Opens
) -> None:
    found = policy(parse_trusted(trusted), insecure=insecure, on_loopback=on_loopback, has_keys=has_keys)
    assert found == Policy(opens, parse_trusted(trusted))


def test_a_service_that_nobody_could_call_does_not_start() -> None:
    with pytest.raises(StartupError) as refusal:
        policy(Trusted(), insecure=False, on_loopback=False, has_keys=False)
    for way in ("persistence api-key new", "trusted", "--insecure"):
        assert way in str(refusal.value)


@pytest.mark.parametrize(
    ("own", "keys", "peer", "header", "name"),
    [
        (LOOPBACK, (), HERE, None, None),
        (LOOPBACK, (), HERE, WRONG, None),
        (LOOPBACK, KEYS, HERE, BEARER, "runtime"),
        (INSECURE, KEYS, FAR, None, None),
        (INSECURE, KEYS, None, WRONG, None),
        (NEVER, (), NEAR, None, "trusted"),
        (NEVER, (), NEAR, WRONG, "trusted"),
        (NEVER, (), UNIX, None, "trusted"),
        (NEVER, KEYS, NEAR, None, "trusted"),
        (NEVER, KEYS, NEAR, "Negotiate YII=", "trusted"),
        (NEVER, KEYS, NEAR, BEARER, "runtime"),
        (NEVER, KEYS, FAR, BEARER, "runtime"),
        (NEVER, KEYS, FAR, f"Bearer {'1' * 64}", "batch"),
        (NEVER, KEYS, FAR, basic(f"anybody:{SECRET}"), "runtime"),
        (UNTRUSTING, KEYS, None, BEARER, "runtime"),
        (UNTRUSTING, KEYS, UNIX, BEARER, "runtime"),
    ],
)
def test_these_may_call(own: Policy, keys: tuple[Key, ...], peer: Peer, header: str | None, name: str | None) -> None:
    found = caller(own, keys, peer, header)
    assert (found.name if isinstance(found, Key) else found) == name


@pytest.mark.parametrize(
    ("own", "keys", "peer", "header"),
    [
        (LOOPBACK, KEYS, HERE, None),
        (LOOPBACK, KEYS, HERE, WRONG),
        (NEVER, KEYS, NEAR, WRONG),
        (NEVER, KEYS, NEAR, "Bearer"),
        (NEVER, KEYS, NEAR, "Basic !"),
        (NEVER, KEYS, UNIX, basic("runtime:wrong")),
        (NEVER, KEYS, FAR, None),
        (NEVER, KEYS, FAR, "Negotiate YII="),
        (NEVER, KEYS, FAR, f"Negotiate {SECRET}"),
        (NEVER, KEYS, FAR, f"{BEARER}, {BEARER}"),
        (UNTRUSTING, KEYS, HERE, None),
        (UNTRUSTING, KEYS, None, None),
    ],
)
def test_these_need_a_right_key(own: Policy, keys: tuple[Key, ...], peer: Peer, header: str | None) -> None:
    with pytest.raises(UnauthorizedError):
        caller(own, keys, peer, header)


@pytest.mark.parametrize(
    ("own", "peer", "header", "says"),
    [
        (NEVER, FAR, None, "closed to 192.0.2.1"),
        (NEVER, FAR, BEARER, "closed to 192.0.2.1"),
        (NEVER, None, None, "closed to this caller"),
        (UNTRUSTING, HERE, BEARER, "closed to 127.0.0.1"),
        (UNTRUSTING, UNIX, None, "closed to this caller"),
        (LOOPBACK, FAR, None, "closed to 192.0.2.1"),
        (LOOPBACK, UNIX, None, "closed to this caller"),
    ],
)
def test_without_keys_the_service_is_closed_to_these(own: Policy, peer: Peer, header: str | None, says: str) -> None:
    """Keys that have vanished open nothing; and an open service is open to its own machine only."""
    with pytest.raises(ForbiddenError, match=says):
        caller(own, (), peer, header)


@pytest.mark.parametrize(
    ("header", "key"),
    [
        (None, None),
        ("", None),
        ("Negotiate YII=", None),
        ("Digest username=x", None),
        ("Bearer abc", "abc"),
        ("bearer  abc ", "abc"),
        ("BEARER abc==", "abc=="),
        ("Bearer a=b", ""),
        ("Bearer", ""),
        (basic("user:abc"), "abc"),
        (basic(":abc"), "abc"),
        (basic("user:a:b"), "a:b"),
        (basic("user"), ""),
        ("Basic !", ""),
        ("Basic /w==", ""),
        ("Basic \xe9", ""),
        ("Bearer \xe9", ""),
    ],
)
def test_the_key_in_a_header(header: str | None, key: str | None) -> None:
    """RFC 6750 2.1, RFC 7617 2; a header that should hold a key and cannot be read holds a wrong one."""
    assert presented(header) == key
