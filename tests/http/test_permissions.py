"""Permissions over HTTP: spec crud 6, 4.2, 4.3, 15.5 and 15.6."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.forms.vectors import Form, bind
from tests.service import V1, Answer, Service, running
from tests.sidecars import resealed, said

ENVELOPE = """<xh:html xmlns:xh="http://www.w3.org/1999/xhtml" xmlns:xf="http://www.w3.org/2002/xforms"><xh:head>
<xf:model id="fr-form-model"><xf:instance id="fr-form-instance"><form/></xf:instance>
<xf:instance id="fr-form-metadata"><metadata>{}</metadata></xf:instance></xf:model></xh:head></xh:html>"""
OWNERS = '<permission operations="read update delete"><owner/></permission><permission operations="create -list"/>'
LEA = {"Username": "lea", "Group": "staff"}
BOB = {"Username": "bob", "Group": "staff"}
ZOE = {"Username": "zoe"}


def definition(permissions: str | None) -> bytes:
    return ENVELOPE.format("" if permissions is None else f"<permissions>{permissions}</permissions>").encode()


def publish(service: Service, form: str, permissions: str | None, **own: object) -> Answer:
    return service.put(f"{form}/form/form.xhtml", definition(permissions), **own)


def operations(service: Service, answer: Answer) -> str | None:
    return answer[service.prefix + "Operations"]


def test_without_permissions_everything_is_allowed(service: Service, form: str) -> None:
    """15.5, first step; and the header on every answer about data, on none about definitions."""
    assert operations(service, publish(service, form, None)) is None
    path = f"{form}/data/A/data.xml"
    for answer in (service.put(path, **V1), service.put(path), service.get(path), service.head(path)):
        assert operations(service, answer) == "*"
    assert operations(service, service.get(f"{form}/form/form.xhtml")) is None
    assert operations(service, service.delete(path)) == "*"


def test_a_republish_counts_at_once(service: Service, form: str) -> None:
    """15.5: anyone create and read; then anyone create only."""
    path = f"{form}/data/A/data.xml"
    publish(service, form, '<permission operations="create read -list"/>')
    assert operations(service, service.put(path, **V1)) == "create read"
    assert operations(service, service.get(path)) == "create read"
    assert service.put(path).status == 403
    publish(service, form, '<permission operations="create -list"/>')
    refused = service.get(path)
    assert (refused.status, operations(service, refused), refused.cause) == (
        403,
        None,
        f"you may not read {form}/data/A/data.xml",
    )
    assert service.head(path).status == 403
    publish(service, form, None)
    assert operations(service, service.get(path)) == "*"


def test_roles_are_a_ladder(service: Service, form: str) -> None:
    """15.5: clerk reads, manager writes too, admin deletes too; afterwards it is gone for all."""
    publish(
        service,
        form,
        '<permission operations="read -list"><user-role any-of="clerk manager admin"/></permission>'
        '<permission operations="create update -list"><user-role any-of="manager admin"/></permission>'
        '<permission operations="delete -list"><user-role any-of="admin"/></permission>',
    )
    path = f"{form}/data/A/data.xml"
    users = {role: {"Username": "u", "Roles": role} for role in ("clerk", "manager", "admin")}
    assert service.put(path, **V1).status == service.put(path, **V1, **users["clerk"]).status == 403
    assert service.get(path).status == 404  # whether it exists is no secret (4.2)
    assert operations(service, service.put(path, **V1, **users["manager"])) == "create read update"
    ladder = {"clerk": (200, 403, 403), "manager": (200, 204, 403), "admin": (200, 204, 204)}
    for role, statuses in ladder.items():
        user = users[role]
        asked = service.get(path, **user), service.put(path, **user), service.delete(path, **user)
        assert tuple(answer.status for answer in asked) == statuses, role
    assert [service.delete(path, **user).status for user in ({}, *users.values())] == [410] * 4


def test_owners_and_their_groups(service: Service, form: str) -> None:
    """6.4: the creator owns, also after somebody else has saved."""
    publish(service, form, f'{OWNERS}<permission operations="read update -list"><group-member/></permission>')
    path = f"{form}/data/A/data.xml"
    assert operations(service, service.put(path, **V1, **LEA)) == "create read update delete list"
    assert operations(service, service.put(path, **BOB)) == "create read update"
    assert operations(service, service.get(path, **LEA)) == "create read update delete list"
    assert service.get(path, **ZOE).status == service.get(path).status == 403
    assert service.delete(path, **BOB).status == 403
    assert service.delete(path, **LEA).status == 204


def test_attachments_are_their_documents(service: Service, form: str) -> None:
    """15.6, 6.4: stored by an admin, the owner reads them; update is enough to store and delete."""
    publish(service, form, f'{OWNERS}<permission operations="update -list"><user-role any-of="admin"/></permission>')
    admin = {"Username": "ada", "Roles": "admin"}
    assert service.put(f"{form}/data/A/early.bin", b"1", **V1, **LEA).status == 201
    assert service.put(f"{form}/data/A/data.xml", **V1, **LEA).status == 201
    assert service.put(f"{form}/data/A/scan.bin", b"1", **V1, **admin).status == 201
    assert operations(service, service.get(f"{form}/data/A/scan.bin", **LEA)) == "create read update delete list"
    assert service.get(f"{form}/data/A/scan.bin", **admin).status == 403
    assert service.put(f"{form}/data/A/scan.bin", b"2", **ZOE).status == 403
    assert service.delete(f"{form}/data/A/scan.bin", **ZOE).status == 403
    assert service.delete(f"{form}/data/A/scan.bin", **admin).status == 204


def test_attachments_before_their_document_need_create_or_update(service: Service, form: str) -> None:
    """6.4: the runtime stores them first."""
    for permissions, status in (("create", 201), ("update", 201), ("read delete list", 403)):
        publish(service, form, f'<permission operations="{permissions}"/>')
        assert service.put(f"{form}/data/{permissions[:4]}/a.bin", b"1", **V1).status == status, permissions


def test_of_an_older_revision_its_own_owner_counts(service: Service, form: str) -> None:
    """4.8: deleted, and stored again by somebody else."""
    publish(service, form, OWNERS)
    path = f"{form}/data/A/data.xml"
    first = service.put(path, **V1, **LEA)[service.prefix + "Last-Modified"]
    service.delete(path, **LEA)
    assert service.put(path, **V1, **BOB).status == 201
    assert service.get(path, **LEA).status == 403
    assert service.get(f"{path}?last-modified-time={first}", **LEA).status == 200
    assert service.get(f"{path}?last-modified-time={first}", **BOB).status == 403


def test_which_status_wins(service: Service, form: str) -> None:
    """4.2: existence, If-Match and version come before permissions."""
    publish(service, form, "")
    path = f"{form}/data/A/data.xml"
    assert service.get(path).status == service.delete(path).status == 404
    assert service.put(path, **V1).status == 403
    publish(service, form, None)
    service.put(path, **V1)
    publish(service, form, "")
    wrong = {"Form_Definition_Version": 2}
    for answer in (service.get(path, **wrong), service.put(path, **wrong), service.delete(path, **wrong)):
        assert answer.status == 400
    stale = {"If-Match": "0"}
    assert service.put(path, headers=stale).status == service.delete(path, stale).status == 412
    assert service.put(f"{path}?data-format-version=4.8.0").status == 400
    assert service.put(path, b"<broken").status == 403


def test_who_may_not_read_the_data_may_not_read_its_draft(service: Service, form: str) -> None:
    """A draft of saved data is part of that: whoever began it, those may read it who may read what is saved."""
    own = '<permission operations="create -list"/><permission operations="read update -list"><owner/></permission>'
    publish(
        service,
        form,
        f'{own}<permission operations="read -list"><group-member/></permission>'
        '<permission operations="read update -list"><user-role any-of="editor"/></permission>',
    )
    editor = {"Username": "eva", "Group": "press", "Roles": "editor"}
    colleague = {"Username": "pit", "Group": "press"}
    service.put(f"{form}/data/A/data.xml", **V1, **LEA)
    assert service.put(f"{form}/draft/A/data.xml", **V1, **editor).status == 201
    service.put(f"{form}/draft/A/scan.bin", b"1", **V1, **editor)
    for name in ("data.xml", "scan.bin"):
        statuses = [service.get(f"{form}/draft/A/{name}", **user).status for user in (editor, colleague, LEA, {})]
        assert statuses == [200, 403, 200, 403], name
    assert service.get(f"{form}/draft/A/data.xml", Username="eva").status == 403  # no editor any more
    assert service.put(f"{form}/draft/N/data.xml", **V1, **LEA).status == 201
    assert [service.get(f"{form}/draft/N/data.xml", **user).status for user in (LEA, BOB, colleague)] == [200, 200, 403]


def test_nobody_begins_a_draft_of_what_they_may_not_read(service: Service, form: str) -> None:
    """Others would save into it, and its owner would read what they save."""
    publish(service, form, OWNERS)
    service.put(f"{form}/data/A/data.xml", **V1, **LEA)
    for name in ("data.xml", "scan.bin"):
        assert service.put(f"{form}/draft/A/{name}", b"<d/>", **V1, **BOB).status == 403, name
        assert service.put(f"{form}/draft/A/{name}", b"<d/>", **V1, **LEA).status == 201, name
    publish(service, form, None, Form_Definition_Version=2)
    service.put(f"{form}/data/B/data.xml", **V1, **LEA)
    assert service.put(f"{form}/draft/B/data.xml", Form_Definition_Version=2, **BOB).status == 403


def test_a_draft_of_saved_data_needs_what_a_save_needs(service: Service, form: str) -> None:
    """16, D16: whoever may update may also begin a draft, and discard it; nobody else."""
    publish(service, form, '<permission operations="read update -list"><owner/></permission>')
    path = f"{form}/draft/A/data.xml"
    assert service.put(path, **V1, **LEA).status == 403
    publish(service, form, None)
    service.put(f"{form}/data/A/data.xml", **V1, **LEA)
    publish(service, form, '<permission operations="read update -list"><owner/></permission>')
    assert service.put(f"{form}/draft/A/scan.bin", b"1", **V1, **LEA).status == 201
    assert service.put(path, **V1, **BOB).status == 403
    assert operations(service, service.put(path, **V1, **LEA)) == "read update"
    assert service.delete(path, **BOB).status == 403
    assert service.delete(path, **LEA).status == 204


def test_a_draft_cannot_be_occupied(service: Service, form: str) -> None:
    """Bob may create and read, not update: he cannot write a draft of Lea's document, and one in the way is hers."""
    publish(service, form, None)
    data, draft = f"{form}/data/A/data.xml", f"{form}/draft/A/data.xml"
    service.put(data, **V1, **LEA)
    service.put(draft, b"<d>bob</d>", **V1, **BOB)  # before there were permissions
    service.put(f"{form}/draft/A/scan.bin", b"1", **V1, **BOB)
    publish(
        service, form, '<permission operations="create read"/><permission operations="update"><owner/></permission>'
    )
    assert service.put(draft, **BOB).status == service.delete(draft, **BOB).status == 403
    assert service.put(draft, b"<d>lea</d>", **LEA).status == 204
    assert service.get(draft, **LEA).body == b"<d>lea</d>"
    assert service.delete(f"{form}/draft/A/scan.bin", **LEA).status == service.delete(draft, **LEA).status == 204
    for name in ("data.xml", "scan.bin"):
        assert service.put(f"{form}/draft/A/{name}", b"<d/>", **V1, **BOB).status == 403, name
        assert service.put(f"{form}/draft/A/{name}", b"<d/>", **V1, **LEA).status == 201, name


def test_the_draft_of_a_document_that_was_never_saved_is_its_owners(service: Service, form: str) -> None:
    publish(service, form, OWNERS)
    path = f"{form}/draft/N/data.xml"
    assert service.put(path, **V1, **LEA).status == 201
    assert [answer.status for answer in (service.get(path, **BOB), service.put(path, **BOB))] == [403, 403]
    assert service.delete(path, **BOB).status == 403
    assert service.delete(path, **LEA).status == 204


def test_all_data_means_what_one_may_delete(service: Service, form: str) -> None:
    """4.13: the others' stays, and the answer says how many that were; 403 where nothing may be deleted."""
    publish(service, form, OWNERS + '<permission operations="read"/>')
    for name, user in (("A", LEA), ("B", BOB), ("C", LEA)):
        service.put(f"{form}/data/{name}/data.xml", **V1, **user)
    own = service.prefix
    refused = service.delete(f"{form}/data/", **V1, **ZOE)
    assert (refused.status, refused[own + "Deleted"], refused[own + "Refused"]) == (403, "0", "3")
    assert refused.cause.startswith(f"none of 3 documents was deleted: you may not delete {form}/data/")
    some = service.delete(f"{form}/data/", **V1, **LEA)
    assert (some.status, some[own + "Deleted"], some[own + "Refused"]) == (200, "2", "1")
    again = service.delete(f"{form}/data/", **V1, **LEA)
    assert (again.status, again[own + "Deleted"], again[own + "Refused"]) == (403, "0", "1")
    assert [service.get(f"{form}/data/{name}/data.xml", **BOB).status for name in "ABC"] == [
        service.deleted,
        200,
        service.deleted,
    ]


def test_permissions_belong_to_the_version(service: Service, form: str) -> None:
    """6.2; and 5.2: those of the version published last, where the document's own was deleted."""
    publish(service, form, None, **V1)
    publish(service, form, "", Form_Definition_Version=2)
    path = f"{form}/data/A/data.xml"
    assert service.put(path, **V1).status == 201
    assert service.put(f"{form}/data/B/data.xml", Form_Definition_Version=2).status == 403
    service.delete(f"{form}/form/form.xhtml", **V1)
    assert service.get(path).status == 403
    publish(service, form, '<permission operations="read"/>', Form_Definition_Version=3)
    assert operations(service, service.get(path)) == "read list"


def test_deleting_a_form_opens_its_data_to_nobody(service: Service, form: str) -> None:
    """5.2: of the last version the permissions stay; where there was never a version, there are none."""
    path = f"{form}/data/A/data.xml"
    publish(service, form, OWNERS)
    service.put(path, **V1, **LEA)
    service.delete(f"{form}/form/form.xhtml")
    assert [service.get(path, **user).status for user in (LEA, BOB)] == [200, 403]
    assert service.put(path, **BOB).status == service.delete(path, **BOB).status == 403
    assert operations(service, service.put(f"{form}/data/B/data.xml", Form_Definition_Version=2)) == "*"


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
    for name in ("Ren%e9", "Ren%e8", "%ff"):
        assert service.put(path, **V1, Credentials=f'{{"username":"{name}"}}').refuses(400, "is not UTF-8")
    for member in ('"groups":["%e9"]', '"roles":[{"name":"%e9"}]', '"organizations":[["%e9"]]'):
        assert service.put(path, **V1, Credentials=f'{{"username":"a",{member}}}').status == 400
    for name in ("Username", "Group", "Roles", "Credentials"):
        sent = {"Username": "a", name: '{"username":"\xe9"}' if name == "Credentials" else "Ren\xe9"}
        assert service.put(path, **V1, **sent).status == 400, name
    assert service.put(f"{path}?document=Ren%e9", **V1, **LEA).status == 400
    assert service.put(path, **V1, Credentials='{"username":"Ren%c3%a9"}').status == 201
    assert service.get(path, Username="Ren\xc3\xa9").status == 200


@pytest.mark.parametrize("organization", ["", " ", "%20", "+"])
def test_a_role_of_an_organization_without_a_name_does_not_count_everywhere(
    service: Service, form: str, organization: str
) -> None:
    publish(service, form, '<permission operations="create read"><user-role any-of="clerk"/></permission>')
    roles = f'"roles":[{{"name":"clerk","organization":"{organization}"}}]'
    refused = service.put(f"{form}/data/A/data.xml", **V1, Credentials=f'{{"username":"a",{roles}}}')
    assert (refused.status, "names an empty organization" in refused.cause) == (400, True)


@pytest.mark.parametrize(
    "credentials",
    [
        "{",
        "[]",
        "{}",
        '{"username":1}',
        '{"username":"a","roles":["b"]}',
        '{"username":"a","roles":[{"name":["b"]}]}',
        '{"username":"a","groups":"b"}',
        '{"username":"a","organizations":["b"]}',
        '{"username":"a\\u0000"}',
    ],
)
def test_malformed_credentials_are_refused(service: Service, form: str, credentials: str) -> None:
    answer = service.get(f"{form}/data/A/data.xml", Credentials=credentials)
    assert (answer.status, answer.body.count(b"\n")) == (400, 1)


@pytest.mark.parametrize(
    "permissions",
    [
        '<permission operations="*"/>',
        '<permission operations="fly"/>',
        '<permission operations="read"><x/></permission>',
    ],
)
def test_permissions_that_mean_nothing_here_are_not_published(service: Service, form: str, permissions: str) -> None:
    assert publish(service, form, permissions).refuses(400, "unknown")
    assert service.get(f"{form}/form/form.xhtml").status == 404


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
    file.write_bytes(definition(""))
    assert svc.get(f"{form}/data/A/data.xml").status == 403
    file.write_bytes(definition('<permission operations="read"><x/></permission>'))
    assert svc.get(f"{form}/data/A/data.xml").status == 403
    file.write_bytes(b"<broken")
    assert operations(svc, svc.get(f"{form}/data/A/data.xml")) == "create read list"
    publish(svc, form, '<permission operations="read"/>')
    assert svc.get(f"{form}/data/A/data.xml").status == 200


def opened_to_all(sidecar: bytes) -> bytes:
    """A sidecar of a definition in which somebody has changed the permissions."""
    changed = sidecar.replace(b'operations=\\"create -list\\"', b'operations=\\"create read\\"')
    assert changed != sidecar
    return changed


@pytest.mark.parametrize(
    "change", [None, lambda _: b"", lambda _: b"{}", opened_to_all], ids=["gone", "blank", "another", "edited"]
)
def test_permissions_hold_where_a_file_of_the_definition_is_lost(
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
    assert operations(svc, svc.put(f"{form}/data/A/data.xml", **V1)) == "create list"
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
    "permission": ('<permission operation="read"/>', "'operation' of <permission>"),
    "role": ('<permission operations="read"><user-role name="a"/></permission>', "'name' of <user-role>"),
    "element": ('<permision operations="read"/>', "<permision>"),
    "condition": ('<permission operations="read"><owner at="x"/></permission>', "'at' of <owner>"),
}


@pytest.mark.parametrize(("permissions", "cause"), MISSPELT.values(), ids=MISSPELT)
def test_misspelt_permissions_are_refused_at_put_and_publish(
    service: Service, form: str, permissions: str, cause: str
) -> None:
    """As misspelt operations are: they would let everybody in, or nobody."""
    assert publish(service, form, permissions).refuses(400, cause)
    app, name = form.split("/")
    said = f"<application-name>{app}</application-name><form-name>{name}</form-name>"
    body = ENVELOPE.format(f"{said}<permissions>{permissions}</permissions>").encode()
    assert service.raw("POST", "/fr/service/publish", {}, body).refuses(400, cause)
    assert service.get(f"{form}/form/form.xhtml").status == 404
    draft = f"{service.designer}/builder/data/{app}/data.xml"
    assert service.put(draft, body).status == 201, "it may be unfinished in the designer"
    assert service.raw("POST", f"/fr/service/{service.designer}/builder/publish/{app}", {}, b"").refuses(400, cause)


@pytest.mark.parametrize("mark", ['fr:encrypt-at-rest="true"><xf:label/', 'class="fr-encrypted"', "><fr:encrypted/"])
def test_misspelt_marks_of_encryption_are_refused_at_put(service: Service, form: str, mark: str) -> None:
    """The control would be stored in plain, and nobody would see it before it is too late."""
    view = f'<xf:input id="a-control" bind="a-bind" {mark}></xf:input>'
    body = Form("<form><a/></form>", bind("a"), view).document().encode()
    assert service.put(f"{form}/form/form.xhtml", body).refuses(400, "the mark is <fr:encrypt/> in the control")
    right = body.replace(f" {mark}>".encode(), b"><fr:encrypt/>")
    assert service.put(f"{form}/form/form.xhtml", right).status == 201


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
