"""Encrypted values: what decrypts, and what must not (spec forms 4.4)."""

import base64

import pytest

from persistence.crypto import DataCipher, KeyRing, ValueCipher, legacy_keys
from persistence.errors import ConfigurationError, DamagedError
from persistence.model.addresses import Form
from persistence.model.versions import Place

FORM = Form("hr", "leave")
RING = KeyRing("b", {"a": bytes(32), "b": bytes(range(32))})
PLACE = (("person", 1), ("ssn", 1))
PASSWORD = "Vault-Key-2024!blue"  # noqa: S105 - that of the vector
VECTOR = "AAECAwQFBgcICQoLQjvWaENLAOs4UvOAykhr1KQMWA70bPksVtJjEmKq"


def cipher(ring: KeyRing = RING, document: str = "1", form: Form = FORM) -> ValueCipher:
    return ValueCipher(ring, form, document)


@pytest.mark.parametrize("text", ["x", " 078-05-1120 é ", "\n", "\U0001d4b3" * 1000, "<&>\u00a0"])
def test_a_value_comes_back(text: str) -> None:
    sealed = cipher().encrypt(text, PLACE)
    assert sealed.startswith("enc2:b:")
    assert sealed.isascii()
    assert cipher().decrypt(f" {sealed}\n", PLACE) == text


def test_no_two_values_look_alike() -> None:
    assert len({cipher().encrypt("same", PLACE) for _ in range(50)}) == 50


@pytest.mark.parametrize(
    ("other", "place"),
    [
        (cipher(document="2"), PLACE),
        (cipher(form=Form("hr", "other")), PLACE),
        (cipher(form=Form("h", "rleave")), PLACE),
        (cipher(), (("person", 1), ("name", 1))),
        (cipher(), (("person", 1),)),
        (cipher(), (("person", 1), ("ssn", 2))),
        (cipher(), (("person", 2), ("ssn", 1))),
    ],
    ids=["document", "form", "application", "place", "around", "iteration", "iteration around"],
)
def test_a_value_of_elsewhere_does_not_decrypt(other: ValueCipher, place: Place) -> None:
    with pytest.raises(DamagedError, match="not as it was written"):
        other.decrypt(cipher().encrypt("secret", PLACE), place)


def test_no_byte_of_a_value_can_be_changed() -> None:
    prefix, key_id, text = cipher().encrypt("secret", PLACE).split(":")
    sealed = base64.b64decode(text)
    for at in range(len(sealed)):
        changed = bytes([*sealed[:at], sealed[at] ^ 1, *sealed[at + 1 :]])
        with pytest.raises(DamagedError):
            cipher().decrypt(f"{prefix}:{key_id}:{base64.b64encode(changed).decode()}", PLACE)
    for size in range(len(sealed)):
        with pytest.raises(DamagedError):
            cipher().decrypt(f"{prefix}:{key_id}:{base64.b64encode(sealed[:size]).decode()}", PLACE)


@pytest.mark.parametrize("value", ["", "enc2:", "enc2:b", "enc2:b:", "enc2:b:?", "enc2:b:AAAA", "plain text", "é"])
def test_what_is_no_value_is_damage(value: str) -> None:
    with pytest.raises((DamagedError, ConfigurationError)):
        cipher().decrypt(value, PLACE)


def test_keys_are_rotated_and_without_its_own_a_value_is_not_read_and_without_any_none_is_written() -> None:
    old, sealed = (cipher(KeyRing(key, RING.keys)).encrypt("secret", PLACE) for key in "ab")
    assert cipher().decrypt(old, PLACE) == "secret"
    assert (cipher().is_current(old), cipher().is_current(sealed)) == (False, True)
    with pytest.raises(DamagedError):
        cipher().decrypt(sealed.replace("enc2:b:", "enc2:a:"), PLACE)
    with pytest.raises(ConfigurationError, match="the key b"):
        cipher(KeyRing("a", {"a": bytes(32)})).decrypt(sealed, PLACE)
    with pytest.raises(ConfigurationError, match="no encryption key"):
        cipher(KeyRing(None, {})).encrypt("secret", PLACE)


def test_the_vector_of_the_real_system_is_read_by_its_password() -> None:
    assert legacy_keys([PASSWORD])[0].hex() == "5faefc301ae0e0cf2c368c23a4f19245"
    assert cipher(KeyRing(None, {}, legacy_keys([PASSWORD]))).decrypt(VECTOR, ()) == "078-05-1120 é"
    assert cipher(KeyRing(None, {}, legacy_keys(["newer", PASSWORD]))).decrypt(VECTOR, PLACE) == "078-05-1120 é"
    for passwords, error, cause in (
        (["", " "], ConfigurationError, "no password"),
        (["other"], DamagedError, "another password"),
    ):
        with pytest.raises(error, match=cause):
            cipher(KeyRing(None, {}, legacy_keys(passwords))).decrypt(VECTOR, ())


def test_a_seal_is_of_all_values_in_their_order_and_in_no_other_format() -> None:
    """The real system's values are bound to nothing: none of them is a seal, whatever its text."""
    ring = KeyRing("b", RING.keys, legacy_keys([PASSWORD]))
    writing = DataCipher(cipher(ring))
    (first, _), (second, _) = writing.encrypt("one", PLACE), writing.encrypt("two", PLACE)
    seal = writing.seal()

    def verified(values: list[str], seal: str | None) -> bool:
        reading = DataCipher(cipher(ring))
        for value in values:
            reading.decrypt(value, PLACE)
        try:
            reading.verify(seal)
        except DamagedError:
            return False
        return True

    assert verified([first, second], f" {seal} ")
    assert verified([VECTOR], None)
    for values, wrong in (
        ([second, first], seal),
        ([first], seal),
        ([first, second, VECTOR], seal),
        ([first, VECTOR], seal),
        ([], seal),
        ([first, second], None),
        ([first, second], ""),
        ([first, second], first),
        ([first, second], VECTOR),
        ([], VECTOR),
    ):
        assert not verified(values, wrong), (values, wrong)


def test_a_ring_does_not_show_its_keys() -> None:
    ring = KeyRing("a", {"a": b"k" * 32}, legacy_keys([PASSWORD]))
    assert "kkk" not in repr(ring)
    assert "5f" not in repr(ring)
