"""Access tokens over HTTP: who is let in by one, and that nobody is who should not be (spec crud 6.6)."""

import re
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from persistence.dialect import DIALECTS
from persistence.model.addresses import Form, TokenSubject
from persistence.services.rules import AccessTokens
from tests import service as services
from tests.http.test_callers import keys_of
from tests.http.test_permissions import LEA
from tests.in_process import serving
from tests.published import definition
from tests.service import V1, Answer, Service, alone, running
from tests.waiting import eventually

FORM = "hr/leave"
PATH = f"{FORM}/data/A/data.xml"
SUBJECT = TokenSubject(Form("hr", "leave"), 1, "A")
BEARERS = '<permission operations="read update delete -list"><anyone-with-token/></permission>'
OWN = '<permission operations="create read update delete -list"><owner/></permission>'
REFUSED = "the access token is not valid here, or not any more"
HOUR = 3600


@contextmanager
def a_service(
    directory: Path, dialect: str = "svc", more: str = "", *, validity: int = 60, is_real: bool = False
) -> Iterator[Service]:
    """A service whose forms have tokens, with one signing key."""
    prefix = DIALECTS[dialect].property_prefix
    directory.mkdir(parents=True, exist_ok=True)
    settings = f'keys = "var/keys.json"\n{more}\n"{prefix}access-token.validity.*.*" = {validity}\n'
    keys_of(directory).ensured_signing_secrets()
    start = running if is_real else serving
    with start(directory, dialect=dialect, settings=settings) as service:
        yield service


@pytest.fixture(params=sorted(DIALECTS))
def service(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Service]:
    with a_service(tmp_path, request.param) as service:
        yield service


def token(
    directory: Path, granted: Iterable[str], subject: TokenSubject = SUBJECT, seconds: int = HOUR, ago: float = 0
) -> str:
    """A token that was issued some seconds ago."""
    tokens = AccessTokens(keys_of(directory).signing_secrets, lambda: time.time() - ago)
    return tokens.issue(subject, granted, seconds, 60)


def by(path: str, secret: str) -> str:
    return f"{path}{'&' if '?' in path else '?'}fr-access-token={secret}"


def stored(service: Service, permissions: str = BEARERS + OWN, document: str = "A") -> None:
    service.put(f"{FORM}/form/form.xhtml", definition(f"<permissions>{permissions}</permissions>"), **V1)
    assert service.put(f"{FORM}/data/{document}/data.xml", **V1, **LEA).status == 201
    assert service.put(f"{FORM}/data/{document}/a.bin", b"1", **V1, **LEA).status == 201
    assert service.put(f"{FORM}/draft/{document}/data.xml", **V1, **LEA).status == 201


def test_a_bearer_may_do_what_token_and_permission_have(service: Service, tmp_path: Path) -> None:
    stored(service)
    secret = token(tmp_path, ("read", "update"))
    read = service.get(by(PATH, secret))
    assert (read.status, read[service.prefix + "Operations"]) == (200, "read update")
    assert service.head(by(PATH, secret)).status == 200
    assert service.put(by(PATH, secret)).status == 204
    assert service.get(by(f"{FORM}/data/A/a.bin", secret)).body == b"1"
    assert service.put(by(f"{FORM}/data/A/b.bin", secret), b"2", **V1).status == 201
    assert service.put(by(f"{FORM}/draft/A/data.xml", secret), **V1).status == 201
    assert service.get(by(f"{FORM}/draft/A/data.xml", secret)).status == 200
    assert service.delete(by(f"{FORM}/data/A/b.bin", secret)).status == 204
    assert service.delete(by(PATH, secret)).status == 403
    assert service.delete(by(PATH, token(tmp_path, ["delete"]))).status == 204


def test_a_bearer_reads_the_history_and_the_differences(service: Service, tmp_path: Path) -> None:
    """With the operation read, as a GET of each revision; a wrong token is refused as there."""
    stored(service)
    first, second = (service.put(PATH, **LEA)[f"{service.prefix}Last-Modified"] for _ in range(2))
    pair = f"?form-version=1&older-modified-time={first}&newer-modified-time={second}"
    paths = (f"{FORM}/A", f"{FORM}/A?include-diffs=true", f"{FORM}/A/a.bin", f"{FORM}/A/diff{pair}")
    revision = f"{PATH}?as-of={second}"

    def statuses(secret: str, **own: str) -> list[int]:
        asked = [service.call("GET", by(f"history/{path}", secret), **own) for path in paths]
        return [answer.status for answer in (*asked, service.get(by(revision, secret)))]

    assert statuses(token(tmp_path, ["read"])) == [200] * 5
    assert statuses(token(tmp_path, ("update", "delete"))) == [403] * 5
    assert statuses("x", **LEA) == statuses(token(tmp_path, ["read"], WRONG["another document"])) == [403] * 5
    assert statuses("") == [403] * 5


def stored_again(service: Service, permissions: str) -> None:
    service.publish(FORM, definition(""), **V1)
    service.save(FORM, "A")
    service.publish(FORM, definition(f"<permissions>{permissions}</permissions>"), **V1)


READERS = '<permission operations="read -list"><anyone-with-token/></permission>'
NAMED = '<permission operations="read -list"><anyone-with-token/><any-authenticated-user/></permission>'


@pytest.mark.parametrize(
    ("permissions", "granted", "allowed"),
    [
        *((BEARERS, each, each) for each in ("read update delete", "read", "update", "delete", "read delete")),
        (READERS, "read update delete", "read"),
        *((each, "read update delete", "") for each in ("", OWN, NAMED)),
    ],
)
def test_token_and_permission_must_both_allow(tmp_path: Path, permissions: str, granted: str, allowed: str) -> None:
    with a_service(tmp_path) as service:
        stored_again(service, permissions)
        path, may = by(PATH, token(tmp_path, granted.split())), allowed.split()
        said = service.get(path)
        assert (said.status, said[service.prefix + "Operations"] or "") == (
            (200, allowed) if "read" in may else (403, "")
        )
        assert service.put(path).status == (204 if "update" in may else 403)
        assert service.delete(path).status == (204 if "delete" in may else 403)


WRONG = {
    "another application": TokenSubject(Form("it", "leave"), 1, "A"),
    "another form": TokenSubject(Form("hr", "travel"), 1, "A"),
    "another version": TokenSubject(Form("hr", "leave"), 2, "A"),
    "another document": TokenSubject(Form("hr", "leave"), 1, "B"),
    "names that are together the same": TokenSubject(Form("hrl", "eave"), 1, "A"),
}


def wrong(directory: Path) -> dict[str, str]:
    """What is wrong by itself, tests/services/test_access_tokens.py has in full."""
    good = token(directory, ["read"])
    payload, _, signature = good.partition(".")
    return {
        **{reason: token(directory, ["read"], subject) for reason, subject in WRONG.items()},
        "expired": token(directory, ["read"], seconds=60, ago=61),
        "of another key": AccessTokens(lambda: (b"\0" * 32,)).issue(SUBJECT, ["read"], HOUR, 60),
        "no signature": payload,
        "a blank": f"{good}%20",
        "a line break": f"{good}%0A",
        "other characters": f"{good}%C3%A9",
        "too long": f"{payload}{'A' * 600}.{signature}",
    }


def test_every_wrong_token_is_refused_in_the_same_words(service: Service, tmp_path: Path) -> None:
    """Also to a user who needs none: it would be a mistake to go on."""
    stored(service)
    for reason, secret in wrong(tmp_path).items():
        for user in ({}, LEA):
            refused = service.get(by(PATH, secret), **user)
            assert (refused.status, refused.cause) == (403, REFUSED), reason
    assert service.head(by(PATH, "x")).status == service.put(by(PATH, "x")).status == 403
    assert service.delete(by(PATH, "x")).status == service.get(by(f"{FORM}/data/A/a.bin", "x")).status == 403
    assert service.get(f"{PATH}?fr-access-token=", **LEA).status == 200


def test_it_counts_only_for_data_that_exists_and_has_permissions(service: Service, tmp_path: Path) -> None:
    """Behind a proxy it is the proxy's to judge."""
    service.put(f"{FORM}/form/form.xhtml", definition(""), **V1)
    assert service.put(by(PATH, "x"), **V1).status == 201
    assert service.get(by(PATH, "x")).status == 200
    stored_again(service, BEARERS + '<permission operations="create -list"/>')
    assert service.get(by(f"{FORM}/data/none/data.xml", "x")).status == 404
    assert service.put(by(f"{FORM}/data/new/data.xml", "x"), **V1).status == 201
    stored_again(service, BEARERS)
    secret = token(tmp_path, ("read", "update"), TokenSubject(Form("hr", "leave"), 1, "newer"))
    assert service.put(by(f"{FORM}/data/newer/data.xml", secret), **V1).status == 403
    if service.dialect == "orbeon" and not services.is_proxied:
        assert replace(service, face="").get(by(PATH, "x")).status == 200


def test_it_is_not_for_searches_and_lists_and_deleting_all_data(service: Service, tmp_path: Path) -> None:
    stored(service)
    secret = token(tmp_path, ("read", "update", "delete"))
    search = service.call("POST", by(f"search/{FORM}", secret), "<search/>")
    assert (search.status, b'total="0"' in search.body or b"<document " not in search.body) == (200, True)
    assert service.raw("GET", by(f"/fr/service/{FORM}/attachments?document=A", secret)).status == 403
    if not services.is_proxied:  # what a search there does not find is not refused here
        assert service.delete(by(f"{FORM}/data/", secret), **V1).status == 403
    assert service.get(PATH, **LEA).status == 200


def test_the_cause_of_a_412_is_for_readers_and_all_conditions_must_hold(service: Service, tmp_path: Path) -> None:
    stored(service)
    stale = {"If-Match": '"0"'}
    assert "by lea" in service.put(by(PATH, token(tmp_path, ("read", "update"))), headers=stale).cause
    assert "by lea" not in service.put(by(PATH, token(tmp_path, ["update"])), headers=stale).cause
    stored_again(service, NAMED + OWN)
    secret = by(PATH, token(tmp_path, ["read"]))
    assert [service.get(secret, **user).status for user in ({}, {"Username": "bob"})] == [403, 200]


def test_without_the_property_no_token_is_worth_anything(tmp_path: Path) -> None:
    """One that was issued while the property allowed more lives no longer than it allows now."""
    with a_service(tmp_path, validity=1) as service:
        stored(service)
        assert service.get(by(PATH, token(tmp_path, ["read"], ago=30))).status == 200
        assert service.get(by(PATH, token(tmp_path, ["read"], ago=61))).status == 403
    with a_service(tmp_path, validity=0) as service:
        assert service.get(by(PATH, token(tmp_path, ["read"]))).status == 403


def test_keys_are_rotated_without_a_restart(tmp_path: Path) -> None:
    with a_service(tmp_path) as service:
        stored(service)
        keys = keys_of(tmp_path)
        old = token(tmp_path, ["read"])
        keys.add_signing()
        new = token(tmp_path, ["read"])
        assert [service.get(by(PATH, each)).status for each in (old, new)] == [200, 200]
        keys.remove_signing(keys.signing()[0].id)
        assert [service.get(by(PATH, each)).status for each in (old, new)] == [403, 200]
        keys.remove_signing(keys.signing()[0].id)
        assert service.get(by(PATH, new)).status == 403


ISSUERS = 'token_issuers = ["desk", "trusted"]'


def issued(service: Service, query: str = "operations=read&expires=1h", key: str = "", **own: object) -> Answer:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    return service.raw("POST", f"/fr/service/persistence/token/{FORM}/A?{query}", headers, **own)


@pytest.mark.parametrize("dialect", sorted(DIALECTS))
def test_a_key_that_the_settings_name_issues_tokens(tmp_path: Path, dialect: str) -> None:
    with a_service(tmp_path, dialect, ISSUERS) as service:
        stored(service)
        assert issued(service).status == 403  # open to all on loopback, but nobody has shown a key
        desk, other = keys_of(tmp_path).add("desk"), keys_of(tmp_path).add("other")
        answer = issued(service, "operations=read,update&expires=1h", desk)
        assert (answer.status, answer["Cache-Control"]) == (200, "no-store")
        service.extra = {"Authorization": f"Bearer {other}"}
        assert service.get(by(PATH, answer.cause))[service.prefix + "Operations"] == "read update"
        assert (issued(service).status, issued(service, key=desk, **V1).status) == (403, 200)
        for query in (
            *("", "operations=read", "expires=1h", "operations=&expires=1h", "operations=list&expires=1h"),
            *("operations=read&expires=61m", "operations=read&expires=0", "operations=read&expires=-1s"),
            "operations=read&expires=999999d",
        ):
            assert issued(service, query, desk).status == 400, query
        assert issued(service, key=desk, Form_Definition_Version=2).status == 400
        service.delete(PATH, **LEA)
        assert issued(service, key=desk).status == 410


def test_without_a_signing_key_none_is_issued_or_accepted(tmp_path: Path) -> None:
    """And a trusted caller without a key issues nothing."""
    with a_service(tmp_path, more=f'{ISSUERS}\ntrusted = ["127.0.0.1"]') as service:
        stored(service)
        assert issued(service).status == 403
        keys = keys_of(tmp_path)
        secret = token(tmp_path, ["read"])
        keys.remove_signing(keys.signing()[0].id)
        assert service.get(by(PATH, secret)).status == 403
        assert issued(service, key=keys.add("desk")).refuses(500, "persistence signing-key new")


def test_no_log_has_a_token(tmp_path: Path) -> None:
    """Neither the service's own, nor gunicorn's, with its usual format of access lines and for a broken request."""
    (tmp_path / "g.py").write_text('accesslog = "-"\n')
    with a_service(tmp_path, more='gunicorn = "g.py"', is_real=True) as service:
        stored(service)
        secret = token(tmp_path, ["read"])
        assert service.get(by(PATH, secret), {"Referer": f"http://forms/?fr-access-token={secret}"}).status == 200
        assert service.get(by(PATH, f"{secret}x")).status == 403
        assert service.raw("GET", by(f"{service.face}/crud/{PATH}", secret), {"bad name": "x"}).status == 400
        line = re.compile(r'"GET \S+/data\.xml\?… HTTP/1\.1" 200')  # it is written after the answer
        eventually(lambda: line.search(service.log.read_text()))
        log = service.log.read_text()
    assert secret.partition(".")[0] not in log


def test_another_service_never_sees_a_token(tmp_path: Path) -> None:
    (tmp_path / "behind").mkdir()
    (tmp_path / "behind/g.py").write_text("""
def post_request(worker, req, environ, resp):
    with open("seen.txt", "a") as file:
        file.write(f"{req.method} {req.uri} {req.headers}\\n")
""")
    (tmp_path / "behind/settings.toml").write_text('gunicorn = "g.py"\n')
    options = ("--config", str(tmp_path / "behind/settings.toml"))
    with alone(tmp_path / "behind", dialect="orbeon", options=options) as behind:
        more = f'svc.persistence.files.uri = "http://127.0.0.1:{behind.port}"\nsvc.persistence.files.dialect = "orbeon"'
        with a_service(tmp_path, more=more) as service:
            stored(service)
            secret = token(tmp_path, ("read", "update"))
            page = {"Referer": f"http://forms/?fr-access-token={secret}"}
            assert service.get(by(PATH, secret), page).status == 200
            assert service.put(by(PATH, secret), headers=page).status == 204
            assert service.get(by(PATH, "x")).status == 403
    seen = (tmp_path / "behind/seen.txt").read_text()
    assert (f"PUT /crud/{PATH}" in seen, "fr-access-token" not in seen, secret not in seen) == (True, True, True)
