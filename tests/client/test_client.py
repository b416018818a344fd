"""The client, against a service in this process: what each method stores, reads and raises."""

import contextlib
import io
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta, timezone
from io import BytesIO
from pathlib import Path

import pytest

from persistence.client import (
    CallPolicy,
    ControlFilter,
    DeletedData,
    Drafts,
    ExportedContent,
    ExportQuery,
    Field,
    Form,
    FormClient,
    Instant,
    PersistenceClient,
    Query,
    ReportedDifference,
    Role,
    SearchResults,
    Sort,
    TextMatch,
    User,
    form_client,
    from_datetime,
    to_datetime,
)
from persistence.errors import (
    BadRequestError,
    ConflictError,
    DeletedError,
    ForbiddenError,
    LockedError,
    NotFoundError,
    NotSupportedError,
    PreconditionError,
    UnauthorizedError,
)
from persistence.keys import Keys
from tests.in_process import serving
from tests.served import served
from tests.service import Service, running
from tests.waiting import eventually

FORM = """<xh:html xmlns:xh="http://www.w3.org/1999/xhtml" xmlns:xf="http://www.w3.org/2002/xforms"
         xmlns:fr="http://orbeon.org/oxf/xml/form-runner">
<xh:head><xf:model id="fr-form-model"><xf:instance id="fr-form-instance"><form/></xf:instance>
<xf:bind id="fr-form-binds" ref="instance('fr-form-instance')">
  <xf:bind id="trip-bind" ref="trip"><xf:bind id="city-bind" ref="city"/></xf:bind>
</xf:bind>
<xf:instance id="fr-form-metadata"><metadata>
  <application-name>hr</application-name><form-name>trip</form-name><title xml:lang="en">Trip</title>{}
</metadata></xf:instance></xf:model></xh:head>
<xh:body><fr:view><fr:body><fr:section id="trip-section" bind="trip-bind">
  <xf:input id="city-control" bind="city-bind"><fr:index/></xf:input>
</fr:section></fr:body></fr:view></xh:body></xh:html>"""
OWN = """<permissions><permission operations="create"/>
<permission operations="read update delete list"><owner/></permission>
<permission operations="read list"><user-role any-of="travel desk a%2Cb"/></permission></permissions>"""
LARGE = 5 << 20


def data(city: str) -> str:
    return f"<form><trip><city>{city.replace('&', '&amp;')}</city></trip></form>"


service = served("svc", "orbeon", settings='"{prefix}persistence.files.lease" = true')


@pytest.fixture
def client(service: Service) -> Iterator[PersistenceClient]:
    with PersistenceClient(_url(service), user="lea", dialect=service.dialect) as made:
        yield made


@pytest.fixture
def dialect(service: Service) -> str:
    return service.dialect


def _url(service: Service) -> str:
    return f"http://127.0.0.1:{service.port}"


def test_clients_and_documents_are_shown_without_keys_and_contents(client: PersistenceClient) -> None:
    form = client.form("hr", "shown", 1)
    assert repr(form) == "FormClient('hr/shown', 'data', version=1)"
    assert repr(form.drafts) == "DocumentsClient('hr/shown', 'draft', version=1)"
    form.create("<secret/>", "s")
    shown = repr(form.load("s"))
    assert "document='s'" in shown
    assert "<secret/>" not in shown
    with PersistenceClient("http://127.0.0.1:1", key="0" * 64, user=User("bob", group="staff")) as other:
        assert repr(other) == "PersistenceClient('http://127.0.0.1:1', user='bob')"
        assert repr(other.with_token("a-token")) == repr(other)


def test_an_instant_is_a_datetime_and_the_reverse(client: PersistenceClient) -> None:
    saved = client.form("hr", "instants", 1).create("<a/>")
    moment = to_datetime(saved.modified)
    assert moment.utcoffset() == timedelta(0)
    assert from_datetime(moment.astimezone(timezone(timedelta(hours=2)))) == saved.modified


def test_a_definition_is_published_in_versions(client: PersistenceClient) -> None:
    form = client.form("hr", "versions", 1)
    assert form.publish("<html/>") == 1
    assert form.publish(b"<html>2</html>", "next", {"logo.png": b"an image"}) == 2
    assert client.form("hr", "versions").definition().xhtml == b"<html>2</html>"
    assert (form.definition().version, form.definition().xhtml) == (1, b"<html/>")
    form.unpublish(2)
    assert client.form("hr", "versions").definition().version == 1


def test_a_document_is_saved_loaded_and_deleted(client: PersistenceClient, dialect: str) -> None:
    form = client.form("hr", "saved", 1)
    made = form.create("<a>ü</a>", stage="review", valid=False)
    assert made.is_new
    read = form.load(made)
    assert (read.xml, read.etag, read.modified, read.version) == ("<a>ü</a>".encode(), made.etag, made.modified, 1)
    assert (read.owner, read.modifier, read.stage, read.is_valid) == (User("lea"), "lea", "review", False)
    assert read.created == read.modified
    assert read.operations == {"*"}
    again = form.save(read, b"<b/>")
    assert not again.is_new
    assert form.load(made.document).stage is None
    form.delete(again)
    assert not form.exists(made)
    with pytest.raises(DeletedError if dialect == "orbeon" else NotFoundError):
        form.load(made)


def test_a_save_of_what_somebody_else_has_saved_since_is_refused(client: PersistenceClient) -> None:
    form = client.form("hr", "conflict", 1)
    mine = form.create("<a/>", "c")
    theirs = client.acting_as("mia").form("hr", "conflict", 1).save(form.load("c"), "<b/>")
    with pytest.raises(PreconditionError, match="somebody has saved since") as refused:
        form.save(mine, "<c/>")
    assert (str(refused.value.etag), refused.value.saved) == (theirs.etag.strip('"'), theirs.modified)
    assert "request " in refused.value.__notes__[0]
    with pytest.raises(PreconditionError):
        form.delete(mine)
    with pytest.raises(PreconditionError, match="already exists"):
        form.create("<d/>", "c")
    assert form.load("c").xml == b"<b/>"
    form.delete("c")
    with pytest.raises(PreconditionError, match="may have been deleted") as refused:
        form.save(mine, "<e/>")
    assert (refused.value.etag, refused.value.saved) == (None, None)
    assert form.save("c", "<e/>").is_new
    form.publish(FORM.format("<singleton>true</singleton>").replace(">trip<", ">conflict<"))
    with pytest.raises(ConflictError, match="only one document"):
        form.create(data("x"), "second")


def test_attachments_stream_in_both_directions(client: PersistenceClient, tmp_path: Path) -> None:
    form, file = client.form("hr", "files", 1), tmp_path / "scan"
    file.write_bytes(bytes(range(256)) * (LARGE // 256))
    contents = (file, BytesIO(file.read_bytes()), file.read_bytes(), iter([b"x" * LARGE, b"y"]))
    document = form.create("<a/>", "a")
    for number, content in enumerate(contents):
        attached = form.attach(document, content, f"{number}.bin", content_type="image/png")
        assert attached.path == f"/fr/service/persistence/crud/hr/files/data/a/{number}.bin"
        with form.attachment(document, f"{number}.bin") as found:
            pieces = list(found)
            assert found.content_type == "image/png"
        assert max(map(len, pieces)) <= 1 << 18
        assert b"".join(pieces) == (file.read_bytes() if number < 3 else b"x" * LARGE + b"y")
    named = form.attach("a", b"")
    with form.attachment("a", named.address.name) as empty:
        assert (empty.read(), empty.length) == (b"", 0)
    form.delete_attachment(document, "0.bin")
    with pytest.raises((NotFoundError, DeletedError)):
        form.attachment("a", "0.bin")


def test_drafts_are_beside_documents(client: PersistenceClient) -> None:
    form = client.form("hr", "drafts", 1)
    form.create("<a/>", "d")
    draft = form.drafts.save("d", "<half/>")
    form.drafts.attach("d", b"half a scan", "s.bin")
    assert (form.drafts.load("d").xml, form.load("d").xml) == (b"<half/>", b"<a/>")
    form.drafts.save(draft, "<more/>")
    with pytest.raises(PreconditionError):
        form.drafts.save(draft, "<less/>")
    form.drafts.delete("d")
    assert not form.drafts.exists("d")


def test_a_draft_is_of_a_loaded_document_and_is_saved_as_one(client: PersistenceClient) -> None:
    """The revision of one says nothing of the other, so neither makes a condition."""
    form = client.form("hr", "drafted", 1)
    document = form.create("<a/>", "d")
    form.drafts.save(document, "<half/>")
    form.drafts.save(document, "<more/>")
    form.save(form.drafts.load("d"), "<b/>")
    assert not form.drafts.exists("d")
    assert form.load("d").xml == b"<b/>"
    with pytest.raises(BadRequestError, match="not a document of hr/other"):
        client.form("hr", "other").load(document)


def test_a_search_requests_pages_as_they_are_needed(client: PersistenceClient) -> None:
    form = client.form("hr", "trip", 1)
    form.publish(FORM.format(""))
    for number in range(7):
        form.create(data(f"City {number} & Co"), f"d{number}")
    by_city = Sort("trip/city", is_descending=False)
    found = form.search(Query(controls=(ControlFilter("trip/city", TextMatch.TOKEN, "city"),), sort=by_city, size=3))
    assert [each.document for each in found] == [f"d{number}" for number in range(7)]
    assert (found.total, found.notice) == (7, None)
    first = next(iter(found))
    assert (first.creator, first.modifier, first.is_draft, first.values) == (
        "lea",
        "lea",
        False,
        {"trip/city": "City 0 & Co"},
    )
    assert first.modified == form.load("d0").modified
    assert [each.document for each in form.search("city 5")] == ["d5"]
    assert [each.document for each in form.search(Query(offset=6, size=3, sort=by_city, paths=()))] == ["d6"]
    assert form.search("nowhere").total == 0
    assert list(form.search("nowhere")) == []
    assert form.search("city", all_versions=True).total == 7
    misspelt = form.search(Query(controls=(ControlFilter("trip/citi", TextMatch.EXACT, "x"),)))
    assert "trip/citi" in str(misspelt.notice)
    form.drafts.save("d0", data("Draft"))
    assert [each.is_draft for each in form.search("draft", drafts=Drafts.ONLY)] == [True]
    values = form.distinct_values("trip/city", Field.CREATED_BY)
    assert values[Field.CREATED_BY] == ("lea",)
    assert len(values["trip/city"]) in (7, 8)  # with that of the draft, which is found by known users
    with pytest.raises(BadRequestError, match="multiple"):
        form.search(Query(offset=1, size=2))


def test_several_forms_are_searched_at_once(client: PersistenceClient) -> None:
    for name in ("one", "two"):
        client.form("mine", name, 1).create("<form>somewhere</form>", "D")
    found = client.search(Query("somewhere", sort=Sort(Field.CREATED, is_descending=False)), "mine")
    assert (found.total, [str(each.form) for each in found.documents]) == ("2", ["mine/one", "mine/two"])
    assert {"mine/one", "mine/two"} <= {str(each.form) for each in client.search("somewhere").documents}


def test_a_search_finds_no_document_twice_when_somebody_saves_meanwhile(client: PersistenceClient) -> None:
    form = client.form("hr", "moving", 1)
    for number in range(6):
        form.create(data("x"), f"m{number}")
    found = []
    for each in form.search(Query(size=2)):
        found.append(each.document)
        if len(found) == 2:
            form.create(data("x"), "new")
    assert found == ["m5", "m4", "m3", "m2", "m1", "m0"]


def test_older_revisions_are_listed_read_and_brought_back(client: PersistenceClient, dialect: str) -> None:
    form = client.form("hr", "old", 1)
    first = form.create("<a/>", "h")
    second = form.save(first, "<b/>")
    form.delete(second)
    entries = list(form.history("h"))
    assert [(each.is_deleted, each.modifier, each.owner) for each in entries] == [
        (True, "lea", "lea"),
        (False, "lea", "lea"),
        (False, "lea", "lea"),
    ]
    assert [each.modified for each in entries[1:]] == [second.modified, first.modified]
    back = form.revert("h", revision=first.modified)
    assert back.is_new
    assert form.load("h").xml == b"<a/>"
    assert form.load("h", revision=second.modified).xml == b"<b/>"
    assert form.load("h", as_of=first.modified).xml == b"<a/>"
    assert next(iter(form.history("h"))).restored == (None if dialect == "orbeon" else first.modified)
    with pytest.raises(PreconditionError):
        form.revert(second, as_of=second.modified)
    with pytest.raises(BadRequestError, match="either"):
        form.revert("h")
    assert list(form.history("never")) == []
    form.attach("h", b"1", "a.bin")
    assert [each.is_deleted for each in form.history("h", "a.bin")] == [False]


def test_a_long_history_is_read_in_pages(client: PersistenceClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(form_client, "LARGEST_HISTORY_PAGE", 2)
    form = client.form("hr", "long", 1)
    saved = [form.save("l", f"<a>{number}</a>").modified for number in range(5)]
    assert [each.modified for each in form.history("l")] == saved[::-1]
    late = iter(form.history("l"))
    first = [next(late).modified]
    form.save("l", "<meanwhile/>")
    assert first + [each.modified for each in late] == saved[::-1]


def test_a_lease_keeps_others_away(client: PersistenceClient) -> None:
    form, other = client.form("hr", "leased", 1), client.acting_as("mia").form("hr", "leased", 1)
    with form.lease("e", 60) as lease:
        lease.renew()
        with pytest.raises(LockedError, match="lea has leased the document") as held:
            other.lease("e")
        assert held.value.user == "lea"
        assert held.value.seconds in (59, 60)
    with other.lease("e"):
        pass
    with pytest.raises(BadRequestError, match="needs a user"):
        client.acting_as(User()).form("hr", "leased", 1).lease("e")


def test_the_user_has_group_roles_and_organization(client: PersistenceClient) -> None:
    form = client.form("hr", "own", 1)
    form.publish(FORM.format(OWN))
    made = form.create(data("Rome"), "o")
    assert "delete" in form.load(made).operations
    with pytest.raises(ForbiddenError, match="you may not read"):
        client.acting_as("bob").form("hr", "own", 1).load("o")
    for roles in (("travel",), ("x", "desk")):
        clerk = client.acting_as(User("bob", "clerks", tuple(map(Role, roles))))
        assert clerk.form("hr", "own", 1).load("o").owner == User("lea")
    named = User("Zoë, Anna|B", "Küche", (Role("a,b"), Role("desk")), ("acme", "sales"))
    theirs = client.acting_as(named).form("hr", "own", 1)
    assert theirs.load("o").document == "o"
    only_special = client.acting_as(User("x", roles=(Role("a,b"),)))
    assert only_special.form("hr", "own", 1).exists("o")
    theirs.create(data("Bonn"), "z")
    assert theirs.load("z").owner == User(named.name, named.group, (), named.organization)


@pytest.mark.parametrize("name", ["", ".", "..", ".hidden"])
def test_a_name_that_would_make_another_path_is_refused(client: PersistenceClient, name: str) -> None:
    """The path of the attachment ``..`` would be that of all data of a form."""
    form = client.form("hr", "kept", 1)
    form.save("k", "<a/>")
    for refused in (
        lambda: form.delete_attachment("k", name),
        lambda: form.delete_attachment(name, name),
        lambda: form.delete(name),
        lambda: form.publish("<html/>", None, {name: b"x"}),
        lambda: client.form("hr", name).unpublish(1),
        lambda: client.purge(["drafts"], "1d", (name,)),
        lambda: form.lease(name),
    ):
        with pytest.raises(BadRequestError, match="begins with a dot"):
            refused()
    for refused in (lambda: form.delete_attachment("k", "data.xml"), lambda: form.attach("k", b"x", "data.xml")):
        with pytest.raises(BadRequestError, match="not an attachment"):
            refused()
    assert form.load("k").xml == b"<a/>"
    with pytest.raises(BadRequestError, match="begins with a dot"), form.attachment("k", name):
        pass


def test_names_are_percent_encoded(client: PersistenceClient) -> None:
    form = client.form("ü&ber", "a+b c?d", 1)
    form.save("100%;x=y", "<a/>")
    form.attach("100%;x=y", b"z", "z%2F&.bin")
    assert form.load("100%;x=y").address.form == Form("ü&ber", "a+b c?d")
    with form.attachment("100%;x=y", "z%2F&.bin") as found:
        assert found.read() == b"z"


def test_a_request_that_cannot_be_sent_is_an_error(client: PersistenceClient, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("text")
    form = client.form("hr", "sent", 1)
    with pytest.raises(BadRequestError, match="cannot be sent"):
        client.acting_as("lea\nX-Other: 1").form("hr", "sent", 1).save("s", "<a/>")
    with pytest.raises(TypeError, match="binary"), (tmp_path / "text").open() as file:
        form.save("s", file)  # type: ignore[arg-type]
    with pytest.raises(FileNotFoundError):
        form.save("s", tmp_path / "none")
    form.attach("s", bytearray(b"1"), "1.bin")


def test_forms_are_listed(client: PersistenceClient) -> None:
    client.form("list", "one").publish(FORM.format(OWN).replace(">hr<", ">list<").replace(">trip<", ">one<"))
    client.form("list", "two").publish("<html/>", "next")
    client.form("list", "two").publish("<html/>", "next")
    listed = {each.form.name: each for each in client.forms("list")}
    assert listed.keys() == {"one", "two"}
    assert (listed["one"].titles, listed["one"].version, listed["one"].is_available) == ({"en": "Trip"}, 1, True)
    assert "create" in listed["one"].operations
    assert [each.version for each in client.forms("list", "two", all_versions=True)] == [2, 1]
    assert client.forms("list", modified_since=Instant("2999-01-01T00:00:00.000Z")) == []
    assert listed["one"].form == Form("list", "one")


def test_the_health_of_a_service(client: PersistenceClient) -> None:
    assert client.health().is_ready
    with PersistenceClient("http://127.0.0.1:1", policy=CallPolicy(attempts=1)) as nobody:
        assert not nobody.health().is_alive
        assert "cannot be reached" in nobody.health().cause


@pytest.mark.parametrize(
    "url", ["", "127.0.0.1:8080", "ftp://a", "http://", "http://u:p@a", "http://a/?q", "http://a:x"]
)
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(BadRequestError, match="not a valid address"):
        PersistenceClient(url)


def test_an_administrator_exports_imports_and_purges(tmp_path: Path) -> None:
    keys = Keys(str(tmp_path / "keys.json"), tree=str(tmp_path / "data"))
    key, other = keys.add("boss"), keys.add("other")
    with serving(tmp_path, settings='keys = "keys.json"\nadministrators = ["boss"]\n') as service:
        with PersistenceClient(_url(service)) as stranger, pytest.raises(UnauthorizedError):
            stranger.forms()
        with PersistenceClient(_url(service), key=other) as clerk, pytest.raises(ForbiddenError):
            clerk.purge(["revisions"], "1d")
        with PersistenceClient(_url(service), key=key) as boss:
            _export_and_import(boss, tmp_path / "all.zip")


def _export_and_import(boss: PersistenceClient, file: Path) -> None:
    form = boss.form("hr", "trip", 1)
    form.publish("<html/>")
    form.save("a", "<a/>")
    form.save("a", "<b/>")
    with boss.export("hr/trip") as archive, file.open("wb") as out:
        out.writelines(archive)
    with boss.export(ExportQuery(contents=frozenset({ExportedContent.DEFINITIONS}))) as small:
        assert len(small.read()) < file.stat().st_size
    with (
        boss.export(ExportQuery(search=Query("nowhere"))) as smaller,
        zipfile.ZipFile(io.BytesIO(smaller.read())) as made,
    ):
        assert not any("/data/" in name for name in made.namelist())
    with pytest.raises(NotFoundError):
        boss.export("hr/nothing")
    report = boss.import_archive(file, dry_run=True)
    assert (report.is_dry, report.refused, report.documents["unchanged"]) == (True, 0, 1)
    line = b'{"app": "hr", "form": "trip", "version": 1, "document": "b", "data": "<form/>"}\nno json\n'
    report = boss.import_archive(line, "jsonl")
    assert (report.is_dry, report.documents["imported"], report.refused) == (False, 1, 1)
    assert len(report.causes) == 1
    would = boss.purge(["revisions"], Instant("2001-01-01T00:00:00.000Z"))
    assert (would.is_dry, would.revisions, would.problems) == (True, 0, ())
    done = boss.purge(["revisions", "drafts"], form.load("a").modified, ("hr", "trip", "a"), dry_run=False)
    assert (done.is_dry, done.revisions) == (False, 1)
    assert [each.is_deleted for each in form.history("a")] == [False]


def test_importing_the_client_loads_nothing_of_a_service() -> None:
    loaded = "import sys, persistence.client; print(*sys.modules)"
    names = subprocess.run([sys.executable, "-c", loaded], check=True, capture_output=True, text=True).stdout.split()
    tops = {name.split(".")[0] for name in names}
    assert tops.isdisjoint({"flask", "werkzeug", "lxml", "gunicorn", "sqlite3", "cryptography"})
    parts = {name.split(".")[1] for name in names if name.startswith("persistence.")}
    assert parts == {"client", "wire", "forms", "xml", "model", "dialect", "closable", "errors", "limits"}


@pytest.mark.parametrize("encoding", ["ISO-8859-1", "UTF-16"])
def test_a_text_is_not_in_the_encoding_that_it_declares(client: PersistenceClient, encoding: str) -> None:
    """A str is decoded already; bytes are what they say, and so are attachments."""
    declaration = f'<?xml version="1.0" encoding="{encoding}"?>'
    form, text = client.form("hr", f"declared-{encoding.lower()}", 1), f"{declaration}<form><x>caf\u00e9</x></form>"
    version = form.publish(declaration + FORM.format("<!-- caf\u00e9 -->"))
    assert b"<!-- caf\xc3\xa9 -->" in form.definition().xhtml
    saved = form.create(text)
    assert form.load(saved.document).xml == b'<?xml version="1.0"?><form><x>caf\xc3\xa9</x></form>'
    again = form.save(saved, text.encode(encoding))
    assert form.load(again.document).xml == text.encode(encoding)
    attached = form.attach(again, text, "old.xml")
    with form.attachment(again, "old.xml") as download:
        assert download.read() == text.encode()
    assert (version, attached.version) == (1, 1)


# The client: differences, deleting and purging, indexes, encryption and access tokens, over real requests.

TOKENS = (
    '<permissions><permission operations="create read update delete list"><owner/></permission>'
    '<permission operations="create"/>'
    '<permission operations="read -list"><anyone-with-token/></permission></permissions>'
)


@dataclass(frozen=True)
class Callers:
    """Clients of a service whose key may administer and issue tokens, and of one whose key may not."""

    boss: PersistenceClient
    clerk: PersistenceClient


@pytest.fixture(params=["svc", pytest.param("orbeon", marks=pytest.mark.long)])
def callers(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callers]:
    prefix = "svc" if request.param == "svc" else "oxf.fr"
    settings = (
        'keys = "keys.json"\nadministrators = ["boss"]\ntoken_issuers = ["boss"]\n'
        f'"{prefix}.access-token.validity.*.*" = 60\n'
    )
    keys = Keys(str(tmp_path / "keys.json"), tree=str(tmp_path / "data"))
    secrets = [keys.add(name) for name in ("boss", "clerk")]
    keys.ensured_signing_secrets()
    with serving(tmp_path, dialect=request.param, settings=settings, alone=True) as service:
        url = f"http://127.0.0.1:{service.port}"
        boss, clerk = (PersistenceClient(url, key=key, user="lea", dialect=request.param) for key in secrets)
        with boss, clerk:
            boss.form("hr", "trip").publish(FORM.format(TOKENS), 1)
            yield Callers(boss, clerk)


def test_differences_have_the_words_of_the_form(callers: Callers) -> None:
    trip = callers.boss.form("hr", "trip", 1)
    first = trip.save("a", data("Paris"))
    second = trip.save("a", data("Rome"))
    (found,) = trip.differences("a", first.modified, second.modified)
    assert found == ReportedDifference("value-changed", "city", "", "Paris", "Rome", 0)
    unversioned = callers.boss.form("hr", "trip")
    assert unversioned.differences("a", first.modified, second.modified) == [found]
    assert unversioned.differences(second, second.modified, second.modified) == []
    with pytest.raises(NotFoundError):
        unversioned.differences("none", first.modified, second.modified)
    with pytest.raises(BadRequestError):
        callers.boss.form("hr", "trip", 2).differences("a", first.modified, second.modified)


def test_all_data_is_deleted_and_can_be_brought_back(callers: Callers) -> None:
    trip = callers.boss.form("hr", "trip", 1)
    for name in ("a", "b"):
        trip.save(name, data(name))
    with pytest.raises(ForbiddenError):
        callers.boss.acting_as("bob").form("hr", "trip").delete_all()
    assert trip.delete_all(version=1) == DeletedData(2, 0)
    assert trip.delete_all() == DeletedData(0, 0)
    assert not trip.exists("a")
    (deletion, saved) = trip.history("a")
    assert deletion.is_deleted
    trip.revert("a", revision=saved.modified)
    assert trip.exists("a")


def test_revisions_and_attachments_are_purged_by_administrators(callers: Callers) -> None:
    trip = callers.boss.form("hr", "trip", 1)
    first, _ = trip.save("a", data("Paris")), trip.save("a", data("Rome"))
    trip.attach("a", b"any", "scan.bin")
    with pytest.raises(ForbiddenError):
        callers.clerk.form("hr", "trip").purge_revision("a", first.modified)
    trip.purge_revision("a", first.modified)
    assert len(list(trip.history("a"))) == 1
    with pytest.raises(ConflictError):
        trip.purge_revision("a", trip.load("a").modified)
    trip.purge_attachment("a", "scan.bin")
    assert list(trip.history("a", "scan.bin")) == []


def test_a_token_opens_one_document_for_those_who_may_not(callers: Callers) -> None:
    trip = callers.boss.form("hr", "trip", 1)
    trip.save("a", data("Paris"))
    trip.save("b", data("Rome"))
    with pytest.raises(ForbiddenError):
        callers.clerk.form("hr", "trip", 1).issue_token("a", ["read"], "1h")
    token = trip.issue_token("a", ["read"], "1h")
    stranger = callers.clerk.acting_as("bob")
    with pytest.raises(ForbiddenError):
        stranger.form("hr", "trip").load("a")
    bearer = stranger.with_token(token).form("hr", "trip", 1)
    assert bearer.load("a").xml == data("Paris").encode()
    for document, change in (("b", bearer.load), ("a", bearer.delete), ("b", bearer.delete)):
        with pytest.raises(ForbiddenError) as error:
            change(document)
        assert token not in str(error.value)
    with pytest.raises(ForbiddenError):
        stranger.form("hr", "trip").load("a")


def test_indexes_are_rebuilt(callers: Callers) -> None:
    trip = callers.boss.form("hr", "trip", 1)
    trip.save("a", data("Paris"))
    callers.boss.reindex()
    trip.reindex(1)
    progress = callers.boss.reindexing()
    assert (progress.is_running, progress.current, progress.total) == (False, 0, 0)
    assert [each.document for each in trip.search("paris")] == ["a"]


def test_encrypting_again_needs_a_key(callers: Callers) -> None:
    with pytest.raises(NotSupportedError):
        callers.boss.form("hr", "trip").reencrypt()
    assert callers.boss.reencryptions() == []


def test_the_progress_of_encrypting_again(tmp_path: Path) -> None:
    env = {"PERSISTENCE_ENCRYPTION_KEY": f"k1:{'0' * 64}"}
    with (
        serving(tmp_path, env=env, alone=True) as service,
        PersistenceClient(f"http://127.0.0.1:{service.port}", user="lea") as client,
    ):
        trip = client.form("hr", "trip", 1)
        trip.publish(FORM.format(""))
        trip.save("a", data("Paris"))
        trip.reencrypt(1)
        eventually(lambda: [(each.state, each.current) for each in client.reencryptions()] == [("finished", 1)])
        (done,) = client.reencryptions()
        assert (str(done.form), done.version, done.total) == ("hr/trip", 1, 1)


# The examples of docs/client.md and the README, literally, against gunicorn: a new user's whole workflow.

ROOT = Path(__file__).parents[2]


def examples(page: str) -> list[str]:
    found = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    assert found
    return list(found)


def run(script: str, port: int, directory: Path) -> str:
    """Return what an example prints, with the service and the files of a test."""
    script = script.replace("/tmp/", f"{directory}/").replace(":8080", f":{port}")
    script = script.replace("PersistenceClient(user", f'PersistenceClient("http://127.0.0.1:{port}", user')
    script = script.replace("PersistenceClient()", f'PersistenceClient("http://127.0.0.1:{port}")')
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(script, "docs/client.md", "exec"), {})  # noqa: S102 - what the test is about
    return printed.getvalue()


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with running(tmp_path_factory.mktemp("documented"), workers=2) as service:
        yield service.port


def test_the_examples_work_literally(port: int, tmp_path: Path) -> None:
    with PersistenceClient(f"http://127.0.0.1:{port}", user="lea") as client:
        trips = client.form("hr", "trip")
        trips.publish(FORM.format(""))
        for city in ("Paris", "Lisbon", "Rome"):
            trips.create(data(city))
    scripts = examples("docs/client.md")
    workflow, conflict, search = (run(script, port, tmp_path) for script in scripts)
    assert re.fullmatch(r"[0-9a-f-]{36} \S+Z lea\n<form><name>Lea Example</name><scan>/fr/.*</scan></form>\n", workflow)
    assert re.match(r'current ETag "\w+", saved at \S+ by bob: ', conflict)
    assert search.startswith("2 ['Lisbon', 'Paris']\n{'trip/city': ('Lisbon', 'Paris', 'Rome')")


def test_the_workflow_is_ten_lines() -> None:
    lines = [line for line in examples("docs/client.md")[0].splitlines() if line.strip()]
    assert len(lines) <= 11  # with the import


def test_the_readme_has_a_shorter_one(port: int, tmp_path: Path) -> None:
    (script,) = examples("README.md")
    assert run(script, port, tmp_path) == "<form><name>Lea Example</name></form>\n"


@pytest.mark.parametrize("name", re.findall(r"`(\w+Error)`", (ROOT / "docs/client.md").read_text()))
def test_every_error_that_is_named_is_one(name: str) -> None:
    errors = __import__("persistence.errors", fromlist=[name])
    assert issubclass(getattr(errors, name), errors.PersistenceError)


@pytest.mark.parametrize("kind", [PersistenceClient, FormClient, SearchResults, CallPolicy])
def test_every_public_name_is_described(kind: type) -> None:
    page = (ROOT / "docs/client.md").read_text()
    names = [name for name in dir(kind) if not name.startswith("_") and name not in dir(object)]
    assert [name for name in names if not re.search(rf"(?<!\w){name}(?!\w)", page)] == []
