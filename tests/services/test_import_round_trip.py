"""An archive of everything, imported into an empty tree: the trees are identical."""

import re
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from persistence.dialect import DIALECTS
from tests.commands import findings, persistence
from tests.forms.vectors import Form
from tests.in_process import serving
from tests.initialised import initialised
from tests.service import PUBLIC, V1, Service
from tests.services.transferring import tree, zipped

FORM = "acme/order"
DEFINITION = Form("<form/>", "", "").document().encode()
V2 = {"Form_Definition_Version": 2}
ANNA = {"Username": "anna", "Group": "sales", "Workflow_Stage": "begun"}


@pytest.fixture(params=sorted(DIALECTS))
def service(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Service]:
    with serving(tmp_path / "from", dialect=request.param, alone=True) as service:
        service.face = PUBLIC
        fill(service)
        yield service


def fill(service: Service) -> None:
    """Definitions of two versions, documents that were saved, deleted and drafted, and attachments of all."""
    for version in (V1, V2):
        service.put(f"{FORM}/form/logo.png", b"logo", **version)
        service.put(f"{FORM}/form/form.xhtml", DEFINITION, **version)
    service.put(f"{FORM}/form/form.xhtml", DEFINITION + b"<!-- again -->", **V1)
    service.delete(f"{FORM}/form/form.xhtml", **V2)
    for number in range(3):
        service.put(f"{FORM}/data/1/scan.bin", bytes([number]), {"Content-Type": "image/png"}, **V1, **ANNA)
        service.put(f"{FORM}/data/1/data.xml", b"<form>%d</form>" % number, **V1, **ANNA)
    service.put(f"{FORM}/draft/1/scan.bin", b"draft", **V1, Username="berta")
    service.put(f"{FORM}/draft/1/data.xml", b"<form>draft</form>", **V1, Username="berta")
    service.put(f"{FORM}/data/2/a.metadata.xml", b"no metadata", **V1)
    service.put(f"{FORM}/data/2/data.xml", b"<form>two</form>", **V1)
    service.delete(f"{FORM}/data/2/a.metadata.xml")
    service.delete(f"{FORM}/data/2/data.xml")
    service.put(f"{FORM}/data/2/data.xml", b"<form>two again</form>", **V1, Username="carla")
    service.put(f"{FORM}/draft/3/data.xml", b"<form>only a draft</form>", **V1)
    service.put(f"{FORM}/data/4%20%25%20%C3%A4/data.xml", b"<form/>", **V1)
    first = service.put(f"{FORM}/data/6/data.xml", b"<form>first</form>", **V1)[f"{service.prefix}Last-Modified"]
    service.put(f"{FORM}/data/6/data.xml", b"<form>second</form>", **V1)
    restored = service.raw("POST", f"{PUBLIC}/history/{FORM}/6/restore?last-modified-time={first}")
    assert restored.status < 300, restored.cause
    service.put(f"{service.designer}/builder/data/5/data.xml", b"<x/>", **V1)


def test_an_import_into_an_empty_tree_gives_the_same_tree(service: Service, tmp_path: Path) -> None:
    """Also where it was unpacked or packed elsewhere: Windows has no colons in names, some programs write ./ first."""
    archive, options = tmp_path / "all.zip", ("--dialect", service.dialect)
    exported = persistence("export", str(archive), "--history", "include", "--drafts", *options, data=service.data)
    assert exported.returncode == 0, exported.stderr
    with zipfile.ZipFile(archive) as packed:
        entries = {name: packed.read(name) for name in packed.namelist()}
    for name, content in entries.items():
        file = tmp_path / "unpacked" / re.sub(r"(T\d\d):(\d\d):(\d\d\.)", r"\1_\2_\3", name)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    (tmp_path / "here.zip").write_bytes(zipped({f"./{name}": content for name, content in entries.items()}))
    for source in ("all.zip", "unpacked", "here.zip"):
        to = Path(initialised(tmp_path / f"of-{source}"))
        dry = persistence("import", str(tmp_path / source), "--dry-run", *options, data=to)
        assert (dry.returncode, tree(to)) == (0, {}), dry.stderr
        done = persistence("import", str(tmp_path / source), *options, data=to)
        assert done.returncode == 0, done.stderr + done.stdout
        assert tree(to) == tree(service.data)
    again = persistence("import", str(archive), *options, data=to)
    assert (again.returncode, again.stdout) == (0, "")
    assert again.stderr.splitlines()[:-1] == [
        "definitions: 0 imported, 2 were there already",
        "documents: 0 imported, 5 were there already",
        "revisions of documents: 0 new, 11 known",
        "drafts: 0 imported, 2 were there already",
        "attachments: 0 imported, 5 were there already",
    ]
    assert tree(to) == tree(service.data)
    assert findings(persistence("check", "--json", *options, data=to)) == []
