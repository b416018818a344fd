"""Re-encrypting attachments whose bodies have a directory of their own (spec forms 4.5, 5.5)."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from persistence.crypto.frames import MAGIC
from tests.encrypted_form import DEFINITION, SECRETS, UNMARKED, traces
from tests.http.test_encryption import CONTENT, attach, keys_of
from tests.http.test_reencryption import KILLED, NAMES, plain_form, reencrypted
from tests.in_process import serving
from tests.service import Service


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    directory = tmp_path_factory.mktemp("apart")
    keys_of(directory).new()
    (directory / "big").mkdir()
    config = directory / "settings.toml"
    config.write_text(
        'encryption_keys = "var/encryption-keys.json"\n'
        '"svc.persistence.provider.*.*.data.attachments" = "big"\n'
        f'"svc.persistence.big.base-path" = "{directory}/big"\n'
    )
    with serving(directory, options=("--config", str(config))) as service:
        yield service


def reencrypt(service: Service, *arguments: str, command: tuple[str, ...] = ("-m", "persistence.cli")) -> str:
    directory = service.data.parent
    options = ("--data", str(service.data), "--config", str(directory / "settings.toml"))
    done = subprocess.run(
        [sys.executable, *command, "reencrypt", *options, *arguments],
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, -signal.SIGKILL), done
    return done.stderr


def bodies(service: Service, form: str) -> list[Path]:
    found = (service.data.parent / f"big/{form}/data/1").rglob("*")
    return sorted(path for path in found if path.is_file())


def older_scan(service: Service, form: str) -> bytes:
    (record,) = (service.data / form / "data/1/.history").glob("2*.scan.bin.json")
    day, clock = record.name[:24].split("T")
    instant = f"{day}T{clock.replace('-', ':')}"
    got = service.get(f"{form}/data/1/scan.bin?last-modified-time={instant}", Decrypt="true")
    assert got.status == 200, got.cause
    return got.body


def test_bodies_elsewhere_are_reencrypted_with_their_history_and_opened_again(service: Service, form: str) -> None:
    tags = plain_form(service, form)
    keys, big = keys_of(service.data.parent), service.data.parent / "big"
    old = keys.ring().to_write()
    assert service.put(f"{form}/form/form.xhtml", DEFINITION).status == 204
    assert "5 revisions" in reencrypt(service, form, "--dry-run")
    assert not traces(big, MAGIC)
    reencrypted(service, form)
    assert not traces(service.data / form, *SECRETS)
    assert [body.read_bytes().startswith(MAGIC) for body in bodies(service, form)] == [True, False, True]
    assert traces(big, old)
    for name in NAMES:
        assert service.head(f"{form}/{name}")["ETag"] == tags[name]
    assert service.get(f"{form}/data/1/scan.bin", Decrypt="true").body == CONTENT[::-1]
    assert older_scan(service, form) == CONTENT

    keys.new()
    assert "5 revisions" in reencrypt(service, form)
    assert not traces(big, old)
    assert "0 revisions" in reencrypt(service, form)
    assert service.get(f"{form}/data/1/scan.bin", Decrypt="true").body == CONTENT[::-1]

    assert service.put(f"{form}/form/form.xhtml", UNMARKED).status == 204
    reencrypted(service, form)
    assert [body.read_bytes() for body in bodies(service, form)] == [CONTENT, CONTENT, CONTENT[::-1]]
    attach(service, f"{form}/data/1/scan.bin", body=b"next")
    assert len(bodies(service, form)) == 4


def test_a_kill_leaves_every_body_readable_and_the_next_run_leaves_nothing(service: Service, form: str) -> None:
    """Killed at the twelfth rename, which gives the last body its name: six are of the data, three of each body."""
    plain_form(service, form)
    assert service.put(f"{form}/form/form.xhtml", DEFINITION).status == 204
    assert not reencrypt(service, form, command=("-c", KILLED, "12"))
    assert [body.name[0] for body in bodies(service, form)].count(".") == 1
    for _ in range(2):
        assert service.get(f"{form}/data/1/scan.bin", Decrypt="true").body == CONTENT[::-1]
        assert service.get(f"{form}/data/1/photo.bin").body == CONTENT
        assert older_scan(service, form) == CONTENT
        assert "0 revisions" in reencrypt(service, form)
    assert [body.read_bytes().startswith(MAGIC) for body in bodies(service, form)] == [True, False, True]
