"""Data that is here with the definitions in another service, which cannot be reached: it is needed for nothing else."""

import sys
from pathlib import Path

import pytest
from flask.testing import FlaskClient

from persistence.app import create_app
from persistence.cli import main
from persistence.definitions.catalog import Catalog, Definition
from persistence.dialect import DIALECTS
from persistence.errors import RemoteError
from persistence.model.addresses import Form
from persistence.properties.properties import Properties
from persistence.providers.opened import Providers
from persistence.settings import Settings
from tests.encrypted_form import DEFINITION, UNMARKED, data
from tests.initialised import initialised
from tests.opened import close, opened

NOBODY = "http://127.0.0.1:1"
OWNED = (
    b'<permissions><permission operations="read update delete"><owner/></permission>'
    b'<permission operations="create"/></permissions>'
)


def client(tmp_path: Path, dialect: str) -> FlaskClient:
    prefix = DIALECTS[dialect].property_prefix
    properties = Properties.load(
        {f"{prefix}persistence.provider.hr.*.form": "peer", f"{prefix}persistence.peer.uri": NOBODY}, prefix
    )
    settings = Settings(data=initialised(tmp_path / "data"), dialect=dialect)
    return opened(create_app(settings, properties)).test_client()


@pytest.mark.parametrize("path", ["data/D/data.xml", "draft/D/data.xml", "data/D/a.bin"])
def test_a_runtime_writes_through_the_provider_face(tmp_path: Path, path: str) -> None:
    """It has decided by the definitions itself (spec crud 11)."""
    asking = client(tmp_path, "orbeon")
    headers = {"Orbeon-Form-Definition-Version": "1"}
    assert asking.put(f"/crud/hr/leave/{path}", data=b"<form/>", headers=headers).status_code == 201
    assert asking.get(f"/crud/hr/leave/{path}", headers=headers).data == b"<form/>"


def test_the_public_face_asks_for_permissions(tmp_path: Path) -> None:
    path = "/fr/service/persistence/crud/hr/leave/data/D/data.xml"
    answer = client(tmp_path, "svc").put(path, data=b"<form/>", headers={"Svc-Form-Definition-Version": "1"})
    assert answer.status_code == 502


def test_a_caller_without_permission_learns_nothing_of_other_versions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The version of the draft is looked at only when the version of its saved document permits the save."""
    asking = opened(create_app(Settings(data=initialised(tmp_path / "data")))).test_client()
    base = "/fr/service/persistence/crud/hr/leave"
    by_ann = {"Svc-Form-Definition-Version": "2", "Svc-Username": "ann", "Svc-Group": "staff"}
    by_bob = {"Svc-Form-Definition-Version": "1", "Svc-Username": "bob", "Svc-Group": "sales"}
    owned = UNMARKED.replace(b"</metadata>", OWNED + b"</metadata>")
    assert asking.put(f"{base}/form/form.xhtml", data=owned, headers=by_ann).status_code == 201
    assert asking.put(f"{base}/data/D/data.xml", data=data(), headers=by_ann).status_code == 201
    of = Catalog.of

    def failing(catalog: Catalog, form: Form, version: int) -> Definition:
        if version == 1:
            raise RemoteError("version 1 cannot be had")
        return of(catalog, form, version)

    monkeypatch.setattr(Catalog, "of", failing)
    assert asking.put(f"{base}/draft/D/data.xml", data=data(), headers=by_bob).status_code == 403
    by_ann["Svc-Form-Definition-Version"] = "1"
    assert asking.put(f"{base}/draft/D/data.xml", data=data(), headers=by_ann).status_code == 502


def test_an_index_reads_no_definition_of_another_service(tmp_path: Path) -> None:
    """So the controls of such data are not indexed; those of all other forms are."""
    said = {"svc.persistence.provider.hr.*.form": "peer", "svc.persistence.peer.uri": NOBODY}
    settings = Settings(data=initialised(tmp_path / "data"))
    providers = opened(Providers(settings, Properties.load(said, "svc."), lambda *_: None))
    for router in (providers.router, providers.within(settings.roots.default)):
        apart, here = router.of(Form("hr", "leave")), router.of(Form("it", "desk"))
        assert apart.index_catalog is apart.data.catalog is not apart.catalog
        assert here.index_catalog is here.catalog


def test_a_form_whose_attachments_another_service_has_is_reencrypted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No command calls a service: the rest of the form is here."""
    monkeypatch.chdir(tmp_path)
    initialised(tmp_path / "data")
    (tmp_path / "own.toml").write_text(
        'encryption_keys = "keys.json"\n"svc.persistence.provider.hr.*.data.attachments" = "peer"\n'
        f'"svc.persistence.peer.uri" = "{NOBODY}"\n'
    )
    options = ["--config", "own.toml"]
    assert command("encryption-key", "new", *options) == 0
    app = opened(create_app(Settings(data=str(tmp_path / "data"), encryption_keys=str(tmp_path / "keys.json"))))
    asking = app.test_client()
    headers = {"Svc-Form-Definition-Version": "1"}
    base = "/fr/service/persistence/crud/hr/leave"
    assert asking.put(f"{base}/form/form.xhtml", data=UNMARKED, headers=headers).status_code == 201
    assert asking.put(f"{base}/data/D/data.xml", data=data(), headers=headers).status_code == 201
    assert asking.put(f"{base}/form/form.xhtml", data=DEFINITION, headers=headers).status_code == 204
    close(app)
    assert command("reencrypt", "--data", str(tmp_path / "data"), *options) == 0
    assert b"encrypted=" in (tmp_path / "data/hr/leave/data/D/data.xml").read_bytes()


def command(*arguments: str) -> int:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sys, "argv", ["persistence", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
    return int(ended.value.code or 0)
