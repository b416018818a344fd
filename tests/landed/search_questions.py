"""Searches, lists of values and lists of forms, good and bad."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from urllib.parse import quote

from tests.landed.asker import ORDER, USERS, Asker
from tests.landed.history import ANN, BOB, BOSS, PUBLIC
from tests.landed.wire import Question, question


def about_searches(ask: Asker) -> Iterator[Question]:
    """Return all of them."""
    for kind in (searches, distinct, lists, queries_of_forms):
        yield from kind(ask)


def searches(ask: Asker) -> Iterator[Question]:
    for children, version in product(_SEARCHES, ("", "all")):
        own = {"Form_Definition_Version": version} if version else {}
        yield ask.search(children, **own)
    for children in _DRAFTS:
        yield ask.search(children, Form_Definition_Version="all", **BOB)
        yield ask.search(children, Form_Definition_Version="all", **ANN)
    for version in (1, 2, 3, 4, 9, 0, "x", "next"):
        yield ask.search("", Form_Definition_Version=version)
    for form, user in product(("acme/owned", "ruled/form", "acme/closed", "gone/form"), USERS):
        yield ask.search('<query path="customer/name"/>', form, Form_Definition_Version="all", **user)
    for children in (
        '<operations any-of="update delete"/>',
        '<operations any-of="create"/>',
        '<operations any-of="x"/>',
    ):
        yield ask.search(children, "acme/owned", Form_Definition_Version="all", **ANN)
    for form in (
        "far/form",
        "newer/form",
        "un/published",
        "hr/secret",
        "odd/names",
        "ä pp/form & co",
        "none/none",
        "gone/half",
        "gone/emptied",
        f"{ask.dialect}/builder",
    ):
        yield ask.search('<query path="customer/name"/>', form)
        yield ask.search("<query>o</query>", form, more=' return-all-indexed-fields="true"')
    for body in ("", "<search", "<x/>", "<!DOCTYPE a><search/>", "<search><bogus/></search>", '<search x="1"/>'):
        yield question("POST", f"{PUBLIC}/search/{ORDER}", {}, body)
    yield question("GET", f"{PUBLIC}/search/{ORDER}")


def distinct(ask: Asker) -> Iterator[Question]:
    for children, user in product(_DISTINCT, ({}, ANN)):
        yield ask.search(children, root="distinct-values", Form_Definition_Version="all", **user)
        yield ask.search(children, root="distinct-values", **user)
    for user in USERS:
        yield ask.search(_DISTINCT[0], "acme/owned", "distinct-values", Form_Definition_Version="all", **user)


def lists(ask: Asker) -> Iterator[Question]:
    for path, user in product(
        ("", "/acme", "/acme/order", "/none", "/acme/none", f"/{quote('ä pp')}"), ({}, ANN, BOSS)
    ):
        for more in ("", "?all-versions=true", "?all-forms=true", "?all-versions=TRUE&all-forms=true"):
            yield question("GET", f"{PUBLIC}/form{path}{more}", ask.own(user))
    for more in (
        "ignore-admin-permissions=true",
        "modified-since=2024-04-15",
        "modified-since=2999-01-01",
        "modified-since=x",
        "all-versions=perhaps",
        "unknown=1",
    ):
        yield question("GET", f"{PUBLIC}/form?{more}", ask.own(BOSS))


def queries_of_forms(ask: Asker) -> Iterator[Question]:
    for children, user in product(_FORM_QUERIES, ({}, BOSS)):
        yield question("POST", f"{PUBLIC}/form", ask.own(user), f"<search>{children}</search>")
    for more in (' all-forms="true"', ' xml:lang="de"', ' all-forms="true" ignore-admin-permissions="true"'):
        body = f'<search{more}><filter metadata="title" match="substring">best</filter></search>'
        yield question("POST", f"{PUBLIC}/form", ask.own(BOSS), body)


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
