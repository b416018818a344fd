"""Bringing back older revisions over HTTP, on both APIs and in both dialects."""

import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from urllib.parse import quote

import pytest
from click.testing import CliRunner

from persistence.cli import commands
from persistence.model.texts import Instant
from persistence.services import histories
from persistence.services.documents import Documents
from tests.encrypted_form import DEFINITION, SECRETS, data, path
from tests.http.stories import play, stories
from tests.http.test_encryption import keys_of
from tests.in_process import serving
from tests.published import definition
from tests.service import PROVIDER, PUBLIC, V1, Answer, Service, attachments_apart


def restore(service: Service, path: str, query: str, headers: dict[str, str] | None = None, **own: object) -> Answer:
    return service.call("POST", f"history/{path}/restore{query}", None, headers, **own)


def instant(answer: Answer) -> Instant:
    assert answer.status in (200, 201, 204), (answer.status, answer.body)
    return Instant(answer.instant)


def at(moment: str) -> str:
    return f"?last-modified-time={moment}"


def naming(form: str, document: str, *names: str, text: str = "") -> bytes:
    paths = (f"{PUBLIC}/crud/{form}/data/{document}/{quote(name)}" for name in names)
    return f"<d><t>{text}</t>{''.join(f'<a>{path}</a>' for path in paths)}</d>".encode()


def history(service: Service, path: str, **own: str) -> list[dict[str, str]]:
    answer = service.call("GET", f"history/{path}", **own)
    assert answer.status == 200
    rows = re.findall(rb"<document ([^>]*)/>", answer.body)
    return [dict(re.findall(r'([\w-]+)="([^"]*)"', row.decode())) for row in rows]


def sidecar(service: Service, path: str) -> dict[str, object]:
    found: dict[str, object] = json.loads(Path(service.data, f"{path}.json").read_bytes())
    return found


NEVER = "2025-03-04T05:06:07.089Z"
OWN = (
    '<permission operations="create"><user-role any-of="maker"/></permission>'
    '<permission operations="read update delete"><owner/></permission>'
    '<permission operations="read"><user-role any-of="boss maker"/></permission>'
)


@stories(
    {
        "a new revision, with its own instant and tag; stage and owner are kept, the modifier is who has restored": """
            PUT data/D v=1 by=lea group=g stage=begun <d>1</d> -> 201 Last-Modified>first
            PUT data/D by=bob stage=sent <d>2</d> -> 204 Last-Modified>second ETag>before
            PUT draft/D v=1
            RESTORE D?last-modified-time={first} by=eve -> 204 body= ETag!{before} ETag>tag Last-Modified>third v=1 \
                Operations=*
            GET data/D -> 200 <d>1</d> ETag={tag} Username=lea Group=g Last-Modified-By-Username=eve \
                Workflow-Stage=begun Created={first}
            GET draft/D -> 404
            HISTORY D -> 200 times=`{third} {second} {first}`""",
        "an attachment comes back that was stored after its data, as it was first": """
            PUT data/D v=1 {naming} -> 201 Last-Modified>saved
            PUT data/D/a.bin v=1 <first/>
            PUT data/D/a.bin v=1 <second/>
            DELETE data/D/a.bin
            RESTORE D?last-modified-time={saved} -> 204 Notice=
            GET data/D/a.bin -> 200 <first/>""",
        "a single attachment comes back": """
            PUT data/D v=1
            PUT data/D/a.bin v=1 Content-Type=image/png <one/> -> 201 Last-Modified>first
            PUT data/D/a.bin v=1 <two/>
            RESTORE D/a.bin?last-modified-time={first} -> 204
            GET data/D/a.bin -> 200 <one/>
            DELETE data/D/a.bin
            RESTORE D/a.bin?last-modified-time={first} -> 201
            GET data/D/a.bin -> 200 <one/> Content-Type=image/png""",
        "a revision is named by any time at which it was current": """
            PUT data/D v=1 <d>1</d> -> 201 Last-Modified>first
            PUT data/D <d>2</d>
            RESTORE D?as-of={first} -> 204
            GET data/D -> 200 <d>1</d>
            RESTORE D?as-of=2001-02-03T04:05:06.789Z -> 404""",
        "404 of what was never stored, 410 of a tombstone": """
            RESTORE D?last-modified-time={never} D/a.bin?last-modified-time={never} -> 404
            PUT draft/D v=1
            RESTORE D?last-modified-time={never} -> 404
            PUT data/D v=1
            DELETE data/D -> 204 Last-Modified>gone
            RESTORE D?last-modified-time={gone} D?as-of={gone} -> 410 `deleted`""",
        "If-Match is honoured": """
            PUT data/D v=1 <d>1</d> -> 201 Last-Modified>first ETag>old
            PUT data/D <d>2</d> -> 204 ETag>current
            RESTORE D?last-modified-time={first} If-Match={old} -> 412
            RESTORE D?last-modified-time={first} If-None-Match=* -> 412
            RESTORE D?last-modified-time={first} If-Match={current} -> 204
            DELETE data/D
            RESTORE D?last-modified-time={first} If-None-Match=* -> 201""",
        "permissions are those of a PUT, and of a GET of the revision": f"""
            PERMISSIONS v=1 {OWN}
            PUT data/D v=1 by=lea roles=maker <d>1</d> -> 201 Last-Modified>first
            PUT data/D by=lea <d>2</d>
            RESTORE D?last-modified-time={{first}} -> 403
            RESTORE D?last-modified-time={{first}} by=eve -> 403
            RESTORE D?last-modified-time={{first}} by=eve roles=boss -> 403
            RESTORE D?last-modified-time={{first}} by=lea -> 204
            DELETE data/D by=lea
            RESTORE D?last-modified-time={{first}} by=lea -> 403
            RESTORE D?last-modified-time={{first}} by=eve roles=boss -> 403
            RESTORE D?last-modified-time={{first}} by=ann roles=maker -> 201
            GET data/D by=lea -> 200 Username=lea
            DELETE data/D by=lea
            PUT data/D v=1 by=eve roles=maker <d>eve</d>
            RESTORE D?last-modified-time={{first}} by=eve -> 403""",
        "the designer's data comes back": """
            FORM {builder}
            PUT data/{app} v=1 <d>1</d> -> 201 Last-Modified>first
            PUT data/{app} <d>2</d>
            RESTORE {app}?last-modified-time={first} -> 204
            GET data/{app} -> 200 <d>1</d>""",
        "a time that names no revision is refused": """
            PUT data/D v=1 -> 201 Last-Modified>only
            RESTORE D D?last-modified-time= D?last-modified-time=x -> 400 `last-modified-time`
            RESTORE D?last-modified-time=2025-02-30T00:00:00.000Z -> 400 `last-modified-time`
            RESTORE D?as-of=yesterday -> 400 `as-of`
            RESTORE D?as-of={never}&last-modified-time={never} -> 400 `two ways`
            RESTORE D?last-modified-time={never} -> 404 `{never}`
            HISTORY D -> times={only}""",
        "a body has no meaning": """
            PUT data/D v=1 -> 201 Last-Modified>first
            POST ~/history/{form}/D/restore?last-modified-time={first} <not-xml -> 204""",
        "searches find what came back": """
            PUT form v=1
            PUT data/D v=1 <d>needle</d> -> 201 Last-Modified>first
            DELETE data/D
            SEARCH v=1 <search><query>needle</query></search> -> found=
            RESTORE D?last-modified-time={first}
            SEARCH v=1 <search><query>needle</query></search> -> found=D""",
    }
)
def test_what_comes_back(service: Service, form: str, story: str) -> None:
    play(service, form, story, naming=naming(form, "D", "a.bin").decode(), never=NEVER)


def test_the_version_of_a_document_stays(service: Service, form: str) -> None:
    """A revision of another version comes back only where the document is deleted."""
    told = """
        PUT data/D v=1 <d>1</d> -> 201 Last-Modified>first
        DELETE data/D
        PUT data/D v=2 by=eve <d>2</d> -> 201 Last-Modified>second
        RESTORE D?last-modified-time={first} -> 400
        RESTORE D?last-modified-time={second} v=1 -> 400
        GET data/D -> 200 <d>2</d>
        DELETE data/D
        RESTORE D?last-modified-time={first} v=2 -> 400
        RESTORE D?last-modified-time={first} -> 201 v=1 Last-Modified>back
        GET data/D -> 200 <d>1</d> Created={back}"""
    play(service, form, told)


def test_the_sidecar_says_what_was_restored(service: Service, form: str) -> None:
    path = f"{form}/data/D/data.xml"
    first = instant(service.put(path, b"<d>1</d>", **V1, Username="lea"))
    service.put(path, b"<d>2</d>")
    assert "restored" not in sidecar(service, path)
    restore(service, f"{form}/D", at(first))
    assert sidecar(service, path)["restored"] == first
    restored = [row.get("restored-time") for row in history(service, f"{form}/D")]
    assert restored == [first if service.dialect == "svc" else None, None, None]
    service.put(path, b"<d>3</d>")
    assert "restored" not in sidecar(service, path)


def test_a_deleted_document_comes_back_with_its_attachments(service: Service, form: str) -> None:
    """Deleted ones, and replaced ones as they were then; what nothing has happened to is not stored again."""
    base = f"{form}/data/D"
    for name, body in (("kept.bin", b"kept"), ("gone.bin", b"gone"), ("new.bin", b"then"), ("empty.bin", b"")):
        service.put(f"{base}/{name}", body, {"Content-Type": "image/png"}, **V1)
    data = naming(form, "D", "kept.bin", "gone.bin", "new.bin", "empty.bin", "never.bin")
    saved = instant(service.put(f"{base}/data.xml", data, **V1, Username="lea", Group="g"))
    service.delete(f"{base}/gone.bin")
    service.delete(f"{base}/empty.bin")
    service.put(f"{base}/new.bin", b"later", {"Content-Type": "text/plain"}, **V1)
    service.put(f"{base}/data.xml", b"<d/>")
    service.delete(f"{base}/data.xml", Username="eve")
    assert service.get(f"{base}/gone.bin").status == service.deleted
    back = restore(service, f"{form}/D", at(saved), Username="bob")
    assert back.status == 201
    assert "never.bin" in (back[f"{service.prefix}Notice"] or "")
    found = service.get(f"{base}/data.xml")
    assert (found.body, found[f"{service.prefix}Username"], found[f"{service.prefix}Group"]) == (data, "lea", "g")
    assert found[f"{service.prefix}Created"] == saved
    for name, body in (("kept.bin", b"kept"), ("gone.bin", b"gone"), ("new.bin", b"then"), ("empty.bin", b"")):
        attachment = service.get(f"{base}/{name}")
        assert (attachment.status, attachment.body, attachment["Content-Type"]) == (200, body, "image/png")
    assert len(history(service, f"{form}/D/kept.bin")) == 1
    assert [row["deleted"] for row in history(service, f"{form}/D/gone.bin")] == ["false", "true", "false"]
    assert restore(service, f"{form}/D", at(saved)).status == 204


def test_a_repetition_stores_no_attachment_again(service: Service, form: str) -> None:
    base = f"{form}/data/D"
    service.put(f"{base}/a.bin", b"a", **V1)
    saved = instant(service.put(f"{base}/data.xml", naming(form, "D", "a.bin"), **V1))
    service.put(f"{base}/a.bin", b"b", **V1)
    service.put(f"{base}/data.xml", b"<d/>")
    for _ in range(2):
        assert restore(service, f"{form}/D", at(saved)).status == 204
        assert service.get(f"{base}/a.bin").body == b"a"
        assert len(history(service, f"{form}/D/a.bin")) == 3
    assert sidecar(service, f"{base}/a.bin")["restored"] == history(service, f"{form}/D/a.bin")[2]["modified-time"]


# Bringing back documents: what happens meanwhile, what is interrupted, and what is encrypted or kept elsewhere.

FORM = "acme/order"
_NAMES = ("a.bin", "b.bin", "c.bin", "d.bin", "e.bin")


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Service]:
    """A service in this process, with bodies of attachments in a directory of their own for the form acme/split."""
    keys_of(tmp_path).new()
    settings = (
        'encryption_keys = "var/encryption-keys.json"\n'
        '"svc.persistence.files.lease" = true\n"svc.persistence.files.enforce-lease" = true\n'
        + attachments_apart("acme.split", "files-elsewhere", tmp_path / "elsewhere")
    )
    with serving(tmp_path, settings=settings, alone=True) as service:
        yield service


def _deleted(service: Service, form: str = FORM, document: str = "D") -> Instant:
    """Delete a document whose attachments were deleted or replaced before; return the instant of its last save."""
    base = f"{form}/data/{document}"
    for name in _NAMES:
        service.put(f"{base}/{name}", name.encode(), **V1)
    saved = instant(service.put(f"{base}/data.xml", naming(form, document, *_NAMES), **V1))
    service.put(f"{base}/{_NAMES[0]}", b"replaced", **V1)
    for name in _NAMES[1:]:
        service.delete(f"{base}/{name}", **V1)
    assert service.delete(f"{base}/data.xml", **V1).status == 204
    return saved


def _is_whole(service: Service, form: str = FORM, document: str = "D") -> bool:
    base = f"{form}/data/{document}"
    return service.get(f"{base}/data.xml").status == 200 and all(
        service.get(f"{base}/{name}").body == name.encode() for name in _NAMES
    )


@pytest.mark.parametrize("at_once", [1, 2, 5, 6, 64])
def test_many_attachments_come_back_in_steps(served: Service, monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    monkeypatch.setattr(histories, "RESTORED_AT_ONCE", at_once)
    saved = _deleted(served)
    assert restore(served, f"{FORM}/D", at(saved)).status == 201
    assert _is_whole(served)


@pytest.mark.parametrize("at_once", [2, 64])
@pytest.mark.parametrize("steps", range(6))
def test_a_repetition_completes_it(served: Service, monkeypatch: pytest.MonkeyPatch, at_once: int, steps: int) -> None:
    """The document stays deleted until all of it is there. The fifth attachment is followed by the data."""
    monkeypatch.setattr(histories, "RESTORED_AT_ONCE", at_once)
    saved = _deleted(served)
    commit, left = histories.commit, [steps]

    def failing(*args: object) -> object:
        left[0] -= 1
        if left[0] < 0:
            raise OSError(5, "the disk fails")
        return commit(*args)  # type: ignore[arg-type]

    with monkeypatch.context() as patched:
        patched.setattr(histories, "commit", failing)
        assert restore(served, f"{FORM}/D", at(saved)).status == 500
    assert served.get(f"{FORM}/data/D/data.xml").status == 404
    assert restore(served, f"{FORM}/D", at(saved)).status == 201
    assert _is_whole(served)
    assert served.leftovers() == []
    assert len(history(served, f"{FORM}/D/b.bin")) == 3


@pytest.mark.parametrize("name", ["data.xml", "a.bin", "b.bin", "f.bin"])
@pytest.mark.parametrize("method", ["PUT", "DELETE"])
def test_others_are_never_overwritten(served: Service, monkeypatch: pytest.MonkeyPatch, name: str, method: str) -> None:
    """503, and nothing is stored: what has changed may be an attachment that needs not come back, too."""
    base = f"{FORM}/data/D"
    served.put(f"{base}/f.bin", b"f", **V1)
    served.put(f"{base}/a.bin", b"then", **V1)
    served.put(f"{base}/b.bin", b"then", **V1)
    saved = instant(served.put(f"{base}/data.xml", naming(FORM, "D", "a.bin", "b.bin", "f.bin"), **V1))
    served.put(f"{base}/a.bin", b"now", **V1)
    served.put(f"{base}/b.bin", b"now", **V1)
    served.put(f"{base}/data.xml", b"<now/>", **V1)
    receive = Documents.receiving  # the moment between the plan and the lock
    writes = iter([method])

    def interrupted(*args: object) -> object:
        for each in writes:
            assert served.ask(each, f"{base}/{name}", b"<other/>", {"Content-Type": "text/xml"}, **V1).status == 204
        return receive(*args)  # type: ignore[arg-type]

    with monkeypatch.context() as patched:
        patched.setattr(Documents, "receiving", interrupted)
        answer = restore(served, f"{FORM}/D", at(saved))
    assert (answer.status, answer["Retry-After"]) == (503, "1"), answer.cause
    is_deleted = method == "DELETE"
    assert served.get(f"{base}/{name}").status == (404 if is_deleted else 200)
    others = [each for each in ("a.bin", "b.bin") if each != name]
    if not (is_deleted and name == "data.xml"):
        assert [served.get(f"{base}/{each}").body for each in others] == [b"now"] * len(others)
    assert restore(served, f"{FORM}/D", at(saved)).status == (201 if is_deleted and name == "data.xml" else 204)


def test_a_leased_document_comes_back_only_for_its_holder(served: Service) -> None:
    saved = _deleted(served)
    assert served.lock(f"{FORM}/data/D/data.xml").status == 200
    assert restore(served, f"{FORM}/D", at(saved), Username="eve").refuses(423, "lea")
    assert served.get(f"{FORM}/data/D/b.bin").status == 404
    assert restore(served, f"{FORM}/D", at(saved), Username="lea").status == 201
    assert served.unlock(f"{FORM}/data/D/data.xml").status == 200


def test_a_second_document_of_a_singleton_form_does_not_come_back(served: Service) -> None:
    served.put(f"{FORM}/form/form.xhtml", definition("<singleton>true</singleton>"), **V1)
    saved = instant(served.put(f"{FORM}/data/D/data.xml", **V1))
    served.delete(f"{FORM}/data/D/data.xml")
    served.put(f"{FORM}/data/E/data.xml", **V1)
    assert restore(served, f"{FORM}/D", at(saved)).status == 409
    served.delete(f"{FORM}/data/E/data.xml")
    assert restore(served, f"{FORM}/D", at(saved)).status == 201


def test_attachments_with_a_directory_of_their_own_come_back(served: Service) -> None:
    saved = _deleted(served, "acme/split")
    assert restore(served, "acme/split/D", at(saved)).status == 201
    assert _is_whole(served, "acme/split")
    record = json.loads(Path(served.data, "acme/split/data/D/b.bin.json").read_bytes())
    assert (record["size"], record["body"]["size"], "restored" in record) == (0, 5, True)


def test_what_is_encrypted_stays_encrypted(served: Service) -> None:
    """Bytes and marks come back as they were stored; a GET decrypts them."""
    base = f"{FORM}/data/D"
    served.put(f"{FORM}/form/form.xhtml", DEFINITION, **V1)
    scan = path(FORM, "D", "scan.bin")
    put = served.put(f"{base}/scan.bin", b"top secret scan", **V1, Path_To_Holder="person/scan")
    assert put["Svc-Did-Encrypt"] == "true"
    saved = instant(served.put(f"{base}/data.xml", data(scan=scan), **V1))
    shown = served.get(f"{base}/data.xml").body
    served.delete(f"{base}/scan.bin")
    served.delete(f"{base}/data.xml")
    assert restore(served, f"{FORM}/D", at(saved)).status == 201
    assert served.get(f"{base}/data.xml").body == shown
    assert served.get(f"{base}/scan.bin", Decrypt="true").body == b"top secret scan"
    stored = Path(served.data, base, "data.xml").read_bytes()
    assert not any(secret.encode() in stored for secret in SECRETS)
    assert b"top secret" not in Path(served.data, base, "scan.bin").read_bytes()


@pytest.mark.parametrize("name", ["data.xml", "b.bin"])
def test_a_damaged_revision_does_not_come_back(served: Service, name: str) -> None:
    saved = _deleted(served)
    older = next(Path(served.data, FORM, "data/D/.history").glob(f"*.{name}"))
    older.write_bytes(b"<other/>")
    assert restore(served, f"{FORM}/D", at(saved)).refuses(500, "damaged")
    assert served.get(f"{FORM}/data/D/data.xml").status == 404
    assert json.loads(Path(served.data, FORM, "data/D/c.bin.json").read_bytes())["deleted"]


def test_data_that_names_too_many_attachments_is_refused(served: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    saved = _deleted(served)
    monkeypatch.setattr(histories, "MOST_RESTORED", 4)
    assert restore(served, f"{FORM}/D", at(saved)).refuses(400, "5 attachments")


def test_names_that_no_attachment_can_have_are_passed_over(served: Service) -> None:
    names = (".hidden", "a.bin.json", "x" * 300, "ok.bin")
    served.put(f"{FORM}/data/D/ok.bin", b"ok", **V1)
    saved = instant(served.put(f"{FORM}/data/D/data.xml", naming(FORM, "D", *names), **V1))
    served.delete(f"{FORM}/data/D/ok.bin")
    back = restore(served, f"{FORM}/D", at(saved))
    assert (back.status, ".hidden" in (back["Svc-Notice"] or "")) == (204, True)
    assert served.get(f"{FORM}/data/D/ok.bin").body == b"ok"


def test_behind_a_proxy_only_the_version_is_compared(tmp_path: Path) -> None:
    with serving(tmp_path, dialect="orbeon", alone=True) as service:
        service.face = PROVIDER
        saved = _deleted(service)
        assert restore(service, f"{FORM}/D", at(saved), Form_Definition_Version=2).status == 400
        assert restore(service, f"{FORM}/D", at(saved), **V1).status == 201
        assert _is_whole(service)


class _Model:
    def __init__(self, service: Service, random: Random) -> None:
        self.service = service
        self.random = random
        self.now: dict[str, bytes] = {}
        self.saved: dict[Instant, tuple[bytes, dict[str, bytes]]] = {}

    def step(self) -> None:
        base, name = f"{FORM}/data/D", self.random.choice([*_NAMES, "data.xml", "data.xml", "data.xml"])
        if name in self.now and self.random.random() < 0.3:
            expected = (204,) if "data.xml" in self.now else (404, 410)
            assert self.service.delete(f"{base}/{name}", **V1).status in expected
            if "data.xml" in self.now:
                del self.now[name]
        elif name == "data.xml":
            named = [each for each in _NAMES if each in self.now and self.random.random() < 0.7]
            body = naming(FORM, "D", *named, text=str(self.random.random()))
            answer = self.service.put(f"{base}/data.xml", body, **V1)
            assert (answer.status == 201) == ("data.xml" not in self.now)
            self.now["data.xml"] = body
            self.saved[instant(answer)] = body, {each: self.now[each] for each in named}
        else:
            self.now[name] = str(self.random.random()).encode()
            assert self.service.put(f"{base}/{name}", self.now[name], **V1).status in (201, 204)

    def restore(self) -> None:
        moment = self.random.choice([*self.saved])
        body, named = self.saved[moment]
        answer = restore(self.service, f"{FORM}/D", at(moment))
        assert answer.status == (204 if "data.xml" in self.now else 201)
        self.now |= {"data.xml": body, **named}
        self.saved[instant(answer)] = body, named
        for name in ("data.xml", *_NAMES):
            found = self.service.get(f"{FORM}/data/D/{name}")
            assert (found.body if found.status == 200 else None) == self.now.get(name), name


@pytest.mark.parametrize("seed", range(3))
def test_what_comes_back_is_what_was_there(served: Service, seed: int) -> None:
    """After any saves and deletions, and after bringing back what had been brought back; the tree is in order."""
    model = _Model(served, Random(seed))
    for _ in range(6):
        for _ in range(8):
            model.step()
        if model.saved:
            model.restore()
    assert len(model.saved) > 6
    done = CliRunner().invoke(commands, ["check", "--deep", "--data", str(served.data)])
    assert (done.exit_code, "0 damage" in done.stderr) == (0, True), done.output


def test_no_save_is_lost_beside_those_that_bring_back(served: Service) -> None:
    """Whatever was acknowledged is in the history, and a save over what its client has not seen is refused."""
    base, acknowledged = f"{FORM}/data/D", set[Instant]()
    first = instant(served.put(f"{base}/data.xml", naming(FORM, "D", "a.bin"), **V1))
    served.put(f"{base}/a.bin", b"a", **V1)

    def work(number: int) -> None:
        for _ in range(8):
            tag = served.head(f"{base}/data.xml")["ETag"] or ""
            if number % 2:
                answer = restore(served, f"{FORM}/D", at(first), {"If-Match": tag})
            else:
                answer = served.put(f"{base}/data.xml", b"<d>%d</d>" % number, {"If-Match": tag}, **V1)
            assert answer.status in (204, 412, 503), answer.cause
            if answer.status == 204:
                acknowledged.add(instant(answer))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    rows = {row["modified-time"] for row in history(served, f"{FORM}/D?page-size=100")}
    assert rows == {first, *acknowledged}
