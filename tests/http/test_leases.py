"""LOCK and UNLOCK (spec crud 7), and the property that keeps others from writing to a leased document."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from persistence.limits import LARGEST_LOCK, LONGEST_LEASE
from tests.http.stories import play, require_holder, stories
from tests.in_process import serving
from tests.providers import Received, Reply, providing
from tests.served import served
from tests.service import PROVIDER, PUBLIC, V1, Service, lockinfo

PREFIX = {"svc": "svc.", "orbeon": "oxf.fr."}
XML = {"Content-Type": "application/xml"}
LEA = {"Timeout": "Second-600", **XML}
NAMES = ["data/{id}/data.xml", "draft/{id}/data.xml", "data/{id}/a.bin", "draft/{id}/a%20b.pdf"]

started = served("svc", "orbeon", settings='"{prefix}persistence.files.enforce-lease" = true', alone=True)


@pytest.fixture(params=[PUBLIC, PROVIDER], ids=["public", "provider"])
def service(request: pytest.FixtureRequest, started: Service) -> Service:
    return replace(started, face=request.param)


@pytest.fixture
def lenient(started: Service, tmp_path: Path) -> Iterator[Service]:
    """Leases as in the real system, where they matter to LOCK and UNLOCK only."""
    with serving(tmp_path, dialect=started.dialect, alone=True) as service:
        yield service


@pytest.mark.parametrize("name", NAMES)
@stories(
    {
        "the states: no lease, one's own (in whatever group), another user's": """
            UNLOCK {path} -> 200
            LOCK {path} -> 200 body= Content-Length=0
            LOCK {path} in=others -> 200
            LOCK|UNLOCK {path} for=bob -> 423 holder=lea/others
            UNLOCK {path} in=strangers -> 200
            LOCK {path} for=bob -> 200
            LOCK {path} -> 423 holder=bob
            UNLOCK {path} for=bob -> 200""",
        "only the holder writes where the property asks for it": """
            PUT {main} {path} v=1 by=bob
            LOCK data/{id} -> 200
            GET {path} -> 200 ETag>tag
            PUT|DELETE {path} v=1 by=bob <e/> -> 423 leased=lea/{id}
            PUT|DELETE {path} v=1 <e/> -> 423 leased=lea/{id}
            GET {path} -> 200 <d/> ETag={tag}
            PUT {path} v=1 by=lea
            DELETE {path} v=1 by=lea -> 204
            UNLOCK data/{id} -> 200
            PUT {path} v=1 by=bob""",
    }
)
def test_leases(service: Service, form: str, name: str, story: str) -> None:
    document = form[4:12]
    path = name.replace("{id}", document)
    play(service, form, story, id=document, path=path, main=f"{name.partition('/')[0]}/{document}/data.xml")
    assert service.leftovers() == []


@stories(
    {
        "a lease is of the id alone": """
            LOCK data/D -> 200
            LOCK /other/form/draft/D/x.bin for=bob -> 423 holder=lea
            UNLOCK /other/form/data/D -> 200""",
        "without the property it keeps nobody from writing, and stays when data is deleted (7)": """
            LOCK data/D -> 200
            PUT data/D v=1 by=bob -> 201
            PUT data/D v=1 -> 204
            DELETE data/D v=1 by=bob -> 204
            LOCK data/D for=bob -> 423 holder=lea""",
    }
)
def test_leases_as_in_the_real_system(lenient: Service, form: str, story: str) -> None:
    play(lenient, form, story)


TIMEOUTS = {
    "a LOCK needs the header Timeout": (None, ""),
    "a lease cannot be endless": ("Infinite", "infinite"),
    "must be such as Second-600": (
        *("600", "Second-", "Second--1", "Second-1.5", "Second-600, Infinite", "Second-9999999999999999999"),
        "Second-\u0663".encode().decode("latin-1"),
    ),
    "from Second-1 to": ("Second-0", f"Second-{LONGEST_LEASE + 1}"),
}
BODIES = {
    "not well-formed": (b"", b"lea", b'{"user": "lea"}', lockinfo()[:-5]),
    "DOCTYPE": (b"<!DOCTYPE d><d/>", b'<!DOCTYPE d [<!ENTITY u "lea">]>' + lockinfo("&u;")),
    "does not name a user": (
        *(lockinfo(None), lockinfo(""), lockinfo(" \n "), lockinfo("<x>lea</x>")),
        b"<lockinfo><username>lea</username></lockinfo>",
    ),
    "longer than 255": (lockinfo("x" * 256), lockinfo("lea", "x" * 256)),
    "control characters": (lockinfo("le&#x85;a"),),
    "more than 10000 elements": (b"<x>" + b"<x/>" * 11_000 + b"</x>",),
    "larger than the limit": (lockinfo() + b" " * LARGEST_LOCK,),
}


@pytest.mark.parametrize("cause", TIMEOUTS)
def test_a_timeout_that_is_none_is_refused(service: Service, form: str, cause: str) -> None:
    path = f"{form}/data/D{form[4:12]}/data.xml"
    for timeout in TIMEOUTS[cause]:
        assert service.lock(path, timeout=timeout).refuses(400, cause), timeout
    assert service.lock(path, "bob", timeout=f"Second-{LONGEST_LEASE}").status == 200
    assert service.unlock(path, "bob").status == 200


@pytest.mark.parametrize("method", ["LOCK", "UNLOCK"])
@pytest.mark.parametrize("cause", BODIES)
def test_a_bad_body_is_refused(service: Service, form: str, method: str, cause: str) -> None:
    path, status = f"{form}/data/D/data.xml", 413 if "limit" in cause else 400
    for sent in BODIES[cause]:
        assert service.ask(method, path, sent, LEA).refuses(status, cause), sent
    announced = service.ask(method, path, b"<x>", {**LEA, "Content-Length": str(10 << 20)})
    assert announced.refuses(413, f"the body is larger than the limit of {LARGEST_LOCK} bytes")


def test_only_data_has_leases_and_names_count_without_their_namespaces(service: Service, form: str) -> None:
    path = f"{form}/data/{form[4:12]}/data.xml"
    plain = "<lockinfo><owner> <username>\n l\u00e9a &amp; co </username></owner></lockinfo>".encode()
    assert service.ask("LOCK", path, plain, LEA).status == 200
    assert "l\u00e9a &amp; co" in service.lock(path, "bob").body.decode()
    assert service.put(path, b"<d>" + b"x" * 300_000 + b"</d>", **V1).status == 423
    assert service.leftovers() == [], "it stops before its body is stored"
    assert service.ask("UNLOCK", path, plain, LEA).status == 200
    for other in ("form/form.xhtml", "form/a.bin", "data/.d/data.xml", "data/a%5Cb/data.xml"):
        assert service.lock(f"{form}/{other}").status == service.unlock(f"{form}/{other}").status == 400
    assert service.ask("LOCK", f"{form}/data/", lockinfo(), LEA).status in (400, 404, 405)


def test_a_property_switches_leases_off(form: str, tmp_path: Path, started: Service) -> None:
    """They are on, as for each provider of the real system that has them (spec runtime 8)."""
    settings = f'"{PREFIX[started.dialect]}persistence.files.lease" = false\n'
    with serving(tmp_path, dialect=started.dialect, settings=settings, alone=True) as plain:
        for face in (PUBLIC, PROVIDER):
            refused = replace(plain, face=face).lock(f"{form}/data/D/data.xml")
            assert refused.status == 403
            name = f"{PREFIX[started.dialect]}persistence.files.lease"
            assert refused.cause == f"leases of {form} are switched off: the property {name} is false"
            assert replace(plain, face=face).unlock(f"{form}/data/D/data.xml").status == 403
        assert [path for path in (plain.data / ".leases").rglob("*") if path.is_file()] == []


OWN = '<permission operations="create -list"/><permission operations="read update delete -list"><owner/></permission>'


@pytest.mark.parametrize("name", NAMES)
def test_who_may_not_save_a_document_cannot_keep_its_owner_from_it(started: Service, form: str, name: str) -> None:
    """LOCK and UNLOCK need what a PUT of the document needs, where others are kept from writing by a lease."""
    told = f"""
        PERMISSIONS v=1 {OWN}
        PUT data/{{id}} v=1 by=lea -> 201
        LOCK {{path}} for=bob by=bob -> 403 `you may not update`
        LOCK|UNLOCK {{path}} by=bob -> 403 `you may not update`
        LOCK {{path}} -> 403
        PUT data/{{id}} v=1 by=lea -> 204
        LOCK {{path}} by=lea -> 200
        UNLOCK {{path}} by=bob -> 403
        UNLOCK {{path}} by=lea -> 200"""
    play(started, form, told, id=form[4:12], path=name.replace("{id}", form[4:12]))


@stories(
    {
        "deleting all data leaves what others have leased": """
            PUT data/{id}1 data/{id}2 v=1 by=bob -> 201
            LOCK data/{id}1 -> 200
            DELETE data/ v=1 by=bob -> 200 Deleted=1 Refused=1
            GET data/{id}1 -> 200
            UNLOCK data/{id}1 -> 200""",
        "else who may create documents of a form could take, shorten or end the leases of all others by their ids": """
            PUT data/{id} v=1 by=lea -> 201
            LOCK /other/form/data/{id} for=bob -> 200
            LOCK data/{id} -> 200
            LOCK|UNLOCK /other/form/data/{id} for=bob -> 423
            LOCK|UNLOCK /other/form/data/{id} -> 423
            PUT data/{id} v=1 by=bob -> 423
            UNLOCK data/{id} -> 200""",
        "else who may save in another form could keep the owner from the document with the same id here": """
            PUT data/{id} v=1 by=lea -> 201
            LOCK /other/form/data/{id} for=bob -> 200
            PUT data/{id} v=1 by=lea -> 204
            UNLOCK /other/form/data/{id} for=bob -> 200
            FACE provider
            LOCK /other/form/data/{id} for=bob -> 200
            PUT data/{id} v=1 by=lea -> 204""",
    }
)
def test_a_lease_is_of_its_form_where_it_keeps_others_from_writing(started: Service, form: str, story: str) -> None:
    play(started, form, story, id=form[4:12])


class Elsewhere:
    def __init__(self) -> None:
        self.reply = Reply(200)

    def __call__(self, got: Received) -> Reply:
        if got.path.partition("?")[0] == "/form/a/b":
            return Reply(200, XML, b"<forms/>")
        return self.reply if got.method in ("LOCK", "UNLOCK") else Reply(404)


def far(port: int) -> str:
    return (
        f'"svc.persistence.provider.*.*.*" = "far"\n"svc.persistence.far.uri" = "http://127.0.0.1:{port}"\n'
        '"svc.persistence.far.lease" = true\n"svc.persistence.far.enforce-lease" = true\n'
        '"svc.persistence.far.dialect" = "orbeon"\n'
    )


def test_leases_of_another_service_are_its_own(tmp_path: Path) -> None:
    path, answers = "a/b/data/D/data.xml", Elsewhere()
    with providing(answers) as provider:
        with serving(tmp_path, settings=far(provider.port), alone=True) as service:
            assert service.lock(path).status == 200
            got = provider.of("LOCK")[0]
            assert (got.path, got.body) == ("/crud/a/b/data/D/data.xml", lockinfo())
            assert got.headers.get_all("Timeout") == ["Second-600"]
            assert (got.headers["Content-Type"], got.headers["Orbeon-Lease"]) == ("application/xml", "true")
            assert service.unlock(path).status == 200
            assert provider.of("UNLOCK")[0].headers["Timeout"] is None
            answers.reply = Reply(423, {**XML, "Timeout": "Second-599"}, lockinfo("bob"))
            require_holder(service.lock(path), "bob")
            answers.reply = Reply(423, XML, lockinfo("bob"))
            refused = service.unlock(path)
            assert (refused.status, refused["Timeout"], b"bob" in refused.body) == (423, None, True)
            for reply in (Reply(423, XML, b"<broken"), Reply(423), Reply(423, XML, b"<x>" + b"y" * LARGEST_LOCK)):
                answers.reply = reply
                refused = service.lock(path)
                assert refused.status == 423
                assert refused.cause == "provider 'far' says that somebody else has leased the document D"
            answers.reply = Reply(405)
            assert service.lock(path).status == 502
        provider.received.clear()
    assert list((service.data / ".leases").rglob("*")) == []


@pytest.mark.parametrize("enforced", [True, False], ids=["enforced", "not"])
def test_a_real_second_service_has_the_leases(tmp_path: Path, *, enforced: bool) -> None:
    """It says who holds one, also to writers of both, if it enforces leases: what is set in front decides nothing."""
    own = f'"oxf.fr.persistence.files.enforce-lease" = {str(enforced).lower()}\n'
    with (
        serving(tmp_path / "behind", dialect="orbeon", settings=own, alone=True) as behind,
        serving(tmp_path / "front", settings=far(behind.port), alone=True) as service,
    ):
        path, draft = "a/b/data/D/data.xml", "a/b/draft/D/data.xml"
        assert service.put(path, **V1, Username="lea").status == 201
        assert service.lock(path).status == behind.lock(path).status == 200
        require_holder(service.lock(path, "bob"), "lea")
        require_holder(behind.lock(draft, "bob"), "lea")
        require_holder(service.unlock(path, "bob"), "lea")
        refused = [service.put(path, **V1, Username="bob"), service.put(draft, **V1)]
        refused.append(service.delete(path, **V1, Username="bob"))
        assert [answer.status for answer in refused] == ([423] * 3 if enforced else [204, 201, 204])
        assert not enforced or all("lea" in answer.cause for answer in refused)
        assert service.put(path, **V1, Username="lea").status == (204 if enforced else 201)
        assert service.unlock(path).status == 200
        assert service.put(path, **V1, Username="bob").status == 204
        assert service.get(path).status == 200


def test_ids_of_nothing_leave_room_for_documents(lenient: Service, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for engine in ("storage.document_leases", "postgresql.database_storage"):
        monkeypatch.setattr(f"persistence.{engine}.MOST_LEASES_BESIDE_NEW_IDS", 0)
    refused = lenient.lock(f"{form}/data/nothing/data.xml")
    assert (refused.status, refused.cause) == (503, "too many documents are leased at the moment")
    for there in (f"{form}/data/saved/data.xml", f"{form}/draft/begun/data.xml"):
        assert lenient.put(there, **V1, Username="lea").status == 201
        assert lenient.lock(there).status == 200
