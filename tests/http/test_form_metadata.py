"""The form metadata API over HTTP (spec search 4): its vectors M1 to M7, and what they leave open."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from tests import orders
from tests.orders import canonical, tree
from tests.published import PERMISSIONS, Planter, definition
from tests.searches import NAME, STATUS, control, field
from tests.served import served
from tests.service import PROVIDER, PUBLIC, V1, Answer, Service, running
from tests.sidecars import resealed

pytestmark = pytest.mark.xdist_group("form-metadata")  # a tree is planted and served once

_ORDER = '<title xml:lang="en">Order</title><title xml:lang="de">Bestellung</title>'
_LEAVE = f'<title xml:lang="en">Leave request</title>{PERMISSIONS}'
_FILTER = "<search{}><filter metadata='{}' match='{}'{}>{}</filter></search>"
_READABLE = _FILTER.format("", "operations", "token", "", "read")
_SECOND_PAGE = """<search all-forms="true">
    <sort metadata="form-name" direction="asc"/><pagination page-number="2" page-size="2"/>
  </search>"""

LEAVE = f"""<form operations="create list">
    <application-name>acme</application-name>
    <form-name>leave</form-name>
    <form-version>1</form-version>
    <last-modified-time>2024-04-15T12:00:00Z</last-modified-time>
    <last-modified-by>gus</last-modified-by>
    <created>2024-04-15T12:00:00Z</created>
    <title xml:lang="en">Leave request</title>
    <available>true</available>
    {PERMISSIONS}
  </form>"""
ORDER = """<form operations="*">
    <application-name>acme</application-name><form-name>order</form-name><form-version>1</form-version>
    <last-modified-time>2024-04-10T09:00:00.250Z</last-modified-time><last-modified-by>fay</last-modified-by>
    <created>2024-04-01T09:00:00Z</created>
    <title xml:lang="en">Order</title><title xml:lang="de">Bestellung</title><available>true</available>
  </form>"""


def plant(planter: Planter) -> None:
    """The set-up of spec search 8.3."""
    planter.publish("acme/order", 1, _ORDER, "2024-04-01T09:00:00.000Z", "fay")
    planter.publish("acme/order", 1, _ORDER, "2024-04-10T09:00:00.250Z", "fay")
    planter.publish("acme/order", 2, f"{_ORDER}<available>false</available>", "2024-04-20T09:00:00.000Z", "fay")
    planter.publish("acme/leave", 1, _LEAVE, "2024-04-15T12:00:00.000Z", "gus")
    planter.publish("acme/library", 1, '<title xml:lang="en">Library</title>', "2024-04-05T00:00:00.000Z")


planted = served("svc", "orbeon", plant=plant)


@pytest.fixture(params=[PROVIDER, PUBLIC], ids=["provider", "public"])
def acme(request: pytest.FixtureRequest, planted: Service) -> Service:
    if (planted.dialect, request.param) == ("orbeon", PROVIDER):
        pytest.skip("a runtime filters the list itself: test_provider_contract.py")
    planted.face = request.param
    return planted


administered = served(
    plant=plant,
    settings='[[admin]]\nrole = "form-admin"\napp = "*"\nform = "*"\n'
    '[[admin]]\nrole = "order-admin"\napp = "acme"\nform = "order"\n',
)


def get(service: Service, rest: str = "", **own: str) -> Answer:
    return service.call("GET", f"form{rest}", **own)


def post(service: Service, body: str, **own: str) -> Answer:
    return service.post("form", body, **own)


def listed(answer: Answer) -> list[str]:
    """``form/version`` of each form in the answer, after the total where that is another number."""
    assert answer.status == 200, answer.cause
    root = tree(answer.body)
    names = [f"{form.findtext('form-name')}/{form.findtext('form-version')}" for form in root]
    total = root.attrib["search-total"]
    return names if int(total) == len(names) else [total, *names]


def operations(answer: Answer, name: str) -> str | None:
    found = tree(answer.body).find(f"form[form-name='{name}']")
    return None if found is None else found.attrib["operations"]


def test_m1_to_m3(acme: Service) -> None:
    """Order's newest version is not available, so that it is missing altogether; the library is hidden."""
    answer = get(acme)
    assert (answer.status, answer["Content-Type"]) == (200, "application/xml")
    assert canonical(answer.body) == canonical(f'<forms search-total="1">{LEAVE}</forms>')
    assert (answer[f"{acme.prefix}Form-Definition-Version"], answer[f"{acme.prefix}Operations"]) == (None, None)
    every = get(acme, "?all-versions=true")
    assert canonical(every.body) == canonical(f'<forms search-total="2">{LEAVE}{ORDER}</forms>')
    answer = get(acme, "?all-forms=true")
    assert listed(answer) == ["order/2", "leave/1", "library/1"]
    order, _, library = tree(answer.body)
    assert (order.findtext("available"), order.attrib["operations"]) == ("false", "*")
    assert library.find("last-modified-by") is None


@pytest.mark.parametrize(
    ("rest", "found"),
    [
        *((path, []) for path in ("/acme/order", "/none/none", "/none", "/acme/none")),
        *(
            (f"?all-versions=true&all-forms=true&modified-since={since}", found)
            for since, found in (
                ("2024-04-15T12:00:00Z", ["order/2"]),
                ("2024-04-15T11:59:59.999Z", ["order/2", "leave/1"]),
                ("2024-04-15T14:00:00.000%2B02:00", ["order/2"]),
                ("2024-04-15Z", ["order/2", "leave/1"]),
                ("2024-05-01", []),
            )
        ),
    ],
)
def test_m4_and_m5_paths_and_what_is_strictly_later(acme: Service, rest: str, found: list[str]) -> None:
    answer = get(acme, rest)
    assert listed(answer) == found
    assert found or answer.body == b'<forms search-total="0"></forms>'


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("<search/>", ["leave/1", "order/1"]),
        (_FILTER.format("", "form-version", "exact", "", "latest"), ["leave/1"]),
        (_FILTER.format("", "TITLE", "Substring", " xml:lang='de'", "bestell"), ["order/1"]),
        (_FILTER.format("", "application-name", "exact", "", "ACME"), []),
        (_FILTER.format(" all-forms='true'", "form-version", "gt", "", "1"), ["order/2"]),
        (_FILTER.format("", "operations", "exact", "", "create list"), ["leave/1"]),
        (_READABLE, ["order/1"]),
        (_FILTER.format("", "operations", "token", "", "admin"), []),
        (_SECOND_PAGE, ["4", "order/2", "order/1"]),
        ("<search><sort metadata='last-modified-by' direction='desc'/></search>", ["leave/1", "order/1"]),
    ],
)
def test_m6_queries(acme: Service, body: str, found: list[str]) -> None:
    """Filters and sorts, tests/listing/test_form_listing.py has in full."""
    assert listed(post(acme, body)) == found
    if body == _READABLE:
        assert listed(post(acme, body, Username="ann")) == ["leave/1", "order/1"], "those of the caller"


@pytest.mark.parametrize(
    "body",
    [
        _FILTER.format("", "title", "exct", "", "x"),
        "<search>",
        "<!DOCTYPE search [<!ENTITY a 'a'>]><search>&a;</search>",
    ],
)
def test_m6_what_is_asked_wrongly_is_refused_with_the_reason(acme: Service, body: str) -> None:
    """What is wrong, tests/forms/test_search_xml.py has in full."""
    answer = post(acme, body)
    assert (answer.status, answer["Content-Type"]) == (400, "text/plain; charset=utf-8")
    assert answer.cause
    assert "\n" not in answer.cause


def test_m7_what_one_may_do(administered: Service) -> None:
    assert operations(get(administered), "leave") == "create list"
    assert operations(get(administered, Username="ann"), "leave") == "create read update list"
    admin = {"Username": "ann", "Roles": "form-admin"}
    answer = get(administered, **admin)
    assert operations(answer, "leave") == "admin create read update list"
    assert listed(answer) == ["order/2", "leave/1", "library/1"]
    hidden = get(administered, "?ignore-admin-permissions=true", **admin)
    assert listed(hidden) == ["leave/1"]
    assert operations(hidden, "leave") == "admin create read update list"
    assert listed(post(administered, "<search ignore-admin-permissions='true'/>", **admin)) == ["leave/1", "order/1"]
    assert listed(get(administered, "?ignore-admin-permissions=true&all-forms=true", **admin)) == listed(answer)


def test_an_administrator_of_one_form_is_none_of_others(administered: Service) -> None:
    answer = get(administered, Username="bob", Roles="x,order-admin")
    assert listed(answer) == ["order/2", "leave/1"]
    assert (operations(answer, "order"), operations(answer, "leave")) == ("admin *", "create read update list")
    body = _FILTER.format("", "operations", "token", "", "admin read")
    assert listed(post(administered, body, Username="bob", Roles="order-admin")) == ["order/2", "order/1"]


FLAGS = ("all-versions", "all-forms", "ignore-admin-permissions")


@pytest.mark.parametrize(
    ("query", "status"),
    [
        *((f"{name}={value}", 200) for name in FLAGS for value in ("True", "FALSE", "false")),
        *((query, 400) for query in ("all-versions=yes", "all-forms=1", "ignore-admin-permissions=", "all-forms=%FF")),
        *((query, 400) for query in ("all-versions", "modified-since=", "modified-since=yesterday")),
        *((f"modified-since={time}", 400) for time in ("2024-02-30", "0000-01-01", "2024-04-15T12:00:00+02:00")),
        *((f"modified-since={time}", 400) for time in ("2024-W01-1", "2024-04-15T12")),
    ],
)
def test_truth_values_have_any_case_and_others_are_refused(planted: Service, query: str, status: int) -> None:
    """A plus sign in a query is a blank, which is why the offset above is no offset."""
    answer = get(planted, f"?{query}")
    assert (answer.status, status == 200 or query.partition("=")[0] in answer.cause) == (status, True)


def test_a_post_is_asked_by_its_body_only(planted: Service) -> None:
    """Spec search 4.2: path and parameters of a POST are ignored."""
    path = "/form/none/.none?all-versions=maybe&modified-since=2030-01-01"
    answer = planted.call("POST", path, b"<any all-forms='yes'/>", {"Content-Type": "text/plain"})
    assert listed(answer) == ["leave/1", "order/1"]


def test_a_name_that_no_form_can_have_is_no_forms(planted: Service) -> None:
    """Spec search 4.1; below ``/form`` such a name is refused as in every path."""
    for name in (".hidden", "a/b", "", "x" * 300):
        assert listed(post(planted, _FILTER.format("", "application-name", "exact", "", name))) == []
        assert listed(post(planted, _FILTER.format("", "form-name", "exact", "", name))) == []
    assert get(planted, "/.hidden").status == get(planted, f"/acme/{'x' * 300}").status == 400


def titles(answer: Answer) -> list[tuple[str | None, str | None]]:
    lang = "{http://www.w3.org/XML/1998/namespace}lang"
    return [(title.get(lang), title.text) for title in tree(answer.body).iter("title")]


def test_publishing_changing_and_deleting_are_seen_by_every_worker_at_once(tmp_path: Path) -> None:
    with running(tmp_path, workers=2) as service:

        def seen() -> set[tuple[str, ...]]:
            return {(*listed(answer), *[str(text) for _, text in titles(answer)]) for answer in asked()}

        def asked() -> Iterator[Answer]:
            for _ in range(12):
                yield get(service, "/hr")

        assert seen() == {()}
        for number in range(1, 6):
            service.publish("hr/leave", definition(f"<title>{number}</title>"))
            assert seen() == {("leave/1", f"{number}")}
        for worker in service.workers():
            os.kill(worker, signal.SIGKILL)  # others start in their place
        service.publish("hr/leave", definition("<title>two</title>"), Form_Definition_Version="next")
        assert seen() == {("leave/2", "two")}
        content = service.data / "hr/leave/form/2/form.xhtml"
        content.write_bytes(definition("<title>by hand</title>"))
        assert seen() == {("leave/2", "by hand")}
        service.delete("hr/leave/form/form.xhtml")
        assert seen() == {("leave/1", "5")}
        service.delete("hr/leave/form/form.xhtml")
        assert seen() == {()}


@pytest.mark.parametrize(
    ("metadata", "children"),
    [
        ("", "<available>true</available>"),
        ("<available>false</available>", "<available>false</available>"),
        (
            "<title xml:lang='en'>a</title><title> c\n c </title><title xml:lang='en'>d</title>",
            '<title xml:lang="en">d</title><title>c c</title><available>true</available>',
        ),
        (
            "<title xml:lang='ja'>休暇 &lt;&amp;&gt; \U0001f600</title>",
            '<title xml:lang="ja">休暇 &lt;&amp;&gt; \U0001f600</title><available>true</available>',
        ),
        ("<permissions/><description>no</description>", "<available>true</available><permissions></permissions>"),
    ],
)
def test_what_is_told_of_a_definition(svc: Service, form: str, metadata: str, children: str) -> None:
    """Spec search 4.3; what counts as metadata, tests/forms/test_definition_metadata.py shows."""
    svc.publish(form, definition(metadata))
    body = get(svc, f"/{form}?all-forms=true").body.decode()
    assert body.partition("</created>")[2] == f"{children}</form></forms>"


def test_names_in_paths_are_unicode_and_permissions_that_are_empty_let_nobody_in(svc: Service, form: str) -> None:
    """Spec crud 6.2: present but empty is not undefined; the attribute is there, and empty."""
    app = form.partition("/")[0]
    name = f"{app}/Bestellung für & <Ä>"
    svc.publish(quote(name), definition("<title>ä</title>"))
    answer = get(svc, quote(f"/{name}"))
    assert tree(answer.body).findtext("form/form-name") == "Bestellung für & <Ä>"
    exact = _FILTER.format("", "form-name", "exact", "", "Bestellung für &amp; &lt;Ä>")
    assert len(listed(post(svc, exact))) == 1
    svc.publish(form, definition("<permissions/>"))
    assert listed(get(svc, f"/{form}")) == []
    assert b'<form operations="">' in get(svc, f"/{form}?all-forms=true").body


def test_a_version_that_cannot_be_read_does_not_hide_the_others(svc: Service, form: str) -> None:
    for number in (1, 2, 3):
        svc.publish(form, definition(f"<title>{number}</title>"), Form_Definition_Version=number)
    folder = svc.data / form / "form"
    (folder / "2/form.xhtml.json").write_text("{")
    (folder / "3/form.xhtml").unlink()
    answer = get(svc, f"/{form}?all-versions=true")
    assert (listed(answer), titles(answer)) == (["form/1"], [(None, "1")])
    app = form.partition("/")[0]
    assert listed(get(svc, f"/{app}")) == ["form/1"]


def test_a_sidecar_edited_by_hand_makes_no_malformed_answer(svc: Service, form: str) -> None:
    """It is damage until it is taken in. Then what XML cannot hold is replaced, and a declaration is left out."""
    svc.publish(form, definition("<title>t</title>"))
    file = svc.data / form / "form/1/form.xhtml.json"
    whole = file.read_bytes()
    modifier = "a\x01b\ufffe<c>"
    metadata = {
        "titles": {'x"\x00<': "t\x0b]]>&"},
        "permissions": "<?xml version='1.0'?><!DOCTYPE x><permissions><permission operations='read'/></permissions>",
    }
    file.write_text(json.dumps(json.loads(whole) | {"modifier": modifier, "metadata": metadata}))
    assert listed(get(svc, f"/{form}")) == []
    file.write_bytes(whole)
    resealed(file, modifier=modifier, metadata=metadata)
    answer = get(svc, f"/{form}")
    root = tree(answer.body)
    assert root.findtext("form/last-modified-by") == "a\ufffdb\ufffd<c>"
    assert titles(answer) == [('x"\ufffd<', "t\ufffd]]>&")]
    assert root.find("form/permissions/permission") is not None
    assert root[0].attrib["operations"] == "read list"


# Queries that are misspelt: refused where the interface knows all words, and told where a name may be anyone's.


def plant_near(planter: Planter) -> None:
    orders.plant(planter)
    planter.define("acme/order", 2, orders.definition(), "2024-04-02T09:00:00.000Z")
    planter.define("hr/leave", 1, orders.definition(), "2024-04-01T09:00:00.000Z")
    planter.publish("hr/secret", 1, "<permissions/>", "2024-04-01T09:00:00.000Z")
    planter.publish("hr/own", 1, PERMISSIONS, "2024-04-01T09:00:00.000Z")


misspelling = served("svc", "orbeon", plant=plant_near)


@pytest.fixture(params=[PROVIDER, PUBLIC], ids=["provider", "public"])
def misspelt(request: pytest.FixtureRequest, misspelling: Service) -> Service:
    misspelling.face = request.param
    return misspelling


def notice(answer: Answer) -> str | None:
    assert answer.status == 200, answer.cause
    found = answer["Svc-Notice"], answer["Orbeon-Notice"]
    return found[0] or found[1]


UNKNOWN = [
    ("/search/acme/order", '<search><qery path="customer/status">x</qery></search>', "<qery>; the nearest is query"),
    ("/search/acme/order", '<search><query pth="customer/status">x</query></search>', "'pth'; the nearest is path"),
    ("/search/acme/order", '<search page-size="3"/>', "'page-size'; the nearest is return-all-indexed-fields"),
    ("/search/acme/order", "<search><page-sise>3</page-sise></search>", "<page-sise>; the nearest is page-size"),
    ("/search/acme/order", '<search><drafts for-document="D">only</drafts></search>', "the nearest is for-document-id"),
    ("/search/acme/order", '<search><operations anyof="read"/></search>', "'anyof'; the nearest is any-of"),
    ("/search/acme/order", "<search><query>a<b>c</b></query></search>", "<query> of a search has text"),
    ("/search/acme/order", '<search xmlns:a="urn:a"><a:query>x</a:query></search>', "urn:a query"),
    ("/search/acme/order", '<search xmlns:a="urn:a"><query a:path="x"/></search>', "'urn:a path'"),
    ("/distinct-values/acme/order", '<d><qury path="customer/status"/></d>', "<qury>; the nearest is query"),
    ("/distinct-values/acme/order", '<d sort="asc"/>', "has no attribute 'sort'"),
    ("/form", '<search><filtre metadata="title" match="exact">x</filtre></search>', "<filtre>; the nearest is filter"),
    ("/form", '<search><filter metdata="title" metadata="title" match="exact"/></search>', "the nearest is metadata"),
    ("/form", '<search all-form="true"/>', "'all-form'; the nearest is all-forms"),
    ("/form", '<search><pagination page="1"/></search>', "'page'; the nearest is page-"),
    ("/form", '<search><sort metadata="title" direction="asc" order="x"/></search>', "'order'"),
]


@pytest.mark.parametrize(("path", "body", "cause"), UNKNOWN)
def test_unknown_names_are_refused_with_the_nearest(misspelt: Service, path: str, body: str, cause: str) -> None:
    """In dialect orbeon it is ignored, as the real system does: its own client sends a lot."""
    answer = misspelt.post(path, body)
    if misspelt.dialect == "svc":
        assert (answer.status, answer["Content-Type"]) == (400, "text/plain; charset=utf-8")
        assert cause in answer.cause, answer.cause
    else:
        assert answer.status == 200


def test_what_a_runtime_says_besides_is_known(misspelt: Service) -> None:
    """Spec search 0.2 and 1.1: attributes and elements without a meaning here, and comments between."""
    said = (
        'name="n" type="xs:string" summary-show="true" statically-required="false" html-label="false" control="input"'
    )
    query = f'<!-- c --><?p i?><query xml:lang="en" path="{NAME}" {said}/><lang>en</lang>'
    body = f'<search xml:lang="en" xml:space="preserve">{query}</search>'
    assert notice(misspelt.post("/search/acme/order", body)) is None
    remote = '<remote-server url="u" username="n" password="p"/>'
    body = f'<search xml:lang="de">{remote}<filter metadata="title" match="exact" xml:lang=""/></search>'
    assert misspelt.post("/form", body).status == 200


@pytest.mark.parametrize(
    "body",
    [
        f"<search>{control('customer/nam', 'Ada')}</search>",
        f"<search>{control('customer/nam')}{control(STATUS)}</search>",
        f"<search>{control('customer[1]/nam[1]', sort='asc')}</search>",
        f'<search return-all-indexed-fields="true">{control("customer/nam", "Ada")}</search>',
    ],
)
def test_an_unknown_control_is_told_with_the_nearest(misspelt: Service, body: str) -> None:
    said = notice(misspelt.post("/search/acme/order", body))
    assert said == "version 2 of acme/order has no indexed control 'customer/nam' (the nearest is 'customer/name')"
    distinct = misspelt.post("/distinct-values/acme/order", f"<d>{control('customer/nam')}{control(STATUS)}</d>")
    assert notice(distinct) == said


def test_many_unknown_controls_are_one_short_notice(misspelt: Service) -> None:
    answer = misspelt.post("/search/acme/order", f"<search>{control('customer/notes', 'call')}</search>")
    assert b'search-total="0"' in answer.body
    assert "has no indexed control 'customer/notes'" in str(notice(answer)), "one that is not indexed is told, too"
    body = "".join(control(f"customer/{number}") for number in range(150))
    said = str(notice(misspelt.post("/search/acme/order", f"<search>{body}</search>")))
    assert (said.endswith("and 147 more"), len(said) <= 300) == (True, True)
    long = str(notice(misspelt.post("/search/acme/order", f"<search>{control('é/' * 2000)}</search>")))
    assert len(long) <= 700  # UTF-8 in Latin-1
    name = misspelt.post("/search/acme/order", f"<search><{'q' * 9000}/></search>")
    if misspelt.dialect == "svc":
        assert (name.status, len(name.body) < 310) == (400, True)


@pytest.mark.parametrize(("path", "body"), [("search", "<search/>"), ("distinct-values", f"<d>{control(NAME)}</d>")])
def test_an_unknown_form_or_version_is_told_with_the_nearest(misspelt: Service, path: str, body: str) -> None:
    """The list of forms leaves out those with which the caller may do nothing."""
    for form, nearest in (("acme/ordre", "acme/order"), ("acne/order", "acme/order"), ("hr/leafe", "hr/leave")):
        told = f"{form} is not published; the nearest name is {nearest}"
        assert notice(misspelt.post(f"/{path}/{form}", body)) == told
    assert notice(misspelt.post(f"/{path}/zz/qq", body)) == "zz/qq is not published"
    for form in ("hr/secre", "hr/secrets"):
        assert "secret" not in str(notice(misspelt.post(f"/{path}/{form}", body))).removeprefix(form)
    answer = misspelt.post(f"/{path}/acme/order", body, Form_Definition_Version=7)
    assert notice(answer) == "acme/order has no published version 7; it has 2, 1"
    answer = misspelt.post(f"/{path}/acme/ordre", body, Form_Definition_Version=7)
    assert notice(answer) == "acme/ordre is not published; the nearest name is acme/order"


def test_nothing_is_told_where_all_is_there(misspelt: Service) -> None:
    every = "<search/>", f"<search>{control(NAME, 'nobody')}</search>", f"<search>{field('created-by')}</search>"
    for body in every:
        for version in (None, 1, 2, "all"):
            own = {} if version is None else {"Form_Definition_Version": version}
            assert notice(misspelt.post("/search/acme/order", body, **own)) is None
    assert notice(misspelt.post(f"/search/{misspelt.designer}/builder", "<search/>")) is None
    assert notice(misspelt.post("/search/hr/leave", "<search/>")) is None


def test_roles_without_a_user_name_are_told(misspelt: Service) -> None:
    said = f"roles and groups count only together with a user name ({misspelt.prefix}Username)"
    assert notice(misspelt.post("/search/hr/own", "<search/>", Roles="clerk")) == said
    assert notice(misspelt.post("/search/hr/own", "<search/>", Roles="clerk", Username="lea")) is None
    assert notice(misspelt.post("/search/acme/order", "<search/>", Roles="clerk")) is None


def test_a_damaged_definition_is_no_reason_to_answer_otherwise(misspelt: Service) -> None:
    """It may be published or not: nobody can tell, and the search finds what it can."""
    sidecar = misspelt.data / "hr/broken/form/1/form.xhtml.json"
    sidecar.parent.mkdir(parents=True, exist_ok=True)
    sidecar.write_text("{")
    sidecar.with_name("form.xhtml").write_bytes(orders.definition())
    assert notice(misspelt.post("/search/hr/broken", "<search/>", **V1)) is None
