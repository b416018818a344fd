"""What the proxy makes of the list of forms: versions, permissions, and what its pages show (spec runtime 1)."""

from dataclasses import replace

import pytest

from tests.http.runtime.proxy import Proxy
from tests.http.runtime.releases import ADMIN, BOB, CLEO, CLERKS, DANA, EVERYTHING, LEA, NOBODY, OWNERS, Person
from tests.published import definition
from tests.service import PUBLIC

UNAVAILABLE = "<available>false</available>"
MIXED = """<permissions>
    <permission operations="create -list"/>
    <permission operations="read update -list"><any-authenticated-user/></permission>
    <permission operations="read update"><owner/></permission>
    <permission operations="read"><group-member/></permission>
    <permission operations="read"><anyone-with-token/></permission>
    <permission operations="read update delete"><user-role any-of="clerk head%20clerk"/></permission>
    </permissions>"""
PEOPLE = (LEA, Person("kim"), BOB, CLEO, NOBODY)
"""Kim is in Lea's group."""

ALLOWED = {
    "": (("*", "*"),) * 5,
    "<permissions/>": (("", ""),) * 5,
    CLERKS: (("", ""), ("", ""), ("", ""), ("read list", "read list"), ("", "")),
    OWNERS: ((EVERYTHING, EVERYTHING), *((EVERYTHING, "create"),) * 3, ("", "")),
    MIXED: (
        ("create read update list", "create read update list"),
        ("create read update list", "create read update list"),
        ("create read update list", "create read update"),
        (EVERYTHING, EVERYTHING),
        ("create", "create"),
    ),
}
"""What each may do with new data, and with data of Lea's (spec crud 6.2 and 6.4)."""


@pytest.mark.parametrize("metadata", ALLOWED, ids=["undefined", "empty", "clerks", "owners", "mixed"])
def test_people_may_do_what_the_definition_allows(lea: Proxy, form: str, metadata: str) -> None:
    """By the proxy's own judgement; the provider API lets all of it happen, and the public API judges alike."""
    path, files = f"{form}/data/D/data.xml", [f"{number}.bin" for number in range(len(PEOPLE))]
    lea.publish(form, definition(""))
    lea.save(form, "D", *files)
    lea.publish(form, definition(metadata))
    public = replace(lea.provider, face=PUBLIC)
    for person, name, (new, stored) in zip(PEOPLE, files, ALLOWED[metadata], strict=True):
        proxy, file, found = lea.of(person), f"{form}/data/D/{name}", lea.send("HEAD", path)
        assert (proxy.operations(form, 1), proxy.operations(form, 1, found)) == (new, stored)
        may = {word: bool({word, "*"} & set(stored.split())) for word in EVERYTHING.split()}
        got = public.get(path, dict(person.headers(lea.release)))
        assert (got.status, got["Orbeon-Operations"] or stored) == (200 if may["read"] else 403, stored)
        assert [proxy.read(each).status for each in (path, file)] == [got.status] * 2
        assert proxy.write(path, b"<form/>").status in ((201, 204) if may["update"] else (403,))
        assert proxy.save(form, f"of-{person.name}") == [201 if {"create", "*"} & set(new.split()) else 403]
        if not may["delete"]:
            assert proxy.remove(path).status == 403
            assert proxy.remove(file).status == (204 if may["update"] else 403)


def test_each_version_has_permissions_of_its_own(lea: Proxy, form: str) -> None:
    """Those of a version that is gone are taken from another one (spec crud 5.2); nothing is open to everybody."""
    for number, metadata in enumerate(("", CLERKS, OWNERS), 1):
        lea.publish(form, definition(""), "next")
        lea.save(form, f"D{number}", version=number)
        lea.publish(form, definition(metadata), number)
    bob, paths = lea.of(BOB), [f"{form}/data/D{number}/data.xml" for number in (1, 2, 3)]
    assert [bob.read(path).status for path in paths] == [200, 403, 403]
    assert [lea.read(path).status for path in paths] == [200, 403, 200]
    for gone, statuses in (3, [200, 403, 403]), (1, [403, 403, 403]):
        assert lea.remove_form(form, gone).status == 204
        assert [bob.read(path).status for path in paths] == statuses


def test_home_page_admin_page_and_toolbox(lea: Proxy, form: str) -> None:
    """Forms that are closed to somebody, unavailable ones and libraries are listed to the proxy, which hides them."""
    app = form.partition("/")[0]
    forms = {
        "open": [""],
        "leave": [OWNERS, OWNERS],
        "closed": [CLERKS],
        "hidden": [UNAVAILABLE],
        "old": ["", UNAVAILABLE],
        "library": [CLERKS, CLERKS],
    }
    for name, versions in forms.items():
        for metadata in versions:
            lea.of(DANA).publish(f"{app}/{name}", definition(metadata), "next")
    shown = {person.name: lea.of(person).pages(app) for person in (NOBODY, BOB, CLEO, ADMIN)}
    at_home = {f"{app}/open": "*"}
    assert shown.pop("") == at_home
    at_home[f"{app}/leave"] = EVERYTHING
    assert shown.pop("bob") == at_home
    assert shown.pop("cleo") == {**at_home, f"{app}/closed": "read list"}
    assert set(shown.pop("ada")) == {f"{app}/{name}" for name in forms}
    assert lea.of(DANA).latest(f"{app}/library") == 2


def test_a_form_is_unpublished_and_published_again(lea: Proxy, form: str) -> None:
    """On the admin page, which must still list it."""
    app, ada, path = form.partition("/")[0], lea.of(ADMIN), f"{form}/data/D/data.xml"
    for metadata, is_available in (OWNERS, True), (f"{UNAVAILABLE}{OWNERS}", False), (OWNERS, True):
        ada.publish(form, definition(metadata), 1)
        lea.save(form, "D")
        assert [each.is_available for each in ada.versions(form)] == [is_available]
        assert list(ada.pages(app)) == [form]
        assert list(lea.pages(app)) == [form] * is_available
        assert (lea.read(path).status, lea.of(BOB).read(path).status) == (200, 403)
