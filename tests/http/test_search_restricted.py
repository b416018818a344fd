"""Over HTTP a search shows what a GET shows: the ways in which an attacker had seen more."""

from tests import orders
from tests.http.test_search import search
from tests.orders import found
from tests.searches import NAME, control
from tests.served import served
from tests.service import V1, Service

CITY = "Paris"
LEA, BOB = {"Username": "lea", "Group": "staff"}, {"Username": "bob", "Group": "staff"}
DATA = f"<form><customer><name>{CITY}</name></customer><salary>72000</salary></form>".encode()
EVERY_WAY = ("create", "list", "read", "update delete", "create read update delete list")


restricted = served("svc", "orbeon", settings='"{prefix}persistence.*.search.restrict-to-readable" = true')


def permission(operations: str, conditions: str = "") -> str:
    return f'<permission operations="{operations}">{conditions}</permission>'


def publish(service: Service, form: str, *permissions: str, version: int = 1) -> None:
    body = orders.definition(f"<permissions>{''.join(permissions)}</permissions>" if permissions else "")
    assert service.put(f"{form}/form/form.xhtml", body, Form_Definition_Version=version).status < 300


def sees(service: Service, form: str, version: object = 1, **user: object) -> set[str]:
    """The documents that are shown in any way; all ways must show the same."""
    every = [
        set(found(search(service, f"<search>{asked}{control(NAME)}</search>", version, form, **user).body))
        for asked in ("", *(f'<operations any-of="{operations}"/>' for operations in EVERY_WAY))
    ]
    shown = set().union(*every)
    texts = search(service, "<search><query>72000</query></search>", version, form, **user)
    assert set(found(texts.body)) == shown
    body = f"<distinct-values>{control(NAME)}</distinct-values>"
    values = service.post(f"/distinct-values/{form}", body, Form_Definition_Version=version, **user)
    assert (CITY.encode() in values.body) is bool(shown)
    return shown


def test_who_may_only_create_sees_nothing(restricted: Service, form: str) -> None:
    publish(restricted, form, permission("create -list"), permission("read update", "<owner/>"))
    restricted.put(f"{form}/data/A/data.xml", DATA, **V1, **LEA)
    assert restricted.get(f"{form}/data/A/data.xml").status == 403
    assert sees(restricted, form) == sees(restricted, form, **BOB) == set()
    assert sees(restricted, form, **LEA) == {"A"}


def test_of_two_conditions_both_must_hold(restricted: Service, form: str) -> None:
    both = '<group-member/><user-role any-of="clerk"/>'
    publish(restricted, form, permission("create -list"), permission("read", both))
    restricted.put(f"{form}/data/A/data.xml", DATA, **V1, **LEA)
    assert sees(restricted, form, **BOB) == sees(restricted, form, Username="kim", Roles="clerk") == set()
    assert sees(restricted, form, **BOB, Roles="clerk") == {"A"}


def test_the_permissions_of_its_own_version_count_for_each_document(restricted: Service, form: str) -> None:
    publish(restricted, form, permission("create -list"), permission("read", "<owner/>"))
    publish(restricted, form, version=2)
    restricted.put(f"{form}/data/A/data.xml", DATA, **V1, **LEA)
    restricted.put(f"{form}/data/B/data.xml", DATA, Form_Definition_Version=2, **LEA)
    assert sees(restricted, form, "all", **BOB) == {"B"}
    assert sees(restricted, form, "all", **LEA) == {"A", "B"}
    assert sees(restricted, form, 1, **BOB) == set()


def test_a_draft_is_one_of_the_version_of_the_saved_document(restricted: Service, form: str) -> None:
    """It would otherwise be shown by the permissions of another version than a GET goes by."""
    publish(restricted, form, permission("create -list"), permission("read update", "<owner/>"))
    publish(restricted, form, version=2)
    restricted.put(f"{form}/data/A/data.xml", DATA, **V1, **LEA)
    draft = f"{form}/draft/A/data.xml"
    assert restricted.put(draft, DATA, Form_Definition_Version=2, **BOB).status == 403
    assert restricted.put(draft, DATA, Form_Definition_Version=2, **LEA).status == 201
    assert [restricted.get(draft, **user).status for user in (BOB, LEA)] == [403, 200]
    assert sees(restricted, form, 2, **BOB) == sees(restricted, form, "all", **BOB) == set()
    assert sees(restricted, form, "all", **LEA) == {"A", "A°"}


def test_a_draft_is_seen_by_those_who_see_what_is_saved(restricted: Service, form: str) -> None:
    publish(restricted, form)
    for path, user in (("data/A", LEA), ("draft/A", BOB), ("draft/N", BOB)):
        assert restricted.put(f"{form}/{path}/data.xml", DATA, **V1, **user).status == 201
    publish(restricted, form, permission("create read", "<owner/>"))
    assert sees(restricted, form, **LEA) == {"A", "A°"}
    assert sees(restricted, form, **BOB) == {"N°"}
    assert [restricted.get(f"{form}/draft/{name}/data.xml", **BOB).status for name in "AN"] == [403, 200]
    assert restricted.delete(f"{form}/data/A/data.xml", **LEA).status == 403
    publish(restricted, form)
    restricted.delete(f"{form}/data/A/data.xml", **LEA)
    publish(restricted, form, permission("create read", "<owner/>"))
    assert sees(restricted, form, **LEA) == set()
