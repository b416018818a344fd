"""Attachments over HTTP: bytes, types, names, hashes, ranges and conditions, and the list of those of a document."""

import re
from pathlib import Path
from urllib.parse import quote

import pytest
from lxml import etree

from persistence.errors import BadRequestError, RangeError
from persistence.http.responses import parse_range
from persistence.keys import Keys
from tests import service as services
from tests.encrypted_form import DEFINITION as ENCRYPTED
from tests.http.stories import play, stories
from tests.http.test_callers import over_unix
from tests.http.test_encryption import keyed
from tests.in_process import serving
from tests.published import definition
from tests.service import PROVIDER, PUBLIC, V1, Answer, Service

BYTES = bytes(range(256)) * 4


@pytest.fixture
def document(service: Service, form: str) -> str:
    service.save(form)
    return f"{form}/data/D"


@pytest.mark.parametrize("size", [0, 1, 1024, 1 << 20])
def test_every_byte_comes_back(service: Service, document: str, size: int) -> None:
    """Seed, Resource kinds 3; spec crud 15.7: sizes 0, 1, 1024 and large; a range of it (4.7)."""
    body, path = (BYTES * (size // 1024 + 1))[:size], f"{document}/{size}.bin"
    assert service.put(path, body, **V1).status == 201
    read, head = service.get(path), service.head(path)
    assert (read.status, read["Content-Length"], read.body == body) == (200, str(size), True)
    assert (head["Content-Length"], head["Accept-Ranges"]) == (str(size), "bytes")
    if size > 1:
        part = service.get(path, {"Range": f"bytes=1-{size - 5}"})
        assert (part.status, part["Content-Length"], part.body == body[1:-4]) == (206, str(size - 5), True)


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        *((each, each) for each in ("image/jpeg", "text/plain; charset=utf-8")),
        (None, "application/octet-stream"),
        *((each, None) for each in ("nonsense", "a/b/c", "text/plain; é", "x" * 300)),
    ],
)
def test_the_type_is_the_one_sent(service: Service, document: str, sent: str | None, kept: str | None) -> None:
    """Spec crud 4.5. What is no type is refused: it would have to go out as a header again."""
    headers = {} if sent is None else {"Content-Type": sent}
    assert service.ask("PUT", f"{document}/a.bin", b"x", headers, **V1).status == (400 if kept is None else 201)
    assert service.get(f"{document}/a.bin")["Content-Type"] == (kept or "text/plain; charset=utf-8")


@stories(
    {
        "replacing stores the new bytes (16, D1)": """
            PUT data/D v=1
            PUT data/D/a.bin v=1 <one/> -> 201
            PUT data/D/a.bin <two/> -> 204
            GET data/D/a.bin -> 200 <two/>""",
        "they may come before their document, and are readable once it is there (4.2)": """
            PUT data/D/a.bin v=2 <x/> -> 201
            GET data/D/a.bin -> 404
            PUT data/D v=2 -> 201
            GET data/D/a.bin -> 200 <x/>""",
        "the version must be the document's (4.2, PUT 4 and GET 5)": """
            PUT data/D v=2
            PUT data/D/a.bin v=1 -> 400
            PUT data/D/a.bin v=2 -> 201
            PUT data/D/a.bin v=3 -> 400
            PUT data/D/a.bin -> 204
            GET|DELETE data/D/a.bin v=1 -> 400""",
        "they go dark with their document, and are there again when that is (4.10)": """
            PUT data/D data/D/a.bin v=1
            DELETE data/D
            GET data/D/a.bin -> deleted
            DELETE data/D/a.bin -> 410
            PUT data/D v=1
            GET data/D/a.bin -> 200 <d/>""",
        "any safe file name": "PUT data/D v=1\n"
        + "\n".join(
            f"PUT data/D/{name} v=1 <x/> -> 201\nGET data/D/{name} -> 200 <x/>\n"
            f"DELETE data/D/{name} -> 204\nGET data/D/{name} -> deleted"
            for name in (
                "a.bin",
                "report.json",
                "na%C3%AFve%20file.pdf",
                "50%25.txt",
                "a%3Ab",
                "a+b=c;d",
                "%F0%9F%93%8E",
            )
        ),
        "the hash pair is echoed; tag, version and dates as for data (4.3)": """
            PUT data/D v=1
            PUT data/D/a.bin v=1 by=lea Path-To-Holder=s/c Hash-Algorithm=SHA-256 Hash-Value=abc= -> 201 \
                ETag>tag Last-Modified>saved
            GET|HEAD data/D/a.bin -> 200 ETag={tag} Last-Modified={saved} Hash-Algorithm=SHA-256 Hash-Value=abc= \
                Username=lea Operations=* v=1""",
        "ranges are for attachments only, and not for HEAD (4.7)": """
            PUT data/D data/D/a.bin v=1 <b34567890/>
            GET data/D Range=bytes=0-1 -> 200
            HEAD data/D/a.bin Range=bytes=0-1 -> 200
            GET data/D/a.bin Range=bytes=0-1 -> 206 Content-Range=`bytes 0-1/12` Content-Length=2 body=<b
            GET data/D/a.bin Range=bytes=8-5000 -> 206 Content-Range=`bytes 8-11/12` Content-Length=4 body=90/>
            GET data/D/a.bin Range=bytes=0-0,4-5 -> 206 Content-Range=`bytes 0-0/12` body=<
            GET data/D/a.bin Range=bytes=12- -> 416 Content-Range=`bytes */12`
            GET data/D/a.bin Range=bytes=-5 -> 400 Content-Range=
            GET data/D/a.bin Range=lines=1-2 -> 400 Content-Range=""",
        "a range only of the revision the client has (RFC 9110 13.1.5)": """
            PUT data/D v=1
            PUT data/D/a.bin v=1 -> 201 ETag>old
            PUT data/D/a.bin -> 204 ETag>tag
            GET data/D/a.bin -> 200 Modified>date
            GET data/D/a.bin Range=bytes=0-1 If-Range={tag} -> 206
            GET data/D/a.bin Range=bytes=0-1 If-Range="{tag}" -> 206
            GET data/D/a.bin Range=bytes=0-1 If-Range=`{date}` -> 206
            GET data/D/a.bin Range=bytes=0-1 If-Range={old} -> 200
            GET data/D/a.bin Range=bytes=0-1 If-Range=`Sun, 06 Nov 1994 08:49:37 GMT` -> 200
            GET data/D/a.bin Range=bytes=0-1 If-Range=`Mon, 01 Jan 2020 99999999999999999:00:00 GMT` -> 200
            GET data/D/a.bin Range=bytes=0-1 If-Range=nonsense -> 200""",
    }
)
def test_attachments(service: Service, form: str, story: str) -> None:
    play(service, form, story)


@pytest.mark.parametrize(
    ("header", "size", "expected"),
    [
        ("bytes=0-1", 1000, "bytes 0-1/1000"),
        ("bytes=128-", 1000, "bytes 128-999/1000"),
        ("bytes=999-", 1000, "bytes 999-999/1000"),
        ("bytes=1-32770", 1000, "bytes 1-999/1000"),
        ("bytes=0-0,5-6", 1000, "bytes 0-0/1000"),
        (" bytes = 2-3", 1000, "bytes 2-3/1000"),
        *((each, 1000, BadRequestError) for each in ("bytes=-500", "bytes=5-2", "lines=1-2", "bytes", "bytes=")),
        *((each, 1000, BadRequestError) for each in ("bytes=a-b", "0-1", "")),
        *((each, 1000, RangeError) for each in ("bytes=1000-", "bytes=1000-2000", "bytes=99999999999999999999-")),
        ("bytes=0-", 0, RangeError),
    ],
)
def test_the_first_range_is_taken_and_clamped(header: str, size: int, expected: str | type[Exception]) -> None:
    """The table of spec crud 4.7: suffixes, reversed ranges, other units and garbage are refused."""
    if isinstance(expected, str):
        part = parse_range(header, size)
        first, last = map(int, expected.removeprefix("bytes ").partition("/")[0].split("-"))
        assert (f"bytes {part.start}-{part.stop - 1}/{size}", len(part)) == (expected, last - first + 1)
        return
    with pytest.raises(expected) as refusal:
        parse_range(header, size)
    assert getattr(refusal.value, "size", size) == size


@pytest.mark.parametrize("asked", ["bytes=0-", "bytes=0-99", "bytes=5-"])
def test_a_range_of_nothing_is_all_of_it(service: Service, document: str, asked: str) -> None:
    """A runtime that keeps the bytes elsewhere stores an empty record, and fails on 416 for it (spec runtime 4)."""
    path, headers = f"{document}/a.bin", {"Range": asked}
    assert [service.put(path, b"", **V1).status for _ in range(2)] == [201, 204]
    for answer in (service.get(path, headers), service.head(path, headers)):
        assert (answer.status, answer.body, answer["Content-Length"], answer["Content-Range"]) == (200, b"", "0", None)


# The list of a document's attachments: spec crud 8.2, spec forms 6.7.

CRUD = f"{PUBLIC}/crud"
FR = "http://orbeon.org/oxf/xml/form-runner"
DEFINITION = f"""<xh:html xmlns:xh="http://www.w3.org/1999/xhtml" xmlns:xf="http://www.w3.org/2002/xforms"
 xmlns:fr="{FR}"><xh:head><xf:model id="fr-form-model">
<xf:instance id="fr-form-instance"><form><s><g><scan/><many/></g><r><r-iteration><photo/></r-iteration></r></s></form>
</xf:instance><xf:bind id="fr-form-binds" ref="instance('fr-form-instance')">
<xf:bind id="s-bind" ref="s" name="s"><xf:bind id="g-bind" ref="g" name="g">
<xf:bind id="scan-bind" ref="scan" name="scan"/><xf:bind id="many-bind" ref="many" name="many"/></xf:bind>
<xf:bind id="r-bind" ref="r" name="r"><xf:bind id="r-iteration-bind" ref="r-iteration" name="r-iteration">
<xf:bind id="photo-bind" ref="photo" name="photo"/></xf:bind></xf:bind></xf:bind></xf:bind>
<xf:instance id="fr-form-metadata"><metadata>{{}}</metadata></xf:instance></xf:model></xh:head>
<xh:body><fr:view><fr:body><fr:section id="s-section" bind="s-bind"><fr:grid id="g-grid" bind="g-bind">
<fr:c><fr:attachment id="scan-control" bind="scan-bind"/></fr:c>
<fr:c><fr:attachment id="many-control" bind="many-bind" multiple="true"/></fr:c></fr:grid>
<fr:grid id="r-grid" bind="r-bind" repeat="content"><fr:c><fr:image-attachment id="photo-control" bind="photo-bind"/>
</fr:c></fr:grid></fr:section></fr:body></fr:view></xh:body></xh:html>"""
LISTS = (
    '<migration version="4.8.0">[{"path":"s/r","iteration-name":"r-iteration"}]</migration>'
    '<migration version="2019.1.0">{"migrations":[{"containerPath":[{"value":"s"}],"newGridElem":{"value":"g"}}]}'
    "</migration>"
)
"""The grids that data of format 4.0.0 has no elements of."""


def listed(answer: Answer) -> list[dict[str, str]]:
    assert (answer.status, answer["Content-Type"]) == (200, "application/xml"), answer.body
    root = etree.fromstring(answer.body)
    assert root.tag == "attachments"
    return [{**{str(name): str(value) for name, value in each.attrib.items()}, "": each.text or ""} for each in root]


def ask(service: Service, form: str, document: str = "D", **user: str) -> Answer:
    return service.raw("GET", f"/fr/service/{form}/attachments?document={document}", **user)


def store(service: Service, form: str, data: str, lists: str = LISTS) -> None:
    service.publish(form, DEFINITION.format(lists).encode())
    service.save(form, body=data.encode(), Username="lea")


def test_what_data_names_in_controls_of_the_form(service: Service, form: str) -> None:
    """8.2: single and multiple, in repetitions, with the holders' attributes; nothing else."""
    base = f"{CRUD}/{form}/data/D"
    store(
        service,
        form,
        f'<form xmlns:fr="{FR}"><s>'
        f'<scan filename="a&amp;b.pdf" mediatype="application/pdf" size="812">{base}/a.bin</scan>'
        f'<many><_ filename="1">{base}/1.bin</_>'
        f'<_ fr:kept="true" fr:relevant="false">{base}/2.bin</_></many>'
        f"<r><photo>\n{base}/p1.bin\n</photo></r><r fr:relevant='false'><photo>{base}/p2.bin</photo></r>"
        f"<other>{base}/o.bin</other><g><scan>{base}/g.bin</scan></g></s><scan>{base}/s.bin</scan>"
        f"<s><scan>{CRUD}/{form}/data/E/e.bin</scan><scan/></s></form>",
    )
    assert listed(ask(service, form)) == [
        {"name": "scan", "filename": "a&b.pdf", "mediatype": "application/pdf", "size": "812", "": f"{base}/a.bin"},
        {"name": "many", "filename": "1", "": f"{base}/1.bin"},
        {"name": "many", f"{{{FR}}}kept": "true", f"{{{FR}}}relevant": "false", "": f"{base}/2.bin"},
        {"name": "photo", "": f"{base}/p1.bin"},
        {"name": "photo", f"{{{FR}}}relevant": "false", "": f"{base}/p2.bin"},
    ]


def test_grids_that_are_not_listed_are_in_the_paths_and_a_republish_counts(service: Service, form: str) -> None:
    base = f"{CRUD}/{form}/data/D"
    photo = f"<r><r-iteration><photo>{base}/p.bin</photo></r-iteration><photo>{base}/q.bin</photo></r>"
    data = f"<form><s><scan>{base}/a.bin</scan><g><scan>{base}/g.bin</scan></g>{photo}</s></form>"
    store(service, form, data, lists="")
    assert listed(ask(service, form)) == [{"name": "scan", "": f"{base}/g.bin"}, {"name": "photo", "": f"{base}/p.bin"}]
    service.publish(form, DEFINITION.format(LISTS).encode())
    assert listed(ask(service, form)) == [{"name": "scan", "": f"{base}/a.bin"}, {"name": "photo", "": f"{base}/q.bin"}]
    store(service, form, "<form><s><scan/></s></form>")
    assert listed(ask(service, form)) == []


@stories(
    {
        "who may not read the data gets no list": """
            PERMISSIONS <permission operations="create read"><owner/></permission>
            PUT data/D v=1 by=lea
            GET {list}?document=D by=lea -> 200
            GET {list}?document=D by=bob -> 403""",
        "bad requests": """
            GET {list} -> 400
            GET {list}?document=D -> 404
            PUT data/D v=1
            GET {list}?document=D -> 404 `not published`
            DELETE data/D
            GET {list}?document=D -> deleted
            GET {list}?document=.. -> 400""",
        "permissions of both documents count for a duplicate": """
            PERMISSIONS <permission operations="read update"><owner/></permission><permission operations="create"/>
            PUT data/D v=1 by=lea
            POST {duplicate} by=bob <document-id>D</document-id> -> 403
            POST {duplicate} by=lea <document-id>D</document-id> -> 200
            PERMISSIONS <permission operations="read update"><owner/></permission>
            POST {duplicate} by=lea <document-id>D</document-id> -> 403
            POST {duplicate} by=lea <document-id>none</document-id> -> 404""",
    }
)
def test_lists_and_duplicates(service: Service, form: str, story: str) -> None:
    play(service, form, story, list=f"//fr/service/{form}/attachments", duplicate=f"//fr/service/{form}/duplicate")


def test_in_the_format_of_data_at_rest(tmp_path: Path) -> None:
    """Forms 6.7: in the newest format grids and iterations are steps of the path."""
    with serving(tmp_path, settings='"svc.persistence.*.data-format-version" = "2019.1.0"') as service:
        base = f"{CRUD}/a/f/data/D"
        inner = f"<g><scan>{base}/a.bin</scan></g><r><r-iteration><photo>{base}/b.bin</photo></r-iteration></r>"
        store(service, "a/f", f"<form><s>{inner}<scan>{base}/c.bin</scan></s></form>")
        assert [each[""] for each in listed(ask(service, "a/f"))] == [f"{base}/a.bin", f"{base}/b.bin"]


# What a browser is told about contents, and the address of the pages: nothing that is stored acts on their origin.

XHTML = b'<html xmlns="http://www.w3.org/1999/xhtml"><head><script>alert(1)</script></head><body/></html>'
SVG = b'<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>'
UNKNOWN = "application/octet-stream"
SHOWN = ("image/png", "image/jpeg", "image/gif", "image/webp", "application/pdf", "text/plain; charset=utf-8")
SAVED = ("text/html", "IMAGE/SVG+XML", "application/xml", "text/xml", "application/xslt+xml", UNKNOWN)
NAVIGATING = {"Sec-Fetch-Mode": "navigate"}


def told(answer: Answer) -> list[str | None]:
    names = ("Content-Security-Policy", "X-Content-Type-Options", "Cross-Origin-Resource-Policy")
    return [answer[name] for name in names]


EVERY = ["sandbox; default-src 'none'", "nosniff", "same-origin"]


@pytest.mark.parametrize("face", [PUBLIC, PROVIDER], ids=["public", "provider"])
def test_no_content_has_scripts_and_a_browser_saves_what_may_have_some(service: Service, form: str, face: str) -> None:
    paths = {f"{form}/form/form.xhtml": "application/xhtml+xml", f"{form}/data/D/data.xml": "application/xml"}
    paths |= {f"{form}/data/D/a{number}.bin": kind for number, kind in enumerate((*SHOWN, *SAVED))}
    paths |= {f"{form}/form/a.svg": "image/svg+xml", f"{form}/draft/D/data.xml": "application/xml"}
    for path, kind in paths.items():
        stored = service.put(path, SVG if "svg" in kind.lower() else XHTML, {"Content-Type": kind}, **V1)
        assert stored.status == 201, path
    version = {service.prefix + "Form-Definition-Version": "1"}
    for path, kind in paths.items():
        url = f"{face}/crud/{path}"
        for method, headers in (("GET", {}), ("HEAD", {}), ("GET", {"Range": "bytes=0-3"})):
            answer = service.raw(method, url, headers | version)
            assert told(answer) == EVERY, path
            assert answer["Content-Disposition"] is None
        expected = None if kind in SHOWN else "attachment"
        assert service.raw("GET", url, NAVIGATING | version)["Content-Disposition"] == expected, path
        tag = service.raw("GET", url, version)["ETag"] or ""
        unchanged = service.raw("GET", url, {"If-None-Match": tag} | version)
        assert (unchanged.status, told(unchanged)) == (304, EVERY), path


def test_answers_have_no_scripts_and_data_is_of_its_user_in_every_cache(service: Service, form: str) -> None:
    service.publish(form, XHTML)
    service.save(form)
    service.put(f"{form}/data/D/a.bin", b"1", **V1)
    for answer in (
        service.post(f"search/{form}", "<search/>", **V1),
        service.call("GET", f"form/{form}"),
        service.call("GET", f"history/{form}/D"),
        ask(service, form),
    ):
        assert (answer.status, told(answer)) == (200, EVERY), answer.body
    names = ("Credentials", "Username", "Group", "Roles")
    users = ", ".join(("Authorization", *(f"{service.prefix}{name}" for name in names)))
    for name in ("data.xml", "a.bin"):
        answer = service.get(f"{form}/data/D/{name}")
        assert (answer["Cache-Control"], answer["Vary"]) == ("private, no-cache", users)
    published = service.get(f"{form}/form/form.xhtml")
    assert (published["Cache-Control"], published["Vary"]) == (None, None)


@pytest.mark.parametrize(
    "path",
    [
        *("//admin/login", "/admin//login", "///admin//login", "http://localhost//admin/login", "/%61dmin/login"),
        *("/admin/./login", "/admin/../admin/login", "/admin/%2e%2e/admin/login", "/admin/%2E/login"),
        *("//healthz", "/%68ealthz", "//metrics", "/fr//service/persistence/form", "/fr/service/persistence//form"),
        *("//crud/a/b/form/form.xhtml", f"/{PUBLIC}/crud/a/b/form/form.xhtml", f"{PUBLIC}//crud/a/b/form/form.xhtml"),
        *(f"{PUBLIC}/%63rud/a/b/form/form.xhtml", f"{PUBLIC}/history/a/b//D", f"{PUBLIC}/search/%61/b", "//", "*"),
    ],
)
def test_a_path_has_one_spelling(service: Service, path: str) -> None:
    """A proxy that closes or opens a path sees the same path as the service."""
    for method in ("GET", "PUT", "POST"):
        answer = service.raw(method, path, {"Content-Length": "0"} if method != "GET" else {})
        assert answer.status == 400, (method, answer.cause)


def test_pages_with_an_address_of_their_own_are_nowhere_else_and_nothing_else_is_there(tmp_path: Path) -> None:
    own = tmp_path / "pages"
    env = {"PERSISTENCE_ADMIN_BIND": f"unix:{own}", "PERSISTENCE_TRUSTED": "unix, 127.0.0.1"}
    with services.running(tmp_path, env=env) as service:
        Keys(str(tmp_path / "var/keys.json"), tree=str(service.data)).set_password(
            "ada", "correct horse battery staple"
        )
        assert service.put("a/b/data/D/data.xml", b"<d/>", **V1).status == 201
        for path in ("/admin", "/admin/", "/admin/login", "/admin/static/pages.css"):
            assert service.raw("GET", path).refuses(404, "admin_bind")
            assert over_unix(own, path).status in (200, 302, 303, 404)
        moved = over_unix(own, "/admin/keys")
        assert (moved.status, moved["Location"]) == (303, "/admin/login?next=%2Fadmin%2Fkeys")
        for path in (f"{PUBLIC}/crud/a/b/data/D/data.xml", "/crud/a/b/data/D/data.xml", "/", "/version", "/metrics"):
            assert service.raw("GET", path).status == 200
            assert over_unix(own, path).status == 404
        assert over_unix(own, "//admin/keys").status == 404
        assert over_unix(own, "/healthz").status == service.raw("GET", "/healthz").status == 200


# A document under a new id, with its attachments: ``POST /fr/service/$app/$form/duplicate`` (spec runtime 8).

V2 = {"Form_Definition_Version": 2}
NEW = re.compile(rb"<document-id>([0-9a-f]{40})</document-id>")


def ask_duplicate(service: Service, form: str, document: str, body: bytes | None = None, **user: str) -> Answer:
    sent = f"<document-id>{document}</document-id>".encode() if body is None else body
    return service.raw("POST", f"/fr/service/{form}/duplicate", {"Content-Type": "application/xml"}, sent, **user)


def duplicated(service: Service, form: str, document: str = "D", **user: str) -> str:
    answer = ask_duplicate(service, form, document, **user)
    found = NEW.fullmatch(answer.body)
    assert (answer.status, answer["Content-Type"], found is not None) == (200, "application/xml", True), answer.body
    return found[1].decode()


def test_data_and_attachments_are_copied_and_the_caller_owns_them(service: Service, form: str) -> None:
    """Same version and stage, no draft; the rest of the data is byte for byte as it was."""
    names = ("a.bin", "b & c.bin", "é.bin", ".x.json", "lost.bin")
    base, other = f"{CRUD}/{form}/data/D", f"{CRUD}/{form}/data/E/e.bin"
    held = "".join(f"<_ filename='x'>{base}/{quote(name)}</_>" for name in names)
    again = f"<again>\n{base}/a.bin </again>"
    data = f"<form ><!-- {base}/a.bin --><files>{held}\n</files><other>{other}</other>{again}</form>"
    for name in names[:-1]:
        own = {"Content-Type": f"text/x-{names.index(name)}"}
        service.put(f"{form}/data/D/{quote(name)}", name.encode(), own, **V2, Username="lea")
    service.put(f"{form}/data/D/data.xml?valid=false", data.encode(), **V2, Username="lea", Workflow_Stage="begun")
    service.put(f"{form}/draft/D/data.xml", b"<form>draft</form>", **V2, Username="lea")
    new = duplicated(service, form, Username="bob", Group="others")
    got, prefix = service.get(f"{form}/data/{new}/data.xml", Username="bob"), service.prefix
    moved = data.replace(f">{base}/", f">{CRUD}/{form}/data/{new}/").replace(
        f"\n{base}/a.bin ", f"{CRUD}/{form}/data/{new}/a.bin"
    )
    assert got.body.decode() == moved
    facts = ("Username", "Group", "Form-Definition-Version", "Workflow-Stage", "Last-Modified-By-Username")
    assert [got[prefix + fact] for fact in facts] == ["bob", "others", "2", "begun", "bob"]
    for number, name in enumerate(names[:-1]):
        file = service.get(f"{form}/data/{new}/{quote(name)}", Username="bob")
        assert (file.body, file["Content-Type"]) == (name.encode(), f"text/x-{number}")
    assert service.get(f"{form}/data/{new}/lost.bin", Username="bob").status == 404
    assert service.get(f"{form}/draft/{new}/data.xml", Username="bob").status == 404
    assert service.get(f"{form}/data/D/data.xml", Username="lea").body == data.encode()


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "iso-8859-1"])
def test_the_encoding_stays(service: Service, form: str, encoding: str) -> None:
    data = f'<?xml version="1.0" encoding="{encoding}"?><d>é<f>{CRUD}/{form}/data/D/a.bin</f></d>'
    service.put(f"{form}/data/D/data.xml", data.encode(encoding), **V1)
    new = duplicated(service, form)
    assert service.get(f"{form}/data/{new}/data.xml").body.decode(encoding) == data.replace("/D/", f"/{new}/")


@pytest.mark.parametrize(
    "body",
    [b"", b"<x>D</x>", b"<document-id/>", b"<document-id>D", b"<!DOCTYPE a><document-id>D</document-id>"]
    + [b"<document-id>%s</document-id>" % (b"x" * size) for size in (300, 1 << 19)]
    + [b"<document-id>a/../b</document-id>", b"<document-id>a\nb</document-id>", b"<document-id>..</document-id>"],
)
def test_a_body_without_an_id_is_refused(service: Service, form: str, body: bytes) -> None:
    answer = ask_duplicate(service, form, "", body)
    assert (answer.status, answer.body.count(b"\n")) == (400, 1)


def test_of_a_singleton_there_is_no_duplicate(service: Service, form: str) -> None:
    """And nothing is left of its attachments, unless another service has them: it removes them for administrators."""
    service.publish(form, definition("<singleton>true</singleton>"))
    service.put(f"{form}/data/D/data.xml", f"<d>{CRUD}/{form}/data/D/a.bin</d>".encode(), **V1, Username="lea")
    service.put(f"{form}/data/D/a.bin", b"1", **V1, Username="lea")
    assert ask_duplicate(service, form, "D", Username="lea").status == 409
    if not services.is_proxied:
        assert [path.name for path in (service.data / form / "data").glob("*")] in ([], ["D"])


def test_what_is_encrypted_is_encrypted_anew(tmp_path: Path) -> None:
    with keyed(tmp_path) as service:
        form, base = "a/f", f"{CRUD}/a/f/data/D"
        service.put(f"{form}/form/form.xhtml", ENCRYPTED)
        holder = {"Path_To_Holder": "person/scan"}
        assert service.put(f"{form}/data/D/s.bin", b"scanned", **V1, **holder)["Svc-Did-Encrypt"] == "true"
        data = f"<form><person><ssn>078-05-1120</ssn><scan>{base}/s.bin</scan></person></form>"
        service.put(f"{form}/data/D/data.xml", data.encode(), **V1)
        new = duplicated(service, form)
        got = service.get(f"{form}/data/{new}/data.xml").body
        assert (b"<ssn" in got, b"078-05-1120" in got, b'fr:attachment-encrypted="true"' in got) == (True, True, True)
        assert service.get(f"{form}/data/{new}/s.bin", Decrypt="true").body == b"scanned"
        assert service.get(f"{form}/data/{new}/s.bin").body != b"scanned"
        files = [path.read_bytes() for path in service.data.rglob("*") if path.is_file() and new in str(path)]
        assert not any(b"078-05-1120" in each or each == b"scanned" for each in files)
