"""Where encryption keys come from, and what is refused."""

import json
from pathlib import Path

import pytest

from persistence.crypto import EncryptionKeys
from persistence.errors import ConfigurationError, ConflictError, DamagedError, StartupError

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
