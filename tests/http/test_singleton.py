"""Singleton forms over HTTP: spec crud 4.12 and 15.10."""

import os
import shutil
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.service import V1, Service, running

DEFINITION = """<xh:html xmlns:xh="http://www.w3.org/1999/xhtml" xmlns:xf="http://www.w3.org/2002/xforms"><xh:head>
<xf:model id="fr-form-model"><xf:instance id="fr-form-instance"><form><singleton>true</singleton></form></xf:instance>
<xf:instance id="fr-form-metadata"><metadata><title>T</title>{}</metadata></xf:instance></xf:model></xh:head>
</xh:html>"""
SINGLETON = DEFINITION.format("<singleton>true</singleton>").encode()


def test_a_second_document_is_a_conflict(service: Service, form: str) -> None:
    """15.10: the second is 409, updates are not; after deletion there may be one again."""
    service.put(f"{form}/form/form.xhtml", SINGLETON)
    assert service.put(f"{form}/data/A/data.xml", **V1).status == 201
    assert service.put(f"{form}/data/B/data.xml", **V1).refuses(409, "only one document")
    assert service.put(f"{form}/data/A/data.xml", **V1).status == 204
    assert service.put(f"{form}/data/B/a.bin", b"x", **V1).status == 201
    service.delete(f"{form}/data/A/data.xml")
    assert service.put(f"{form}/data/B/data.xml", **V1).status == 201


def test_drafts_do_not_count_and_are_not_refused(service: Service, form: str) -> None:
    """15.10 and D17: draft first, then data; a draft beside the saved document."""
    service.put(f"{form}/form/form.xhtml", SINGLETON)
    assert service.put(f"{form}/draft/A/data.xml", **V1).status == 201
    assert service.put(f"{form}/data/A/data.xml", **V1).status == 201
    assert service.put(f"{form}/draft/A/data.xml", **V1).status == 201
    assert service.put(f"{form}/draft/B/data.xml", **V1).status == 201


@pytest.mark.parametrize(
    "said", ["", "<singleton>false</singleton>", "<singleton/>", "<a><singleton>true</singleton></a>"]
)
def test_other_forms_have_as_many_as_they_like(service: Service, form: str, said: str) -> None:
    """4.12: only the element of the metadata counts."""
    service.put(f"{form}/form/form.xhtml", DEFINITION.format(said).encode())
    for name in "AB":
        assert service.put(f"{form}/data/{name}/data.xml", **V1).status == 201


def test_it_is_a_matter_of_the_version(service: Service, form: str) -> None:
    """4.12: documents of that application, form and version are counted."""
    service.put(f"{form}/form/form.xhtml", DEFINITION.format("").encode())
    service.put(f"{form}/form/form.xhtml", SINGLETON, Form_Definition_Version="next")
    for name, version, status in (("A", 1, 201), ("B", 1, 201), ("C", 2, 201), ("D", 2, 409), ("E", 3, 201)):
        assert service.put(f"{form}/data/{name}/data.xml", Form_Definition_Version=version).status == status


def test_of_many_at_once_exactly_one_is_created(service: Service, form: str) -> None:
    """4.12: check and insert are atomic."""
    service.put(f"{form}/form/form.xhtml", SINGLETON)
    with ThreadPoolExecutor(12) as crowd:
        answers = list(crowd.map(lambda name: service.put(f"{form}/data/{name}/data.xml", **V1), range(12)))
    assert sorted(answer.status for answer in answers) == [201] + [409] * 11


@pytest.fixture(scope="module")
def crowd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service with two workers."""
    with running(tmp_path_factory.mktemp("crowd"), workers=2) as service:
        yield service


def create(service: Service, form: str, *names: str, user: str | None = None) -> list[int]:
    """The statuses of creations, all at once, in ascending order."""
    sent = {} if user is None else {"Username": user}

    def one(name: str) -> int:
        return service.put(f"{form}/data/{name}/data.xml", **V1, **sent).status

    with ThreadPoolExecutor(len(names)) as pool:
        return sorted(pool.map(one, names))


def test_workers_do_not_create_one_each(crowd: Service, form: str) -> None:
    """4.12: between processes too, round after round, also when the document has just been deleted."""
    crowd.put(f"{form}/form/form.xhtml", SINGLETON)
    for _ in range(8):
        assert create(crowd, form, *"ABCDEF") == [201, *[409] * 5]
        assert [crowd.delete(f"{form}/data/{name}/data.xml").status for name in "ABCDEF"].count(204) == 1


def test_where_all_see_their_own_only_everyone_has_one(crowd: Service, form: str) -> None:
    """4.12: documents are counted that the user may see."""
    own = '<permissions><permission operations="create read update delete"><owner/></permission></permissions>'
    crowd.put(f"{form}/form/form.xhtml", DEFINITION.format(f"<singleton>true</singleton>{own}").encode())
    assert create(crowd, form, "a1", "a2", "a3", user="ann") == [201, 409, 409]
    assert create(crowd, form, "b1", "b2", "b3", user="bob") == [201, 409, 409]


def test_a_killed_worker_leaves_its_document_to_be_found(crowd: Service, form: str) -> None:
    crowd.put(f"{form}/form/form.xhtml", SINGLETON)
    assert create(crowd, form, "A") == [201]
    for worker in crowd.workers():
        os.kill(worker, signal.SIGKILL)
    assert create(crowd, form, "B", "C") == [409, 409]


def test_without_an_index_the_document_is_found_all_the_same(crowd: Service, form: str) -> None:
    crowd.put(f"{form}/form/form.xhtml", SINGLETON)
    assert create(crowd, form, "A") == [201]
    shutil.rmtree(crowd.data / ".index")
    assert create(crowd, form, "B", "C") == [409, 409]


def test_a_document_that_a_person_has_removed_does_not_count(crowd: Service, form: str) -> None:
    crowd.put(f"{form}/form/form.xhtml", SINGLETON)
    assert create(crowd, form, "A") == [201]
    assert create(crowd, form, "B") == [409]
    shutil.rmtree(crowd.data / form / "data/A")
    assert create(crowd, form, "B") == [201]
