"""Encrypted values and files, and the keys of both: what decrypts, and what must not (spec forms 4.4)."""

import base64
import io
import json
import random
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from persistence import crypto
from persistence.crypto import DataCipher, EncryptionKeys, FileHeader, KeyRing, ValueCipher, legacy_keys, open_file
from persistence.errors import ConfigurationError, ConflictError, DamagedError, StartupError
from persistence.model.addresses import Collection, DocumentAddress, Form
from persistence.model.versions import Place

# Where keys come from, and what is refused


SECRET = "0123456789abcdef" * 4


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "var/encryption-keys.json"


def keys_in(file: Path, *given: str) -> EncryptionKeys:
    return EncryptionKeys(str(file), trees=[str(file.parent / "data")], given=given)


def test_the_newest_key_encrypts_and_all_decrypt_at_once_and_without_a_file_there_is_none(file: Path) -> None:
    keys = keys_in(file)
    none = keys.ring()
    assert (none.writing, none.keys) == (None, {})
    with pytest.raises(ConfigurationError):
        none.to_write()
    first = keys.new()
    assert keys.ring().writing == first
    second = keys_in(file).new()
    assert keys.ring().writing == second
    assert set(keys.ring().keys) == {first, second}
    assert [key.id for key in keys.list()] == [first, second]
    assert none.keys == {}


def test_only_its_user_may_read_the_file(file: Path) -> None:
    keys_in(file).new()
    assert file.stat().st_mode & 0o777 == 0o600
    file.chmod(0o640)
    with pytest.raises(ConfigurationError, match="chmod 600"):
        keys_in(file).ring()


def test_keys_do_not_lie_beside_what_they_protect(tmp_path: Path) -> None:
    for path in ("data/keys.json", "data/a/b/keys.json", "other/../data/keys.json"):
        with pytest.raises(StartupError, match="must not lie in a data directory"):
            EncryptionKeys(str(tmp_path / path), trees=[str(tmp_path / "data")])
    EncryptionKeys(str(tmp_path / "data-keys.json"), trees=[str(tmp_path / "data")])


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        '{"format":2,"keys":[]}',
        '{"format":1,"keys":[{"id":"a","secret":"00","created":"2026-01-01T00:00:00.000Z"}]}',
        json.dumps({"format": 1, "keys": [{"id": "a", "secret": SECRET, "created": "2026-01-01T00:00:00.000Z"}] * 2}),
    ],
)
def test_a_file_in_doubt_is_no_file_without_keys(file: Path, text: str) -> None:
    file.parent.mkdir()
    file.write_text(text)
    file.chmod(0o600)
    with pytest.raises(DamagedError) as raised:
        keys_in(file).ring()
    assert SECRET not in str(raised.value)


def test_keys_from_outside_stand_in_for_the_file(file: Path) -> None:
    keys_in(file).new()
    keys = keys_in(file, f"new:{SECRET}", f"old:{SECRET[::-1]}")
    assert keys.ring().writing == "new"
    assert set(keys.ring().keys) == {"new", "old"}
    with pytest.raises(ConflictError, match="environment"):
        keys.new()


@pytest.mark.parametrize("text", [SECRET, f"a:{SECRET[1:]}", f"A:{SECRET}", f":{SECRET}", f"a:{SECRET.upper()}", "a:"])
def test_what_is_given_and_no_key_is_refused_without_repeating_it(file: Path, text: str) -> None:
    with pytest.raises(StartupError) as raised:
        keys_in(file, text)
    assert text[2:] not in str(raised.value) or not text[2:]
    with pytest.raises(StartupError, match="key 2"):
        keys_in(file, f"a:{SECRET}", f"a:{SECRET}")


# Values in form data


FORM = Form("hr", "leave")
VALUE_RING = KeyRing("b", {"a": bytes(32), "b": bytes(range(32))})
PLACE = (("person", 1), ("ssn", 1))
PASSWORD = "Vault-Key-2024!blue"  # noqa: S105 - that of the vector
VECTOR = "AAECAwQFBgcICQoLQjvWaENLAOs4UvOAykhr1KQMWA70bPksVtJjEmKq"


def cipher(ring: KeyRing = VALUE_RING, document: str = "1", form: Form = FORM) -> ValueCipher:
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
    old, sealed = (cipher(KeyRing(key, VALUE_RING.keys)).encrypt("secret", PLACE) for key in "ab")
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
    ring = KeyRing("b", VALUE_RING.keys, legacy_keys([PASSWORD]))
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


# Files: every part of one is where it belongs, or nothing is read


RING = KeyRing("k1", {"k1": bytes(range(32)), "k0": bytes(32)})
ADDRESS = DocumentAddress(Form("hr", "leave"), Collection.DATA, "1", "cat.bin")
FRAME = 1 << 16
SEALED = FRAME + 16
SIZES = [0, 1, FRAME - 1, FRAME, FRAME + 1, 3 * FRAME, 3 * FRAME + 5]


def content(size: int) -> bytes:
    return random.Random(size).randbytes(size)


def encrypted(size: int, address: DocumentAddress = ADDRESS, ring: KeyRing = RING, piece: int = 7000) -> bytes:
    plain = content(size)
    return b"".join(crypto.encrypted((plain[at : at + piece] for at in range(0, size, piece)), address, ring))


def whole(data: bytes, address: DocumentAddress = ADDRESS, ring: KeyRing = RING, step: int = 50_000) -> bytes:
    with open_file(io.BytesIO(data), len(data), address, ring) as file:
        read = b"".join(iter(lambda: file.read(step), b""))
        assert len(read) == file.size
        return read


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("piece", [999, FRAME, 1 << 20])
def test_a_file_comes_back_however_it_arrives_and_is_read(size: int, piece: int) -> None:
    data = encrypted(size, piece=piece)
    assert whole(data) == content(size)
    assert whole(data, step=FRAME) == content(size)
    header = FileHeader.parse(data)
    assert b"".join(crypto.decrypted([data[len(header.raw) :]], header, RING)) == content(size)


@pytest.mark.parametrize(("first", "length"), [(0, 2), (FRAME - 1, 2), (FRAME, FRAME), (200_000, 1000), (196_612, 1)])
def test_any_range_is_read_by_itself(first: int, length: int) -> None:
    data = encrypted(3 * FRAME + 5)
    with open_file(io.BytesIO(data), len(data), ADDRESS, RING) as file:
        file.seek(first)
        found = b""
        while len(found) < length and (more := file.read(length - len(found))):
            found += more
    assert found == content(3 * FRAME + 5)[first : first + length]


def test_nothing_of_the_content_is_in_the_file_and_no_two_files_look_alike() -> None:
    plain = b"confidential " * 10_000
    first, second = (b"".join(crypto.encrypted([plain], ADDRESS, RING)) for _ in range(2))
    assert b"confidential" not in first
    assert first[-1000:] != second[-1000:]


@pytest.mark.parametrize(
    "elsewhere",
    [{"name": "dog.bin"}, {"document": "2"}, {"collection": Collection.DRAFT}, {"form": Form("hr", "other")}],
)
def test_a_file_in_another_s_place_is_not_read(elsewhere: dict[str, object]) -> None:
    with pytest.raises(DamagedError, match="another resource"):
        whole(encrypted(10), replace(ADDRESS, **elsewhere))


def test_no_byte_of_the_header_can_be_changed() -> None:
    data = encrypted(10)
    header = FileHeader.parse(data)
    for at in range(len(header.raw)):
        for bit in (1, 0x20):
            changed = bytes([*data[:at], data[at] ^ bit, *data[at + 1 :]])
            with pytest.raises((DamagedError, ConfigurationError)):
                whole(changed)


def test_no_frame_can_be_changed_cut_swapped_repeated_or_left_out() -> None:
    data = encrypted(3 * FRAME + 5)
    header = FileHeader.parse(data)
    head, body = header.raw, data[len(header.raw) :]
    cut = [body[at : at + SEALED] for at in range(0, len(body), SEALED)]
    assert len(cut) == 4
    flipped = bytes([cut[1][0] ^ 1, *cut[1][1:]])
    other = encrypted(3 * FRAME + 5)[len(head) :]
    wrong = {
        "changed": [cut[0], flipped, *cut[2:]],
        "cut": [*cut[:3], cut[3][:-1]],
        "cut to a tag": [*cut[:3], cut[3][:16]],
        "cut to half a tag": [*cut[:3], cut[3][:8]],
        "without its end": cut[:3],
        "without all": [],
        "swapped": [cut[1], cut[0], *cut[2:]],
        "without its first": cut[1:],
        "repeated": [cut[0], *cut],
        "longer": [*cut, b"\0"],
        "of another file": [other[:SEALED], *cut[1:]],
    }
    for what, parts in wrong.items():
        for read in (lambda p: whole(head + b"".join(p)), lambda p: b"".join(crypto.decrypted(p, header, RING))):
            with pytest.raises(DamagedError):
                pytest.fail(f"{what}: {len(read(parts))} bytes were read")


def test_a_file_that_was_cut_is_told_before_anything_is_read_and_a_damaged_frame_when_it_is_reached() -> None:
    data = bytearray(encrypted(3 * FRAME + 5))
    short = bytes(data[: -(SEALED + 21)])
    with pytest.raises(DamagedError):
        open_file(io.BytesIO(short), len(short), ADDRESS, RING)
    data[len(data) - SEALED] ^= 1
    with open_file(io.BytesIO(bytes(data)), len(data), ADDRESS, RING) as file:
        assert file.read(FRAME) == content(3 * FRAME + 5)[:FRAME]
        file.seek(2 * FRAME)
        with pytest.raises(DamagedError):
            file.read(FRAME)


@pytest.mark.parametrize("data", [b"", b"\x8e", b"PNG", crypto.MAGIC, crypto.MAGIC + b"\xff" * 400])
def test_what_has_no_header_is_no_such_file(data: bytes) -> None:
    assert FileHeader.parse(data) is None
    with pytest.raises(DamagedError, match="lost its header"):
        whole(data)


def test_old_keys_read_unknown_ones_are_named_and_without_one_nothing_is_written() -> None:
    old = encrypted(10, ring=KeyRing("k0", {"k0": bytes(32)}))
    assert whole(old) == content(10)
    with pytest.raises(ConfigurationError, match="the key k0"):
        whole(old, ring=KeyRing("k1", {"k1": bytes(range(32))}))
    with pytest.raises(ConfigurationError, match="no encryption key"):
        next(crypto.encrypted([b"secret"], ADDRESS, KeyRing(None, {})))


@pytest.mark.parametrize("size", [0, 1, 15, 16, 17, 300_000])
def test_files_of_the_real_system_are_read_whole_and_in_ranges(size: int) -> None:
    (key,) = legacy_keys(["password"])
    data = bytes(range(12)) + AESGCM(key).encrypt(bytes(range(12)), content(size), None)
    file = crypto.open_legacy_file(io.BytesIO(data), len(data), KeyRing(None, {}, legacy_keys(["other", "password"])))
    assert file.size == size
    assert b"".join(iter(lambda: file.read(70_000), b"")) == content(size)
    for first in (0, 1, 16, 100_001):
        file.seek(first)
        assert file.read(5) == content(size)[first : first + 5]


def test_what_no_password_decrypts_is_no_file_of_the_real_system() -> None:
    (key,) = legacy_keys(["password"])
    data = bytearray(bytes(12) + AESGCM(key).encrypt(bytes(12), content(100), None))
    assert crypto.open_legacy_file(io.BytesIO(data), len(data), KeyRing(None, {}, legacy_keys(["other"]))) is None
    assert crypto.open_legacy_file(io.BytesIO(data), len(data), KeyRing(None, {})) is None
    data[50] ^= 1
    assert crypto.open_legacy_file(io.BytesIO(data), len(data), KeyRing(None, {}, (key,))) is None
    assert crypto.open_legacy_file(io.BytesIO(b"short"), 5, KeyRing(None, {}, (key,))) is None
