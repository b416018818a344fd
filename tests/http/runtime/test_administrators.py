"""What administrators do from the runtime's pages: export, purge and reindex (spec runtime 5 to 8)."""

import io
import re
import zipfile
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests import orders
from tests.http.runtime.proxy import CRUD, SAVED, Proxy
from tests.http.runtime.releases import BOB, CLEO, LEA, OWNERS
from tests.in_process import serving
from tests.service import PROVIDER, PUBLIC, V1, Service


@pytest.fixture(scope="module")
def administered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service in which the runtime, which shows no key, may purge."""
    directory = tmp_path_factory.mktemp("administered")
    settings = 'administrators = ["trusted"]\ntrusted = ["127.0.0.1"]\n'
    with serving(directory, dialect="orbeon", settings=settings, alone=True) as service:
        yield replace(service, face=PROVIDER)


@pytest.fixture
def provider(administered: Service) -> Service:
    return administered


def exported(proxy: Proxy, form: str, history: str) -> dict[str, bytes]:
    """The files of a ZIP as the runtime writes it from what its provider tells to an administrator (spec runtime 7)."""
    own, entries = replace(proxy, is_internal=True), dict[str, bytes]()
    for version in sorted(own.versions(form)):
        top = f"{form}/{version}"
        entries[f"{top}/form/latest/form.xhtml"] = own.read_form(form, Form_Definition_Version=version).body
        for document in own.documents(form, version):
            base, folder = f"{form}/data/{document}", f"{top}/data/{document}"
            times = [each.attrib["modified-time"] for each in own.revisions(form, document)]
            for time in times if history == "include" else times[:1]:
                got = own.read(f"{base}/data.xml", f"?last-modified-time={time}").body
                entries[f"{folder}/{time if history == 'include' else 'latest'}/data.xml"] = got
            for name in re.findall(f"{CRUD}{base}/([^<]+)", own.read(f"{base}/data.xml").body.decode()):
                entries[f"{folder}/latest/{name}"] = own.read(f"{base}/{name}").body
    return entries


@pytest.mark.parametrize("history", ["exclude", "include"])
def test_an_administrators_export_has_everything(lea: Proxy, form: str, history: str) -> None:
    """Nobody may read all of it, and the ZIP of the service itself has the same files."""
    for version in (1, 2):
        lea.publish(form, orders.definition(OWNERS), version)
        for person in (LEA, BOB, CLEO):
            name = f"{person.name}-{version}"
            assert lea.of(person).save(form, name, f"{name}.bin", version=version) == [201, 201]
            own = lea.of(person)
            own.write(f"{form}/data/{name}/data.xml", own.read(f"{form}/data/{name}/data.xml").body)
        assert lea.documents(form, version) == [f"lea-{version}"]
    files = exported(lea, form, history)
    assert len(files) == {"exclude": 2 + 6 + 6, "include": 2 + 12 + 6}[history]
    query = f"content=form-definition,form-data&data-revision-history={history}"
    answer = lea.provider.raw("GET", f"{PUBLIC}/export/{form}?{query}")
    with zipfile.ZipFile(io.BytesIO(answer.body)) as archive:
        own = {name: archive.read(name) for name in archive.namelist() if not name.endswith(".metadata.xml")}
    assert own == files


def purged(proxy: Proxy, form: str, document: str, history: str) -> list[int]:
    """DELETE of what is current, then by ``force-delete`` of its revision, the tombstone, and older revisions."""
    own, path = replace(proxy, is_internal=True), f"{form}/data/{document}/data.xml"
    current, *older = own.revisions(form, document)
    asked = [current.attrib["modified-time"]]
    if history == "only":
        asked = []
    elif current.attrib["deleted"] == "false":
        gone = own.remove(path)
        assert (gone.status, gone["Orbeon-Last-Modified"] is not None) == (204, True), "else it is a failure"
        asked.append(str(gone["Orbeon-Last-Modified"]))
    if history != "exclude":
        asked += [each.attrib["modified-time"] for each in older]
    return [own.remove(path, f"?force-delete=true&last-modified-time={each}").status for each in asked]


PURGES = {
    ("live", "include"): (4, 404, ""),
    ("live", "exclude"): (2, 410, "10"),
    ("live", "only"): (2, 200, "2"),
    ("deleted", "include"): (4, 404, ""),
    ("deleted", "exclude"): (1, 410, "210"),
    ("deleted", "only"): (3, 410, ""),
}
"""How many DELETEs there are for a document that was saved three times, its status then, and what of it can be read.

A tombstone stays until the last older revision goes (spec runtime 6).
"""


@pytest.mark.parametrize("history", ["include", "exclude", "only"])
@pytest.mark.parametrize("state", ["live", "deleted"])
def test_a_purge_goes_from_the_newest_revision_to_the_oldest(lea: Proxy, form: str, state: str, history: str) -> None:
    """By the runtime's own rights: an administrator may purge what belongs to others. It can be repeated."""
    path, file, bob = f"{form}/data/D/data.xml", f"{form}/data/D/a.bin", lea.of(BOB)
    lea.publish(form, orders.definition(OWNERS))
    for number in range(3):
        lea.write(path, b"<form>%d</form>" % number, SAVED, **V1)
    lea.write(file, b"1", **V1)
    if state == "deleted":
        lea.remove(path)

    count, status, kept = PURGES[state, history]
    assert purged(bob, form, "D", history) == [204] * count
    times = [each.attrib["modified-time"] for each in lea.revisions(form, "D") if each.attrib["deleted"] == "false"]
    got = [lea.read(path, f"?last-modified-time={time}").body for time in times]
    assert (lea.read(path).status, got) == (status, [f"<form>{number}</form>".encode() for number in kept])
    if status != 404:
        assert set(purged(bob, form, "D", "include")) == {204}
    assert [lea.read(each).status for each in (path, file)] == [404, 404]
    assert lea.revisions(form, "D") == []
    assert lea.save(form, "D") == [201]


def test_all_forms_are_indexed_again(lea: Proxy, form: str) -> None:
    """What has lost its definition is not found until then (spec search 8.2, T12); the answer comes when it is done."""
    for version in (1, 2):
        lea.publish(form, orders.definition(), version)
        lea.save(form, f"D{version}", version=version)
    assert lea.documents(form, "all") == ["D1", "D2"]
    lea.remove_form(form, 2)
    assert lea.documents(form, "all") == ["D1"]
    done = lea.get("/reindex") if lea.release.reindexes == "GET" else lea.post("/reindex")
    assert (done.status, done.body) == (200, b"")
    assert lea.documents(form, "all") == ["D1", "D2"]
    assert lea.post(f"/reindex/{form}", **V1).status == 200
    assert lea.post(f"/reindex/{form}").status == 400
    assert lea.documents(form, 1) == ["D1"]
