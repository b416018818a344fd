"""Conditional requests over HTTP: nobody overwrites unseen, and good copies are not sent again."""

import pytest

from tests.service import Service

FILES = ["data/D/data.xml", "draft/D/data.xml", "data/D/a.bin", "form/form.xhtml", "form/a.bin"]


@pytest.fixture(params=FILES)
def path(request: pytest.FixtureRequest, service: Service, form: str) -> str:
    """Each kind of resource, stored."""
    service.put(f"{form}/data/D/data.xml", Form_Definition_Version=1)
    service.put(f"{form}/{request.param}", b"<d>1</d>", Form_Definition_Version=1)
    return f"{form}/{request.param}"


def test_if_match_guards_every_resource(service: Service, path: str) -> None:
    """Spec crud 4.6 and the issue: data, drafts, attachments and definitions; quoted or bare; * passes."""
    first = str(service.get(path)["ETag"])
    second = service.put(path, b"<d>2</d>", {"If-Match": first}, Form_Definition_Version=1)
    assert second.status == 204
    assert second["ETag"] != first
    refused = service.put(path, b"<d>3</d>", {"If-Match": first}, Form_Definition_Version=1)
    assert refused.status == 412
    assert service.delete(path, {"If-Match": first}, Form_Definition_Version=1).status == 412
    assert service.get(path).body == b"<d>2</d>"
    assert (
        service.put(path, b"<d>4</d>", {"If-Match": f'"x", "{second["ETag"]}"'}, Form_Definition_Version=1).status
        == 204
    )
    assert service.put(path, b"<d>5</d>", {"If-Match": "*"}, Form_Definition_Version=1).status == 204
    current = str(service.get(path)["ETag"])
    assert service.delete(path, {"If-Match": current}, Form_Definition_Version=1).status == 204


def test_if_match_on_nothing_is_ignored(service: Service, form: str) -> None:
    """Spec crud 4.6: no 412 on a missing resource, nor on a tombstone."""
    path = f"{form}/data/D/data.xml"
    assert service.put(path, headers={"If-Match": "x"}, Form_Definition_Version=1).status == 201
    service.delete(path)
    assert service.put(path, headers={"If-Match": "x"}, Form_Definition_Version=1).status == 201


def test_if_none_match_creates_only(service: Service, form: str) -> None:
    """RFC 9110 13.1.2: with * a PUT creates, and never overwrites."""
    path = f"{form}/data/D/data.xml"
    assert service.put(path, b"<d>1</d>", {"If-None-Match": "*"}, Form_Definition_Version=1).status == 201
    assert service.put(path, b"<d>2</d>", {"If-None-Match": "*"}, Form_Definition_Version=1).status == 412
    assert service.get(path).body == b"<d>1</d>"
    service.delete(path)
    assert service.put(path, b"<d>3</d>", {"If-None-Match": "*"}, Form_Definition_Version=1).status == 201


def test_if_match_of_an_attachment_may_name_its_document(service: Service, form: str) -> None:
    """Spec crud 4.2, PUT 4: compared with the document's tag; with tags of its own, either will do."""
    document = str(service.put(f"{form}/data/D/data.xml", Form_Definition_Version=1)["ETag"])
    path = f"{form}/data/D/a.bin"
    assert service.put(path, b"x", {"If-Match": "wrong"}, Form_Definition_Version=1).status == 412
    assert service.put(path, b"x", {"If-Match": document}, Form_Definition_Version=1).status == 201
    assert service.put(path, b"y", {"If-Match": document}, Form_Definition_Version=1).status == 204
    service.put(f"{form}/data/D/data.xml", Form_Definition_Version=1)
    assert service.put(path, b"z", {"If-Match": document}, Form_Definition_Version=1).status == 412


def test_the_precondition_comes_before_the_version(service: Service, form: str) -> None:
    """Spec crud 4.2: 412 wins over 400, and both over a malformed body."""
    path = f"{form}/data/D/data.xml"
    tag = str(service.put(path, Form_Definition_Version=1)["ETag"])
    assert service.put(path, b"<", {"If-Match": "x"}, Form_Definition_Version=2).status == 412
    assert service.put(path, b"<", {"If-Match": tag}, Form_Definition_Version=2).status == 400
    assert service.put(path, b"<", {"If-Match": "x"}, Form_Definition_Version="next").status == 400


def test_good_copies_are_not_sent_again(service: Service, path: str) -> None:
    """The issue: 304 for GET and HEAD of anything; If-None-Match wins over the date (RFC 9110 13.2.2)."""
    got = service.get(path)
    tag, date = str(got["ETag"]), str(got["Last-Modified"])
    for headers in (
        {"If-None-Match": tag},
        {"If-None-Match": f'W/"{tag}"'},
        {"If-None-Match": "*"},
        {"If-Modified-Since": date},
        {"If-None-Match": tag, "If-Modified-Since": "Sun, 06 Nov 1994 08:49:37 GMT"},
    ):
        for method in ("GET", "HEAD"):
            copy = service.ask(method, path, None, headers)
            assert (copy.status, copy.body, copy["ETag"]) == (304, b"", tag)
    for headers in (
        {"If-None-Match": "other"},
        {"If-Modified-Since": "Sun, 06 Nov 1994 08:49:37 GMT"},
        {"If-Modified-Since": "nonsense"},
        {"If-None-Match": "other", "If-Modified-Since": date},
    ):
        assert service.get(path, headers).status == 200


def test_a_file_replaced_by_hand_gets_another_tag(service: Service, form: str) -> None:
    """What was acknowledged under a tag is not what lies there now: neither a copy nor an If-Match may say so."""
    path = f"{form}/data/D/data.xml"
    tag = str(service.put(path, b"<d>1</d>", Form_Definition_Version=1)["ETag"])
    (service.data / path).write_bytes(b"<d>by hand</d>")
    edited = service.get(path)
    assert (edited.status, edited.body) == (200, b"<d>by hand</d>")
    assert edited["ETag"] not in (tag, None)
    assert service.head(path)["ETag"] == edited["ETag"]
    assert service.get(path, {"If-None-Match": tag}).status == 200
    assert service.get(path, {"If-Modified-Since": str(edited["Last-Modified"])}).status == 200
    assert service.put(path, headers={"If-Match": tag}).status == 412
    assert service.put(path, headers={"If-Match": str(edited["ETag"])}).status == 204
