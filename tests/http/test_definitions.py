"""Form definitions over HTTP: publishing and versions (seed, Versioning; spec crud 5 and 15)."""

import pytest

from tests.service import V1, Service


def version(service: Service, answer: object) -> str | None:
    return answer[service.prefix + "Form-Definition-Version"]  # type: ignore[index,no-any-return]


def test_publish_read_and_replace(service: Service, form: str) -> None:
    """Spec crud 15.1: without a header the first is version 1; then 204, still version 1."""
    path = f"{form}/form/form.xhtml"
    created = service.put(path, b"<f>1</f>")
    assert (created.status, created.body, version(service, created)) == (201, b"", "1")
    for read in (service.get(path), service.get(path, **V1), service.head(path)):
        assert (read.status, version(service, read)) == (200, "1")
    assert service.get(path).body == b"<f>1</f>"
    assert service.get(path, Form_Definition_Version=2).status == 404
    assert service.delete(path, Form_Definition_Version=2).status == 404
    replaced = service.put(path, b"<f>2</f>")
    assert (replaced.status, version(service, replaced)) == (204, "1")
    assert service.get(path).body == b"<f>2</f>"


def test_next_number_and_deleted_versions(service: Service, form: str) -> None:
    """Spec crud 15.2 and 5.2: numbers are reused; a deleted version hands over to the next lower one."""
    path = f"{form}/form/form.xhtml"
    service.put(path, b"<f>1</f>")
    second = service.put(path, b"<f>2</f>", Form_Definition_Version="next")
    assert (second.status, version(service, second)) == (201, "2")
    assert service.get(path).body == b"<f>2</f>"
    assert service.put(path, b"<f>1b</f>", **V1).status == 204
    assert service.get(path).body == b"<f>2</f>"
    removed = service.delete(path)
    assert (removed.status, version(service, removed)) == (204, "2")
    assert service.get(path, Form_Definition_Version=2).status == service.deleted
    assert service.delete(path, Form_Definition_Version=2).status == 410
    assert service.get(path).body == b"<f>1b</f>"
    again = service.put(path, b"<f>2b</f>", Form_Definition_Version="next")
    assert (again.status, version(service, again)) == (201, "2")


def test_next_on_an_unpublished_form_is_one(service: Service, form: str) -> None:
    """Spec crud 5.1."""
    assert version(service, service.put(f"{form}/form/form.xhtml", Form_Definition_Version="next")) == "1"


def test_gaps_are_allowed(service: Service, form: str) -> None:
    """Spec crud 5.1: N that does not exist is created as N."""
    path = f"{form}/form/form.xhtml"
    assert service.put(path, Form_Definition_Version=10).status == 201
    assert version(service, service.get(path)) == "10"
    assert service.put(path, Form_Definition_Version=9).status == 201
    assert version(service, service.get(path)) == "10"
    assert version(service, service.put(path, Form_Definition_Version="next")) == "11"


def test_the_only_version_deleted(service: Service, form: str) -> None:
    """Spec crud 5.1: treated as version 1, which was deleted; D14: DELETE of what was never published is 404."""
    path = f"{form}/form/form.xhtml"
    assert service.delete(path).status == 404
    service.put(path)
    service.delete(path)
    assert service.get(path).status == service.deleted
    assert service.delete(path).status == 410
    assert service.put(path).status == 201


@pytest.mark.parametrize("method", ["GET", "HEAD", "DELETE"])
def test_next_cannot_be_read_or_deleted(service: Service, form: str, method: str) -> None:
    """Spec crud 5.1."""
    service.put(f"{form}/form/form.xhtml")
    assert service.ask(method, f"{form}/form/form.xhtml", Form_Definition_Version="next").status == 400


@pytest.mark.parametrize("text", ["0", "-1", "one", "1.5", "latest", "NEXT", "99999999999999999999"])
def test_malformed_versions_are_refused(service: Service, form: str, text: str) -> None:
    """Spec crud 4.1 and 5.1, with their recommendation: 400, with the reason."""
    for path in (f"{form}/form/form.xhtml", f"{form}/data/D/data.xml"):
        for method in ("GET", "PUT", "DELETE"):
            answer = service.ask(method, path, b"<d/>" if method == "PUT" else None, Form_Definition_Version=text)
            assert (answer.status, "positive integer" in answer.cause) == (400, True)


def test_a_version_that_would_end_next_is_refused(service: Service, form: str) -> None:
    for path in (f"{form}/form/form.xhtml", f"{form}/form/logo.png"):
        refused = service.put(path, b"<f/>", Form_Definition_Version=999_999_999)
        assert (refused.status, "would leave no room for 'next'" in refused.cause) == (400, True)
    path = f"{form}/form/form.xhtml"
    assert service.put(path, b"<f/>", Form_Definition_Version=999_000_000).status == 201
    assert service.put(path, b"<f/>", Form_Definition_Version=999_000_001).status == 201
    published = service.put(path, b"<f/>", Form_Definition_Version="next")
    assert (published.status, version(service, service.head(path))) == (201, "999000002")


def test_the_definition_of_a_document(service: Service, form: str) -> None:
    """Spec crud 3, 5.1 and 15.4: by document, which wins over the version; drafts on request."""
    path = f"{form}/form/form.xhtml"
    for number in (1, 2, 3):
        service.put(path, b"<f>%d</f>" % number, Form_Definition_Version=number)
    service.put(f"{form}/data/A/data.xml", **V1)
    service.put(f"{form}/data/B/data.xml", Form_Definition_Version=2)
    service.put(f"{form}/draft/B/data.xml", Form_Definition_Version=3)
    assert service.get(path, For_Document_Id="A").body == b"<f>1</f>"
    assert service.get(path, For_Document_Id="B").body == b"<f>2</f>"
    assert version(service, service.head(path, For_Document_Id="B")) == "2"
    assert service.get(path, For_Document_Id="B", **V1).body == b"<f>2</f>"
    assert service.get(path, For_Document_Id="B", For_Document_IsDraft="true").body == b"<f>3</f>"
    assert service.get(path, For_Document_Id="B", For_Document_IsDraft="false").body == b"<f>2</f>"
    assert service.get(path, For_Document_Id="B", For_Document_IsDraft="TRUE").status == 400
    assert service.get(path, For_Document_Id="A", For_Document_IsDraft="true").status == 404
    assert service.get(path, For_Document_Id="none").status == 404
    assert service.get(path, For_Document_Id="A", For_Document_IsDraft="maybe").status == 400
    assert service.get(path, For_Document_Id="../A").status == 400
    service.delete(f"{form}/data/A/data.xml")
    assert service.get(path, For_Document_Id="A").status == service.deleted
    assert service.put(path, For_Document_Id="B").status == service.delete(path, For_Document_Id="B").status == 400


def test_publishing_with_attachments_under_next(service: Service, form: str) -> None:
    """Spec crud 5.1: attachments first, then form.xhtml: all land in the same new version."""
    service.put(f"{form}/form/form.xhtml")
    for name in ("a.bin", "b.bin"):
        put = service.put(f"{form}/form/{name}", name.encode(), Form_Definition_Version="next")
        assert (put.status, version(service, put)) == (201, "2")
    assert version(service, service.put(f"{form}/form/form.xhtml", Form_Definition_Version="next")) == "2"
    assert service.get(f"{form}/form/a.bin").body == b"a.bin"
    assert service.get(f"{form}/form/a.bin", **V1).status == 404


def test_publishing_over_an_existing_version(service: Service, form: str) -> None:
    """Spec crud 5.1: without a header existence is that of form.xhtml: even a new attachment is answered 204."""
    assert service.put(f"{form}/form/a.bin", b"x").status == 201
    service.put(f"{form}/form/form.xhtml")
    assert service.put(f"{form}/form/b.bin", b"x").status == 204
    assert service.put(f"{form}/form/c.bin", b"x", **V1).status == 201
    assert service.get(f"{form}/form/b.bin").body == b"x"


def test_deleting_a_definition_leaves_the_rest(service: Service, form: str) -> None:
    """Spec crud 4.10 and 5.2: attachments of the version and data made with it stay."""
    service.put(f"{form}/form/a.bin", b"x", **V1)
    service.put(f"{form}/form/form.xhtml", **V1)
    service.put(f"{form}/data/D/data.xml", **V1)
    service.delete(f"{form}/form/form.xhtml")
    assert service.get(f"{form}/form/a.bin", **V1).body == b"x"
    assert service.get(f"{form}/data/D/data.xml").status == 200
    assert service.put(f"{form}/data/D/data.xml").status == 204


def test_headers_of_definitions(service: Service, form: str) -> None:
    """Spec crud 4.3: no owner, no operations; the source document is kept and returned."""
    path, own = f"{form}/form/form.xhtml", service.prefix
    service.put(f"{path}?document=source-1", Username="lea", Group="staff")
    got = service.get(path)
    assert (got[own + "Last-Modified-By-Username"], got[own + "Document"]) == ("lea", "source-1")
    assert (got[own + "Form-Definition-App"], got[own + "Form-Definition-Form"]) == tuple(form.split("/"))
    for absent in ("Username", "Group", "Operations", "Workflow-Stage"):
        assert got[own + absent] is None
    for present in ("Created", "Last-Modified", "ETag", own + "Created", own + "Last-Modified"):
        assert got[present]
    put = service.put(path)
    assert put[own + "Operations"] is None
    assert service.get(path)[own + "Document"] is None


@pytest.mark.parametrize(
    ("sent", "answered"),
    [
        ("application/xhtml+xml", "application/xhtml+xml"),
        ("application/xhtml+xml; charset=utf-8", "application/xhtml+xml"),
        ("application/xml", "application/xml"),
        ("text/plain", "application/xml"),
    ],
)
def test_a_definition_is_xml_or_xhtml(service: Service, form: str, sent: str, answered: str) -> None:
    """Seed, Resource kinds 2."""
    service.put(f"{form}/form/form.xhtml", b"<f/>", {"Content-Type": sent})
    assert service.get(f"{form}/form/form.xhtml")["Content-Type"] == answered


def test_replaced_and_deleted_definitions_stay_in_the_history(service: Service, form: str) -> None:
    """Spec crud 4.4: journaled, though no request reads them; a person can."""
    path = f"{form}/form/form.xhtml"
    service.put(path, b"<f>1</f>")
    service.put(path, b"<f>2</f>")
    service.delete(path)
    history = service.data / form / "form" / "1" / ".history"
    kept = [file.read_bytes() for file in sorted(history.iterdir()) if file.suffix == ".xhtml"]
    assert kept == [b"<f>1</f>", b"<f>2</f>"]
    assert not (service.data / form / "form" / "1" / "form.xhtml").exists()
