"""The format of access tokens: what is signed is read again, and nothing else is accepted (spec crud 6.6)."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st
from itsdangerous.encoding import base64_encode

from persistence.errors import BadRequestError, ConfigurationError, ForbiddenError
from persistence.limits import LONGEST_ACCESS_TOKEN
from persistence.model.addresses import Form, TokenSubject
from persistence.services import rules
from persistence.services.rules import AccessTokens, TokenGrant

KEYS = (b"a" * 32, b"b" * 32)
SUBJECT = TokenSubject(Form("hr", "leave"), 1, "A")
GRANT = TokenGrant(1_000, 2_000, ("read", "update"))
TOKEN = rules.sign_token(GRANT, SUBJECT, KEYS)
SENDABLE = string.ascii_letters + string.digits + "-_.~=+/ \n\0é"
NAMES = st.text(max_size=12)
SUBJECTS = st.builds(TokenSubject, st.builds(Form, NAMES, NAMES), st.integers(1, 1 << 62), NAMES)


def test_a_token_is_short_and_fit_for_an_address() -> None:
    assert len(TOKEN) < 120
    assert set(TOKEN) <= set(string.ascii_letters + string.digits + "-_.")


@given(SUBJECTS, st.integers(0, 1 << 40), st.integers(0, 1 << 40))
def test_what_is_signed_is_read_again(subject: TokenSubject, issued: int, expires: int) -> None:
    grant = TokenGrant(issued, expires, ("read", "update", "delete"))
    token = rules.sign_token(grant, subject, KEYS)
    assert len(token) <= LONGEST_ACCESS_TOKEN
    assert rules.verify_token(token, subject, KEYS) == grant


@given(SUBJECTS, SUBJECTS)
def test_a_token_for_one_document_is_none_for_another(one: TokenSubject, other: TokenSubject) -> None:
    token = rules.sign_token(GRANT, one, KEYS)
    if one != other:
        with pytest.raises(ForbiddenError):
            rules.verify_token(token, other, KEYS)


@pytest.mark.parametrize("at", range(len(TOKEN)))
def test_a_token_changed_by_one_character_is_never_accepted(at: int) -> None:
    """Every character at every place, left out, and added: also those that Base64 decodes to the same bytes."""
    changed = {TOKEN[:at] + each + TOKEN[at + 1 :] for each in SENDABLE}
    changed |= {TOKEN[:at] + each + TOKEN[at:] for each in SENDABLE}
    changed |= {TOKEN[:at] + TOKEN[at + 1 :], TOKEN[:at], TOKEN[at:] if at else ""}
    for token in changed - {TOKEN}:
        with pytest.raises(ForbiddenError):
            rules.verify_token(token, SUBJECT, KEYS)


@given(st.text(max_size=600))
def test_no_other_text_is_accepted(text: str) -> None:
    with pytest.raises(ForbiddenError):
        rules.verify_token(text, SUBJECT, KEYS)


@pytest.mark.parametrize(
    "payload", [b"", b"[]", b"{}", b"[1,2]", b'[1,2,["read"],4]', b'["1",2,[]]', b"\xff", b"[" * 99]
)
def test_a_payload_that_is_none_is_refused_even_if_it_is_signed(payload: bytes) -> None:
    signer = rules._token_signer(SUBJECT, KEYS)  # noqa: SLF001 - it signs what sign does not
    token = signer.sign(base64_encode(payload)).decode()
    with pytest.raises(ForbiddenError):
        rules.verify_token(token, SUBJECT, KEYS)


def test_the_newest_key_signs_all_verify_and_a_removed_one_does_not() -> None:
    first, second = KEYS
    old, new = rules.sign_token(GRANT, SUBJECT, [first]), rules.sign_token(GRANT, SUBJECT, KEYS)
    assert rules.sign_token(GRANT, SUBJECT, [second]) == new
    assert rules.verify_token(old, SUBJECT, KEYS) == rules.verify_token(new, SUBJECT, KEYS) == GRANT
    for token, keys in ((old, [second]), (new, [first]), (old, []), (new, [])):
        with pytest.raises(ForbiddenError):
            rules.verify_token(token, SUBJECT, keys)


@pytest.mark.parametrize(
    ("seconds", "now", "validity", "is_valid"),
    [
        *((60, 999.9, 60, False), (60, 1000, 60, True), (60, 1059.9, 60, True), (60, 1060, 60, False)),
        *((60, 1000, 0, False), (60, 1059.9, 1, True), (60, 1031, 0, False)),
        *((3600, 1060, 2, True), (3600, 1060, 1, False)),
    ],
)
def test_a_token_is_valid_from_its_issue_until_it_or_a_lowered_property_ends_it(
    seconds: int, now: float, validity: int, *, is_valid: bool
) -> None:
    token = AccessTokens(lambda: KEYS, lambda: 1000.7).issue(SUBJECT, ["read"], seconds, 60)
    later = AccessTokens(lambda: KEYS, lambda: now)
    if is_valid:
        assert later.operations(token, SUBJECT, validity) == {"read"}
    else:
        with pytest.raises(ForbiddenError):
            later.operations(token, SUBJECT, validity)


@pytest.mark.parametrize(
    ("operations", "seconds", "validity"),
    [
        *((operations, 60, 60) for operations in ([], ["list"], ["create"], ["read", "*"])),
        *((["read"], seconds, validity) for seconds, validity in ((61, 1), (0, 60), (-1, 60), (1, 0))),
    ],
)
def test_what_cannot_be_issued(operations: list[str], seconds: int, validity: int) -> None:
    with pytest.raises(BadRequestError):
        AccessTokens(lambda: KEYS).issue(SUBJECT, operations, seconds, validity)
    with pytest.raises(ConfigurationError, match="signing-key new"):
        AccessTokens(tuple).issue(SUBJECT, ["read"], 1, 1)
