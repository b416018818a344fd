"""Conditional requests over HTTP: nobody overwrites unseen, and good copies are not sent again."""

from dataclasses import replace

import pytest

from tests.service import PROVIDER, PUBLIC, V1, Answer, Service

PERMISSIONS = b"""<xh:html xmlns:xh="http://www.w3.org/1999/xhtml" xmlns:xf="http://www.w3.org/2002/xforms"><xh:head>
<xf:model id="fr-form-model"><xf:instance id="fr-form-metadata"><metadata><permissions>
<permission operations="create update delete -list"/><permission operations="read -list"><owner/></permission>
</permissions></metadata></xf:instance></xf:model></xh:head></xh:html>"""
"""Everybody may write, and only the owner may read."""

FILES = ["data/D/data.xml", "draft/D/data.xml", "data/D/a.bin", "form/form.xhtml", "form/a.bin"]


def bare(answer: Answer) -> str:
    """The entity tag without its quotes."""
    return str(answer["ETag"]).strip('"')


@pytest.fixture(params=FILES)
def path(request: pytest.FixtureRequest, service: Service, form: str) -> str:
    """Each kind of resource, stored."""
    service.put(f"{form}/data/D/data.xml", **V1)
    service.put(f"{form}/{request.param}", b"<d>1</d>", **V1)
    return f"{form}/{request.param}"


def test_if_match_guards_every_resource(service: Service, path: str) -> None:
    """Spec crud 4.6: data, drafts, attachments and definitions; quoted or bare, whichever is sent; * passes."""
    first = str(service.get(path)["ETag"])
    second = service.put(path, b"<d>2</d>", {"If-Match": first}, **V1)
    assert second.status == 204
    assert second["ETag"] != first
    assert service.put(path, b"<d>3</d>", {"If-Match": first}, **V1).status == 412
    assert service.delete(path, {"If-Match": first}, **V1).status == 412
    assert service.get(path).body == b"<d>2</d>"
    assert service.put(path, b"<d>4</d>", {"If-Match": f'"x", "{bare(second)}"'}, **V1).status == 204
    current = bare(service.get(path))
    assert service.put(path, b"<d>4</d>", {"If-Match": current}, **V1).status == 204
    assert service.put(path, b"<d>5</d>", {"If-Match": "*"}, **V1).status == 204
    current = str(service.get(path)["ETag"])
    assert service.delete(path, {"If-Match": current}, **V1).status == 204


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("tags", ["x", "*"])
def test_if_match_does_not_hold_where_nothing_is_stored(service: Service, form: str, name: str, tags: str) -> None:
    """RFC 9110 13.1.1: who edits what somebody else has deleted is told so, and does not create it again."""
    service, path, condition = replace(service, face=PUBLIC), f"{form}/{name}", {"If-Match": tags}
    assert service.put(path, headers=condition, **V1).refuses(412, "it may have been deleted")
    assert service.delete(path, condition, **V1).status == 404
    assert service.put(path, **V1).status == 201
    if name == "data/D/a.bin":
        service.put(f"{form}/data/D/data.xml", **V1)
    assert service.delete(path, **V1).status == 204
    assert service.put(path, headers=condition, **V1).status == 412
    assert service.get(path, **V1).status in (404, service.deleted)


def test_the_provider_face_ignores_if_match_on_nothing(service: Service, form: str) -> None:
    """Spec crud 4.6: a proxy has looked, and its runtime expects a creation."""
    provider, path = replace(service, face=PROVIDER), f"{form}/data/D/data.xml"
    assert provider.put(path, headers={"If-Match": "x"}, **V1).status == 201
    provider.delete(path, **V1)
    assert provider.put(path, headers={"If-Match": "*"}, **V1).status == 201


def test_both_conditions_must_hold(service: Service, path: str) -> None:
    tag = str(service.get(path)["ETag"])
    both = {"If-Match": tag, "If-None-Match": tag}
    assert service.put(path, headers=both, **V1).status == 412
    both["If-None-Match"] = "other"
    assert service.put(path, headers=both, **V1).status == 204


def test_a_write_may_be_conditional_on_the_time(service: Service, path: str) -> None:
    """RFC 9110 13.1.4 and 13.2.2: seconds, ignored with If-Match, where it is not a date, and on a GET."""
    date = str(service.get(path)["Last-Modified"])
    early = {"If-Unmodified-Since": "Sun, 06 Nov 1994 08:49:37 GMT"}
    for ask in (service.put, service.delete):
        assert ask(path, headers=early, **V1).refuses(412, "If-Unmodified-Since")
    assert service.get(path, early).status == 200
    for headers in (
        {"If-Unmodified-Since": date},
        {"If-Unmodified-Since": "nonsense"},
        {"If-Unmodified-Since": "Sun, 06 Nov 99999999999 08:49:37 GMT"},
        early | {"If-Match": "*"},
    ):
        assert service.put(path, headers=headers, **V1).status == 204
    date = str(service.get(path)["Last-Modified"])
    assert service.delete(path, {"If-Unmodified-Since": date}, **V1).status == 204
    assert service.put(path, headers=early, **V1).status == 201


def test_if_none_match_of_a_new_attachment_is_not_about_its_document(service: Service, form: str) -> None:
    """RFC 9110 13.1.2: only the attachment itself would be overwritten."""
    path = f"{form}/data/D/a.bin"
    service.put(f"{form}/data/D/data.xml", **V1)
    assert service.put(path, headers={"If-None-Match": "*"}, **V1).status == 201
    assert service.put(path, headers={"If-None-Match": "*"}, **V1).status == 412


def test_if_none_match_creates_only(service: Service, form: str) -> None:
    """RFC 9110 13.1.2: with * a PUT creates, and never overwrites."""
    path = f"{form}/data/D/data.xml"
    assert service.put(path, b"<d>1</d>", {"If-None-Match": "*"}, **V1).status == 201
    assert service.put(path, b"<d>2</d>", {"If-None-Match": "*"}, **V1).status == 412
    assert service.get(path).body == b"<d>1</d>"
    service.delete(path)
    assert service.put(path, b"<d>3</d>", {"If-None-Match": "*"}, **V1).status == 201


def test_if_match_of_an_attachment_may_name_its_document(service: Service, form: str) -> None:
    """Spec crud 4.2, PUT 4: compared with the document's tag; with tags of its own, either will do."""
    document = str(service.put(f"{form}/data/D/data.xml", **V1)["ETag"])
    path = f"{form}/data/D/a.bin"
    assert service.put(path, b"x", {"If-Match": "wrong"}, **V1).status == 412
    assert service.put(path, b"x", {"If-Match": document}, **V1).status == 201
    assert service.put(path, b"y", {"If-Match": document}, **V1).status == 204
    service.put(f"{form}/data/D/data.xml", **V1)
    assert service.put(path, b"z", {"If-Match": document}, **V1).status == 412


def test_the_precondition_comes_before_the_version(service: Service, form: str) -> None:
    """Spec crud 4.2: 412 wins over 400, and both over a malformed body."""
    path = f"{form}/data/D/data.xml"
    tag = str(service.put(path, **V1)["ETag"])
    assert service.put(path, b"<", {"If-Match": "x"}, Form_Definition_Version=2).status == 412
    assert service.put(path, b"<", {"If-Match": tag}, Form_Definition_Version=2).status == 400
    assert service.put(path, b"<", {"If-Match": "x"}, Form_Definition_Version="next").status == 400


def test_good_copies_are_not_sent_again(service: Service, path: str) -> None:
    """The issue: 304 for GET and HEAD of anything; If-None-Match wins over the date (RFC 9110 13.2.2)."""
    got = service.get(path)
    tag, date = str(got["ETag"]), str(got["Last-Modified"])
    for headers in (
        {"If-None-Match": tag},
        {"If-None-Match": bare(got)},
        {"If-None-Match": f'"{bare(got)}"'},
        {"If-None-Match": f'W/"{bare(got)}"'},
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
    tag = str(service.put(path, b"<d>1</d>", **V1)["ETag"])
    (service.data / path).write_bytes(b"<d>by hand</d>")
    edited = service.get(path)
    assert (edited.status, edited.body) == (200, b"<d>by hand</d>")
    assert edited["ETag"] not in (tag, None)
    assert service.head(path)["ETag"] == edited["ETag"]
    assert service.get(path, {"If-None-Match": tag}).status == 200
    assert service.get(path, {"If-Modified-Since": str(edited["Last-Modified"])}).status == 200
    assert service.put(path, headers={"If-Match": tag}).status == 412
    late = {"If-Unmodified-Since": "Sun, 06 Nov 2095 08:49:37 GMT"}
    assert service.put(path, headers=late).status == 412
    assert service.put(path, headers={"If-Match": str(edited["ETag"])}).status == 204
    assert service.put(path, headers=late).status == 204


def test_a_tag_is_sent_in_quotes_where_nobody_expects_it_bare(service: Service, path: str) -> None:
    """RFC 9110 8.8.3 in dialect svc; in orbeon as the real system sends it (spec crud 4.6)."""
    answers = [service.get(path), service.head(path), service.put(path, **V1)]
    if "draft" not in path:
        answers.append(service.delete(path, **V1))
    for answer in answers:
        expected = f'"{bare(answer)}"' if service.dialect == "svc" else bare(answer)
        assert answer["ETag"] == expected


def test_who_has_saved_meanwhile_is_told_who_when_and_the_current_tag(service: Service, path: str) -> None:
    """So that a person can decide, and a program can go on without another GET."""
    current = service.put(path, b"<d>2</d>", **V1, Username="mia")
    when = str(current[service.prefix + "Last-Modified"])
    for ask in (service.put, service.delete):
        refused = ask(path, headers={"If-Match": '"old"'}, **V1, Username="lea")
        assert refused.status == 412
        assert f'current ETag "{bare(current)}", saved at {when} by mia' in refused.cause
        assert "If-Match does not name the current ETag" in refused.cause
    there = service.put(path, headers={"If-None-Match": "*"}, **V1, Username="lea")
    assert (there.status, "already exists (If-None-Match: *)" in there.cause) == (412, True)
    assert "If-Match does not" not in there.cause
    named = service.put(path, headers={"If-None-Match": bare(current)}, **V1, Username="lea")
    assert (named.status, "as If-None-Match names it" in named.cause) == (412, True)


def test_who_may_not_read_is_told_neither_who_nor_the_tag(service: Service, form: str) -> None:
    """A 412 comes before a 403 (spec crud 4.2), and must not say what a GET would refuse."""
    service.put(f"{form}/form/form.xhtml", PERMISSIONS)
    paths = [f"{form}/data/D/data.xml", f"{form}/data/D/a.bin", f"{form}/draft/D/data.xml", f"{form}/draft/D/a.bin"]
    for path in paths:
        assert service.put(path, **V1, Username="lea").status == 201
    for path in paths:
        tag = bare(service.get(path, Username="lea"))
        for user, is_told in (("lea", True), ("bob", False)):
            for ask, condition in (
                (service.put, {"If-Match": "old"}),
                (service.delete, {"If-Match": "old"}),
                (service.put, {"If-None-Match": "*"}),
            ):
                refused = ask(path, headers=condition, **V1, Username=user)
                assert (refused.status, tag in refused.cause, "by lea" in refused.cause) == (412, is_told, is_told)


def test_a_weak_tag_never_matches_and_the_answer_says_why(service: Service, path: str) -> None:
    """RFC 9110 13.1.1: proxies that compress weaken tags, and nobody sees it in the tag itself."""
    weak = f'W/"{bare(service.get(path))}"'
    for ask in (service.put, service.delete):
        assert ask(path, headers={"If-Match": weak}, **V1).refuses(412, "a weak tag (W/) never matches")


def test_the_reason_names_a_hand_edit(service: Service, form: str) -> None:
    path = f"{form}/data/D/data.xml"
    tag = str(service.put(path, b"<d>1</d>", **V1, Username="lea")["ETag"])
    (service.data / path).write_bytes(b"<d>by hand</d>")
    refused = service.put(path, headers={"If-Match": tag})
    assert (refused.status, "edited by hand since" in refused.cause) == (412, True)
    assert bare(service.get(path)) in refused.cause
