"""Append-only services: nothing is deleted, purged or rewritten without a second key."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest
from click.testing import CliRunner

from persistence.cli import commands
from persistence.crypto import EncryptionKeys
from persistence.keys import Keys
from tests import service as services
from tests.encrypted_form import DEFINITION
from tests.in_process import serving
from tests.service import PROVIDER, V1, Service
from tests.waiting import eventually

_REFUSAL = "revisions are only added here (append_only): this needs a second key"
_SETTINGS = """
append_only = true
second_keys = ["vault", "runtime"]
administrators = ["runtime"]
keys = "keys.json"
encryption_keys = "encryption.json"
audit = "file"
audit_file = "audit/audit.jsonl"
"svc.persistence.proxy.disable-version-history.hr.*" = true
"""


class Kept(NamedTuple):
    """An append-only service, the secrets of two keys, and the options of commands beside it."""

    service: Service
    own: str
    vault: str
    options: list[str]
    directory: Path

    def run(self, *arguments: str, second: str = "") -> tuple[int, str]:
        env = {"PERSISTENCE_SECOND_KEY": second} if second else {}
        done = CliRunner(env=env).invoke(commands, [*arguments, *self.options])
        return done.exit_code, f"{done.output}{done.exception or ''}"


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kept]:
    directory = tmp_path_factory.mktemp("kept")
    (directory / "audit").mkdir()
    keys = Keys(str(directory / "keys.json"), tree=str(directory / "data"))
    own, vault = keys.add("runtime"), keys.add("vault")
    with serving(directory, alone=True, settings=_SETTINGS) as service:
        options = ["--config", str(directory / "settings.toml"), "--data", services.place_of(service.data)]
        yield Kept(replace(service, extra={"Authorization": f"Bearer {own}"}), own, vault, options, directory)


def test_what_removes_is_refused_without_a_second_key(kept: Kept) -> None:
    service = kept.service
    for number in range(3):  # the property that keeps no history does not count
        service.save("hr/leave", "D", f"<d>{number}</d>".encode())
    assert service.put("hr/leave/data/D/a.bin", b"x", **V1).status == 201
    service.publish("hr/leave")
    for path in ("data/D/data.xml", "data/D/a.bin", "form/form.xhtml"):
        assert service.delete(f"hr/leave/{path}", **V1).refuses(403, _REFUSAL), path
    assert service.delete("hr/leave/data/D/data.xml?force-delete=true&last-modified-time=x").status >= 400
    behind = replace(service, face=PROVIDER)
    assert behind.delete("hr/leave/data/D/data.xml").refuses(403, _REFUSAL)
    purge = "purge/hr/leave?data-revision-history=include"
    assert _REFUSAL in service.post(purge).body.decode()
    assert service.get("hr/leave/data/D/data.xml").body == b"<d>2</d>"
    assert service.call("GET", "history/hr/leave/D").body.count(b"<document ") == 3


def test_drafts_come_and_go(kept: Kept) -> None:
    service = kept.service
    for name in ("data.xml", "a.bin"):
        assert service.put(f"hr/leave/draft/E/{name}", b"<d/>", **V1).status == 201
    service.save("hr/leave", "E", collection="draft")
    assert service.delete("hr/leave/draft/E/data.xml").status == 204
    service.save("hr/leave", "E", collection="draft")
    service.save("hr/leave", "E")
    assert service.get("hr/leave/draft/E/data.xml").status == 404


@pytest.mark.parametrize(
    ("second", "cause"),
    [("0" * 64, "is not a key that the setting second_keys names"), ("own", "must not be the key of the caller")],
)
def test_a_key_that_is_not_a_second_one_is_refused(kept: Kept, second: str, cause: str) -> None:
    kept.service.save("hr/leave", "F")
    answer = kept.service.delete("hr/leave/data/F/data.xml", Second_Key=kept.own if second == "own" else second)
    assert answer.refuses(403, cause)


def test_a_second_key_removes_and_is_in_the_audit(kept: Kept) -> None:
    service = kept.service
    for name in ("F", "G"):
        service.save("hr/leave", name)
    assert service.delete("hr/leave/data/G/data.xml", Second_Key=kept.vault).status == 204
    assert service.delete("hr/leave/data/F/data.xml").refuses(403, _REFUSAL)  # it counts for one request
    assert '"second_key":"vault"' in (kept.directory / "audit/audit.jsonl").read_text()
    purged = service.post("purge/hr/leave/G?data-revision-history=include", Second_Key=kept.vault)
    assert purged.status == 200, purged.cause
    assert service.get("hr/leave/data/G/data.xml").status == 404


def test_reencryption_needs_it_too(kept: Kept) -> None:
    service, form = kept.service, "hr/secret"
    ring = EncryptionKeys(str(kept.directory / "encryption.json"), trees=[str(kept.directory / "data")])
    old = ring.new()
    service.publish(form, DEFINITION)
    service.save(form, "D", b"<form><person><ssn>1</ssn></person></form>")
    ring.new()
    assert service.post(f"reencrypt/{form}").refuses(403, _REFUSAL)
    assert b"<form " not in service.call("GET", "reencrypt").body
    assert service.post(f"reencrypt/{form}", Second_Key=kept.vault).status == 200
    eventually(lambda: b'state="finished"' in service.call("GET", "reencrypt").body)
    ring.retire(old)
    assert b"<ssn" in service.get(f"{form}/data/D/data.xml").body


def test_commands_need_it_too(kept: Kept) -> None:
    kept.service.save("hr/leave", "H")
    arguments = ("erase", "hr/leave/data/H", "--yes", "--certificate", str(kept.directory / "certificate.json"))
    status, said = kept.run(*arguments)
    assert (status != 0, _REFUSAL in said) == (True, True), said
    status, said = kept.run(*arguments, second="0" * 64)
    assert (status != 0, "the second key is not" in said) == (True, True), said
    assert kept.service.get("hr/leave/data/H/data.xml").status == 200
    status, said = kept.run(*arguments, second=kept.vault)
    assert status == 0, said
    assert kept.service.get("hr/leave/data/H/data.xml").status == 404
