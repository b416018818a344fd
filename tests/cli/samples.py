"""A data directory with documents of every sort, damaged ones too, and the commands on a copy of it."""

import shutil
import time
from dataclasses import replace
from pathlib import Path

from persistence.model.addresses import DATA_XML, Collection, DocumentAddress, Form
from persistence.model.versions import LeaseHolder
from persistence.storage.store import Store
from tests import encrypted_form, orders
from tests.cli.command_runner import Place
from tests.published import PERMISSIONS, definition
from tests.sidecars import of_format_2

FILES = sorted((Path(__file__).parent / "golden").glob("*.txt"))
"""The transcripts of commands."""

SETTINGS = """\
data = "../data"
keys = "../keys.json"
encryption_keys = "../encryption.json"
local = "../local"
audit = "file"
audit_file = "../audit/audit.jsonl"
"svc.access-token.validity.*.*" = 100000
"""
SEVERAL = """\
"svc.persistence.provider.acme.*.*" = "second"
"svc.persistence.second.datasource" = "disk2"
"svc.persistence.provider.hr.*.data.attachments" = "big"
"svc.persistence.big.base-path" = "../big"
[datasource.disk2]
data = "../disk2"
"""
"""Where ``acme`` is in a tree of its own, and the attachments of ``hr`` in a directory of their own."""

_RUNTIME = """\
<p>
<property name="oxf.fr.persistence.here.uri" value="http://localhost/{a}"/>
<property name="oxf.fr.persistence.provider.*.*.*" value="here"/>
</p>
"""
_RESOURCES = """<xf:instance id="fr-form-resources"><resources>
<resource xml:lang="en"><name><label>Name</label></name><email><label>Mail</label></email>
<notes><label>stage</label></notes><product><label>&lt;b&gt;Product&lt;/b&gt;</label></product>
<status><label>Topics</label></status><topics><label>Topics</label></topics></resource>
<resource xml:lang="de"><name><label>Name, Vorname</label></name><email><label>E-Mail</label></email></resource>
</resources></xf:instance>"""
_LABEL = '<xf:label ref="$form-resources/product/label" mediatype="text/html"/>'
LABELLED = orders.DEFINITION.replace(
    '<xf:instance id="fr-form-metadata">', f'{_RESOURCES}<xf:instance id="fr-form-metadata">'
).replace('bind="product-bind" class="fr-summary"/>', f'bind="product-bind" class="fr-summary">{_LABEL}</xf:input>')
"""The definition of the vectors with labels, of which two are the same, and one has the name of a fact."""
_ORDERS = "<form><customer><name>{}</name></customer><items><lines><product>{}</product></lines></items></form>"


def tick() -> None:
    """Wait for the next millisecond, so that no two instants are the same."""
    now = time.time_ns() // 1_000_000
    while time.time_ns() // 1_000_000 == now:
        time.sleep(0.0002)


def plant(base: Path) -> None:
    """Fill ``data`` below ``base``: forms with two versions, indexed and encrypted controls, and none."""
    place = Place(base / "data")

    def put(path: str, body: bytes | str = b"<d>1</d>", version: int | str = 1, **headers: str) -> None:
        tick()
        place.put(path, body if isinstance(body, bytes) else body.encode(), version, **headers)

    titles = '<title xml:lang="de">Urlaub</title><title xml:lang="en">Leave</title>'
    for version in (1, 2):
        put("hr/leave/form/form.xhtml", definition(titles), version, Username="ann")
    closed = f"<title>Congé</title><available>false</available><singleton>true</singleton>{PERMISSIONS}"
    put("hr/closed/form/form.xhtml", definition(closed), Username="lea")
    put("hr/closed/form/logo.png", b"logo", Content_Type="image/png")
    put("acme/order/form/form.xhtml", orders.definition(), Username="ann")
    put("hr/leave/data/d/a.bin", b"12345", Content_Type="image/png")
    put("hr/leave/data/d/b.bin", b"left over")
    for text in (b"<d>1</d>", b"<d><a>2</a><b>/fr/service/persistence/crud/hr/leave/data/d/a.bin</b></d>"):
        put("hr/leave/data/d/data.xml", text, Username="lea", Group="staff", Workflow_Stage="sent")
    put("hr/leave/draft/d/data.xml")
    for name in ("gone", "cut", "old"):
        for text in (b"<d>1</d>", b"<d>22</d>"):
            put(f"hr/leave/data/{name}/data.xml", text)
    place.delete("hr/leave/data/gone/data.xml")
    put("svc/loose/data/d/data.xml")
    for name, product in (("Ann", "anvil"), ("Bob", "b\u00f6x"), ("Cy\x85", "crate")):
        for amount in ("", " 2"):
            put(f"acme/order/data/{name[0]}/data.xml", _ORDERS.format(name, product + amount), Username=name[0])
    put("sec/visit/form/form.xhtml", encrypted_form.UNMARKED)
    put("sec/visit/data/v/data.xml", encrypted_form.data())
    put("sec/visit/form/form.xhtml", encrypted_form.DEFINITION)
    (base / "data/hr/leave/data/cut/data.xml").write_bytes(b"<d")
    older = next((base / "data/hr/leave/data/old/.history").rglob("*.json"))
    older.write_bytes(b"{")


def copy(planted: Path, directory: Path, settings: str = SETTINGS) -> None:
    """Copy the planted directory into another one, with settings and other files for the commands."""
    shutil.copytree(planted / "data", directory / "data", symlinks=True)
    (directory / "config").mkdir()
    (directory / "config/persistence.toml").write_text(settings)
    (directory / "odd.jsonl").write_text("{}\n")
    (directory / "properties-local.xml").write_text(_RUNTIME)
    with Store(str(directory / "data"), lock_timeout=1) as store:
        address = DocumentAddress(Form("hr", "leave"), Collection.DATA, "d", DATA_XML)
        store.leases.lock(address, LeaseHolder("lea", "staff"), 600)
        store.leases.lock(replace(address, document="\u202eE"), LeaseHolder("bob\x9b"), 600)


def make_old(directory: Path) -> None:
    """Leave the tree as the format before left it."""
    root = directory / "data"
    (root / "layout.json").write_text('{"format":1}\n')
    for sidecar in root.glob("*/*/*/*/*.json"):
        of_format_2(sidecar)
