"""Encrypted files: every part of one is where it belongs, or nothing is read."""

import io
import random
from dataclasses import replace

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from persistence import crypto
from persistence.crypto import FileHeader, KeyRing, legacy_keys, open_file
from persistence.errors import ConfigurationError, DamagedError
from persistence.model.addresses import Collection, DocumentAddress, Form

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
