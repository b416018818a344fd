"""Conditional requests over HTTP: nobody overwrites unseen, and good copies are not sent again."""

from dataclasses import replace

import pytest

from tests.http.stories import play, stories
from tests.published import definition
from tests.service import PUBLIC, V1, Answer, Service

PERMISSIONS = (
    '<permissions><permission operations="create update delete -list"/>'
    '<permission operations="read -list"><owner/></permission></permissions>'
)
"""Everybody may write, and only the owner may read."""

FILES = ["data/D/data.xml", "draft/D/data.xml", "data/D/a.bin", "form/form.xhtml", "form/a.bin"]


def bare(answer: Answer) -> str:
    return str(answer["ETag"]).strip('"')


@pytest.fixture(params=FILES)
def path(request: pytest.FixtureRequest, service: Service, form: str) -> str:
    service.save(form)
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
    for tag in (f'"x", "{bare(second)}"', None, "*"):
        condition = {"If-Match": tag or bare(service.get(path))}
        assert service.put(path, b"<d>4</d>", condition, **V1).status == 204
    assert service.delete(path, {"If-Match": str(service.get(path)["ETag"])}, **V1).status == 204


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


@stories(
    {
        "if-none-match of a new attachment is not about its document (RFC 9110 13.1.2)": """
            PUT data/D v=1
            PUT data/D/a.bin If-None-Match=* v=1 -> 201
            PUT data/D/a.bin If-None-Match=* v=1 -> 412""",
        "if-none-match creates, and never overwrites (RFC 9110 13.1.2)": """
            PUT data/D If-None-Match=* v=1 <d>1</d> -> 201
            PUT data/D If-None-Match=* v=1 <d>2</d> -> 412
            GET data/D -> 200 <d>1</d>
            DELETE data/D
            PUT data/D If-None-Match=* v=1 <d>3</d> -> 201""",
        "if-match of an attachment may name its document, or, with a tag of its own, either (4.2, PUT 4)": """
            PUT data/D v=1 -> 201 ETag>document
            PUT data/D/a.bin If-Match=wrong v=1 -> 412
            PUT data/D/a.bin If-Match={document} v=1 -> 201
            PUT data/D/a.bin If-Match={document} v=1 -> 204
            PUT data/D v=1
            PUT data/D/a.bin If-Match={document} v=1 -> 412""",
        "the provider face ignores if-match on nothing: its runtime expects a creation (4.6)": """
            FACE provider
            PUT data/D If-Match=x v=1 -> 201
            DELETE data/D v=1
            PUT data/D If-Match=* v=1 -> 201""",
        "412 wins over 400 for the version, and both over a malformed body (4.2)": """
            PUT data/D v=1 -> 201 ETag>tag
            PUT data/D If-Match=x v=2 < -> 412
            PUT data/D If-Match={tag} v=2 < -> 400
            PUT data/D If-Match=x v=next < -> 400""",
    }
)
def test_stories(service: Service, form: str, story: str) -> None:
    play(service, form, story)


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
    refused = service.put(path, headers={"If-Match": tag})
    assert (refused.status, "edited by hand since" in refused.cause) == (412, True)
    assert bare(edited) in refused.cause
    late = {"If-Unmodified-Since": "Sun, 06 Nov 2095 08:49:37 GMT"}
    assert service.put(path, headers=late).status == 412
    assert service.put(path, headers={"If-Match": str(edited["ETag"])}).status == 204
    assert service.put(path, headers=late).status == 204


def test_tags_are_quoted_weak_ones_never_match_and_both_conditions_must_hold(service: Service, path: str) -> None:
    """RFC 9110 8.8.3 in dialect svc; in orbeon bare, as the real system sends it (spec crud 4.6).

    RFC 9110 13.1.1: proxies that compress weaken tags, and nobody sees it in the tag itself, so the answer says why.
    """
    got = service.get(path)
    weak = f'W/"{bare(got)}"'
    for ask in (service.put, service.delete):
        assert ask(path, headers={"If-Match": weak}, **V1).refuses(412, "a weak tag (W/) never matches")
    both = {"If-Match": str(got["ETag"]), "If-None-Match": str(got["ETag"])}
    assert service.put(path, headers=both, **V1).status == 412
    assert service.put(path, headers=both | {"If-None-Match": "other"}, **V1).status == 204
    answers = [got, service.get(path), service.head(path), service.put(path, **V1)]
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
    service.publish(form, definition(PERMISSIONS))
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
