"""Purging over HTTP: who may, what goes, and what stays (spec crud 4.8, 4.9, 8.5)."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from lxml import etree

from persistence.crypto import EncryptionKeys
from persistence.dialect import DIALECTS
from persistence.keys import Keys
from tests import encrypted_form
from tests.http.stories import play, stories
from tests.in_process import serving
from tests.service import PROVIDER, PUBLIC, V1, Answer, Service

FORM = "hr/leave"
D = f"{FORM}/data/D/data.xml"
A = f"{FORM}/data/D/a.bin"
FORCED = "?force-delete=true"


@pytest.fixture(params=[(dialect, face) for dialect in sorted(DIALECTS) for face in (PUBLIC, PROVIDER)], ids="-".join)
def service(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Service]:
    dialect, face = request.param
    settings = 'keys = "keys.json"\nadministrators = ["admin"]\ntrusted = ["127.0.0.1"]\n'
    keys = Keys(f"{tmp_path}/keys.json", tree=f"{tmp_path}/data")
    admin, other = keys.add("admin"), keys.add("other")
    with serving(tmp_path, dialect=dialect, settings=settings, alone=True) as service:
        service.face = face
        service.extra = {"Authorization": f"Bearer {admin}"}
        service.other = {"Authorization": f"Bearer {other}"}  # type: ignore[attr-defined]
        yield service


def stored(service: Service, path: str = D, times: int = 1, **own: object) -> list[str]:
    """Store something so many times, and return its instants, oldest first."""
    answers = [service.put(path, **{**V1, **own}) for _ in range(times)]
    assert all(answer.status in (201, 204) for answer in answers)
    return [answer.instant for answer in answers]


def of(path: str, revision: str) -> str:
    return f"{path}{FORCED}&last-modified-time={revision}"


def purge(service: Service, path: str, query: str) -> Answer:
    return service.raw("POST", f"{PUBLIC}/purge{path}?{query}")


@stories(
    {
        "one older revision goes: 204 without the headers of a modification, then 404; others stay (4.9, 4.8)": """
            PUT data/D v=1 -> Last-Modified>first
            PUT data/D v=1 -> Last-Modified>second
            PUT data/D v=1 -> Last-Modified>third
            DELETE data/D?{purge}={second} v=1 -> 204 Modified= ETag= Last-Modified=
            DELETE data/D?{purge}={second} v=1 -> 404
            GET data/D?last-modified-time={first} data/D?last-modified-time={second} v=1 -> 200 404
            GET data/D?last-modified-time={third} v=1 -> 200
            HEAD data/D?last-modified-time={first} v=1 -> 200 Last-Modified={first}""",
        "the current revision stays; in the real system, the one before would become current": """
            PUT data/D v=1 -> Last-Modified>only
            DELETE data/D?{purge}={only} v=1 -> 409 `is the current revision`
            GET data/D v=1 -> 200""",
        "the tombstone of a purge can be purged again: a runtime that was stopped half-way lists the history again": """
            PUT data/D v=1 -> Last-Modified>first
            DELETE data/D v=1
            HEAD data/D?force-delete=true v=1 -> 200 Last-Modified>one
            DELETE data/D?{purge}={one} v=1 -> 204
            HEAD data/D?force-delete=true v=1 -> 200 Last-Modified>two
            DELETE data/D?{purge}={two} v=1 -> 204
            GET data/D?last-modified-time={first} v=1 -> 200
            PUT data/D v=1 -> 201
            DELETE data/D?{purge}={first} v=1 -> 204
            GET data/D v=1 -> 200""",
        "versions and preconditions count": """
            PUT data/D v=1 -> Last-Modified>first
            PUT data/D v=1
            DELETE data/D?{purge}={first} v=2 -> 400
            DELETE data/D?{purge}={first} If-Match="0123" v=1 -> 412
            GET data/D?last-modified-time={first} v=1 -> 200""",
        "a deletion goes last, with everything but a draft": """
            PUT data/D v=1 -> Last-Modified>first
            PUT data/D/a.bin data/D/a.bin draft/D v=1
            DELETE data/D v=1
            PUT draft/D v=1
            HEAD data/D?{forced} v=1 -> 200 Content-Length=0 Last-Modified!{first} Last-Modified>gone
            DELETE data/D?{purge}={first} v=1 -> 204
            GET data/D v=1 -> deleted
            DELETE data/D?{purge}={gone} v=1 -> 204
            HEAD data/D?{forced} v=1 -> 404
            NOTHING data/D
            GET draft/D v=1 -> 200
            PUT data/D v=1 -> 201""",
        "from the newest to the oldest, as a runtime: DELETE, that revision, the tombstone, older ones (runtime 6)": """
            PUT data/D v=1 -> Last-Modified>first
            PUT data/D v=1 -> Last-Modified>second
            PUT data/D v=1 -> Last-Modified>third
            PUT data/D/a.bin data/D/a.bin v=1
            DELETE data/D v=1
            HEAD data/D?{forced} v=1 -> 200 Last-Modified>gone"""
        + "".join(
            f"""
            GET data/D v=1 -> deleted
            HEAD data/D?{{forced}} v=1 -> 200
            DELETE data/D?{{purge}}={{{each}}} data/D?{{purge}}={{{each}}} v=1 -> 204 404"""
            for each in ("third", "gone", "second", "first")
        )
        + """
            HEAD data/D?{forced} v=1 -> 404
            GET data/D v=1 -> 404
            NOTHING data/D
            DELETE data/D?{purge}={gone} v=1 -> 404 lines=1""",
        "an attachment goes with all its revisions, deleted or not": """
            PUT data/D data/D/a.bin data/D/a.bin data/D/b.bin data/D/b.bin v=1
            DELETE data/D/b.bin v=1 -> 204
            HEAD data/D/b.bin?{forced} v=1 -> 200
            DELETE data/D/a.bin?{forced} data/D/b.bin?{forced} v=1 -> 204
            DELETE data/D/a.bin?{forced} data/D/b.bin?{forced} v=1 -> 404
            NOTHING data/D/a.bin data/D/b.bin data/D/.history
            GET data/D v=1 -> 200""",
        "a document without its current revision goes with the last older one": """
            PUT data/D data/D data/D/a.bin v=1
            POST {all}/{form}/D?data-revision-history=exclude -> 200
            GET data/D v=1 -> deleted
            POST {all}?match={form}/all&data-revision-history=include -> 200
            GET data/D v=1 -> 404
            NOTHING data/D""",
        "other combinations are refused": """
            PUT data/D data/D/a.bin v=1
            DELETE data/D?{forced} data/D/a.bin?{forced}&last-modified-time={never} v=1 -> 400 lines=1
            DELETE data/D?{forced}&last-modified-time=soon data/D?{forced}&as-of={never} v=1 -> 400 lines=1
            DELETE data/D?force-delete=yes data/D?last-modified-time={never} v=1 -> 400 lines=1
            DELETE draft/D?{forced} form?{forced} data/?{forced} v=1 -> 400 lines=1
            GET data/D data/D/a.bin v=1 -> 200""",
        "what says too little, or lies in the future, is refused": """
            POST {all} {all}?what=revisions {all}?older-than=1d {all}?form-version=x {all}?match=a/b/c/d -> 400 lines=1
            POST {all}?match={form}&what=revisions&older-than=1d {all}?what=all&older-than=1d -> 400 lines=1
            POST {all}?data-revision-history=all {all}?data-revision-histroy=include -> 400 lines=1
            POST {all}?data-last-modified-time-lt=soon {all}?what=revisions&older-than=soon -> 400 lines=1
            POST {all}?what=revisions&older-than=2099-01-01 -> 400 lines=1
            POST {all}?data-revision-history=include&dry-run=perhaps -> 400 lines=1
            POST {all}?what=revisions&older-than=1d&dry-run=perhaps -> 400 lines=1""",
    }
)
def test_purging(service: Service, story: str) -> None:
    never = "2025-03-04T05:06:07.089Z"
    words = {"forced": "force-delete=true", "purge": "force-delete=true&last-modified-time", "never": never}
    play(service, FORM, story, all=f"/{PUBLIC}/purge", **words)
    assert service.leftovers() == []


def test_only_administrators_purge(service: Service) -> None:
    first, _ = stored(service, times=2)
    for extra in ({}, service.other):  # type: ignore[attr-defined]
        service.extra = extra
        assert service.delete(of(D, first), **V1).status == service.head(f"{D}{FORCED}", **V1).status == 403
        assert purge(service, "", "what=revisions&older-than=1d").status == 403
    assert service.get(f"{D}?last-modified-time={first}", **V1).status == 200


def test_without_administrators_it_is_switched_off(tmp_path: Path) -> None:
    with serving(tmp_path, alone=True) as service:
        [first, _] = stored(service, times=2)
        assert service.delete(of(D, first), **V1).refuses(400, "not enabled")
        assert service.head(f"{D}{FORCED}", **V1).status == 400


def test_who_may_not_delete_may_not_purge(service: Service) -> None:
    """4.9: by the owner of the revision, or of the attachment itself. Behind a proxy nothing is decided again."""
    is_decided = (service.dialect, service.face) == ("orbeon", PROVIDER)
    own = '<permission operations="create read update"/><permission operations="delete"><owner/></permission>'
    told = """
        PERMISSIONS v=1 {own}
        PUT data/D v=1 by=lea -> 201 Last-Modified>first
        PUT data/D data/D/a.bin v=1 by=lea
        HEAD data/D?{purge}={first} v=1 by=lea -> 200
        DELETE data/D?{purge}={first} data/D/a.bin?force-delete=true v=1 by=bob -> {bobs}
        DELETE data/D?{purge}={first} data/D/a.bin?force-delete=true v=1 by=lea -> {leas}"""
    bobs, leas = ("204", "404") if is_decided else ("403", "204")
    play(service, FORM, told.replace("{own}", own), purge="force-delete=true&last-modified-time", bobs=bobs, leas=leas)


def test_a_trial_and_a_purge_of_all(service: Service) -> None:
    """8.5: a dry run unless it is said otherwise; the same numbers in both."""
    stored(service, times=3)
    service.put(f"{FORM}/draft/E/data.xml", **V1)
    last = stored(service, f"{FORM}/data/last/data.xml")[0]
    query = f"what=revisions,drafts&older-than={last}"
    dry, again = purge(service, "", query), purge(service, "", query)
    assert (dry.status, dry.body) == (200, again.body)
    real = purge(service, f"/{FORM}", f"{query}&dry-run=false")
    found, expected = dict(etree.fromstring(real.body).attrib), dict(etree.fromstring(dry.body).attrib)
    assert expected.pop("dry-run") == "true"
    assert found.pop("dry-run") == "false"
    assert (found, found["revisions"], found["drafts"], found["documents"]) == (expected, "2", "1", "0")
    assert service.get(f"{FORM}/draft/E/data.xml", **V1).status == 404
    done = etree.fromstring(purge(service, f"/{FORM}/D", query).body).attrib
    assert {done[name] for name in ("revisions", "drafts", "bytes")} == {"0"}
    assert purge(service, f"/{FORM}/none", query).status == 404


def revisions(service: Service, document: str) -> int:
    listed = service.raw("GET", f"{PUBLIC}/history/{FORM}/{document}")
    return int(etree.fromstring(listed.body).attrib["total"])


@pytest.mark.parametrize(
    ("query", "left"),
    [
        ("data-revision-history=include", {"old": 0, "new": 0, "other": 0, "gone": 0}),
        ("data-revision-history=only", {"old": 1, "new": 1, "other": 1, "gone": 1}),
        ("data-revision-history=exclude", {"old": 2, "new": 3, "other": 0, "gone": 3}),
        ("form-version=1", {"old": 2, "new": 3, "other": 1, "gone": 3}),
        ("data-revision-history=include&form-version=2", {"old": 2, "new": 3, "other": 0, "gone": 3}),
        ("data-revision-history=include&data-last-modified-time-lt={cut}", {"old": 0, "new": 1, "other": 0, "gone": 0}),
        ("data-revision-history=only&data-last-modified-time-gte={cut}", {"old": 2, "new": 3, "other": 1, "gone": 3}),
    ],
)
def test_a_purge_as_the_real_system_asks_for_it(service: Service, query: str, left: dict[str, int]) -> None:
    """Spec runtime 6: with the history a document goes, without it the current revision, ``only`` older ones."""
    documents = {name: f"{FORM}/data/{name}/data.xml" for name in left}
    for name in ("old", "gone", "new"):
        stored(service, documents[name], times=2)
    stored(service, documents["other"], Form_Definition_Version=2)
    service.delete(documents["gone"], **V1)
    before = {"old": 2, "new": 3, "other": 1, "gone": 3}
    time.sleep(0.002)
    [cut, *_] = stored(service, documents["new"], times=1)
    asked = query.format(cut=cut)
    trial = purge(service, f"/{FORM}", f"{asked}&dry-run=true")
    assert {name: revisions(service, name) for name in left} == before
    done = purge(service, f"/{FORM}", asked)
    assert (done.status, trial.body.replace(b'"true"', b'"false"')) == (200, done.body)
    assert {name: revisions(service, name) for name in left} == left
    for name, path in documents.items():
        if left[name] > 1 or "only" in query:
            assert service.get(path).status in (200, 404, 410)
    assert service.leftovers() == []


def test_an_attachment_stays_that_only_an_encrypted_value_names(tmp_path: Path) -> None:
    """The stored data does not show what it names, and a GET of it does."""
    EncryptionKeys(f"{tmp_path}/encryption.json", trees=[f"{tmp_path}/data"]).new()
    file, name, other = tmp_path / "settings.toml", f"{FORM}/data/D/1.bin", f"{FORM}/data/E/1.bin"
    file.write_text('encryption_keys = "encryption.json"\nadministrators = ["trusted"]\ntrusted = ["127.0.0.1"]\n')
    naming = encrypted_form.data().replace(encrypted_form.SECRETS[0].encode(), f"{PUBLIC}/crud/{name}".encode())
    with serving(tmp_path, options=("--config", str(file)), alone=True) as service:
        service.put(f"{FORM}/form/form.xhtml", encrypted_form.DEFINITION, **V1)
        for path, body in ((name, b"x"), (other, b"x"), (D, naming), (f"{FORM}/data/E/data.xml", b"<form/>")):
            assert service.put(path, body, **V1).status == 201
        assert name.encode() in service.get(D).body
        assert name.encode() not in (service.data / D).read_bytes()
        last = stored(service, f"{FORM}/data/last/data.xml")[0]
        answer = purge(service, f"/{FORM}", f"what=orphans&older-than={last}&dry-run=false")
        assert (answer.status, etree.fromstring(answer.body).get("attachments")) == (200, "1")
        assert (service.get(name).status, service.get(other).status) == (200, 404)


def test_a_revision_whose_attachment_was_purged_does_not_come_back_with_another(service: Service) -> None:
    held = f"<d>{PUBLIC}/crud/{A}</d>".encode()
    saved = []
    for number in range(3):
        time.sleep(0.002)
        stored(service, A)
        time.sleep(0.002)
        saved.append(service.put(D, held.replace(b"</d>", b" <!-- %d --></d>" % number), **V1).instant)
    assert purge(service, f"/{FORM}/D", f"what=revisions&older-than={saved[0]}&dry-run=false").status == 200
    current = service.get(A, **V1)["ETag"]
    for moment, status in ((saved[0], 409), (saved[1], 204)):
        answer = service.call("POST", f"history/{FORM}/D/restore?last-modified-time={moment}", **V1)
        assert (answer.status, "a.bin" in answer.cause) == (status, status == 409), answer.cause
        if status == 409:
            assert service.get(A, **V1)["ETag"] == current


@pytest.mark.parametrize("dialect", ["orbeon", pytest.param("svc", marks=pytest.mark.long)])
def test_what_another_service_has_is_purged_there(tmp_path: Path, dialect: str) -> None:
    """If the service in front has an administrator's key there; else that service's refusal is the answer."""
    behind_keys = Keys(f"{tmp_path}/behind/keys.json", tree=f"{tmp_path}/behind/data")
    front_keys = Keys(f"{tmp_path}/front/keys.json", tree=f"{tmp_path}/front/data")
    for directory in ("behind", "front"):
        (tmp_path / directory).mkdir()
    trusted, other = behind_keys.add("front"), behind_keys.add("other")
    admin = front_keys.add("admin")
    settings = 'keys = "keys.json"\nadministrators = ["front"]\ntrusted = ["127.0.0.1"]\n'
    (tmp_path / "behind/settings.toml").write_text(settings)
    options = ("--config", str(tmp_path / "behind/settings.toml"))
    with serving(tmp_path / "behind", dialect=dialect, options=options, alone=True) as behind:
        for key, expected in ((other, 403), (trusted, 204)):
            provider = f"{DIALECTS[dialect].property_prefix}persistence.files"
            (tmp_path / "front/settings.toml").write_text(
                f'keys = "keys.json"\nadministrators = ["admin"]\ntrusted = ["127.0.0.1"]\n'
                f'"{provider}.uri" = "http://x:{key}@127.0.0.1:{behind.port}{PUBLIC}"\n'
            )
            options = ("--config", str(tmp_path / "front/settings.toml"))
            with serving(tmp_path / "front", dialect=dialect, options=options, alone=True) as front:
                front.extra = {"Authorization": f"Bearer {admin}"}
                first, second = stored(front, times=2)[-2:]
                stored(front, A)
                assert front.delete(of(D, first), **V1).status == expected
                assert front.delete(f"{A}{FORCED}", **V1).status == expected
                assert purge(front, "", "what=revisions&older-than=1d&dry-run=false").status == 200
                if expected == 403:
                    continue
                assert front.delete(of(D, second), **V1).status == 409
                assert front.get(A, **V1).status == 404
                history = etree.fromstring(front.raw("GET", f"{PUBLIC}/history/{FORM}/D").body)
                for revision in [each.get("modified-time") or "" for each in history][1:]:
                    assert front.delete(of(D, revision), **V1).status == 204
                front.delete(D, **V1)
                deleted = front.head(f"{D}{FORCED}", **V1).instant
                assert front.delete(of(D, second), **V1).status == front.delete(of(D, deleted), **V1).status == 204
                assert front.head(f"{D}{FORCED}", **V1).status == 404
        assert not (behind.data / FORM / "data/D").exists()
