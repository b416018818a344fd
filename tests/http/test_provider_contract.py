"""The provider API in dialect orbeon, rule by rule as spec crud 11 has them: a proxy has decided before it calls.

The sequences of each release of the runtime, ``persistence check-runtime`` plays: tests/cli/test_check_runtime.py.
"""

import http.client
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import replace
from urllib.parse import quote

import pytest

from tests import orders
from tests.commands import persistence
from tests.http.stories import play, stories
from tests.published import definition
from tests.served import served
from tests.service import PROVIDER, PUBLIC, V1, Answer, Service
from tests.sidecars import said

CREATED = "2024-05-06T07:08:09.010Z"
EXISTING = {"Created_Existing": CREATED, "Username_Existing": "eve", "Group_Existing": "founders"}
RULES = '<permission operations="create read update delete"><owner/></permission>'
OWNERS = f"<permissions>{RULES}</permissions>"
ROLE = '<permissions><permission operations="read"><user-role any-of="clerk"/></permission></permissions>'
RESOURCES = ("form/form.xhtml", "form/a.bin", "data/D/data.xml", "data/D/a.bin", "draft/D/data.xml", "draft/D/a.bin")


@pytest.fixture
def provider(in_dialect: Callable[[str], Service]) -> Service:
    return replace(in_dialect("orbeon"), face=PROVIDER)


def modified(answer: Answer) -> str:
    assert answer["Last-Modified"]
    return str(answer["Orbeon-Last-Modified"])


EVERY = " ".join(RESOURCES)
FOUND = f"Created-Existing={CREATED} Username-Existing=eve Group-Existing=founders"


@stories(
    {
        "a write needs a version; there is no next one behind a proxy": f"""
            PUT {EVERY} v=1
            PUT|DELETE {EVERY} -> 400
            PUT|DELETE {EVERY} v=next -> 400
            PUT|DELETE {EVERY} For-Document-Id=D -> 400
            GET {EVERY} v=1 -> 200""",
        "the version of the designer's data must be sent too, and is 1 (seed, Versioning 5)": """
            PUT /orbeon/builder/data/{app} -> 400
            PUT /orbeon/builder/data/{app} v=2 -> 400
            PUT /orbeon/builder/data/{app} v=1 -> 201""",
        "reading a form needs its version; the document that was asked about decides nothing": """
            PUT form v=1 <a/>
            PUT form data/D v=2 <bb/>
            GET|HEAD form -> 400
            GET|HEAD form For-Document-Id=D -> 400
            GET|HEAD form v=next -> 400
            GET|HEAD form For-Document-Id=D v=1 -> 200 Content-Length=4 v=1
            GET|HEAD form v=3 -> 404""",
        "reading data ignores the version, and says the stored one": """
            PUT data/D v=1
            GET|HEAD data/D -> 200 v=1
            GET|HEAD data/D v=2 -> 200 v=1
            GET|HEAD data/D v=next -> 200 v=1""",
        "a version that is not the document's is refused, whatever the proxy has found (seed, Versioning 2)": f"""
            PUT data/D v=1 <d>1</d>
            PUT|DELETE data/D v=2 {FOUND} -> 400
            PUT data/D data/D/a.bin v=2 -> 400
            GET data/D -> 200 <d>1</d>""",
        "owners that the headers leave out are the current user, field by field": f"""
            PUT data/D v=1
            PUT data/D v=1 by=bob group=clerks Created-Existing={CREATED}
            GET data/D -> 200 Username=bob Group=clerks
            PUT data/D v=1 by=bob group=clerks Created-Existing={CREATED} Username-Existing=eve
            GET data/D -> 200 Username=eve Group=clerks""",
        "what the headers say exists counts over nothing too": f"""
            PUT data/D v=1 by=lea {FOUND} -> 204
            GET data/D -> 200 Created={CREATED}""",
        "of two creations at once, what the first stored is in the history": """
            PUT data/D v=1 by=lea <d>1</d> -> 201 Last-Modified>first
            PUT data/D v=1 by=bob <d>2</d> -> 204
            GET data/D?last-modified-time={first} -> 200 <d>1</d> Username=lea""",
        "a creation that no HEAD of this service can have said is refused": """
            PUT data/D v=1 Created-Existing=yesterday -> 400 lines=1
            PUT data/D v=1 Created-Existing=2024-05-06 -> 400 lines=1
            PUT data/D v=1 Created-Existing=9999-12-31T23:59:59.999Z -> 400 lines=1
            GET data/D -> 404""",
        "saving and deleting erase the draft (4.11)": f"""
            PUT data/D draft/D/a.bin draft/D v=1
            PUT data/D v=1 {FOUND} -> 204
            GET draft/D draft/D/a.bin -> 404
            PUT draft/D/a.bin draft/D v=1
            DELETE data/D v=1 {FOUND} -> 204
            GET draft/D draft/D/a.bin -> 404""",
        "purging is refused": """
            PUT data/D v=1
            DELETE data/D?force-delete=true v=1 -> 400
            GET data/D -> 200""",
        "the user is the last modifier; the stage is the revision's (4.4)": f"""
            PUT data/D?valid=true v=1 by=lea stage=review
            GET data/D -> 200 Last-Modified-By-Username=lea Workflow-Stage=review
            PUT data/D v=1 by=bob {FOUND}
            GET data/D -> 200 Last-Modified-By-Username=bob Workflow-Stage=""",
        "permissions are the proxy's: nobody is refused, and no operations are told (2)": f"""
            PERMISSIONS v=1 {RULES}
            PUT data/D v=1 by=lea -> 201 Operations=
            GET data/D by=bob -> 200 Operations=
            HEAD data/D -> 200 Operations=
            HISTORY D by=bob -> 200 has=`total="1"`
            PUT data/D v=1 by=bob {FOUND} -> 204 Operations=
            PUT data/D/a.bin v=1 by=bob -> 201 Operations=
            GET data/D/a.bin -> 200 Operations=
            DELETE data/D/a.bin v=1 -> 204 Operations=
            DELETE data/D v=1 by=bob -> 204 Operations=""",
        "the proxy hands If-Match on: who has saved since is not overwritten": f"""
            PUT data/D v=1
            HEAD data/D -> 200 ETag>tag
            PUT data/D If-Match={{tag}} v=1 {FOUND} -> 204
            PUT|DELETE data/D If-Match={{tag}} v=1 {FOUND} -> 412
            HEAD data/D If-Match={{tag}} -> 200 ETag!{{tag}}
            PUT data/new If-Match={{tag}} v=1 -> 201""",
        "revisions are read by their time (4.8)": f"""
            PUT data/D v=1 <d>1</d> -> 201 Last-Modified>first
            DELETE data/D v=1 {FOUND} -> 204 Last-Modified>tombstone
            GET data/D?last-modified-time={{first}} -> 200 <d>1</d>
            GET data/D?last-modified-time={{tombstone}} -> 410
            HEAD data/D?last-modified-time={CREATED} -> 404""",
        "of a singleton there is one, if the header asks for it; drafts are not counted (D17)": f"""
            PUT draft/A data/A v=1 Singleton=true -> 201
            PUT data/B v=1 Singleton=true -> 409
            PUT data/A v=1 Singleton=true {FOUND} -> 204
            PUT draft/A v=1 Singleton=true -> 201
            PUT data/B v=1 Singleton=false -> 201
            PUT data/C v=1 -> 201""",
        "a draft leaves no tombstone: 204 without a date, and 404 from then on, also of its attachments": """
            PUT draft/D draft/D/a.bin draft/D/b.bin v=1
            DELETE draft/D/b.bin v=1 -> 204 Last-Modified= ETag=
            GET draft/D/b.bin draft/D/a.bin -> 404 200
            DELETE draft/D v=1 -> 204 v=1 Modified=
            GET draft/D draft/D/a.bin -> 404
            DELETE draft/D v=1 -> 204 v=1 Modified=
            GET draft/D draft/D/a.bin -> 404
            DELETE draft/D/a.bin v=1 -> 204
            NOTHING draft/D""",
        "an attachment is read and deleted without its document: spec crud 4.2, step 5, is the proxy's": """
            PUT data/D/a.bin v=1 Content-Type=image/png Path-To-Holder=s/a Hash-Algorithm=x Hash-Value=abc <ab/> -> 201
            GET data/D/a.bin -> 200 <ab/> Content-Type=image/png Accept-Ranges=bytes Hash-Algorithm=x Hash-Value=abc
            GET data/D/a.bin Range=bytes=1-2 -> 206 body=ab Content-Range=`bytes 1-2/5`
            DELETE data/D/a.bin v=1 -> 204""",
        "creation and owner of what exists are those of the headers (forms have no owner)": f"""
            PUT form form/a.bin data/D data/D/a.bin draft/N draft/N/a.bin v=1 by=lea group=staff -> 201
            PUT form form/a.bin data/D data/D/a.bin draft/N draft/N/a.bin v=1 by=bob group=clerks {FOUND} -> 204 body=
            GET form form/a.bin v=1 -> 200 Created={CREATED} Username= Group= Last-Modified-By-Username=bob
            GET data/D data/D/a.bin draft/N draft/N/a.bin -> 200 Created={CREATED} Username=eve Group=founders \
                Last-Modified-By-Username=bob""",
        "a DELETE leaves a tombstone whatever there was, because the proxy has looked": f"""
            PUT form form/a.bin data/D data/D/a.bin data/gone data/gone/a.bin v=3 by=lea -> 201
            DELETE data/gone data/gone/a.bin v=3
            DELETE form form/a.bin data/D data/D/a.bin data/gone data/gone/a.bin data/none data/none/a.bin \
                /{{app}}/none/form /{{app}}/none/form/a.bin v=3 by=bob {FOUND} \
                -> 204 body= v=3 Modified!- Last-Modified!-
            GET|HEAD form form/a.bin data/D data/D/a.bin data/gone data/gone/a.bin data/none data/none/a.bin \
                /{{app}}/none/form /{{app}}/none/form/a.bin v=3 -> 410
            PUT form form/a.bin data/D data/gone/a.bin data/none data/none/a.bin v=3 -> 201""",
        "the headers of reading and of writing": """
            PUT form form/a.bin data/D data/D/a.bin v=2 by=lea group=staff My-Own-Property=x \
                -> 201 v=2 Modified!- Last-Modified!-
            GET|HEAD form form/a.bin data/D data/D/a.bin v=2 -> 200 v=2 Modified!- Last-Modified!- Created!- \
                Last-Modified-By-Username=lea
            GET|HEAD data/D data/D/a.bin -> 200 Username=lea Group=staff
            DELETE form form/a.bin data/D data/D/a.bin v=2 -> 204 v=2 Modified!- Last-Modified!-""",
        "what is read is what is stored: leaving out what is not relevant, and migration, are the proxy's (2)": """
            PUT data/D v=1 {irrelevant}
            GET data/D?nonrelevant=remove data/D?nonrelevant=empty -> 200 {irrelevant}
            GET data/D?data-format-version=4.0.0 data/D?data-format-version=raw -> 200 {irrelevant}
            PUT form v=1 {owners}
            GET form?form-definition-format-version=4.0.0 v=1 -> 200 {owners}""",
        "every format is accepted: the proxy has compared it with that of its provider (runtime 8)": "\n".join(
            f"PUT|GET data/D{each}?data-format-version={each} Data-Format-Version={each} v=1 -> 201 200"
            for each in ("4.0.0", "4.8.0", "2019.1.0", "2019.2.0", "2021.1.0", "2024.1.0", "2025.1.0", "raw")
        ),
        "an unknown path or number of names is 400: so the proxy deletes all data of a form one by one (2)": """
            GET|HEAD|PUT|DELETE //crud //crud/ //crud/x //crud/x/f //crud/x/f/data //crud/x/f/data/ v=1 -> 400
            GET|HEAD|PUT|DELETE //crud/x/f/data/D //crud/x/f/y/D/data.xml //crud/x/f/form/a/b v=1 -> 400
            POST|PATCH|OPTIONS //crud/x/f/data/D/data.xml //crud/x/f/form/form.xhtml //crud/x/f/data/ -> 405
            POST|PATCH|OPTIONS //crud/x -> 405""",
        "what is not a format, and a name with control bytes, are refused": f"""
            PUT data/D?data-format-version=latest data/D?data-format-version=4.0 v=1 -> 400 lines=1
            PUT data/D?data-format-version=2018.2.0 data/D?data-format-version=2021.1.0.0 v=1 -> 400 lines=1
            PUT data/D?data-format-version=20211.0.0 data/D?data-format-version={"x" * 300} v=1 -> 400 lines=1
            PUT data/D v=1 by={{nel}} -> 400 lines=1
            GET data/D -> 404""",
    }
)
def test_what_a_proxy_sends(provider: Service, form: str, story: str) -> None:
    irrelevant = '<d xmlns:fr="http://orbeon.org/oxf/xml/form-runner"><a fr:relevant="false"/></d>'
    play(provider, form, story, nel="a\x85b", irrelevant=irrelevant, owners=definition(OWNERS).decode())


def test_the_public_face_still_asks_for_permission(provider: Service, form: str) -> None:
    """The contract holds for the provider API only, and its headers mean nothing elsewhere."""
    told = f"""
        PERMISSIONS v=1 {RULES}
        PUT data/D v=1 by=lea {FOUND} -> 201 Last-Modified>saved
        GET data/D by=lea -> 200 Username=lea Created={{saved}} Last-Modified={{saved}}
        GET data/D by=bob -> 403
        DELETE data/none v=1 {FOUND} -> 404"""
    play(replace(provider, face=PUBLIC), form, told)


def test_the_organization_of_an_existing_owner_stays(provider: Service, form: str) -> None:
    """The proxy has no header for it; what is stored of the same owner knows it."""
    path = f"{form}/data/D/data.xml"
    lea = '{"username":"lea","groups":["staff"],"organizations":[["acme","unit"]]}'
    bob = '{"username":"bob","organizations":[["other"]]}'
    provider.put(path, **V1, Credentials=lea)
    existing = {"Created_Existing": CREATED, "Group_Existing": "staff"}
    provider.put(path, **V1, Credentials=bob, Username_Existing="lea", **existing)
    assert provider.get(path).headers.get_all("Orbeon-Organization") == ["acme", "unit"]
    provider.put(path, **V1, Credentials=bob, Username_Existing="eve", **existing)
    assert provider.get(path)["Orbeon-Organization"] is None


@pytest.mark.parametrize("resource", ["data/D/data.xml", "data/D/a.bin", "draft/D/data.xml", "form/form.xhtml"])
def test_an_update_without_what_exists_keeps_creation_and_owner(provider: Service, form: str, resource: str) -> None:
    """Releases before 2023.1.4 do not say what they have found (spec runtime 2). Over a tombstone it is a creation."""
    path, facts = f"{form}/{resource}", ("Orbeon-Username", "Orbeon-Group", "Orbeon-Organization", "Orbeon-Created")
    lea = '{"username":"lea","groups":["staff"],"organizations":[["acme","unit"]]}'
    assert provider.put(path, b"<d>1</d>", **V1, Credentials=lea).status == 201
    first = provider.get(path, **V1)
    bob = {"Form_Definition_Version": 1, "Username": "bob", "Group": "clerks"}
    assert provider.put(path, b"<d>2</d>", **bob).status == 204
    got = provider.get(path, **V1)
    assert [got.headers.get_all(name) for name in facts] == [first.headers.get_all(name) for name in facts]
    assert got["Orbeon-Last-Modified-By-Username"] == "bob"
    provider.delete(path, **bob)
    again = provider.put(path, b"<d>3</d>", **bob)
    assert (again.status, provider.get(path, **V1)["Orbeon-Created"]) == (201, modified(again))


def test_delete_keeps_creation_and_owner_of_what_it_buries(provider: Service, form: str) -> None:
    """Spec crud 4.4: what is stored is known better than the headers; of nothing, only they know it."""
    path = f"{form}/data/{{}}/data.xml"
    created = modified(provider.put(path.format("A"), **V1, Username="lea"))
    for name, expected in ("A", ("lea", created)), ("B", ("eve", CREATED)):
        provider.delete(path.format(name), **V1, Username="bob", **EXISTING)
        tombstone = said(provider.data / f"{path.format(name)}.json")
        assert (tombstone["creator"], tombstone["created"]) == expected
        assert (tombstone["deleted"], tombstone["modifier"], tombstone["version"]) == (True, "bob", 1)


def test_of_many_creations_of_a_singleton_one_succeeds(provider: Service, form: str) -> None:
    def create(number: int) -> int:
        own = {"Form_Definition_Version": 1, "Singleton": "true"}
        return provider.put(f"{form}/data/D{number}/data.xml", **own).status

    with ThreadPoolExecutor(8) as pool:
        assert sorted(pool.map(create, range(8))) == [201] + [409] * 7


def listed(provider: Service, form: str, query: str = "", body: bytes | None = None) -> list[str]:
    """The versions of a form in the list of forms, with their permissions, as the proxy of a stranger asks for them."""
    method, path = ("GET", f"/form/{form}{query}") if body is None else ("POST", "/form")
    answer = provider.raw(method, path, {"Content-Type": "application/xml", "Orbeon-Username": "stranger"}, body)
    assert answer.status == 200, answer.body
    forms = [each for each in orders.tree(answer.body) if f"{each[0].text}/{each[1].text}" == form]
    return [f"{each.findtext('form-version')}{'p' * (each.find('permissions') is not None)}" for each in forms]


@pytest.mark.parametrize("query", ["", "?all-versions=true", "?all-versions=true&all-forms=true", "?all-forms=false"])
@pytest.mark.parametrize("name", ["form", "library"])
def test_every_version_is_listed_whoever_asks(provider: Service, form: str, query: str, name: str) -> None:
    """An empty list would mean that no permissions are defined, and that nothing is published (spec runtime 1)."""
    form = f"{form.partition('/')[0]}/{name}"
    for version, metadata in (1, OWNERS), (2, ROLE), (3, f"<available>false</available>{ROLE}"):
        body = definition(metadata)
        assert provider.put(f"{form}/form/form.xhtml", body, Form_Definition_Version=version).status == 201
    assert sorted(listed(provider, form, query)) == ["1p", "2p", "3p"]
    for latest in ("?all-versions=false", "?all-versions=FALSE&all-forms=true&ignore-admin-permissions=true"):
        assert listed(provider, form, latest) == ["3p"]
    provider.delete(f"{form}/form/form.xhtml", Form_Definition_Version=3)
    assert listed(provider, form, "?all-versions=false") == ["2p"]
    assert sorted(listed(provider, form, query)) == ["1p", "2p"]


def test_a_query_for_forms_is_filtered_by_name_and_latest_version_only(provider: Service, form: str) -> None:
    app, name = form.split("/")
    for version in (1, 2):
        provider.put(f"{form}/form/form.xhtml", definition(ROLE), Form_Definition_Version=version)
    exact = f"""<filter metadata="application-name" match="exact">{app}</filter>
        <filter metadata="form-name" match="exact">{name}</filter>"""
    rest = """<filter metadata="title" match="substring">no such</filter>
        <filter metadata="operations" match="token">create</filter><sort metadata="form-name" direction="asc"/>
        <pagination page-number="7" page-size="1"/>"""
    latest = '<filter metadata="form-version" match="exact">latest</filter>'
    for root in ('<search all-forms="false">', "<search>"):
        assert sorted(listed(provider, form, body=f"{root}{exact}{rest}</search>".encode())) == ["1p", "2p"]
        assert listed(provider, form, body=f"{root}{latest}{exact}{rest}</search>".encode()) == ["2p"]
        assert listed(provider, form, body=f"{root}{latest}</search>".encode()) == ["2p"]
    other = exact.replace(f">{name}<", ">other<")
    assert listed(provider, form, body=f"<search>{other}</search>".encode()) == []


def test_a_damaged_version_is_an_error_where_the_list_decides(tombstones: Service) -> None:
    """Left out, it would lift the permissions of its data, or let its number be published again."""
    for form in ("good", "bad"):
        tombstones.put(f"damage/{form}/form/form.xhtml", definition(ROLE), **V1)
    sidecar = tombstones.data / "damage/bad/form/1/form.xhtml.json"
    before = sidecar.read_bytes()
    sidecar.write_bytes(b"{")
    assert tombstones.raw("GET", "/form/damage/bad").status == 500
    assert listed(tombstones, "damage/good", body=b"<search/>") == ["1p"]
    sidecar.write_bytes(before)


def test_the_runtimes_own_searches_find_everything(provider: Service, form: str) -> None:
    """The proxy searches for its exports and purges with a token of its own (spec runtime 5)."""
    clerks = '<permission operations="read list"><user-role any-of="clerk head%20clerk"/></permission>'
    provider.put(f"{form}/form/form.xhtml", orders.definition(f"<permissions>{RULES}{clerks}</permissions>"), **V1)
    for user in ("ann", "bob"):
        provider.put(f"{form}/data/{user}/data.xml", **V1, Username=user)
    token, version = "fr-internal-admin-token", {"Orbeon-Form-Definition-Version": "1"}

    def found(path: str, face: str = "", **headers: str) -> list[str]:
        answer = provider.raw("POST", f"{face}/search/{form}{path}", {**version, **headers}, b"<search/>")
        return sorted(orders.found(answer.body))

    assert found("", **{"Orbeon-Username": "ann"}) == ["ann"]
    assert found("", **{"Orbeon-Username": "cleo", "Orbeon-Roles": "other,head clerk"}) == ["ann", "bob"]
    assert found("") == []
    assert found("", **{token: "x"}) == ["ann", "bob"]
    assert found(f"?{token}=x", **{"Orbeon-Username": "ann"}) == ["ann", "bob"]
    assert found(f"?{token}=x", PUBLIC, **{token: "x"}) == []
    distinct = b'<distinct-values><query metadata="created-by"/></distinct-values>'
    for own, names in (({}, []), ({token: "x"}, ["ann", "bob"])):
        answer = provider.raw("POST", f"/distinct-values/{form}", {**version, **own}, distinct)
        assert [each.text for each in orders.tree(answer.body).iter("value")] == names


def test_old_runtimes_reindex_by_a_get(provider: Service, form: str) -> None:
    """2023.1 and 2024.1 (spec runtime 8). A browser could be led there by a link, and gets the status."""
    told = """
        PUT form data/D v=1
        SEARCH v=all -> found=D
        DELETE form v=1
        SEARCH v=all -> found=
        GET ~/reindex -> 200 body=
        SEARCH v=all -> found=D
        POST ~/reindex/{form} v=1 -> 200
        POST ~/reindex/{form} -> 400"""
    play(provider, form, told)
    for face, headers in (("", {"Sec-Fetch-Site": "none"}), (PUBLIC, {})):
        assert b"<status" in provider.raw("GET", f"{face}/reindex", headers).body


NAMES = {
    "lea": "lea",
    "Jürgen Öztürk": "Jürgen Öztürk",
    "Zoe\u0308": "Zoe?",
    "李小龙": "???",
    "\U0001f600 Smith": "? Smith",
    "100% a+b": "100% a+b",
    "é%C3%A9": "é%C3%A9",
    "\xc3\xa9": "\xc3\xa9",
    'a"b\\c,d|e': 'a"b\\c,d|e',
}
"""Names of users, and what a header in Latin-1 has of them (spec runtime 3)."""


def by(name: str, *, has_marks: bool) -> dict[str, str]:
    """The headers of a user, whose whole name the credentials have.

    For what Latin-1 lacks, the others have question marks, or, before 2025.1, the low bytes of its UTF-16 units.
    """
    units = name.encode("utf-16-be")
    pairs = zip(units[::2], map(chr, units[1::2]), strict=True)
    sent = "".join(low if high == 0 or (low.isprintable() and not has_marks) else "?" for high, low in pairs)
    whole = quote(name, safe=" ")
    credentials = {"username": whole, "groups": [whole], "roles": [], "organizations": [["acme", quote("单位")]]}
    return {"Credentials": json.dumps(credentials), "Username": sent, "Group": sent, "Workflow_Stage": "geprüft"}


@pytest.mark.parametrize("has_marks", [True, False], ids=["marks", "low bytes"])
@pytest.mark.parametrize("name", NAMES)
def test_a_user_with_any_name_stays_the_owner(provider: Service, form: str, name: str, *, has_marks: bool) -> None:
    """Through saves of a user whose name looks the same in a header."""
    twin = "".join(chr(ord(each) + (each > "\xff")) for each in name)
    twin, path = (twin if twin != name else "cleo"), f"{form}/data/D/data.xml"
    provider.put(f"{form}/form/form.xhtml", orders.definition(OWNERS), **V1)
    for who in (name, name, twin, name):
        own, found = by(who, has_marks=has_marks), provider.head(path)
        facts = ("Created", "Username", "Group") if found.status == 200 else ()
        existing = {f"{fact}_Existing": found[f"Orbeon-{fact}"] for fact in facts}
        assert provider.put(path, b"<form/>", **V1, **own, **existing).status == (204 if facts else 201)
        got = provider.get(path, **own)
        shown = [got[f"Orbeon-{fact}"] for fact in ("Username", "Group", "Workflow-Stage")]
        assert shown == [NAMES[name], NAMES[name], "geprüft"]
        assert got["Orbeon-Last-Modified-By-Username"] == NAMES.get(who, "cleo" if twin == "cleo" else NAMES[name])
        assert got.headers.get_all("Orbeon-Organization") == ["acme", "??"]
    revisions = orders.tree(provider.call("GET", f"history/{form}/D").body)
    assert {(each.get("owner-username"), each.get("owner-group")) for each in revisions} == {(name, name)}
    assert [each.get("modified-username") for each in revisions] == [name, twin, name, name]
    searches = [
        provider.post(f"search/{form}", "<search/>", **V1, **by(who, has_marks=has_marks)) for who in (name, twin)
    ]
    assert [orders.found(each.body) for each in searches] == [["D"], []]


def test_responses_that_are_left_unread_hold_nobody(provider: Service, form: str) -> None:
    """Since 2025.1 a GET of an attachment leaves ``data.xml`` unread: four times as many as there are threads."""
    path = f"{form}/data/D/data.xml"
    provider.put(path, b"<form>%s</form>" % (b"x" * 200_000), **V1)
    with ExitStack() as opened:
        for _ in range(16):
            connection = opened.enter_context(closing(http.client.HTTPConnection("127.0.0.1", provider.port)))
            connection.request("GET", f"/crud/{path}")
            assert opened.enter_context(connection.getresponse()).status == 200
        assert provider.get(path).status == 200


tombstones = served("orbeon", then=lambda service: setattr(service, "face", PROVIDER))


def test_tombstones_of_nothing_are_no_damage(tombstones: Service) -> None:
    """What DELETE leaves where nothing was ever stored is a tree that ``persistence check`` approves of."""
    for resource in RESOURCES:
        assert tombstones.delete(f"a/f/{resource}", **V1).status == 204
    stray = tombstones.data / "a/f/data/E/data.xml"
    stray.parent.mkdir()
    stray.write_bytes(b"<by-hand/>")
    assert tombstones.delete("a/f/data/E/data.xml", **V1).status == 204
    assert [path.read_bytes() for path in (tombstones.data / ".quarantine").rglob("data.xml")] == [b"<by-hand/>"]
    assert persistence("check", "--deep", data=tombstones.data).returncode == 0
    search = tombstones.raw("POST", "/search/a/f", {"Content-Type": "application/xml"}, b"<search/>")
    assert (search.status, b'search-total="0"' in search.body) == (200, True)
