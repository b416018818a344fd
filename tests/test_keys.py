"""The file of API keys and of passwords: what it holds, who may change it, and how a change is seen."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from persistence import keys as key_files
from persistence.errors import BadRequestError, ConflictError, DamagedError, DiskError, NotFoundError, StartupError
from persistence.keys import Keys, is_right_password, key_of, refusal_of, warnings_of
from persistence.model.texts import next_after
from persistence.storage import root


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "var/keys.json"


@pytest.fixture
def keys(file: Path) -> Keys:
    return Keys(str(file), tree=str(file.parent / "data"))


def test_without_a_file_there_are_no_keys(keys: Keys, file: Path) -> None:
    assert keys.read() == ()
    assert not file.parent.exists()


def test_a_link_that_leads_nowhere_is_not_taken_for_no_keys(keys: Keys, file: Path) -> None:
    file.parent.mkdir()
    file.symlink_to(file.with_name("gone"))
    with pytest.raises(DamagedError, match="leads nowhere"):
        keys.read()


def test_a_key_is_found_by_what_was_given_out_and_by_nothing_else(keys: Keys) -> None:
    first, second = keys.add("runtime"), keys.add("batch")
    known = keys.read()
    assert [key.name for key in known] == ["runtime", "batch"]
    assert (key_of(first, known), key_of(second, known)) == known
    for wrong in ("", first[:-1], first.upper() + " ", known[0].sha256, "runtime", "é"):
        assert key_of(wrong, known) is None


def test_only_a_digest_is_kept_and_only_the_owner_reads_it(keys: Keys, file: Path) -> None:
    secret = keys.add("runtime")
    assert len(bytes.fromhex(secret)) == 32
    (entry,) = json.loads(file.read_bytes())["keys"]
    assert entry.keys() == {"name", "sha256", "created"}
    assert secret not in file.read_text()
    assert file.stat().st_mode & 0o777 == 0o600
    assert sorted(path.name for path in file.parent.iterdir()) == ["keys.json", "keys.json.lock"]


def test_a_removed_key_is_none(keys: Keys) -> None:
    secret = keys.add("runtime")
    keys.remove("runtime")
    assert key_of(secret, keys.read()) is None
    assert keys.read() == ()
    with pytest.raises(NotFoundError, match="there is no key runtime"):
        keys.remove("runtime")


@pytest.mark.parametrize("name", ["", "trusted", "a b", "a:b", "ä", "-a", "a\n", "x" * 65, "../x"])
def test_a_name_fits_a_log_and_a_command_line(keys: Keys, file: Path, name: str) -> None:
    with pytest.raises(BadRequestError, match="cannot be the name of a key"):
        keys.add(name)
    assert not file.exists()


def test_there_may_be_a_thousand_keys(keys: Keys, file: Path) -> None:
    """The file is read at once, and every key compared: neither may grow for ever."""
    secret = keys.add("x" * 64)
    (entry,) = json.loads(file.read_bytes())["keys"]
    others = [entry | {"name": f"{number:064}", "sha256": f"{number:064x}"} for number in range(999)]
    file.write_text(json.dumps({"format": 1, "keys": [*others, entry]}, indent=2))
    assert key_of(secret, keys.read()) == keys.read()[-1]
    with pytest.raises(ConflictError, match="there are 1000 keys already"):
        keys.add("one-more")


def limited(members: str) -> bytes:
    """A file with one key that has these members."""
    own = f'"name": "x", "sha256": "{"0" * 64}", "created": "2025-03-04T05:06:07.089Z", {members}'
    return f'{{"format": 1, "keys": [{{{own}}}]}}'.encode()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"{}",
        b'{"format": 2, "keys": []}',
        b'{"format": 1, "keys": [], "more": 1}',
        b'{"format": 1, "keys": [{"name": "x", "sha256": "0", "created": "2025-03-04T05:06:07.089Z"}]}',
        b'{"format": 1, "keys": [{"name": "x y", "sha256": "' + b"0" * 64 + b'", "created": ""}]}',
        b'{"format": 1, "keys": [{"name": "x", "sha256": "' + b"0" * 64 + b'\\n", "created": ""}]}',
        b"\xff",
        b"[" * 100_000,
        limited('"scopes": ["read", "admin"]'),
        limited('"scopes": []'),
        limited('"scopes": null'),
        limited('"scopes": "read"'),
        limited('"forms": []'),
        limited('"forms": null'),
        limited('"forms": ["hr/"]'),
        limited('"forms": ["hr/leave/1"]'),
        limited('"forms": ["*"]'),
    ],
)
def test_a_file_in_doubt_is_never_one_without_keys(keys: Keys, file: Path, content: bytes) -> None:
    file.parent.mkdir()
    file.write_bytes(content)
    for change in (keys.read, lambda: keys.add("new"), lambda: keys.remove("x")):
        with pytest.raises(DamagedError, match=r"keys\.json cannot be read"):
            change()
    assert file.read_bytes() == content


def test_a_digest_is_there_once(keys: Keys, file: Path) -> None:
    """The limits of the last of two such records would count, and its name would be in the audit."""
    keys.add("batch", None, ["read"])
    text = json.loads(file.read_bytes())
    text["keys"].append({**text["keys"][0], "name": "runtime", "scopes": ["read"]})
    file.write_text(json.dumps(text))
    with pytest.raises(DamagedError, match="the keys batch and runtime have the same digest: remove one from the file"):
        keys.read()


def test_what_cannot_be_opened_is_an_error(file: Path) -> None:
    file.mkdir(parents=True)
    with pytest.raises(DiskError, match="Is a directory"):
        Keys(str(file), tree=str(file)).read()
    with pytest.raises(DiskError, match="Not a directory"):
        Keys("/dev/null/keys.json", tree=str(file)).read()


def test_a_change_is_seen_at_once_and_no_change_is_not_read_again(
    keys: Keys, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(root, "_SETTLED", 100_000_000)
    other = Keys(str(file), tree=str(file.parent))
    for number in range(20):
        other.add(f"key-{number}")
        assert len(keys.read()) == number + 1
    time.sleep(0.11)  # until then a change might leave the same time
    settled = keys.read()
    assert keys.read() is settled
    other.remove("key-0")
    assert len(keys.read()) == 19
    file.unlink()
    assert keys.read() == ()


def test_two_who_add_at_once_lose_nothing(file: Path) -> None:
    script = "import sys; from persistence.keys import Keys; k = Keys(sys.argv[1], tree='/')\n"
    script += "for n in range(10): k.add(f'{sys.argv[2]}-{n}')"
    file.parent.mkdir()
    file.write_text('{"format": 1, "keys": []}')
    writers = [subprocess.Popen([sys.executable, "-c", script, str(file), f"writer-{number}"]) for number in range(4)]
    assert [writer.wait(60) for writer in writers] == [0] * 4
    names = {key.name for key in Keys(str(file), tree="/").read()}
    assert names == {f"writer-{number}-{n}" for number in range(4) for n in range(10)}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
@pytest.mark.parametrize("whose", ["keys.json", "data", "data/layout.json"])
def test_only_the_services_user_makes_keys(keys: Keys, file: Path, whose: str) -> None:
    """A file that root makes would be closed to the service."""
    path = file.parent / whose
    if path.suffix:
        path.parent.mkdir(parents=True)
        path.write_text('{"format": 1, "keys": []}')
    else:
        path.mkdir(parents=True)
    os.chown(path, 65534, -1)
    with pytest.raises(StartupError, match="run this as that user"):
        keys.add("runtime")
    assert not (file.parent / "keys.json.lock").exists()


def test_a_key_that_has_expired_opens_nothing_and_stays(keys: Keys, file: Path) -> None:
    secret = keys.add("trial", 0.05)
    lasting = keys.add("lasting", 86_400.0)
    (trial, other) = keys.read()
    assert trial.expires is not None
    assert key_of(lasting, keys.read()) == other
    assert not other.is_expired
    time.sleep(0.06)
    assert trial.is_expired
    assert key_of(secret, keys.read()) is None
    assert [key.name for key in keys.read()] == ["trial", "lasting"]
    assert "expires" in file.read_text()


@pytest.mark.parametrize("lifetime", [0.0, -1.0, 4e9, float("inf"), float("nan")])
def test_a_lifetime_of_no_time_or_of_ages_is_refused(keys: Keys, lifetime: float) -> None:
    with pytest.raises(BadRequestError, match="century"):
        keys.add("trial", lifetime)
    assert keys.read() == ()


def test_what_limits_a_key_is_kept(keys: Keys, file: Path) -> None:
    file.parent.mkdir()
    file.write_bytes(limited('"scopes": ["read"], "forms": ["hr", "hr/leave"]'))
    keys.add("second", None, ["read", "read"], ["a b/é", "a b/é"])
    keys.add("third")
    first, second, third = keys.read()
    assert (first.scopes, first.forms) == (("read",), ("hr", "hr/leave"))
    assert (second.scopes, second.forms) == (("read",), ("a b/é",))
    assert [key.is_limited for key in (first, second, third)] == [True, True, False]


@pytest.mark.parametrize("form", ["", "/", "hr/", "/x", "hr/leave/1", "hr/*", "*", "a\\b", "a\n", "a\x9b", "\udcff"])
def test_a_key_is_limited_to_whole_names(keys: Keys, file: Path, form: str) -> None:
    with pytest.raises(BadRequestError, match="is not APP or APP/FORM"):
        keys.add("new", forms=[form])
    assert not file.exists()


def test_keys_that_could_not_be_read_again_are_not_written(keys: Keys, file: Path) -> None:
    """The limits of a thousand keys may be longer than the file may be."""
    with pytest.raises(BadRequestError, match="at most 20"):
        keys.add("new", forms=[f"a/{number}" for number in range(21)])
    file.parent.mkdir()
    forms = json.dumps(["x" * 255 + f"/{number:0255}" for number in range(20)])
    entry = json.loads(limited(f'"forms": {forms}'))["keys"][0]
    many = [entry | {"name": f"{number:064}", "sha256": f"{number:064x}"} for number in range(98)]
    file.write_text(json.dumps({"format": 1, "keys": many}))
    content = file.read_bytes()
    with pytest.raises(ConflictError, match="more than 1048576 bytes"):
        keys.add("new", forms=entry["forms"])
    assert file.read_bytes() == content


def test_who_shows_an_expired_or_a_retired_key_is_told_which_it_was(keys: Keys) -> None:
    ended, gone = keys.add("trial", 0.01), keys.add("old")
    keys.remove("old")
    day = str(next_after(None))[:10]
    again = f"on {day}: ask an administrator for another one"
    assert refusal_of(ended, keys.read(), keys.retired()) == f"the API key trial expired {again}"
    assert refusal_of(gone, keys.read(), keys.retired()) == f"the API key old was retired {again}"
    for stranger in ("", "old", "trial", keys.read()[0].sha256):
        assert "not, or no longer, a key" in refusal_of(stranger, keys.read(), keys.retired())


def test_the_last_retired_keys_are_remembered(keys: Keys, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_files, "_MOST_RETIRED", 3)
    for number in range(5):
        keys.add(f"k{number}")
        keys.remove(f"k{number}")
    assert [key.name for key in keys.retired()] == ["k2", "k3", "k4"]
    assert keys.read() == ()


def test_keys_that_expire_within_a_month_are_warned_of(keys: Keys) -> None:
    keys.add("desk", 20 * 86_400.0)
    keys.add("lasting", 40 * 86_400.0)
    desk, lasting = keys.read()
    assert warnings_of(keys, ("desk", "trusted"), ("nobody",)) == [
        "the setting token_issuers names API keys that do not exist: nobody",
        f"the API key desk expires on {desk.expires[:10]}",
    ]
    assert keys.next_expiry() == desk.expires
    keys.remove("desk")
    assert (warnings_of(keys, (), ()), keys.next_expiry()) == ([], lasting.expires)


# Passwords of administrators


LONG = "correct horse battery staple"


def test_only_a_digest_of_a_password_is_kept_and_only_the_owner_reads_it(keys: Keys, file: Path) -> None:
    keys.set_password("ada", LONG)
    assert LONG not in file.read_text()
    assert file.stat().st_mode & 0o777 == 0o600
    (kept,) = keys.passwords()
    assert is_right_password(LONG, kept)
    assert not is_right_password(LONG + "x", kept)
    assert LONG not in repr(kept) + repr(keys.passwords())
    assert kept.scrypt not in repr(kept)


def test_a_name_without_a_password_costs_a_comparison_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    monkeypatch.setattr(key_files.hashlib, "scrypt", lambda *_, **__: calls.append(1) or bytes(32))
    assert not is_right_password(LONG, None)
    assert not is_right_password("x" * 1025, None)  # too long: not compared at all
    assert calls == [1]


@pytest.mark.parametrize(
    ("name", "text"), [("ada", "x" * 11), ("ada", "x" * 1025), ("ada", "é" * 600), ("a b", LONG), ("trusted", LONG)]
)
def test_a_password_that_is_not_acceptable_is_refused(keys: Keys, name: str, text: str) -> None:
    with pytest.raises(BadRequestError):
        keys.set_password(name, text)
    assert keys.passwords() == ()


def test_a_password_replaces_that_of_the_same_name_alone(keys: Keys) -> None:
    keys.set_password("ada", LONG)
    keys.set_password("bob", LONG)
    before = keys.session_secret()
    keys.set_password("ada", "another long one")
    assert [each.name for each in keys.passwords()] == ["bob", "ada"]
    assert keys.session_secret() == before
    keys.remove_password("bob")
    with pytest.raises(NotFoundError):
        keys.remove_password("bob")
    assert [each.name for each in keys.passwords()] == ["ada"]


def test_a_file_with_passwords_that_others_can_read_is_refused(keys: Keys, file: Path) -> None:
    keys.set_password("ada", LONG)
    file.chmod(0o644)
    with pytest.raises(DamagedError, match="chmod 600"):
        Keys(str(file), tree=str(file.parent / "data")).passwords()
