"""Permissions over HTTP: spec crud 6, 4.2, 4.3, 15.5 and 15.6."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.http.stories import play, stories
from tests.published import definition
from tests.service import V1, Service, running
from tests.sidecars import resealed, said

OWNERS = '<permission operations="read update delete"><owner/></permission><permission operations="create -list"/>'
LEA = {"Username": "lea", "Group": "staff"}
BOB = {"Username": "bob", "Group": "staff"}
ZOE = {"Username": "zoe"}


def publish(service: Service, form: str, permissions: str, **own: object) -> None:
    service.publish(form, definition(f"<permissions>{permissions}</permissions>"), **own)


OWN = '<permission operations="read update -list"><owner/></permission>'
_LEA, _BOB = "by=lea group=staff", "by=bob group=staff"


@stories(
    {
        "without permissions everything is allowed, as each answer about data says (15.5)": """
            PERMISSIONS none
            PUT data/A v=1 -> 201 Operations=*
            PUT|GET|HEAD data/A -> 204 200 200 Operations=*
            GET|PUT form -> 200 204 Operations=
            DELETE data/A -> 204 Operations=*""",
        "a republish counts at once (15.5)": """
            PERMISSIONS <permission operations="create read -list"/>
            PUT data/A v=1 -> 201 Operations=`create read`
            GET data/A -> 200 Operations=`create read`
            PUT data/A -> 403
            PERMISSIONS <permission operations="create -list"/>
            GET data/A -> 403 Operations= `you may not read {form}/data/A/data.xml`
            HEAD data/A -> 403
            PERMISSIONS none
            GET data/A -> 200 Operations=*""",
        "roles are a ladder; afterwards it is gone for all (15.5)": """
            PERMISSIONS <permission operations="read -list"><user-role any-of="clerk manager admin"/></permission>\
                <permission operations="create update -list"><user-role any-of="manager admin"/></permission>\
                <permission operations="delete -list"><user-role any-of="admin"/></permission>
            PUT data/A v=1 -> 403
            PUT data/A v=1 by=u roles=clerk -> 403
            GET data/A -> 404
            PUT data/A v=1 by=u roles=manager -> 201 Operations=`create read update`
            GET|PUT|DELETE data/A by=u roles=clerk -> 200 403 403
            GET|PUT|DELETE data/A by=u roles=manager -> 200 204 403
            GET|PUT|DELETE data/A by=u roles=admin -> 200 204 204
            DELETE data/A -> 410
            DELETE data/A by=u roles=clerk -> 410
            DELETE data/A by=u roles=manager -> 410
            DELETE data/A by=u roles=admin -> 410""",
        "the creator owns, also after somebody else has saved (6.4)": f"""
            PERMISSIONS {OWNERS}<permission operations="read update -list"><group-member/></permission>
            PUT data/A v=1 {_LEA} -> 201 Operations=`create read update delete list`
            PUT data/A {_BOB} -> 204 Operations=`create read update`
            GET data/A {_LEA} -> 200 Operations=`create read update delete list`
            GET data/A by=zoe -> 403
            GET data/A -> 403
            DELETE data/A {_BOB} -> 403
            DELETE data/A {_LEA} -> 204""",
        "attachments are their documents': stored by an admin, the owner reads them (15.6, 6.4)": f"""
            PERMISSIONS {OWNERS}<permission operations="update -list"><user-role any-of="admin"/></permission>
            PUT data/A/early.bin data/A v=1 {_LEA} -> 201
            PUT data/A/scan.bin v=1 by=ada roles=admin -> 201
            GET data/A/scan.bin {_LEA} -> 200 Operations=`create read update delete list`
            GET data/A/scan.bin by=ada roles=admin -> 403
            PUT|DELETE data/A/scan.bin by=zoe -> 403
            DELETE data/A/scan.bin by=ada roles=admin -> 204""",
        "attachments before their document need create or update (6.4)": """
            PERMISSIONS <permission operations="create"/>
            PUT data/A/a.bin v=1 -> 201
            PERMISSIONS <permission operations="update"/>
            PUT data/B/a.bin v=1 -> 201
            PERMISSIONS <permission operations="read delete list"/>
            PUT data/C/a.bin v=1 -> 403""",
        "of an older revision its own owner counts (4.8)": f"""
            PERMISSIONS {OWNERS}
            PUT data/A v=1 {_LEA} -> 201 Last-Modified>first
            DELETE data/A {_LEA}
            PUT data/A v=1 {_BOB} -> 201
            GET data/A data/A?last-modified-time={{first}} {_LEA} -> 403 200
            GET data/A?last-modified-time={{first}} {_BOB} -> 403""",
        "existence, If-Match and version come before permissions (4.2)": """
            PERMISSIONS
            GET|DELETE data/A -> 404
            PUT data/A v=1 -> 403
            PERMISSIONS none
            PUT data/A v=1
            PERMISSIONS
            GET|PUT|DELETE data/A v=2 -> 400
            PUT|DELETE data/A If-Match=0 -> 412
            PUT data/A?data-format-version=4.8.0 -> 400
            PUT data/A <broken -> 403""",
        "who may not read the data may not read its draft, whoever began it": f"""
            PERMISSIONS <permission operations="create -list"/>{OWN}\
                <permission operations="read -list"><group-member/></permission>\
                <permission operations="read update -list"><user-role any-of="editor"/></permission>
            PUT data/A v=1 {_LEA}
            PUT draft/A draft/A/scan.bin v=1 by=eva group=press roles=editor -> 201
            GET draft/A draft/A/scan.bin by=eva group=press roles=editor -> 200
            GET draft/A draft/A/scan.bin by=pit group=press -> 403
            GET draft/A draft/A/scan.bin {_LEA} -> 200
            GET draft/A draft/A/scan.bin -> 403
            GET draft/A by=eva -> 403
            PUT draft/N v=1 {_LEA} -> 201
            GET draft/N {_LEA} -> 200
            GET draft/N {_BOB} -> 200
            GET draft/N by=pit group=press -> 403""",
        "nobody begins a draft of what they may not read: its owner would read what they save": f"""
            PERMISSIONS {OWNERS}
            PUT data/A v=1 {_LEA}
            PUT draft/A draft/A/scan.bin v=1 {_BOB} -> 403
            PUT draft/A draft/A/scan.bin v=1 {_LEA} -> 201
            PERMISSIONS v=2 none
            PUT data/B v=1 {_LEA}
            PUT draft/B v=2 {_BOB} -> 403""",
        "whoever may update may also begin a draft, and discard it; nobody else (16, D16)": f"""
            PERMISSIONS {OWN}
            PUT draft/A v=1 {_LEA} -> 403
            PERMISSIONS none
            PUT data/A v=1 {_LEA}
            PERMISSIONS {OWN}
            PUT draft/A/scan.bin v=1 {_LEA} -> 201
            PUT draft/A v=1 {_BOB} -> 403
            PUT draft/A v=1 {_LEA} -> 201 Operations=`read update`
            DELETE draft/A {_BOB} -> 403
            DELETE draft/A {_LEA} -> 204""",
        "a draft cannot be occupied: one in the way, of before there were permissions, is the owner's": f"""
            PERMISSIONS none
            PUT data/A v=1 {_LEA}
            PUT draft/A draft/A/scan.bin v=1 {_BOB} <d>bob</d>
            PERMISSIONS <permission operations="create read"/><permission operations="update"><owner/></permission>
            PUT|DELETE draft/A {_BOB} -> 403
            PUT draft/A {_LEA} <d>lea</d> -> 204
            GET draft/A {_LEA} -> 200 <d>lea</d>
            DELETE draft/A/scan.bin draft/A {_LEA} -> 204
            PUT draft/A draft/A/scan.bin v=1 {_BOB} -> 403
            PUT draft/A draft/A/scan.bin v=1 {_LEA} -> 201""",
        "the draft of a document that was never saved is its owner's": f"""
            PERMISSIONS {OWNERS}
            PUT draft/N v=1 {_LEA} -> 201
            GET|PUT|DELETE draft/N {_BOB} -> 403
            DELETE draft/N {_LEA} -> 204""",
        "all data means what one may delete; 403 where that is nothing (4.13)": f"""
            PERMISSIONS {OWNERS}<permission operations="read"/>
            PUT data/A data/C v=1 {_LEA}
            PUT data/B v=1 {_BOB}
            DELETE data/ v=1 by=zoe -> 403 Deleted=0 Refused=3 \
                `none of 3 documents was deleted: you may not delete {{form}}/data/`
            DELETE data/ v=1 {_LEA} -> 200 Deleted=2 Refused=1
            DELETE data/ v=1 {_LEA} -> 403 Deleted=0 Refused=1
            GET data/A data/B data/C {_BOB} -> deleted 200 deleted""",
        "permissions belong to the version; of one that was deleted, those published last count (6.2, 5.2)": """
            PERMISSIONS v=1 none
            PERMISSIONS v=2
            PUT data/A v=1 -> 201
            PUT data/B v=2 -> 403
            DELETE form v=1
            GET data/A -> 403
            PERMISSIONS v=3 <permission operations="read"/>
            GET data/A -> 200 Operations=`read list`""",
    }
)
def test_what_permissions_allow(service: Service, form: str, story: str) -> None:
    play(service, form, story)


def test_deleting_a_form_opens_its_data_to_nobody(service: Service, form: str) -> None:
    """5.2: of the last version the permissions stay; where there was never a version, there are none."""
    told = f"""
        PERMISSIONS {OWNERS}
        PUT data/A v=1 {_LEA}
        DELETE form
        GET data/A {_LEA} -> 200
        GET|PUT|DELETE data/A {_BOB} -> 403
        PUT data/B v=2 -> 201 Operations=*"""
    play(service, form, told)


def test_the_credentials_header_brings_roles(service: Service, form: str) -> None:
    """6.1: names may be form-URL-encoded, and any language."""
    publish(service, form, '<permission operations="create read"><user-role any-of="gr%C3%BCn%20rot"/></permission>')
    path = f"{form}/data/A/data.xml"
    for name in ("gr%C3%BCn+rot", "grün rot"):
        credentials = f'{{"username":"zoë","roles":[{{"name":"{name}"}}]}}'.encode().decode("latin-1")
        service.put(path, **V1, Credentials=credentials)
        assert service.get(path, Credentials=credentials).status == 200
    assert service.get(path, Username="zoë".encode().decode("latin-1"), Roles="x | gr\xc3\xbcn rot,y").status == 200
    assert service.get(path, Roles="grün rot".encode().decode("latin-1")).status == 403  # nobody without a name


def test_two_users_never_become_one(service: Service, form: str) -> None:
    """Bytes that are not UTF-8 would all become U+FFFD, or another user's name."""
    publish(service, form, OWNERS)
    path = f"{form}/data/A/data.xml"
    members = ('"username":"%e9"', *('"groups":["%e9"]', '"roles":[{"name":"%e9"}]', '"organizations":[["%e9"]]'))
    for member in members:
        assert service.put(path, **V1, Credentials=f'{{"username":"a",{member}}}').refuses(400, "is not UTF-8"), member
    for name in ("Username", "Group", "Roles", "Credentials"):
        sent = {"Username": "a", name: '{"username":"\xe9"}' if name == "Credentials" else "Ren\xe9"}
        assert service.put(path, **V1, **sent).status == 400, name
    assert service.put(f"{path}?document=Ren%e9", **V1, **LEA).status == 400
    malformed = service.put(path, **V1, Credentials='{"username":"a","roles":[{"name":"clerk","organization":" "}]}')
    assert (malformed.refuses(400, "names an empty organization"), malformed.body.count(b"\n")) == (True, 1)
    assert service.put(path, **V1, Credentials='{"username":"Ren%c3%a9"}').status == 201
    assert service.get(path, Username="Ren\xc3\xa9").status == 200


def test_every_worker_knows_at_once(tmp_path: Path) -> None:
    """A worker that has read the old permissions does not go on with them."""
    with running(tmp_path, workers=3) as service, ThreadPoolExecutor(8) as pool:
        service.put("a/f/data/A/data.xml", **V1)
        for turn in range(6):
            publish(service, "a/f", '<permission operations="read"/>' if turn % 2 else "")
            answers = list(pool.map(lambda _: service.get("a/f/data/A/data.xml").status, range(24)))
            assert answers == [200 if turn % 2 else 403] * 24


def test_a_definition_edited_by_hand_counts_as_it_is(svc: Service, form: str) -> None:
    """One that can no longer be read leaves what was published, and does not take the data with it."""
    publish(svc, form, '<permission operations="read create"/>')
    svc.put(f"{form}/data/A/data.xml", **V1)
    file = svc.data / f"{form}/form/1/form.xhtml"
    file.write_bytes(definition("<permissions/>"))
    assert svc.get(f"{form}/data/A/data.xml").status == 403
    file.write_bytes(definition('<permissions><permission operations="read"><x/></permission></permissions>'))
    assert svc.get(f"{form}/data/A/data.xml").status == 403
    file.write_bytes(b"<broken")
    assert svc.get(f"{form}/data/A/data.xml")["Svc-Operations"] == "create read list"
    assert svc.put(f"{form}/form/form.xhtml", definition("")).refuses(500, "is damaged")


def opened_to_all(sidecar: bytes) -> bytes:
    changed = sidecar.replace(b'operations=\\"create -list\\"', b'operations=\\"create read\\"')
    assert changed != sidecar
    return changed


@pytest.mark.parametrize(
    "change", [None, lambda _: b"", lambda _: b"{}", opened_to_all], ids=["gone", "blank", "another", "edited"]
)
def test_permissions_hold_where_a_file_is_lost(
    svc: Service, form: str, change: Callable[[bytes], bytes] | None
) -> None:
    """Of the two files either will do; where neither says anything, nobody is let in."""
    publish(svc, form, OWNERS)
    svc.put(f"{form}/data/A/data.xml", **V1, **LEA)
    folder = svc.data / f"{form}/form/1"
    lost, content = folder / "form.xhtml.json", folder / "form.xhtml"
    whole = lost.read_bytes(), content.read_bytes()
    lost.unlink()
    if change is not None:
        lost.write_bytes(change(whole[0]))
    assert [svc.get(f"{form}/data/A/data.xml", **user).status for user in (LEA, BOB)] == [200, 403]
    assert svc.put(f"{form}/data/A/data.xml", **BOB).status == 403
    content.write_bytes(b"<broken")
    assert svc.get(f"{form}/data/A/data.xml", **LEA).status == 500
    lost.write_bytes(whole[0])
    content.unlink()
    assert [svc.get(f"{form}/data/A/data.xml", **user).status for user in (LEA, BOB)] == [200, 403]
    content.write_bytes(whole[1])


def test_permissions_are_found_without_help_of_the_sidecar(svc: Service, form: str) -> None:
    """Definitions published by a version of the service that kept nothing of their metadata."""
    publish(svc, form, '<permission operations="create"/>')
    sidecar = svc.data / f"{form}/form/1/form.xhtml.json"
    assert "permissions" in said(sidecar)["metadata"]
    resealed(sidecar, metadata=None)
    assert svc.put(f"{form}/data/A/data.xml", **V1)["Svc-Operations"] == "create list"
    assert svc.get(f"{form}/data/A/data.xml").status == 403


def test_a_refusal_says_which_header_is_missing(service: Service, form: str) -> None:
    """6.1: roles and groups without a user name count for nothing, which nobody guesses from "you may not"."""
    publish(
        service,
        form,
        '<permission operations="create read -list"><any-authenticated-user/></permission>'
        '<permission operations="update -list"><group-member/></permission>'
        '<permission operations="update delete -list"><user-role any-of="admin"/></permission>',
    )
    path, own = f"{form}/data/A/data.xml", service.prefix
    assert service.put(path, **V1, **LEA).status == 201
    nameless = f": roles and groups count only together with a user name ({own}Username)"
    role, group = {"Roles": "admin"}, {"Group": "staff"}
    for sent in (role, group, role | group, {"Credentials": '{"username": "", "roles": [{"name": "admin"}]}'}):
        for ask, what in ((service.get, "read"), (service.put, "update"), (service.delete, "delete")):
            refused = ask(path, **sent)
            assert (refused.status, refused.cause) == (403, f"you may not {what} {path}{nameless}")
    for user, ask, what, missing in (
        ({}, service.get, "read", "Username"),
        ({}, service.delete, "delete", "Username"),
        (ZOE, service.put, "update", f"Group or {own}Roles"),
        (ZOE, service.delete, "delete", "Roles"),
        (ZOE | role | {"Roles": "clerk"}, service.put, "update", "Group"),
    ):
        refused = ask(path, **user)
        without = f": the request was sent without {own}{missing}"
        assert (refused.status, refused.cause) == (403, f"you may not {what} {path}{without}")
    other = service.delete(path, Username="zoe", Group="other", Roles="clerk")
    assert (other.status, other.cause) == (403, f"you may not delete {path}")
    new = service.put(f"{form}/data/B/data.xml", **V1, **role)
    assert (new.status, new.cause) == (403, f"you may not create {form}/data/B/data.xml{nameless}")


MISSPELT = {
    "permissions": ('<permissions><permission operation="read"/></permissions>', "", "'operation' of <permission>"),
    "an operation": ('<permissions><permission operations="fly"/></permissions>', "", "unknown"),
    "a mark of encryption": ("", '<xf:input id="a-control" class="fr-encrypted"/>', "the mark is <fr:encrypt/>"),
}


@pytest.mark.parametrize(("metadata", "view", "cause"), MISSPELT.values(), ids=MISSPELT)
def test_a_misspelt_definition_is_refused_wherever_it_is_published(
    service: Service, form: str, metadata: str, view: str, cause: str
) -> None:
    """Misspelt permissions would let everybody in, or nobody; a control would be stored in plain, unseen."""
    app, name = form.split("/")
    said = f"<application-name>{app}</application-name><form-name>{name}</form-name>{metadata}"
    body = definition(said).replace(b"<xh:body/>", f"<xh:body>{view}</xh:body>".encode())
    assert service.put(f"{form}/form/form.xhtml", body).refuses(400, cause)
    assert service.raw("POST", "/fr/service/publish", {}, body).refuses(400, cause)
    assert service.get(f"{form}/form/form.xhtml").status == 404
    draft = f"{service.designer}/builder/data/{app}/data.xml"
    assert service.put(draft, body).status == 201, "it may be unfinished in the designer"
    assert service.raw("POST", f"/fr/service/{service.designer}/builder/publish/{app}", {}, b"").refuses(400, cause)


@pytest.mark.parametrize("name", ["Jürgen", "李 ?", "o\u0308", "\U0001f600"])
def test_an_owner_with_any_name_stays_the_owner(service: Service, form: str, name: str) -> None:
    """Another service, whose provider API reads and writes Latin-1, keeps the whole name, too (``--proxied``)."""
    clerks = '<permission operations="create"/><permission operations="update"><user-role any-of="clerk"/></permission>'
    publish(service, form, f'<permission operations="read update"><owner/></permission>{clerks}')
    path, owner = f"{form}/data/D/data.xml", name.encode().decode("latin-1")
    service.put(path, **V1, Username=owner, Group=owner, Workflow_Stage=owner)
    service.put(path, Username="bob", Roles="clerk", Workflow_Stage=owner)
    got = service.get(path, Username=owner)
    facts = ("Username", "Group", "Workflow-Stage")
    assert (got.status, [got[service.prefix + fact] for fact in facts]) == (200, [owner] * 3)
    assert service.put(path, Username=owner).status == 204
    assert service.get(path, Username="?").status == 403
