"""Singleton forms over HTTP: spec crud 4.12 and 15.10."""

import os
import shutil
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.http.stories import play, stories
from tests.published import definition
from tests.service import V1, Service, running

SINGLETON = definition("<singleton>true</singleton>")


@pytest.mark.parametrize(
    "said", ["", "<singleton>false</singleton>", "<singleton/>", "<a><singleton>true</singleton></a>"]
)
def test_other_forms_have_as_many_as_they_like(service: Service, form: str, said: str) -> None:
    """4.12: only the element of the metadata counts."""
    service.publish(form, definition(said).replace(b"<form/>", b"<form><singleton>true</singleton></form>"))
    play(service, form, "PUT data/A data/B v=1 -> 201")


@stories(
    {
        "the second is a conflict, updates are not; after deletion there may be one again (15.10)": """
            PUT data/A v=1 -> 201
            PUT data/B v=1 -> 409 `only one document`
            PUT data/A data/B/a.bin v=1 -> 204 201
            DELETE data/A
            PUT data/B v=1 -> 201""",
        "drafts do not count and are not refused (15.10, D17)": """
            PUT draft/A data/A draft/A draft/B v=1 -> 201""",
        "it is a matter of the version (4.12)": """
            PUT form v=2
            PUT data/A data/B v=2 -> 201
            PUT data/C data/D v=1 -> 201 409
            PUT data/E v=3 -> 201""",
    }
)
def test_a_singleton(service: Service, form: str, story: str) -> None:
    service.publish(form, SINGLETON)
    play(service, form, story)


def test_of_many_at_once_exactly_one_is_created(service: Service, form: str) -> None:
    """4.12: check and insert are atomic."""
    service.put(f"{form}/form/form.xhtml", SINGLETON)
    with ThreadPoolExecutor(12) as crowd:
        answers = list(crowd.map(lambda name: service.put(f"{form}/data/{name}/data.xml", **V1), range(12)))
    assert sorted(answer.status for answer in answers) == [201] + [409] * 11


@pytest.fixture(scope="module")
def crowd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with running(tmp_path_factory.mktemp("crowd"), workers=2) as service:
        yield service


def create(service: Service, form: str, *names: str, user: str | None = None) -> list[int]:
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
    crowd.put(f"{form}/form/form.xhtml", definition(f"<singleton>true</singleton>{own}"))
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
