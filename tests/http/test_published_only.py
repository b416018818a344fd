"""The property that refuses data of what was never published: a misspelt form is not a new one, open to everybody."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.in_process import serving
from tests.service import PROVIDER, PUBLIC, V1, Service

PROPERTY = {"svc": "svc.persistence.files.published-only", "orbeon": "oxf.fr.persistence.files.published-only"}
FORM = b"<form-definition/>"


def strict(directory: Path, dialect: str) -> Path:
    file = directory / "strict.toml"
    file.write_text(f'"{PROPERTY[dialect]}" = true\n')
    return file


@pytest.fixture(scope="module", params=["svc", "orbeon"])
def started(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    directory = tmp_path_factory.mktemp(f"published-only-{request.param}")
    file = strict(directory, request.param)
    with serving(directory, dialect=request.param, options=("--config", file.name)) as service:
        yield service


@pytest.fixture(params=[PUBLIC, PROVIDER], ids=["public", "provider"])
def service(request: pytest.FixtureRequest, started: Service) -> Service:
    """Each face, also that of a proxy (orbeon)."""
    return replace(started, face=request.param)


NAMES = ["data/D/data.xml", "draft/D/data.xml", "data/D/a.bin", "draft/D/a.bin"]


@pytest.mark.parametrize("name", NAMES)
def test_data_of_a_form_that_was_never_published_is_refused(service: Service, form: str, name: str) -> None:
    refused = service.put(f"{form}/{name}", **V1)
    assert refused.status == 404
    assert refused.cause == (
        f"version 1 of {form} was never published, and data is stored of published versions only:"
        f" the property {PROPERTY[service.dialect]} is true"
    )
    assert service.get(f"{form}/{name}").status == 404
    assert not (service.data / form.partition("/")[0]).exists()


@pytest.mark.parametrize("name", NAMES)
def test_data_of_a_published_version_is_stored_and_of_another_one_refused(
    service: Service, form: str, name: str
) -> None:
    """Attachments come before their document, so that the version is asked for and not the document."""
    assert service.put(f"{form}/form/form.xhtml", FORM, Form_Definition_Version=3).status == 201
    assert service.put(f"{form}/{name}", Form_Definition_Version=99).status == 404
    assert service.put(f"{form}/{name}", Form_Definition_Version=3).status == 201
    if service.face == PUBLIC:
        assert service.put(f"{form}/{name}", Form_Definition_Version=3).status == 204


def test_without_a_header_it_is_version_1_that_must_be_published(started: Service, form: str) -> None:
    if started.dialect == "orbeon":
        pytest.skip("the header is required there")
    assert started.put(f"{form}/data/D/data.xml").status == 404
    started.put(f"{form}/form/form.xhtml", FORM)
    assert started.put(f"{form}/data/D/data.xml").status == 201


def test_attachments_of_a_definition_do_not_publish_it(service: Service, form: str) -> None:
    service.put(f"{form}/form/a.bin", b"x", **V1)
    assert service.put(f"{form}/data/D/data.xml", **V1).status == 404


def test_what_was_begun_with_a_version_that_is_deleted_can_be_saved(service: Service, form: str) -> None:
    """It was published: its tombstone keeps who may see the data."""
    service.put(f"{form}/form/form.xhtml", FORM, **V1)
    assert service.put(f"{form}/data/D/data.xml", **V1).status == 201
    assert service.delete(f"{form}/form/form.xhtml", **V1).status == 204
    for document in ("D", "E"):
        assert service.put(f"{form}/data/{document}/data.xml", **V1).status in (201, 204)


def test_the_designer_s_own_form_needs_no_publication(service: Service) -> None:
    for collection in ("data", "draft"):
        for name in ("a.bin", "data.xml"):
            path = f"{service.designer}/builder/{collection}/{service.face.count('/')}/{name}"
            assert service.put(path, **V1).status == 201


def test_the_body_of_a_refused_put_leaves_nothing(service: Service, form: str) -> None:
    assert service.put(f"{form}/data/D/data.xml", b"<d>" + b"x" * 300_000 + b"</d>", **V1).status == 404
    assert service.leftovers() == []


def test_data_that_is_there_already_can_be_read_and_deleted_and_not_saved(tmp_path: Path) -> None:
    """A tree from before the property was set."""
    with serving(tmp_path, alone=True) as service:
        for document in ("D", "E"):
            assert service.put(f"a/b/data/{document}/data.xml").status == 201
    with serving(tmp_path, options=("--config", str(strict(tmp_path, "svc"))), alone=True) as service:
        assert service.get("a/b/data/D/data.xml").status == 200
        assert service.put("a/b/data/D/data.xml").status == 404
        assert service.delete("a/b/data/D/data.xml").status == 204
        assert service.delete("a/b/data/").status == 200


def test_without_the_property_it_is_as_it_was(service: Service, tmp_path: Path) -> None:
    with serving(tmp_path, dialect=service.dialect, alone=True) as lenient:
        lenient.face = service.face
        assert lenient.put("a/b/data/D/data.xml", Form_Definition_Version=99).status == 201
