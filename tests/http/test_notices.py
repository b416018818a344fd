"""Queries that are misspelt: refused where the interface knows all words, and told where a name may be anyone's."""

import pytest

from tests import orders
from tests.published import PERMISSIONS, Planter
from tests.searches import NAME, STATUS, control, field
from tests.served import served
from tests.service import PROVIDER, PUBLIC, V1, Answer, Service

pytestmark = pytest.mark.xdist_group("notices")  # a tree is planted and served once


def plant(planter: Planter) -> None:
    orders.plant(planter)
    planter.define("acme/order", 2, orders.definition(), "2024-04-02T09:00:00.000Z")
    planter.define("hr/leave", 1, orders.definition(), "2024-04-01T09:00:00.000Z")
    planter.publish("hr/secret", 1, "<permissions/>", "2024-04-01T09:00:00.000Z")
    planter.publish("hr/own", 1, PERMISSIONS, "2024-04-01T09:00:00.000Z")


planted = served("svc", "orbeon", plant=plant)


@pytest.fixture(params=[PROVIDER, PUBLIC], ids=["provider", "public"])
def acme(request: pytest.FixtureRequest, planted: Service) -> Service:
    planted.face = request.param
    return planted


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
def test_what_is_unknown_in_a_query_is_refused_with_the_nearest_name(
    acme: Service, path: str, body: str, cause: str
) -> None:
    """In dialect orbeon it is ignored, as the real system does: its own client sends a lot."""
    answer = acme.post(path, body)
    if acme.dialect == "svc":
        assert (answer.status, answer["Content-Type"]) == (400, "text/plain; charset=utf-8")
        assert cause in answer.cause, answer.cause
    else:
        assert answer.status == 200


def test_what_a_runtime_says_besides_is_known(acme: Service) -> None:
    """Spec search 0.2 and 1.1: attributes and elements without a meaning here, and comments between."""
    said = (
        'name="n" type="xs:string" summary-show="true" statically-required="false" html-label="false" control="input"'
    )
    query = f'<!-- c --><?p i?><query xml:lang="en" path="{NAME}" {said}/><lang>en</lang>'
    body = f'<search xml:lang="en" xml:space="preserve">{query}</search>'
    assert notice(acme.post("/search/acme/order", body)) is None
    remote = '<remote-server url="u" username="n" password="p"/>'
    body = f'<search xml:lang="de">{remote}<filter metadata="title" match="exact" xml:lang=""/></search>'
    assert acme.post("/form", body).status == 200


def test_a_very_long_name_is_refused_in_one_short_line(acme: Service) -> None:
    answer = acme.post("/search/acme/order", f"<search><{'q' * 9000}/></search>")
    if acme.dialect == "svc":
        assert (answer.status, len(answer.body) < 310) == (400, True)


@pytest.mark.parametrize(
    "body",
    [
        f"<search>{control('customer/nam', 'Ada')}</search>",
        f"<search>{control('customer/nam')}{control(STATUS)}</search>",
        f"<search>{control('customer[1]/nam[1]', sort='asc')}</search>",
        f'<search return-all-indexed-fields="true">{control("customer/nam", "Ada")}</search>',
    ],
)
def test_an_unknown_control_is_told_with_the_nearest(acme: Service, body: str) -> None:
    said = notice(acme.post("/search/acme/order", body))
    assert said == "version 2 of acme/order has no indexed control 'customer/nam' (the nearest is 'customer/name')"
    distinct = acme.post("/distinct-values/acme/order", f"<d>{control('customer/nam')}{control(STATUS)}</d>")
    assert notice(distinct) == said


def test_a_control_that_is_not_indexed_is_told_too(acme: Service) -> None:
    answer = acme.post("/search/acme/order", f"<search>{control('customer/notes', 'call')}</search>")
    assert b'search-total="0"' in answer.body
    assert "has no indexed control 'customer/notes'" in str(notice(answer))


def test_many_unknown_controls_are_one_short_notice(acme: Service) -> None:
    body = "".join(control(f"customer/{number}") for number in range(150))
    said = str(notice(acme.post("/search/acme/order", f"<search>{body}</search>")))
    assert (said.endswith("and 147 more"), len(said) <= 300) == (True, True)
    long = str(notice(acme.post("/search/acme/order", f"<search>{control('é/' * 2000)}</search>")))
    assert len(long) <= 700  # UTF-8 in Latin-1


@pytest.mark.parametrize(("path", "body"), [("search", "<search/>"), ("distinct-values", f"<d>{control(NAME)}</d>")])
def test_an_unknown_form_is_told_with_the_nearest(acme: Service, path: str, body: str) -> None:
    assert (
        notice(acme.post(f"/{path}/acme/ordre", body)) == "acme/ordre is not published; the nearest name is acme/order"
    )
    assert (
        notice(acme.post(f"/{path}/acne/order", body)) == "acne/order is not published; the nearest name is acme/order"
    )
    assert notice(acme.post(f"/{path}/hr/leafe", body)) == "hr/leafe is not published; the nearest name is hr/leave"
    assert notice(acme.post(f"/{path}/zz/qq", body)) == "zz/qq is not published"


def test_a_name_that_the_list_hides_is_not_told(acme: Service) -> None:
    """The list of forms leaves out those with which the caller may do nothing."""
    for form in ("hr/secre", "hr/secrets"):
        assert "secret" not in str(notice(acme.post(f"/search/{form}", "<search/>"))).removeprefix(form)


def test_an_unknown_version_is_told_with_those_there_are(acme: Service) -> None:
    for path, body in (("search", "<search/>"), ("distinct-values", f"<d>{control(NAME)}</d>")):
        answer = acme.post(f"/{path}/acme/order", body, Form_Definition_Version=7)
        assert notice(answer) == "acme/order has no published version 7; it has 2, 1"
    answer = acme.post("/search/acme/ordre", "<search/>", Form_Definition_Version=7)
    assert notice(answer) == "acme/ordre is not published; the nearest name is acme/order"


def test_nothing_is_told_where_all_is_there(acme: Service) -> None:
    every = "<search/>", f"<search>{control(NAME, 'nobody')}</search>", f"<search>{field('created-by')}</search>"
    for body in every:
        for version in (None, 1, 2, "all"):
            own = {} if version is None else {"Form_Definition_Version": version}
            assert notice(acme.post("/search/acme/order", body, **own)) is None
    assert notice(acme.post(f"/search/{acme.designer}/builder", "<search/>")) is None
    assert notice(acme.post("/search/hr/leave", "<search/>")) is None


def test_roles_without_a_user_name_are_told(acme: Service) -> None:
    said = f"roles and groups count only together with a user name ({acme.prefix}Username)"
    assert notice(acme.post("/search/hr/own", "<search/>", Roles="clerk")) == said
    assert notice(acme.post("/search/hr/own", "<search/>", Roles="clerk", Username="lea")) is None
    assert notice(acme.post("/search/acme/order", "<search/>", Roles="clerk")) is None


def test_a_damaged_definition_is_no_reason_to_answer_otherwise(acme: Service) -> None:
    """It may be published or not: nobody can tell, and the search finds what it can."""
    sidecar = acme.data / "hr/broken/form/1/form.xhtml.json"
    sidecar.parent.mkdir(parents=True, exist_ok=True)
    sidecar.write_text("{")
    sidecar.with_name("form.xhtml").write_bytes(orders.definition())
    assert notice(acme.post("/search/hr/broken", "<search/>", **V1)) is None
