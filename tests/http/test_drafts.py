"""Drafts over HTTP: spec crud 4.11, and the states of section 14."""

from tests.service import V1, Service


def test_a_draft_is_created_and_replaced(service: Service, form: str) -> None:
    """4.11: 201, then 204; created and owner of a draft are its own and kept."""
    path, own = f"{form}/draft/D/data.xml", service.prefix
    assert service.put(path, b"<d>1</d>", **V1, Username="lea").status == 201
    first = service.get(path)
    assert service.put(path, b"<d>2</d>", Username="bob").status == 204
    second = service.get(path)
    assert (second.body, second[own + "Created"]) == (b"<d>2</d>", first[own + "Created"])
    assert (second[own + "Username"], second[own + "Last-Modified-By-Username"]) == ("lea", "bob")


def test_draft_and_data_are_independent(service: Service, form: str) -> None:
    """4.11: saved data does not disappear when a draft is stored."""
    data, draft = f"{form}/data/D/data.xml", f"{form}/draft/D/data.xml"
    service.put(data, b"<d>saved</d>", **V1)
    assert service.put(draft, b"<d>draft</d>", **V1).status == 201
    assert (service.get(data).body, service.get(draft).body) == (b"<d>saved</d>", b"<d>draft</d>")


def test_saving_removes_the_draft_with_its_attachments(service: Service, form: str) -> None:
    """Seed, States and transitions."""
    draft = f"{form}/draft/D"
    service.put(f"{draft}/a.bin", b"x", **V1)
    service.put(f"{draft}/data.xml", **V1)
    assert service.get(f"{draft}/a.bin").body == b"x"
    assert service.put(f"{form}/data/D/data.xml", **V1).status == 201
    assert service.get(f"{draft}/data.xml").status == service.get(f"{draft}/a.bin").status == 404
    service.put(f"{draft}/data.xml", **V1)
    assert service.get(f"{draft}/a.bin").status == 404
    assert not (service.data / form / "draft" / "D" / "a.bin").exists()


def test_saving_an_attachment_leaves_the_draft(service: Service, form: str) -> None:
    """4.11: draft attachments must stay readable until data.xml is saved."""
    service.put(f"{form}/draft/D/a.bin", b"x", **V1)
    service.put(f"{form}/draft/D/data.xml", **V1)
    service.put(f"{form}/data/D/a.bin", b"x", **V1)
    assert service.get(f"{form}/draft/D/a.bin").status == 200
    service.put(f"{form}/data/D/data.xml", **V1)
    service.put(f"{form}/draft/D/data.xml", **V1)
    service.delete(f"{form}/data/D/a.bin")
    assert service.get(f"{form}/draft/D/data.xml").status == 200


def test_replacing_the_draft_keeps_its_attachments(service: Service, form: str) -> None:
    """4.11: else the attachments just stored for this draft would vanish."""
    service.put(f"{form}/draft/D/data.xml", **V1)
    service.put(f"{form}/draft/D/a.bin", b"x", **V1)
    service.put(f"{form}/draft/D/data.xml", **V1)
    assert service.get(f"{form}/draft/D/a.bin").body == b"x"


def test_deleting_a_draft_leaves_no_trace(service: Service, form: str) -> None:
    """4.10 and 4.1: XML and attachments are gone, 404 in both dialects, no dates in the answer (4.3)."""
    draft, own = f"{form}/draft/D", service.prefix
    service.put(f"{draft}/data.xml", **V1)
    service.put(f"{draft}/a.bin", b"x", **V1)
    removed = service.delete(f"{draft}/data.xml")
    assert removed.status == 204
    assert [removed[name] for name in ("Last-Modified", own + "Last-Modified", "ETag")] == [None] * 3
    assert service.get(f"{draft}/data.xml").status == service.get(f"{draft}/a.bin").status == 404
    assert service.delete(f"{draft}/data.xml").status == 404
    assert not (service.data / form / "draft" / "D").exists()


def test_deleting_data_removes_the_draft(service: Service, form: str) -> None:
    """4.10."""
    service.put(f"{form}/data/D/data.xml", **V1)
    service.put(f"{form}/draft/D/a.bin", b"x", **V1)
    service.put(f"{form}/draft/D/data.xml", **V1)
    service.delete(f"{form}/data/D/data.xml")
    assert service.get(f"{form}/draft/D/data.xml").status == service.get(f"{form}/draft/D/a.bin").status == 404


def test_deleting_a_draft_leaves_the_data(service: Service, form: str) -> None:
    """4.10: everything under data/ is left alone."""
    service.put(f"{form}/data/D/data.xml", **V1)
    service.put(f"{form}/draft/D/data.xml", **V1)
    service.delete(f"{form}/draft/D/data.xml")
    assert service.get(f"{form}/data/D/data.xml").status == 200


def test_deleting_an_attachment_of_a_draft(service: Service, form: str) -> None:
    """4.1: drafts leave no tombstone; the draft itself stays."""
    service.put(f"{form}/draft/D/data.xml", **V1)
    service.put(f"{form}/draft/D/a.bin", b"x", **V1)
    assert service.delete(f"{form}/draft/D/a.bin").status == 204
    assert service.get(f"{form}/draft/D/a.bin").status == service.delete(f"{form}/draft/D/a.bin").status == 404
    assert service.get(f"{form}/draft/D/data.xml").status == 200
    assert {path.name for path in (service.data / form / "draft" / "D").iterdir()} == {"data.xml", "data.xml.json"}


def test_the_first_draft_without_a_version(service: Service, form: str) -> None:
    """4.11 in orbeon: 400 even if saved data exists; in svc the document's own version, then the latest."""
    service.put(f"{form}/data/D/data.xml", Form_Definition_Version=2)
    service.put(f"{form}/form/form.xhtml", Form_Definition_Version=5)
    answer = service.put(f"{form}/draft/D/data.xml")
    if service.dialect == "orbeon":
        assert answer.status == 400
    else:
        assert answer[service.prefix + "Form-Definition-Version"] == "2"
    assert service.put(f"{form}/draft/D/data.xml", Form_Definition_Version=2).status < 300
    assert service.put(f"{form}/draft/D/data.xml").status == 204


def test_drafts_keep_no_history(service: Service, form: str) -> None:
    """4.11: a draft has one revision only."""
    path, own = f"{form}/draft/D/data.xml", service.prefix
    first = service.put(path, **V1)[own + "Last-Modified"]
    second = service.put(path)[own + "Last-Modified"]
    assert service.get(f"{path}?last-modified-time={first}").status == 404
    assert service.get(f"{path}?last-modified-time={second}").status == 200
    assert not (service.data / form / "draft" / "D" / ".history").exists()
