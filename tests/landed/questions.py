"""Requests about the recorded tree that change nothing: reads, searches, lists, and writes that are refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from urllib.parse import quote

from tests.landed.history import ANN, BOB, BOSS, CID, DEE, ODD, PREFIXES, PROVIDER, PUBLIC
from tests.landed.wire import Question, Wire, question

ORDER = "acme/order"
_USERS: tuple[Mapping[str, object], ...] = ({}, ANN, BOB, CID, BOSS, DEE)


class Questions:
    """The requests to a service in one dialect; some need an instant or a tag that it has told."""

    def __init__(self, wire: Wire, dialect: str) -> None:
        self._wire = wire
        self._dialect = dialect

    def all(self) -> list[Question]:
        """Return them; none changes anything, so none depends on another."""
        return [
            *self._reads(),
            *self._conditions(),
            *self._ranges(),
            *self._definitions(),
            *self._permissions(),
            *self._searches(),
            *self._distinct(),
            *self._lists(),
            *self._queries_of_forms(),
            *self._attachments(),
            *self._unknown(),
            *self._refused(),
            *self._other_faces(),
        ]

    def _crud(
        self, method: str, path: str, headers: Mapping[str, str] | None = None, body: str | bytes | None = None,
        face: str = PUBLIC, **own: object,
    ) -> Question:  # fmt: skip
        return question(
            method, f"{face}/crud/{quote(path, safe='/?=&%')}", {**(headers or {}), **self._own(own)}, body
        )

    def _own(self, own: Mapping[str, object]) -> dict[str, str]:
        prefix = PREFIXES[self._dialect]
        return {prefix + name.replace("_", "-"): str(value) for name, value in own.items()}

    def _told(self, path: str, **own: object) -> dict[str, str]:
        """Return the headers of a resource."""
        return dict(self._wire.ask(self._crud("HEAD", path, **own))["headers"])

    def _reads(self) -> Iterator[Question]:
        documents = [f"d-{number}" for number in range(1, 9)] + [f"row-{number:02}" for number in range(12)]
        for name in (*documents, "by-hand", "never", "nothing"):
            yield self._crud("GET", f"{ORDER}/data/{name}/data.xml")
            yield self._crud("HEAD", f"{ORDER}/data/{name}/data.xml", **ANN)
        for name, user in product(("d-3", "d-4", "never", "dropped"), (ANN, BOB, {})):
            yield self._crud("GET", f"{ORDER}/draft/{name}/data.xml", **user)
        for file in ("scan.png", "empty.bin", "note.txt", "gone.txt", "stray.txt", "none.bin", "a.json"):
            yield self._crud("GET", f"{ORDER}/data/d-1/{file}")
            yield self._crud("HEAD", f"{ORDER}/data/d-1/{file}")
        yield self._crud("GET", f"{ORDER}/draft/d-3/new.bin", **ANN)
        for name in ODD:
            yield self._crud("GET", f"odd/names/data/{quote(name, safe='')}/data.xml")
            yield self._crud("GET", f"odd/names/data/1/{quote(name, safe='')}")
        for name, more in product(("1", "2", "3"), ("", "?nonrelevant=remove", "?nonrelevant=keep", "?nonrelevant=empty")):
            yield self._crud("GET", f"odd/names/data/{name}/data.xml{more}")
        for form in ("far/form", "apart/form", "newer/form", "un/published", "strict/form", "gone/form", "hr/old"):
            yield self._crud("GET", f"{form}/data/1/data.xml")
            yield self._crud("GET", f"{form}/data/1/a.bin", {"Range": "bytes=0-9"})
        for form in ("ä pp/form & co", "UPPER/Lower", "upper/lower", "Upper/lower"):
            yield self._crud("GET", f"{form}/data/1/data.xml")
            yield self._crud("HEAD", f"{form}/form/form.xhtml")
        for version, more in product((1, 2, 3, 9), ("", "?data-format-version=4.0.0", "?data-format-version=raw")):
            yield self._crud("GET", f"{ORDER}/data/d-3/data.xml{more}", Form_Definition_Version=version)
        yield self._crud("GET", f"{ORDER}/data/d-3/data.xml?data-format-version=4.8.0")
        yield from self._older("d-3", "data.xml")
        yield from self._older("d-1", "twice.txt")
        yield from self._encrypted()

    def _older(self, document: str, name: str) -> Iterator[Question]:
        """Revisions by their instant: those that the service tells, and one that never was."""
        current = self._told(f"{ORDER}/data/{document}/{name}")
        prefix = PREFIXES[self._dialect]
        for instant in (current[f"{prefix}Last-Modified"], current[f"{prefix}Created"], "2020-01-01T00:00:00.000Z", "x"):
            yield self._crud("GET", f"{ORDER}/data/{document}/{name}?last-modified-time={instant}")
            yield self._crud("HEAD", f"{ORDER}/data/{document}/{name}?last-modified-time={instant}")

    def _encrypted(self) -> Iterator[Question]:
        """Encrypted data and attachments, decrypted, and as they are stored."""
        for name, user in product(("s-1", "s-2"), ({}, ANN)):
            yield self._crud("GET", f"hr/secret/data/{name}/data.xml", **user)
        yield self._crud("GET", "hr/secret/draft/s-1/data.xml", **ANN)
        for file, own in product(("scan.bin", "photo.bin", "f-1.bin"), ({}, {"Decrypt": "true"})):
            yield self._crud("HEAD", f"hr/secret/data/s-1/{file}", **own)
            yield self._crud("GET", f"hr/secret/data/s-1/{file}", {"Range": "bytes=65530-65545"}, **own)
            yield self._crud("GET", f"hr/secret/data/s-2/{file}", **own)
        yield self._crud("GET", "hr/secret/data/s-1/scan.bin", {"Range": "bytes=76790-"}, Decrypt="true")
        yield self._crud("GET", "hr/secret/data/s-1/data.xml", face=PROVIDER)

    def _conditions(self) -> Iterator[Question]:
        for path in (f"{ORDER}/data/d-2/data.xml", f"{ORDER}/data/d-1/scan.png", f"{ORDER}/form/form.xhtml"):
            told = self._told(path)
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
                yield self._crud("HEAD", path, headers)
                yield self._crud("GET", path, headers | {"Range": "bytes=0-3"})
        for path in ("upper/lower/form/form.xhtml", f"{ORDER}/data/row-00/data.xml"):
            yield self._crud("GET", path, {"If-None-Match": self._told(path).get("ETag", '"x"')})

    def _ranges(self) -> Iterator[Question]:
        path = f"{ORDER}/data/d-1/scan.png"
        tag = self._told(path)["ETag"]
        for said in ("0-0", "10-19", "76799-", "76800-", "0-999999", "5-2", "-5", "0-1,5-6", "", "x-y", "00-01"):
            yield self._crud("GET", path, {"Range": f"bytes={said}"})
        yield self._crud("GET", path, {"Range": "lines=1-2"})
        yield self._crud("GET", f"{ORDER}/data/d-1/empty.bin", {"Range": "bytes=0-"})
        for said in (tag, tag.strip('"'), '"other"', "Tue, 04 Mar 2025 05:06:07 GMT"):
            yield self._crud("GET", path, {"Range": "bytes=0-9", "If-Range": said})

    def _definitions(self) -> Iterator[Question]:
        for form in (ORDER, "acme/owned", "hr/designed", "hr/from-body", "hr/secret", "gone/half", "gone/form", "none/x"):
            yield self._crud("GET", f"{form}/form/form.xhtml")
            yield self._crud("HEAD", f"{form}/form/form.xhtml")
        for version in (1, 2, 3, 4, 5, 0, "next", "x", "01"):
            yield self._crud("GET", f"{ORDER}/form/form.xhtml", Form_Definition_Version=version)
            yield self._crud("GET", f"{ORDER}/form/logo.png", Form_Definition_Version=version)
        for form, version in product((ORDER, "hr/secret", "upper/lower"), ("4.0.0", "4.8.0", "2019.1.0", "raw", "")):
            yield self._crud("GET", f"{form}/form/form.xhtml?form-definition-format-version={version}")
        yield self._crud("HEAD", f"{ORDER}/form/form.xhtml?form-definition-format-version=4.8.0")
        for document, draft in product(("d-1", "d-3", "d-7", "never", "none"), ("", "false", "true", "x")):
            own = {"For_Document_Id": document} | ({"For_Document_IsDraft": draft} if draft else {})
            yield self._crud("HEAD", f"{ORDER}/form/form.xhtml", **own)
        for name in ("style.css", "logo.png", "image.png", quote("ä b.pdf"), "none.css"):
            yield self._crud("GET", f"{ORDER}/form/{name}")
            yield self._crud("GET", f"hr/designed/form/{name}")

    def _permissions(self) -> Iterator[Question]:
        for name, user in product(("a", "b", "c", "d", "e", "none"), _USERS):
            yield self._crud("GET", f"acme/owned/data/{name}/data.xml", **user)
        for user in _USERS:
            yield self._crud("GET", "acme/owned/data/a/file.bin", **user)
            yield self._crud("GET", "acme/owned/draft/a/data.xml", **user)
            yield self._crud("GET", "ruled/form/data/1/data.xml", **user)
            yield self._crud("GET", "gone/form/data/1/data.xml", **user)
            yield self._crud("HEAD", "acme/closed/data/1/data.xml", **user)
        yield self._crud("GET", "acme/owned/data/a/data.xml", Roles="clerk")
        yield self._crud("GET", "acme/owned/data/a/data.xml", Credentials="{")

    def _search(
        self, children: str, form: str = ORDER, root: str = "search", more: str = "", face: str = PUBLIC, **own: object
    ) -> Question:
        path = {"search": "search", "distinct-values": "distinct-values"}[root]
        return question("POST", f"{face}/{path}/{quote(form)}", self._own(own), f"<{root}{more}>{children}</{root}>")

    def _searches(self) -> Iterator[Question]:
        for children, version in product(_SEARCHES, ("", "all")):
            own = {"Form_Definition_Version": version} if version else {}
            yield self._search(children, **own)
        for children in _DRAFTS:
            yield self._search(children, Form_Definition_Version="all", **BOB)
            yield self._search(children, Form_Definition_Version="all", **ANN)
        for version in (1, 2, 3, 4, 9, 0, "x", "next"):
            yield self._search("", Form_Definition_Version=version)
        for form, user in product(("acme/owned", "ruled/form", "acme/closed", "gone/form"), _USERS):
            yield self._search('<query path="customer/name"/>', form, Form_Definition_Version="all", **user)
        for children in ('<operations any-of="update delete"/>', '<operations any-of="create"/>', '<operations any-of="x"/>'):
            yield self._search(children, "acme/owned", Form_Definition_Version="all", **ANN)
        for form in ("far/form", "newer/form", "un/published", "hr/secret", "odd/names", "ä pp/form & co", "none/none",
                     "gone/half", "gone/emptied", f"{self._dialect}/builder"):  # fmt: skip
            yield self._search('<query path="customer/name"/>', form)
            yield self._search("<query>o</query>", form, more=' return-all-indexed-fields="true"')
        for body in ("", "<search", "<x/>", "<!DOCTYPE a><search/>", "<search><bogus/></search>", '<search x="1"/>'):
            yield question("POST", f"{PUBLIC}/search/{ORDER}", {}, body)
        yield question("GET", f"{PUBLIC}/search/{ORDER}")

    def _distinct(self) -> Iterator[Question]:
        for children, user in product(_DISTINCT, ({}, ANN)):
            yield self._search(children, root="distinct-values", Form_Definition_Version="all", **user)
            yield self._search(children, root="distinct-values", **user)
        for user in _USERS:
            yield self._search(_DISTINCT[0], "acme/owned", "distinct-values", Form_Definition_Version="all", **user)

    def _lists(self) -> Iterator[Question]:
        for path, user in product(("", "/acme", "/acme/order", "/none", "/acme/none", f"/{quote('ä pp')}"), ({}, ANN, BOSS)):
            for more in ("", "?all-versions=true", "?all-forms=true", "?all-versions=TRUE&all-forms=true"):
                yield question("GET", f"{PUBLIC}/form{path}{more}", self._own(user))
        for more in ("ignore-admin-permissions=true", "modified-since=2024-04-15", "modified-since=2999-01-01",
                     "modified-since=x", "all-versions=perhaps", "unknown=1"):  # fmt: skip
            yield question("GET", f"{PUBLIC}/form?{more}", self._own(BOSS))

    def _queries_of_forms(self) -> Iterator[Question]:
        for children, user in product(_FORM_QUERIES, ({}, BOSS)):
            yield question("POST", f"{PUBLIC}/form", self._own(user), f"<search>{children}</search>")
        for more in (' all-forms="true"', ' xml:lang="de"', ' all-forms="true" ignore-admin-permissions="true"'):
            body = f'<search{more}><filter metadata="title" match="substring">best</filter></search>'
            yield question("POST", f"{PUBLIC}/form", self._own(BOSS), body)

    def _attachments(self) -> Iterator[Question]:
        for form, document in ((ORDER, "d-1"), (ORDER, "d-2"), (ORDER, "d-7"), (ORDER, "none"), ("hr/secret", "s-1"),
                               ("hr/secret", "s-2"), ("acme/owned", "a"), ("un/published", "1"), ("gone/half", "1")):  # fmt: skip
            for method, user in (("GET", {}), ("GET", ANN), ("HEAD", {})):
                yield question(method, f"/fr/service/{form}/attachments?document={document}", self._own(user))
        yield question("GET", f"/fr/service/{ORDER}/attachments")

    def _unknown(self) -> Iterator[Question]:
        for path in ("/", "/crud", "/crud/", f"{PUBLIC}/crud/a", f"{PUBLIC}/crud/a/b/c/d/e/f", f"{PUBLIC}/crud/a/b/data/..",
                     f"{PUBLIC}/crud/a/b/data/%2e%2e/data.xml", f"{PUBLIC}/crud/a/b/form/x%2Fy", f"{PUBLIC}/crud//b/form/form.xhtml",
                     f"{PUBLIC}/crud/a/b/data/%00/data.xml", f"{PUBLIC}/crud/a/b/data/%FF/data.xml", f"{PUBLIC}/crud/.a/b/form/form.xhtml",
                     f"{PUBLIC}/reindex", f"{PUBLIC}/reindex/{ORDER}", f"{PUBLIC}/none", "/favicon.ico",
                     f"{PUBLIC}/crud/a/b/data/{'x' * 300}/data.xml", f"{PUBLIC}/crud/{ORDER}/data/d-1/", "/healthz", "/readyz"):  # fmt: skip
            yield question("GET", path)
        for method, path in product(("POST", "PATCH", "OPTIONS", "TRACE"), (f"{ORDER}/data/d-1/data.xml", f"{ORDER}/form/a.bin")):
            yield self._crud(method, path)
        yield question("HEAD", "/healthz")
        yield question("GET", f"{PUBLIC}/reencrypt")
        for name in ("Svc-Username", "Orbeon-Username", "svc-bogus", "Orbeon-Bogus", "Authorization", "Origin"):
            yield self._crud("GET", f"{ORDER}/data/d-1/data.xml", {name: "x"})

    def _refused(self) -> Iterator[Question]:
        data, form = f"{ORDER}/data/d-2/data.xml", f"{ORDER}/form/form.xhtml"
        tag = self._told(data)["ETag"]
        xml = {"Content-Type": "application/xml"}
        for body in ("", "<form", "<form></fore>", "<!DOCTYPE form><form/>", "text", "<form/><form/>", "<form>&x;</form>"):
            yield self._crud("PUT", data, xml, body)
            yield self._crud("PUT", form, xml, body)
        for headers in ({"If-Match": '"other"'}, {"If-None-Match": "*"}, {"If-None-Match": tag}, {"Content-Encoding": "gzip"}):
            yield self._crud("PUT", data, xml | headers, "<form/>")
            if "Content-Encoding" not in headers:
                yield self._crud("DELETE", data, headers)
        for version in (1, 2, 9, "next", "x"):
            if version != 1:
                yield self._crud("PUT", data, xml, "<form/>", Form_Definition_Version=version)
            yield self._crud("DELETE", f"{ORDER}/data/d-3/data.xml", Form_Definition_Version=version if version != 2 else 3)
        for more in ("?valid=perhaps", "?force-delete=true", "?last-modified-time=2020-01-01T00:00:00.000Z", "?data-format-version=4.8.0"):
            yield self._crud("DELETE" if "delete" in more or "last" in more else "PUT", data + more, xml, "<form/>")
        yield self._crud("PUT", f"{ORDER}/data/d-1/x.bin", {"Content-Type": "no type"}, "x")
        yield self._crud("PUT", f"{ORDER}/data/d-1/x.bin.json", {}, "x")
        for user, method in product(({}, ANN, BOB, CID, DEE), ("PUT", "DELETE")):
            yield self._crud(method, "acme/owned/data/e/data.xml", xml, "<form/>" if method == "PUT" else None, **user)
            yield self._crud(method, "acme/closed/data/1/data.xml", xml, "<form/>" if method == "PUT" else None, **user)
        yield self._crud("DELETE", "acme/closed/data/1/data.xml")
        yield self._crud("DELETE", f"{ORDER}/data/none/data.xml")
        yield self._crud("DELETE", f"{ORDER}/form/form.xhtml", Form_Definition_Version=9)
        yield self._crud("DELETE", "acme/owned/data/", Form_Definition_Version=1)
        yield self._crud("PUT", "strict/other/data/1/data.xml", xml, "<form/>")
        yield self._crud("PUT", "strict/form/data/2/data.xml", xml, "<form/>", Form_Definition_Version=7)
        yield self._crud("PUT", "plain/form/draft/1/data.xml", xml, "<form/>", **ANN)
        for mark in ('<permission operation="read"/>', '<permission operations="fly"/>', "<permission>text</permission>"):
            body = f"<html><permissions>{mark}</permissions></html>"
            published = (
                '<html xmlns="http://www.w3.org/1999/xhtml" xmlns:xf="http://www.w3.org/2002/xforms"><head>'
                f'<xf:model id="fr-form-model"><xf:instance id="fr-form-metadata"><metadata xmlns="">{body[6:-7]}</metadata>'
                "</xf:instance></xf:model></head></html>"
            )
            yield self._crud("PUT", form, xml, published)
        for path, body in (("publish", "<x"), ("publish", "<html/>"), (f"{self._dialect}/builder/publish/none", None),
                           ("publish?form-definition-version=x", "<html/>"), ("publish?remote-server-url=x", "<html/>")):  # fmt: skip
            yield question("POST", f"/fr/service/{path}", {}, body)
        yield question("POST", f"{PUBLIC}/reindex/{ORDER}")

    def _other_faces(self) -> Iterator[Question]:
        """The provider face, which in one dialect is the public one and in the other has a contract of its own."""
        for path in (f"{ORDER}/data/d-1/data.xml", f"{ORDER}/data/d-7/data.xml", f"{ORDER}/form/form.xhtml",
                     f"{ORDER}/data/d-1/scan.png", "acme/owned/data/a/data.xml", "acme/proxied/data/p-1/data.xml",
                     "acme/proxied/data/p-2/data.xml", "acme/through-provider/data/p-1/data.xml", "far/form/data/1/data.xml",
                     "acme/owned/draft/a/data.xml"):  # fmt: skip
            for method, own in (("GET", {}), ("HEAD", {}), ("GET", BOB), ("GET", {"Form_Definition_Version": 1})):
                yield self._crud(method, path, {"Range": "bytes=0-9"} if "scan" in path else {}, face=PROVIDER, **own)
            yield self._crud("GET", path, face=PROVIDER, Datasource="second")
            yield self._crud("GET", path, face=PROVIDER, Datasource="third")
        for form, user in product((ORDER, "acme/owned", "acme/proxied", "far/form"), ({}, ANN, BOB)):
            yield self._search('<query path="customer/name"/>', form, face=PROVIDER, Form_Definition_Version=1, **user)
            yield self._search(_DISTINCT[0], form, "distinct-values", face=PROVIDER, **user)
        for more in ("", "/acme", "/acme/owned?all-versions=true", "?all-forms=true"):
            yield question("GET", f"/form{more}", self._own(ANN))
        yield question("GET", f"/fr/service/{ORDER}/attachments?document=d-1", self._own({"Datasource": "second"}))


def _control(path: str, text: str = "", more: str = "") -> str:
    return f'<query path="{path}"{more}>{text}</query>'


def _field(name: str, text: str = "", more: str = "") -> str:
    return f'<query metadata="{name}"{more}>{text}</query>'


_NAME, _STATUS, _TOPICS, _PRODUCT = "customer/name", "customer/status", "customer/topics", "items/lines/product"
_EXACT, _SUBSTRING, _TOKEN = ' match="exact"', ' match="substring"', ' match="token"'
_SEARCHES = (
    "",
    _control(_NAME),
    _control(_PRODUCT) + _control("customer[1]/name[1]"),
    _control(_PRODUCT, "valve_", _SUBSTRING),
    _control(_PRODUCT, "VALVE", _SUBSTRING),
    _control(_STATUS, "open", _EXACT),
    _control(_STATUS, "Open", _EXACT),
    _control(_PRODUCT, "Pump A", _EXACT),
    _control(_TOPICS, "GREEN red", _TOKEN),
    _control(_TOPICS, "green", ' control="select"'),
    _control(_NAME, "O", ' control="input"'),
    _control(_NAME, "ünal", _SUBSTRING),
    _control(_NAME, "É", _SUBSTRING),
    _control(_NAME, "bo"),
    _control("customer/notes", "call", _SUBSTRING),
    _control("customer/nam", "x", _SUBSTRING),
    _control(_NAME, more=' match="gte"'),
    _control(_NAME, more=' sort="desc"'),
    _control(_STATUS, more=' sort="asc"') + "<page-size>5</page-size>",
    _control(_STATUS, "open", _EXACT) + "<query>lorem</query>",
    "<query>100%</query>",
    "<query>CALL</query>",
    "<query>lorem ipsum</query>",
    "<query/><query>CALL</query>",
    _field("created", more=' sort="asc"'),
    _field("created", "2024-05-02T10:00:00.000Z", ' match="gte"'),
    _field("last-modified", "2999-05-02T10:00:00.000Z", ' match="lt"') + "<page-size>3</page-size>",
    _field("created-by", "ann", _EXACT),
    _field("last-modified-by", "cid", _EXACT),
    _field("workflow-stage", "review", _EXACT),
    _field("workflow-stage", more=' sort="desc"'),
    _field("created-by", "x"),
    _field("bogus"),
    "<page-size>2</page-size><page-number>2</page-number>",
    "<page-size>2</page-size><page-number>99</page-number>",
    "<page-size>0</page-size>",
    "<page-number>x</page-number>",
    '<operations any-of="read fly"/>',
    _control(_NAME, "x", ' match="like"'),
    _control(_NAME, more=' sort="asc"') + _field("created", more=' sort="asc"'),
)
_DRAFTS = (
    "",
    "<drafts>exclude</drafts>",
    "<drafts>only</drafts>",
    "<drafts>include</drafts>",
    '<drafts for-document-id="d-3">only</drafts>',
    '<drafts for-document-id="d-1">only</drafts>',
    '<drafts for-never-saved-document="true">only</drafts>',
    "<drafts>anything</drafts>",
)
_DISTINCT = (
    _control(_STATUS) + _field("created-by"),
    _field("workflow-stage") + _control(_NAME) + _control(_PRODUCT),
    _field("last-modified-by"),
    _control("customer/none"),
    _field("created"),
    "",
)
_FORM_QUERIES = (
    "",
    '<filter metadata="form-version" match="exact">latest</filter>',
    '<filter metadata="application-name" match="exact">acme</filter>',
    '<filter metadata="form-name" match="substring">ORD</filter><filter metadata="form-version" match="gte">2</filter>',
    '<filter metadata="title" match="substring" xml:lang="de">bestell</filter>',
    '<filter metadata="available" match="exact">false</filter>',
    '<filter metadata="last-modified-by" match="exact">ann</filter>',
    '<filter metadata="created" match="gt">2024-01-01T00:00:00Z</filter><pagination page-number="2" page-size="3"/>',
    '<filter metadata="operations" match="token">update delete</filter>',
    '<sort metadata="title" direction="desc"/><pagination page-number="1" page-size="5"/>',
    '<sort metadata="form-version" direction="asc"/><sort metadata="last-modified" direction="desc"/>',
    '<filter metadata="bogus" match="exact">x</filter>',
    '<filter metadata="form-name" match="bogus">x</filter>',
    '<pagination page-number="0"/>',
    "<bogus/>",
)
