"""Requests about single resources that change nothing: reads in every way, and writes that are refused."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from urllib.parse import quote

from tests.landed import designs
from tests.landed.asker import ORDER, USERS, Asker
from tests.landed.history import ANN, BOB, CID, DEE, ODD, PREFIXES, PROVIDER, PUBLIC
from tests.landed.wire import Question, question


def about_resources(ask: Asker) -> Iterator[Question]:
    """Return all of them."""
    for kind in (reads, conditions, ranges, definitions, permissions, attachments, unknown, refused, other_faces):
        yield from kind(ask)


def reads(ask: Asker) -> Iterator[Question]:
    documents = [f"d-{number}" for number in range(1, 9)] + [f"row-{number:02}" for number in range(12)]
    for name in (*documents, "by-hand", "never", "nothing"):
        yield ask.crud("GET", f"{ORDER}/data/{name}/data.xml")
        yield ask.crud("HEAD", f"{ORDER}/data/{name}/data.xml", **ANN)
    for name, user in product(("d-3", "d-4", "never", "dropped"), (ANN, BOB, {})):
        yield ask.crud("GET", f"{ORDER}/draft/{name}/data.xml", **user)
    for file in ("scan.png", "empty.bin", "note.txt", "gone.txt", "stray.txt", "none.bin", "a.json"):
        yield ask.crud("GET", f"{ORDER}/data/d-1/{file}")
        yield ask.crud("HEAD", f"{ORDER}/data/d-1/{file}")
    yield ask.crud("GET", f"{ORDER}/draft/d-3/new.bin", **ANN)
    for name in ODD:
        yield ask.crud("GET", f"odd/names/data/{quote(name, safe='')}/data.xml")
        yield ask.crud("GET", f"odd/names/data/1/{quote(name, safe='')}")
    for name, more in product(("1", "2", "3"), ("", "?nonrelevant=remove", "?nonrelevant=keep", "?nonrelevant=empty")):
        yield ask.crud("GET", f"odd/names/data/{name}/data.xml{more}")
    for form in ("far/form", "apart/form", "newer/form", "un/published", "strict/form", "gone/form", "hr/old"):
        yield ask.crud("GET", f"{form}/data/1/data.xml")
        yield ask.crud("GET", f"{form}/data/1/a.bin", {"Range": "bytes=0-9"})
    for form in ("ä pp/form & co", "UPPER/Lower", "upper/lower", "Upper/lower"):
        yield ask.crud("GET", f"{form}/data/1/data.xml")
        yield ask.crud("HEAD", f"{form}/form/form.xhtml")
    for version, more in product((1, 2, 3, 9), ("", "?data-format-version=4.0.0", "?data-format-version=raw")):
        yield ask.crud("GET", f"{ORDER}/data/d-3/data.xml{more}", Form_Definition_Version=version)
    yield ask.crud("GET", f"{ORDER}/data/d-3/data.xml?data-format-version=4.8.0")
    yield from _older(ask, "d-3", "data.xml")
    yield from _older(ask, "d-1", "twice.txt")
    yield from _encrypted(ask)


def _older(ask: Asker, document: str, name: str) -> Iterator[Question]:
    """Revisions by their instant: those that the service tells, and one that never was."""
    current = ask.told(f"{ORDER}/data/{document}/{name}")
    prefix = PREFIXES[ask.dialect]
    for instant in (current[f"{prefix}Last-Modified"], current[f"{prefix}Created"], "2020-01-01T00:00:00.000Z", "x"):
        yield ask.crud("GET", f"{ORDER}/data/{document}/{name}?last-modified-time={instant}")
        yield ask.crud("HEAD", f"{ORDER}/data/{document}/{name}?last-modified-time={instant}")


def _encrypted(ask: Asker) -> Iterator[Question]:
    """Encrypted data and attachments, decrypted, and as they are stored."""
    for name, user in product(("s-1", "s-2"), ({}, ANN)):
        yield ask.crud("GET", f"hr/secret/data/{name}/data.xml", **user)
    yield ask.crud("GET", "hr/secret/draft/s-1/data.xml", **ANN)
    for file, own in product(("scan.bin", "photo.bin", "f-1.bin"), ({}, {"Decrypt": "true"})):
        yield ask.crud("HEAD", f"hr/secret/data/s-1/{file}", **own)
        yield ask.crud("GET", f"hr/secret/data/s-1/{file}", {"Range": "bytes=65530-65545"}, **own)
        yield ask.crud("GET", f"hr/secret/data/s-2/{file}", **own)
    yield ask.crud("GET", "hr/secret/data/s-1/scan.bin", {"Range": "bytes=76790-"}, Decrypt="true")
    yield ask.crud("GET", "hr/secret/data/s-1/data.xml", face=PROVIDER)


def conditions(ask: Asker) -> Iterator[Question]:
    for path in (f"{ORDER}/data/d-2/data.xml", f"{ORDER}/data/d-1/scan.png", f"{ORDER}/form/form.xhtml"):
        told = ask.told(path)
        tag, date = told["ETag"], told["Last-Modified"]
        for headers in (
            {"If-None-Match": tag},
            {"If-None-Match": tag.strip('"')},
            {"If-None-Match": f'W/"x", {tag}'},
            {"If-None-Match": "*"},
            {"If-None-Match": '"other"'},
            {"If-Modified-Since": date},
            {"If-Modified-Since": "Tue, 04 Mar 2025 05:06:07 GMT"},
            {"If-Modified-Since": "no date"},
            {"If-None-Match": '"other"', "If-Modified-Since": date},
            {"If-Match": '"other"'},
            {"If-Unmodified-Since": "Tue, 04 Mar 2025 05:06:07 GMT"},
        ):
            yield ask.crud("HEAD", path, headers)
            yield ask.crud("GET", path, headers | {"Range": "bytes=0-3"})
    for path in ("upper/lower/form/form.xhtml", f"{ORDER}/data/row-00/data.xml"):
        yield ask.crud("GET", path, {"If-None-Match": ask.told(path).get("ETag", '"x"')})


def ranges(ask: Asker) -> Iterator[Question]:
    path = f"{ORDER}/data/d-1/scan.png"
    tag = ask.told(path)["ETag"]
    for said in ("0-0", "10-19", "76799-", "76800-", "0-999999", "5-2", "-5", "0-1,5-6", "", "x-y", "00-01"):
        yield ask.crud("GET", path, {"Range": f"bytes={said}"})
    yield ask.crud("GET", path, {"Range": "lines=1-2"})
    yield ask.crud("GET", f"{ORDER}/data/d-1/empty.bin", {"Range": "bytes=0-"})
    for said in (tag, tag.strip('"'), '"other"', "Tue, 04 Mar 2025 05:06:07 GMT"):
        yield ask.crud("GET", path, {"Range": "bytes=0-9", "If-Range": said})


def definitions(ask: Asker) -> Iterator[Question]:
    for form in (ORDER, "acme/owned", "hr/designed", "hr/from-body", "hr/secret", "gone/half", "gone/form", "none/x"):
        yield ask.crud("GET", f"{form}/form/form.xhtml")
        yield ask.crud("HEAD", f"{form}/form/form.xhtml")
    for version in (1, 2, 3, 4, 5, 0, "next", "x", "01"):
        yield ask.crud("GET", f"{ORDER}/form/form.xhtml", Form_Definition_Version=version)
        yield ask.crud("GET", f"{ORDER}/form/logo.png", Form_Definition_Version=version)
    for form, version in product((ORDER, "hr/secret", "upper/lower"), ("4.0.0", "4.8.0", "2019.1.0", "raw", "")):
        yield ask.crud("GET", f"{form}/form/form.xhtml?form-definition-format-version={version}")
    yield ask.crud("HEAD", f"{ORDER}/form/form.xhtml?form-definition-format-version=4.8.0")
    for document, draft in product(("d-1", "d-3", "d-7", "never", "none"), ("", "false", "true", "x")):
        own = {"For_Document_Id": document} | ({"For_Document_IsDraft": draft} if draft else {})
        yield ask.crud("HEAD", f"{ORDER}/form/form.xhtml", **own)
    for name in ("style.css", "logo.png", "image.png", quote("ä b.pdf"), "none.css"):
        yield ask.crud("GET", f"{ORDER}/form/{name}")
        yield ask.crud("GET", f"hr/designed/form/{name}")


def permissions(ask: Asker) -> Iterator[Question]:
    for name, user in product(("a", "b", "c", "d", "e", "none"), USERS):
        yield ask.crud("GET", f"acme/owned/data/{name}/data.xml", **user)
    for user in USERS:
        yield ask.crud("GET", "acme/owned/data/a/file.bin", **user)
        yield ask.crud("GET", "acme/owned/draft/a/data.xml", **user)
        yield ask.crud("GET", "ruled/form/data/1/data.xml", **user)
        yield ask.crud("GET", "gone/form/data/1/data.xml", **user)
        yield ask.crud("HEAD", "acme/closed/data/1/data.xml", **user)
    yield ask.crud("GET", "acme/owned/data/a/data.xml", Roles="clerk")
    yield ask.crud("GET", "acme/owned/data/a/data.xml", Credentials="{")


def attachments(ask: Asker) -> Iterator[Question]:
    for form, document in (
        (ORDER, "d-1"),
        (ORDER, "d-2"),
        (ORDER, "d-7"),
        (ORDER, "none"),
        ("hr/secret", "s-1"),
        ("hr/secret", "s-2"),
        ("acme/owned", "a"),
        ("un/published", "1"),
        ("gone/half", "1"),
    ):
        for method, user in (("GET", {}), ("GET", ANN), ("HEAD", {})):
            yield question(method, f"/fr/service/{form}/attachments?document={document}", ask.own(user))
    yield question("GET", f"/fr/service/{ORDER}/attachments")


def unknown(ask: Asker) -> Iterator[Question]:
    for path in (
        "/",
        "/crud",
        "/crud/",
        f"{PUBLIC}/crud/a",
        f"{PUBLIC}/crud/a/b/c/d/e/f",
        f"{PUBLIC}/crud/a/b/data/..",
        f"{PUBLIC}/crud/a/b/data/%2e%2e/data.xml",
        f"{PUBLIC}/crud/a/b/form/x%2Fy",
        f"{PUBLIC}/crud//b/form/form.xhtml",
        f"{PUBLIC}/crud/a/b/data/%00/data.xml",
        f"{PUBLIC}/crud/a/b/data/%FF/data.xml",
        f"{PUBLIC}/crud/.a/b/form/form.xhtml",
        f"{PUBLIC}/reindex",
        f"{PUBLIC}/reindex/{ORDER}",
        f"{PUBLIC}/none",
        "/favicon.ico",
        f"{PUBLIC}/crud/a/b/data/{'x' * 300}/data.xml",
        f"{PUBLIC}/crud/{ORDER}/data/d-1/",
        "/healthz",
        "/readyz",
    ):
        yield question("GET", path)
    for method, path in product(
        ("POST", "PATCH", "OPTIONS", "TRACE"), (f"{ORDER}/data/d-1/data.xml", f"{ORDER}/form/a.bin")
    ):
        yield ask.crud(method, path)
    yield question("HEAD", "/healthz")
    yield question("GET", f"{PUBLIC}/reencrypt")
    for name in ("Svc-Username", "Orbeon-Username", "svc-bogus", "Orbeon-Bogus", "Authorization", "Origin"):
        yield ask.crud("GET", f"{ORDER}/data/d-1/data.xml", {name: "x"})


def refused(ask: Asker) -> Iterator[Question]:
    data, form = f"{ORDER}/data/d-2/data.xml", f"{ORDER}/form/form.xhtml"
    tag = ask.told(data)["ETag"]
    xml = {"Content-Type": "application/xml"}
    for body in ("", "<form", "<form></fore>", "<!DOCTYPE form><form/>", "text", "<form/><form/>", "<form>&x;</form>"):
        yield ask.crud("PUT", data, xml, body)
        yield ask.crud("PUT", form, xml, body)
    for headers in (
        {"If-Match": '"other"'},
        {"If-None-Match": "*"},
        {"If-None-Match": tag},
        {"Content-Encoding": "gzip"},
    ):
        yield ask.crud("PUT", data, xml | headers, "<form/>")
        if "Content-Encoding" not in headers:
            yield ask.crud("DELETE", data, headers)
    for version in (1, 2, 9, "next", "x"):
        if version != 1:
            yield ask.crud("PUT", data, xml, "<form/>", Form_Definition_Version=version)
        yield ask.crud("DELETE", f"{ORDER}/data/d-3/data.xml", Form_Definition_Version=version if version != 2 else 3)
    for more in (
        "?valid=perhaps",
        "?force-delete=true",
        "?last-modified-time=2020-01-01T00:00:00.000Z",
        "?data-format-version=4.8.0",
    ):
        yield ask.crud("DELETE" if "delete" in more or "last" in more else "PUT", data + more, xml, "<form/>")
    yield ask.crud("PUT", f"{ORDER}/data/d-1/x.bin", {"Content-Type": "no type"}, "x")
    yield ask.crud("PUT", f"{ORDER}/data/d-1/x.bin.json", {}, "x")
    for user, method in product(({}, ANN, BOB, CID, DEE), ("PUT", "DELETE")):
        yield ask.crud(method, "acme/owned/data/e/data.xml", xml, "<form/>" if method == "PUT" else None, **user)
        yield ask.crud(method, "acme/closed/data/1/data.xml", xml, "<form/>" if method == "PUT" else None, **user)
    yield ask.crud("DELETE", "acme/closed/data/1/data.xml")
    yield ask.crud("DELETE", f"{ORDER}/data/none/data.xml")
    yield ask.crud("DELETE", f"{ORDER}/form/form.xhtml", Form_Definition_Version=9)
    yield ask.crud("DELETE", "acme/owned/data/", Form_Definition_Version=1)
    yield ask.crud("PUT", "strict/other/data/1/data.xml", xml, "<form/>")
    yield ask.crud("PUT", "strict/form/data/2/data.xml", xml, "<form/>", Form_Definition_Version=7)
    yield ask.crud("PUT", "plain/form/draft/1/data.xml", xml, "<form/>", **ANN)
    for mark in ('<permission operation="read"/>', '<permission operations="fly"/>', "<permission>text</permission>"):
        published = designs.definition(ORDER, metadata=f"<permissions>{mark}</permissions>")
        yield ask.crud("PUT", form, xml, published)
    for path, body in (
        ("publish", "<x"),
        ("publish", "<html/>"),
        (f"{ask.dialect}/builder/publish/none", None),
        ("publish?form-definition-version=x", "<html/>"),
        ("publish?remote-server-url=x", "<html/>"),
    ):
        yield question("POST", f"/fr/service/{path}", {}, body)
    yield question("POST", f"{PUBLIC}/reindex/{ORDER}")


def other_faces(ask: Asker) -> Iterator[Question]:
    """The provider API, which in one dialect is the public one and in the other has a contract of its own."""
    for path in (
        f"{ORDER}/data/d-1/data.xml",
        f"{ORDER}/data/d-7/data.xml",
        f"{ORDER}/form/form.xhtml",
        f"{ORDER}/data/d-1/scan.png",
        "acme/owned/data/a/data.xml",
        "acme/proxied/data/p-1/data.xml",
        "acme/proxied/data/p-2/data.xml",
        "acme/through-provider/data/p-1/data.xml",
        "far/form/data/1/data.xml",
        "acme/owned/draft/a/data.xml",
    ):
        for method, own in (("GET", {}), ("HEAD", {}), ("GET", BOB), ("GET", {"Form_Definition_Version": 1})):
            yield ask.crud(method, path, {"Range": "bytes=0-9"} if "scan" in path else {}, face=PROVIDER, **own)
        yield ask.crud("GET", path, face=PROVIDER, Datasource="second")
        yield ask.crud("GET", path, face=PROVIDER, Datasource="third")
    for form, user in product((ORDER, "acme/owned", "acme/proxied", "far/form"), ({}, ANN, BOB)):
        yield ask.search('<query path="customer/name"/>', form, face=PROVIDER, Form_Definition_Version=1, **user)
        yield ask.search('<query path="customer/status"/>', form, "distinct-values", face=PROVIDER, **user)
    for more in ("", "/acme", "/acme/owned?all-versions=true", "?all-forms=true"):
        yield question("GET", f"/form{more}", ask.own(ANN))
    yield question("GET", f"/fr/service/{ORDER}/attachments?document=d-1", ask.own({"Datasource": "second"}))
