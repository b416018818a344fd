"""A varied history of a tree: all that a service can be asked to store, and what people do to files by hand."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import quote

from tests.landed import designs
from tests.landed.designs import OWNERS, order, order_data, secret, secret_data
from tests.landed.wire import Response, Wire, question

PUBLIC = "/fr/service/persistence"
PROVIDER = ""
PREFIXES = {"svc": "Svc-", "orbeon": "Orbeon-"}
PROPERTIES = {"svc": "svc.", "orbeon": "oxf.fr."}
PASSWORD = "Vault-Key-2024!blue"  # noqa: S105 - that of the value below, which a real runtime has encrypted
LEGACY = "AAECAwQFBgcICQoLQjvWaENLAOs4UvOAykhr1KQMWA70bPksVtJjEmKq"
SCAN = bytes(range(256)) * 300
"""An attachment over 64 KiB, the size from which nginx would send it."""

ODD = ("ä b", "100%", "a+b&c=d;e", "CON", "dots..in..it", "Ünï-\U0001f600", "x" * 120, "trailing-", "~home", "(1)")
"""Names of documents and attachments that need care in a path or on some disk."""

ANN = {"Username": "ann", "Group": "sales", "Roles": "staff"}
BOB = {"Username": "bob", "Group": "support"}
CID = {"Username": "cid", "Group": "sales", "Roles": "clerk"}
BOSS = {"Username": "eva", "Roles": "boss|form-admin"}
DEE = {
    "Credentials": '{"username":"dee","groups":["sales"],"roles":[{"name":"clerk","organization":"x"}],'
    '"organizations":[["acme","sales","west"]]}'
}


def settings(dialect: str) -> str:
    """Return the settings of a service, all of whose places lie beside them."""
    lines: dict[str, object] = {
        "persistence.provider.far.*.data": "disk2",
        "persistence.disk2.datasource": "second",
        "persistence.provider.apart.*.data.attachments": "big",
        "persistence.big.base-path": "big",
        "persistence.provider.newer.*.*": "p48",
        "persistence.p48.data-format-version": "4.8.0",
        "persistence.provider.strict.*.*": "registered",
        "persistence.registered.published-only": True,
        "persistence.provider.plain.*.*": "drafty",
        "persistence.drafty.autosave": False,
        "permissions.ruled.*": '{"anyone": ["create"], "owner": ["read", "update"], "roles": {"clerk": ["list"]}}',
        "detail.singleton.enabled.acme.single": True,
        "field-encryption.password": "another",
        "field-encryption.password.read-fallback": PASSWORD,
    }
    properties = "".join(f'"{PROPERTIES[dialect]}{name}" = {_toml(value)}\n' for name, value in lines.items())
    return (
        f'data = "data"\ndialect = "{dialect}"\nkeys = "keys.json"\nencryption_keys = "encryption-keys.json"\n'
        f'min_free = 0\nhosts = ["*"]\n{properties}\n[datasource.second]\ndata = "second"\n\n'
        '[[admin]]\nrole = "form-admin"\napp = "acme"\nform = "*"\n'
    )


def _toml(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else f"'{value}'"


@dataclass(frozen=True)
class Author:
    """Stores in one dialect through one face, and expects to be let."""

    wire: Wire
    dialect: str
    face: str = PUBLIC

    def named(self, own: Mapping[str, object]) -> dict[str, str]:
        """Return headers with the prefix of the dialect, ``_`` standing for ``-``."""
        return {PREFIXES[self.dialect] + name.replace("_", "-"): str(value) for name, value in own.items()}

    def ask(self, method: str, path: str, body: bytes | None = None, kind: str = "", **own: object) -> Response:
        """Return the answer to a request below ``/crud/``; its path is not yet escaped."""
        headers = {**({"Content-Type": kind} if kind else {}), **self.named(own)}
        return self.wire.ask(question(method, f"{self.face}/crud/{quote(path, safe='/?=&')}", headers, body))

    def put(self, path: str, body: bytes, kind: str = "application/xml", **own: object) -> None:
        """Store."""
        answer = self.ask("PUT", path, body, kind, **own)
        assert answer["status"] in {201, 204}, (path, answer)

    def delete(self, path: str, **own: object) -> None:
        """Delete."""
        answer = self.ask("DELETE", path, **own)
        assert answer["status"] in {200, 204}, (path, answer)

    def form(self, form: str, body: bytes, version: object = "next", **own: object) -> None:
        """Publish a version by PUT."""
        self.put(f"{form}/form/form.xhtml", body, "application/xhtml+xml", Form_Definition_Version=version, **own)

    def post(self, path: str, body: bytes = b"", **own: object) -> None:
        """Send a POST to any path."""
        answer = self.wire.ask(question("POST", path, self.named(own), body))
        assert answer["status"] == 200, (path, answer)


def write(author: Author) -> None:
    """Let everything happen that a service stores."""
    for chapter in (_orders, _owned, _secrets, _odd, _elsewhere, _designer, _gone, _single_and_ruled):
        chapter(author)
    if author.dialect == "orbeon":
        _behind_a_proxy(replace(author, face=PROVIDER))
    else:
        provider = replace(author, face=PROVIDER)
        provider.form("acme/through-provider", order("acme/through-provider"), 1)
        provider.put("acme/through-provider/data/p-1/data.xml", order_data("Pia", "", "", "", "open"), **BOB)


def _orders(author: Author) -> None:
    """Three versions of a form with attachments, documents with revisions, stages and attachments, drafts, tables."""
    form = "acme/order"
    for version, more in ((1, ""), (2, "city"), (3, "")):
        author.form(form, order(form, more=more), version, Create_Flat_View=str(version == 2).lower(), **ANN)
        author.put(f"{form}/form/logo.png", b"logo %d" % version, "image/png", Form_Definition_Version=version, **ANN)
    author.form(form, order(form, metadata="<available>false</available>"), 4, **BOB)
    author.delete(f"{form}/form/form.xhtml", Form_Definition_Version=4)
    author.put(f"{form}/form/style.css", b"p { color: red }", "text/css", Form_Definition_Version=3)
    author.put(f"{form}/form/style.css", b"p { color: blue }", "text/css", Form_Definition_Version=3)
    scan = f"{PUBLIC}/crud/{form}/data/d-1/scan.png"
    rows = (
        (
            "d-1",
            1,
            ANN,
            order_data("Ada", "ada@example.org", "call back", "red green", "open", "Pump A", "Valve_9", scan=scan),
        ),
        ("d-2", 1, BOB, order_data("Bob", "bob@Example.org", "100% sure", "green", "closed", "valve b")),
        ("d-3", 2, ANN, order_data("Zoe", "", "", "reddish blue", "open", "")),
        ("d-4", 3, CID, order_data("Ünal <x>", "u@example.org", "a\nb", "red", "open", "Pump A", "Pump B")),
        ("d-5", 3, DEE, order_data("Émile", "e@example.org", "call", "blue", "closed", "valve c")),
        ("d-6", 3, {}, order_data("nobody", "", "", "", "")),
    )
    for name, version, user, body in rows:
        author.put(f"{form}/data/{name}/data.xml?valid=true", body, Form_Definition_Version=version, **user)
    author.put(
        f"{form}/data/d-1/scan.png",
        SCAN,
        "image/png",
        Form_Definition_Version=1,
        Hash_Algorithm="SHA-256",
        Hash_Value="c0ffee",
        **ANN,
    )
    author.put(f"{form}/data/d-1/empty.bin", b"", "", Form_Definition_Version=1, **ANN)
    author.put(f"{form}/data/d-1/note.txt", "Grüße\n".encode(), "text/plain; charset=utf-8", Form_Definition_Version=1)
    author.put(f"{form}/data/d-1/note.txt", b"second\n", "text/plain", Form_Definition_Version=1, **BOB)
    for text in (b"one", b"two"):
        author.put(f"{form}/data/d-1/twice.txt", text, "text/plain", Form_Definition_Version=1, **CID)
    author.put(f"{form}/data/d-1/gone.txt", b"deleted later\n", "text/plain", Form_Definition_Version=1)
    author.delete(f"{form}/data/d-1/gone.txt", **BOB)
    for stage, user in (("started", ANN), ("review", CID), ("approved", BOB)):
        body = order_data("Zoe", "zoe@example.org", f"now {stage}", "reddish blue", "open", "Pump A")
        author.put(f"{form}/data/d-3/data.xml?valid=false", body, Workflow_Stage=stage, **user)
    author.put(f"{form}/data/d-2/data.xml", rows[1][3].replace(b"closed", b"open"), Workflow_Stage="review", **CID)
    _drafts(author, form)
    for name in ("d-7", "d-8"):
        author.put(f"{form}/data/{name}/data.xml", rows[2][3], Form_Definition_Version=2, **BOB)
        author.put(f"{form}/data/{name}/a.bin", name.encode(), "", Form_Definition_Version=2, **BOB)
        author.delete(f"{form}/data/{name}/data.xml", **CID)
    author.put(f"{form}/data/d-8/data.xml", rows[0][3], Form_Definition_Version=3, **ANN)
    for number in range(12):
        body = order_data(
            f"Row {number:02}", f"r{number % 3}@example.org", "lorem ipsum", "red", ("open", "sent")[number % 2]
        )
        author.put(
            f"{form}/data/row-{number:02}/data.xml", body, Form_Definition_Version=3, **(ANN, BOB, CID)[number % 3]
        )


def _drafts(author: Author, form: str) -> None:
    draft = order_data("Zoe B", "", "half-wri", "blue", "open", "")
    author.put(f"{form}/draft/d-3/data.xml", draft, Form_Definition_Version=2, **ANN)
    author.put(f"{form}/draft/d-3/new.bin", b"attached to a draft", "", Form_Definition_Version=2, **ANN)
    author.put(f"{form}/draft/never/data.xml", draft, Form_Definition_Version=3, **BOB)
    author.put(f"{form}/draft/never/data.xml", draft.replace(b"half", b"whole"), Form_Definition_Version=3, **BOB)
    author.put(f"{form}/draft/dropped/data.xml", draft, Form_Definition_Version=3, **BOB)
    author.delete(f"{form}/draft/dropped/data.xml", **BOB)
    author.put(f"{form}/draft/d-4/data.xml", draft, Form_Definition_Version=3, **CID)
    author.put(f"{form}/data/d-4/data.xml", draft, **CID)  # a save discards it


def _owned(author: Author) -> None:
    """Forms with permissions: of owners, groups, roles; and a version whose permissions are others."""
    form = "acme/owned"
    author.form(form, order(form, metadata=OWNERS), 1, **ANN)
    for name, user in (("a", ANN), ("b", BOB), ("c", CID), ("d", DEE)):
        author.put(
            f"{form}/data/{name}/data.xml", order_data(name, "", "", "", "open"), Form_Definition_Version=1, **user
        )
    author.put(f"{form}/data/a/file.bin", b"of ann", "", Form_Definition_Version=1, **ANN)
    author.put(f"{form}/draft/a/data.xml", order_data("a2", "", "", "", "open"), Form_Definition_Version=1, **ANN)
    author.form(form, order(form, metadata='<permissions><permission operations="create read list"/></permissions>'), 2)
    author.put(f"{form}/data/e/data.xml", order_data("e", "", "", "", "open"), Form_Definition_Version=2, **BOB)
    author.form("acme/closed", order("acme/closed", metadata="<permissions/>"), 1)


def _secrets(author: Author) -> None:
    """A form with encrypted controls and attachments, and a value that a real runtime has encrypted."""
    form = "hr/secret"
    author.form(form, secret(form), 1)
    base = f"{PUBLIC}/crud/{form}/data"
    for name in ("s-1", "s-2"):
        for file, holder in (("scan.bin", "person/scan"), ("photo.bin", "person/photo"), ("f-1.bin", "person/files")):
            content = (
                SCAN if (name, file) == ("s-1", "scan.bin") else b"short"
            ) + name.encode()  # one takes two frames
            author.put(
                f"{form}/data/{name}/{file}",
                content,
                "application/x-scan",
                Form_Definition_Version=1,
                Path_To_Holder=holder,
                **ANN,
            )
        places = {"scan": f"{base}/{name}/scan.bin", "photo": f"{base}/{name}/photo.bin"}
        body = secret_data(
            "078-05-1120", "Ada", "first note", "zweite Notiz ö", files=(f"{base}/{name}/f-1.bin",), **places
        )
        author.put(
            f"{form}/data/{name}/data.xml", body, Form_Definition_Version=1, Hash_Algorithm="X", Hash_Value="1", **ANN
        )
    author.put(f"{form}/data/s-2/data.xml", secret_data("", "Bob"), **BOB)
    author.put(f"{form}/draft/s-1/data.xml", secret_data("draft", "Ada"), Form_Definition_Version=1, **ANN)
    author.form(form, order(form), 2)
    legacy = f'<form {designs.FR}><a fr:value-encrypted="true">{LEGACY}</a><name>old</name></form>'
    replace(author, face=PROVIDER).ask(
        "PUT", "hr/old/data/1/data.xml", legacy.encode(), "application/xml", Form_Definition_Version=1
    )


def _odd(author: Author) -> None:
    """Names that need care, of forms, documents and attachments."""
    for app, name in (("ä pp", "form & co"), ("UPPER", "Lower"), ("upper", "lower")):
        author.form(f"{app}/{name}", order(f"{app}/{name}"), 1)
        author.put(f"{app}/{name}/data/1/data.xml", order_data("odd", "", "", "", "open"), Form_Definition_Version=1)
    form = "odd/names"
    author.form(form, order(form, metadata='<title xml:lang="en">&lt;b&gt; &amp; "quoted" ä</title>'), 1)
    for name in ODD:
        author.put(f"{form}/data/{name}/data.xml", order_data(name, "", "", "", "open"), Form_Definition_Version=1)
        author.put(f"{form}/data/1/{name}", name.encode(), "text/plain", Form_Definition_Version=1)
    author.put(
        f"{form}/data/1/data.xml",
        '<?xml version="1.0" encoding="ISO-8859-1"?><form>\xe4</form>'.encode("latin-1"),
        Form_Definition_Version=1,
    )
    author.put(f"{form}/data/2/data.xml", "<form>utf-16 ö</form>".encode("utf-16"), Form_Definition_Version=1)
    hidden = f'<form {designs.FR}><a fr:relevant="false">x</a><b>y<!-- c --></b></form>'
    author.put(f"{form}/data/3/data.xml", hidden.encode(), Form_Definition_Version=1)


def _elsewhere(author: Author) -> None:
    """Forms in another tree, with attachments apart, in another data format, or without definition."""
    author.form("far/form", order("far/form"), 1)
    author.put("far/form/data/1/data.xml", order_data("far", "", "", "", "open"), Form_Definition_Version=1, **ANN)
    author.put("far/form/data/1/a.bin", SCAN, "", Form_Definition_Version=1, **ANN)
    author.form("apart/form", order("apart/form"), 1)
    author.put("apart/form/data/1/data.xml", order_data("apart", "", "", "", "open"), Form_Definition_Version=1)
    author.put("apart/form/data/1/a.bin", SCAN, "", Form_Definition_Version=1)
    author.form("newer/form", order("newer/form"), 1)
    inner = "<lines><lines-iteration><product>p</product></lines-iteration></lines>"
    newer = f"<form><customer><name>new</name><status>open</status></customer><items>{inner}</items></form>"
    author.put("newer/form/data/1/data.xml?data-format-version=4.8.0", newer.encode(), Form_Definition_Version=1)
    author.put("un/published/data/1/data.xml", b"<form><a>anything</a></form>", Form_Definition_Version=1, **BOB)
    author.form("strict/form", order("strict/form"), 1)
    author.put("strict/form/data/1/data.xml", b"<form/>", Form_Definition_Version=1)


def _designer(author: Author) -> None:
    """A form that the designer stores, publishes twice, and a library."""
    base = f"{author.dialect}/builder/data/design"
    for name in ("image.png", "ä b.pdf"):
        author.put(f"{base}/{name}", name.encode(), "image/png")
    image = f"{PUBLIC}/crud/{base}/image.png"
    pdf = f"{PUBLIC}/crud/{quote(base)}/{quote('ä b.pdf')}"
    data = f'<form><image filename="i">{image}</image><pdf filename="p">{pdf}</pdf></form>'
    author.put(f"{base}/data.xml", designs.definition("hr/designed", data=data), **ANN)
    author.put(f"{author.dialect}/builder/draft/design/data.xml", designs.definition("hr/designed"), **ANN)
    path = f"/fr/service/{author.dialect}/builder/publish/design"
    author.post(path, **ANN)
    author.post(f"{path}?form-definition-version=next&available=false&version-comment=second%20%3Cb%3E", **BOB)
    author.post("/fr/service/publish?document-id=design", order("hr/from-body", metadata=OWNERS), **BOSS)
    author.form("acme/library", order("acme/library"), 1)


def _gone(author: Author) -> None:
    """A form all of whose versions are deleted, one with a deleted version that has data, and one without documents."""
    author.form("gone/form", order("gone/form", metadata=OWNERS), 1, **ANN)
    author.put("gone/form/data/1/data.xml", order_data("gone", "", "", "", "open"), Form_Definition_Version=1, **ANN)
    author.delete("gone/form/form/form.xhtml", Form_Definition_Version=1, **BOB)
    for version in (1, 2):
        author.form("gone/half", order("gone/half"), version)
        author.put(
            f"gone/half/data/{version}/data.xml",
            order_data("half", "", "", "", "open"),
            Form_Definition_Version=version,
        )
    author.delete("gone/half/form/form.xhtml", Form_Definition_Version=1)
    author.form("gone/emptied", order("gone/emptied"), 1)
    for name in ("1", "2", "3"):
        author.put(
            f"gone/emptied/data/{name}/data.xml", order_data(name, "", "", "", "open"), Form_Definition_Version=1
        )
    author.delete("gone/emptied/data/")


def _single_and_ruled(author: Author) -> None:
    """A form with one document only, one with the permissions of a property, and one without drafts."""
    author.form("acme/single", order("acme/single"), 1)
    author.put(
        "acme/single/data/only/data.xml", order_data("only", "", "", "", "open"), Form_Definition_Version=1, **ANN
    )
    author.form("ruled/form", order("ruled/form"), 1)
    author.put("ruled/form/data/1/data.xml", order_data("ruled", "", "", "", "open"), Form_Definition_Version=1, **ANN)
    author.form("plain/form", order("plain/form"), 1)
    author.put("plain/form/data/1/data.xml", order_data("plain", "", "", "", "open"), Form_Definition_Version=1, **ANN)


def _behind_a_proxy(author: Author) -> None:
    """What a proxy stores: it has decided who may, and says what it has found."""
    existing = {
        "Created_Existing": "2024-05-06T07:08:09.010Z",
        "Username_Existing": "eve",
        "Group_Existing": "founders",
    }
    form = "acme/proxied"
    author.form(form, order(form, metadata=OWNERS), 1)
    for own in ({}, existing):
        author.put(
            f"{form}/data/p-1/data.xml", order_data("P", "", "", "", "open"), Form_Definition_Version=1, **own, **ANN
        )
    author.put(f"{form}/data/p-1/a.bin", b"proxied", "", Form_Definition_Version=1, **ANN)
    author.put(f"{form}/data/p-2/data.xml", order_data("Q", "", "", "", "open"), Form_Definition_Version=1, **BOB)
    author.delete(f"{form}/data/p-2/data.xml", Form_Definition_Version=1, **BOB)


def edit_by_hand(data: Path) -> None:
    """Do to the files of a stopped service what people and accidents do, at times of their own."""
    order_ = data / "acme/order/data"
    _edit(order_ / "row-00/data.xml", b"Row 00", b"Row 00 by hand")
    _edit(order_ / "row-01/data.xml", b"</form>", b"</from>")
    _edit(order_ / "row-02/data.xml.json", b'"cid"', b'"bea"')
    _edit(order_ / "row-03/data.xml.json", b"{", b"")
    (order_ / "row-04/data.xml.json").unlink()
    (order_ / "row-05/data.xml").unlink()
    _edit(order_ / "d-1/note.txt", b"second", b"second and longer")
    _write(order_ / "by-hand/data.xml", b"<form><customer><name>put there</name></customer></form>")
    _write(order_ / "d-1/stray.txt", b"nobody has stored this")
    _write(data / "acme/order/README", b"a stray file")
    _write(data / "stray/form/form/1/form.xhtml", order("stray/form"))
    _edit(data / "upper/lower/form/1/form.xhtml", b"Order", b"Order by hand")


def _edit(file: Path, old: bytes, new: bytes) -> None:
    content = file.read_bytes()
    assert old in content, file
    _write(file, content.replace(old, new, 1))


def _write(file: Path, content: bytes) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.unlink(missing_ok=True)  # its content may have a second name
    file.write_bytes(content)
    when = 1_750_000_000_123_456_789
    os.utime(file, ns=(when, when))
