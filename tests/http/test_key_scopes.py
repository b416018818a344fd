"""API keys with scopes: what they may call, on every route there is, and what they may not."""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from persistence.app import Service, create_app
from persistence.http.application import RouteScope, ScopedRoute
from persistence.keys import Keys
from persistence.settings import Settings
from tests.initialised import initialised
from tests.opened import opened
from tests.published import definition

PUBLIC = "/fr/service/persistence"
_NAME = re.compile(r"<(?:\w+:)?(\w+)>")
MINE, OTHER = {"app": "hr", "form": "leave"}, {"app": "fin", "form": "leave"}
NAMES = {"document": "D", "name": "data.xml", "rest": "x", "unknown": "x"}
HARMLESS = (
    "/",
    "/version",
    "/openapi.yaml",
    "/api",
    "/api/",
    "/api/redoc.standalone.js",
    "/api/theme.js",
    *("/healthz", "/readyz"),
)
SEARCH = b"<search><page-size>10</page-size><page-number>1</page-number></search>"

HEALTH = ("healthz", "readyz", "metrics")
READERS = {
    "GET HEAD": ("crud", "history", "attachments", "changes", "", "version", "openapi.yaml", "api", *HEALTH),
    "GET": ("form", "reindex", "reencrypt", "export"),
    "POST": ("form", "search", "distinct-values", "export"),
}
"""Requests of a key that may only read: methods, and the word in the path that says what is done."""


@dataclass
class Caller:
    client: FlaskClient
    secret: str

    def send(self, method: str, path: str, body: bytes = b"", **headers: str) -> TestResponse:
        sent = {"Authorization": f"Bearer {self.secret}"} | {k.replace("_", "-"): v for k, v in headers.items()}
        return self.client.open(path, method=method, data=body, headers=sent, environ_base={"REMOTE_ADDR": "127.0.0.1"})


@dataclass
class Rig:
    app: Service
    keys: Keys
    data: Path
    dialect: str

    @property
    def version(self) -> str:
        """The name of the header of form versions."""
        return "Svc_Form_Definition_Version" if self.dialect == "svc" else "Orbeon_Form_Definition_Version"

    def caller(self, name: str, *scopes: str, forms: tuple[str, ...] = ()) -> Caller:
        return Caller(self.app.test_client(), self.keys.add(name, None, scopes, forms))  # type: ignore[arg-type]

    def requests(self, names: dict[str, str]) -> Iterator[tuple[str, ScopedRoute, str]]:
        for rule in self.app.url_map.iter_rules():
            assert isinstance(rule, ScopedRoute)
            path = _NAME.sub(lambda found: (NAMES | names).get(found[1], "1"), rule.rule)
            for method in sorted(rule.methods or ()):
                yield method, rule, path

    def files(self) -> dict[str, bytes]:
        found = (f"{folder}/{name}" for folder, _, names in os.walk(self.data) for name in names)
        own = (path for path in found if "/.index/" not in path and "/.events/" not in path)
        return {path: Path(path).read_bytes() if os.path.getsize(path) else b"" for path in own}  # most are locks


@pytest.fixture(params=["svc", "orbeon"])
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Rig:
    """A service with two forms of one document each, whose key ``limited`` may administer and issue tokens."""
    given = Settings(
        data=initialised(tmp_path / "data"),
        local=str(tmp_path / "local"),
        keys=str(tmp_path / "keys.json"),
        dialect=request.param,
        administrators=("limited",),
        events=True,
        token_issuers=("limited",),
    )
    rig = Rig(opened(create_app(given)), Keys(given.keys, tree=given.home), tmp_path / "data", request.param)
    whole = rig.caller("whole")
    version = {rig.version: "1"}
    for names_of in (MINE, OTHER):
        path = f"{PUBLIC}/crud/{names_of['app']}/{names_of['form']}"
        assert whole.send("PUT", f"{path}/form/form.xhtml", definition(""), **version).status_code == 201
        assert whole.send("PUT", f"{path}/data/D/data.xml", b"<form/>", **version).status_code == 201
        assert whole.send("POST", f"{PUBLIC}/search/{names_of['app']}/leave", SEARCH, **version).status_code == 200
    return rig


def test_every_route_says_its_scope_and_pages_say_nothing(rig: Rig) -> None:
    seen = set()
    for _, route, path in rig.requests(MINE):
        assert (route.scope is None) is route.rule.startswith("/admin"), path
        seen.add(route.scope)
    assert seen == {*RouteScope, None}


def test_a_key_that_may_only_read_changes_nothing_on_any_route(rig: Rig) -> None:
    reader, before = rig.caller("limited", "read"), rig.files()
    for method, route, path in rig.requests(MINE):
        answer = reader.send(method, path, SEARCH if method == "POST" else b"", **{rig.version: "1"})
        assert (answer.status_code != 403) is _reads(method, route.rule), (method, path, answer.text)
    assert rig.files() == before
    path = f"{PUBLIC}/crud/hr/leave/data/D/data.xml"
    assert rig.caller("other").send("PUT", path, b"<a/>", **{rig.version: "1"}).status_code == 204
    assert rig.files() != before


@pytest.mark.parametrize("forms", [("x", "hr/leave"), ("hr",)])
def test_a_key_for_some_forms_touches_no_others_on_any_route(rig: Rig, forms: tuple[str, ...]) -> None:
    caller, before = rig.caller("limited", forms=forms), rig.files()
    for method, route, path in rig.requests(OTHER):
        answer = caller.send(method, path, SEARCH if method == "POST" else b"", **{rig.version: "1"})
        assert (answer.status_code != 403) is (route.scope is RouteScope.NOTHING), (method, path, answer.text)
    assert rig.files() == before
    for method, route, path in rig.requests(MINE):
        answer = caller.send(method, path, SEARCH if method == "POST" else b"", **{rig.version: "1"})
        assert (answer.status_code != 403) is _is_within(method, route, forms), (method, path, answer.text)
    left = {path: data for path, data in rig.files().items() if "/fin/" in path}
    assert left == {path: data for path, data in before.items() if "/fin/" in path}
    assert left


PATHS = (
    ("/crud/hr/leave/data/D/data.xml", 200),
    ("/crud/%68r///l%65ave/data/D/data.xml", 200),
    ("//crud/%68r///l%65ave/data/D/data.xml", 400),
    ("/crud/hr/leave/data/../../../fin/leave/data/D/data.xml", 400),
    ("/crud/hr/leave/data/%2e%2e/%2E%2E/%2e./fin/leave/data/D/data.xml", 400),
    ("/crud/hr%2Fleave/x/data/D/data.xml", 400),
    ("/crud/hr/leave%2fx/data/D/data.xml", 400),
    ("/crud/hr%5Cleave/x/data/D/data.xml", 400),
    ("/crud/%66in/leave/data/D/data.xml", 403),
    ("/crud//fin/leave/data/D/data.xml", 403),
    ("/crud/fin/hr/leave/data/D/data.xml", 404),
    ("/crud/HR/leave/data/D/data.xml", 403),
    ("/crud/hr/leav/data/D/data.xml", 403),
    ("/crud/hr/leave%20/data/D/data.xml", 403),
    ("/crud/hr/leave%00/data/D/data.xml", 400),
    ("/crud/fin/leave/data/D/data.xml?app=hr&form=leave", 403),
    ("/form/hr/leave", 200),
    ("/form/hr", 403),
    ("/export?match=hr/leave", 403),
)


def test_the_form_is_that_which_the_handler_sees(rig: Rig) -> None:
    caller = rig.caller("limited", "read", forms=("hr/leave",))
    for path, status in PATHS:
        answer = caller.send("GET", PUBLIC + path)
        assert answer.status_code == status, (path, answer.text)


def test_a_list_that_a_body_asks_for_is_of_any_form(rig: Rig) -> None:
    caller = rig.caller("limited", forms=("hr",))
    refused = caller.send("POST", f"{PUBLIC}/form/hr/leave", b"<forms/>")
    assert (refused.status_code, refused.text.count("\n")) == (403, 1)
    assert refused.text.strip() == "the API key limited is for hr only, and this is about more"
    listed = caller.send("GET", f"{PUBLIC}/form/hr?all-forms=true&all-versions=true")
    assert ("<application-name>hr<" in listed.text, "fin" not in listed.text) == (True, True)


@pytest.mark.parametrize("word", ["search", "distinct-values"])
def test_a_search_names_no_other_form_as_the_nearest(rig: Rig, word: str) -> None:
    body = SEARCH if word == "search" else b"<distinct-values/>"
    path, notice = f"{PUBLIC}/{word}/fim/leave", rig.version.split("_")[0] + "-Notice"
    for caller, found in ((rig.caller("reader", "read"), True), (rig.caller("limited", forms=("fim",)), False)):
        answer = caller.send("POST", path, body, **{rig.version: "1"})
        assert answer.status_code == 200, answer.text
        assert ("fin/leave" in answer.headers.get(notice, "")) is found
        assert found or "fin/leave" not in f"{answer.headers}{answer.text}"


def test_what_is_refused_is_refused_before_it_is_looked_for(rig: Rig) -> None:
    """Whether it exists, and whether the request is well-formed, is not said."""
    caller = rig.caller("limited", "read", forms=("hr",))
    for path in ("fin/leave/data/D/data.xml", "fin/leave/data/none/data.xml", "none/none/data/D/data.xml"):
        answer = caller.send("GET", f"{PUBLIC}/crud/{path}", **{rig.version: "no number"})
        assert answer.status_code == 403
    answer = caller.send("PUT", f"{PUBLIC}/crud/hr/leave/data/D/data.xml", b"<", **{rig.version: "no number"})
    assert (answer.status_code, answer.text.strip()) == (403, "the API key limited may only read")


def test_limited_keys_open_no_pages(rig: Rig) -> None:
    """Although the setting names the key."""
    reader = rig.caller("limited", "read")
    assert reader.send("GET", "/admin/keys").status_code == 403  # there are no pages, and it does not learn that
    rig.keys.set_password("ada", "correct horse battery staple")
    login = {"name": "limited", "secret": reader.secret}
    answer = reader.client.post("/admin/login", data=login, environ_base={"REMOTE_ADDR": "127.0.0.1"})
    assert (answer.status_code, "Set-Cookie" not in answer.headers) == (403, True)
    assert reader.send("GET", "/admin/keys").headers["Location"].startswith("/admin/login")
    assert reader.send("GET", "/%61dmin/keys").status_code == 400


def _is_within(method: str, route: ScopedRoute, forms: tuple[str, ...]) -> bool:
    """Return whether a key for some forms may send a request whose path names ``MINE``, if anything.

    A lease is of a document's id, in whatever form; and which forms a list is of, its body says.
    """
    names = route.arguments & {"app", "form"}
    is_named = names == {"app", "form"} or (names == {"app"} and "hr" in forms)
    is_list = route.rule.startswith((f"{PUBLIC}/form", "/form"))
    is_of_others = method in {"LOCK", "UNLOCK"} or (is_list and method == "POST")
    is_page = route.rule.startswith("/admin")
    return (is_named and not is_of_others and not is_page) or route.rule in HARMLESS


def _reads(method: str, rule: str) -> bool:
    words = [part for part in rule.removeprefix(PUBLIC).removeprefix("/fr/service").split("/") if part]
    fixed = [part for part in words if not part.startswith("<")]
    word = fixed[0] if fixed else ""
    is_action = fixed[-1:] == ["restore"] or "publish" in fixed or rule == "/reindex"  # a GET of old runtimes
    return not is_action and any(method in methods.split() and word in known for methods, known in READERS.items())
