"""The page of the keys, and its actions."""

import json
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple, replace
from pathlib import Path

import pytest

from persistence.keys import Keys, key_of
from persistence.pages.site import COOKIE, LoginSession, serializer
from persistence.settings import Settings
from tests.pages.administrator import NAME, PASSWORD, Browser, administrator, browser, keys_of, settings
from tests.service import alone


def test_a_key_is_made_after_a_confirmation_and_shown_once(found: Browser, keys: Keys) -> None:
    assert found.get("/admin/actions/api-key-new?name=batch").status_code == 200
    assert "Make the API key batch?" in found.text
    assert [key.name for key in keys.read()] == [NAME]
    answer = found.send()
    secret = answer.text.partition('class="secret" tabindex="0">')[2].partition("<")[0]
    made = key_of(secret, keys.read())
    assert made.name == "batch"
    found.get("/admin/keys")
    assert "batch" in found.text
    assert secret not in found.text


def test_a_key_is_removed_after_a_confirmation(found: Browser, keys: Keys) -> None:
    keys.add("batch")
    found.do("/admin/actions/api-key-retire?name=batch")
    assert "The API key batch is retired." in found.text
    assert [key.name for key in keys.read()] == [NAME]
    assert "is retired" not in (found.get("/admin/keys") and found.text)


def test_what_cannot_be_done_says_why(found: Browser) -> None:
    for path, status, cause in (
        ("/admin/actions/api-key-new?name=a+b", 400, "cannot be the name of a key"),
        ("/admin/actions/api-key-new", 400, "cannot be the name of a key"),
        ("/admin/actions/api-key-retire?name=%3Cb%3E", 404, "there is no key <b>"),
    ):
        assert found.get(path).status_code == status
        assert cause in found.text


def test_a_key_expires_if_that_is_asked_for(found: Browser, keys: Keys) -> None:
    found.get("/admin/actions/api-key-new?name=trial&days=90")
    assert "It expires on 20" in found.text
    assert found.send().status_code == 200
    assert keys.read()[-1].expires is not None
    assert found.get("/admin/actions/api-key-new?name=x&days=-1").status_code == 400
    found.get("/admin/actions/api-key-new?name=x")
    assert "It does not expire." in found.text


def test_who_retires_a_key_is_told_what_that_ends_and_opens(found: Browser, keys: Keys) -> None:
    keys.add("batch")
    found.get("/admin/actions/api-key-retire?name=batch")
    assert "It cannot be brought back." in found.text
    assert "sessions" not in found.text
    assert "last key" not in found.text
    found.get(f"/admin/actions/api-key-retire?name={NAME}")
    assert "sessions that it has begun end at once" in found.text
    assert "last key" not in found.text
    keys.remove("batch")
    found.get(f"/admin/actions/api-key-retire?name={NAME}")
    assert "It is the last key: without keys, a service" in found.text
    assert found.send().status_code == 303
    assert found.follow().status_code == 404  # nobody could sign in any more


def test_what_limits_a_key_is_shown(found: Browser, keys: Keys) -> None:
    keys.add("reports", None, ["read"], ["hr", "fin/claim"])
    found.get("/admin/keys")
    assert "reports" in found.text
    assert "read: hr, fin/claim" in found.text


def test_a_limited_key_is_made(found: Browser, keys: Keys) -> None:
    found.get("/admin/actions/api-key-new?name=reports&scope=read&forms=hr%0D%0A+fin/claim%0D%0A%0D%0Ahr")
    assert "It may only read: what it sends changes nothing." in found.text
    assert "for these forms or applications only: hr, fin/claim." in found.text
    assert 'class="secret"' in found.send().text
    made = keys.read()[-1]
    assert (made.name, made.scopes, made.forms) == ("reports", ("read",), ("hr", "fin/claim"))
    for wrong, cause in (("scope=write", "the scope of a key is read, or none"), ("forms=hr/leave/1", "is not APP or")):
        assert found.get(f"/admin/actions/api-key-new?name=other&{wrong}").status_code == 400
        assert cause in found.text
    found.get(f"/admin/actions/api-key-new?name={NAME}&scope=read")
    assert "a limited key opens no pages" in found.text
    found.get(f"/admin/actions/api-key-new?name={NAME}")
    assert "it may export, import and purge, and sign in here" in found.text


def test_a_limited_key_is_not_shown_as_an_administrator(tmp_path: Path) -> None:
    given = settings(tmp_path, administrators=(NAME, "reports"))
    keys, found = keys_of(given), browser(given)
    found.log_in(NAME, keys.add(NAME))
    keys.add("reports", None, [], ["hr"])
    found.get("/admin/keys")
    assert "call: hr" in found.text
    assert "administrator: hr" not in found.text
    found.get("/admin/actions/api-key-retire?name=reports")
    assert "sessions that it has begun" not in found.text


# Who may see the pages: logins, sessions and their end, forms of other sites, headers, and the audit.

LOGIN = {"name": NAME, "secret": PASSWORD}


def cookie_of(found: Browser) -> str:
    """Return the cookie of the session of a browser."""
    cookie = found.client.get_cookie(COOKIE, path="/admin/")
    return cookie.value


def test_the_pages_are_off_until_there_is_an_administrator(tmp_path: Path) -> None:
    given = settings(tmp_path, administrators=("boss",))
    found, keys = browser(given), keys_of(given)
    assert [found.get(path).status_code for path in ("/admin/", "/admin/login", "/admin", "/admin/x")] == [404] * 4
    keys.add("somebody")
    assert found.get("/admin/login").status_code == 401  # as everywhere else
    keys.add("boss")
    assert found.get("/admin/login").status_code == 200
    keys.remove("boss")
    assert found.get("/admin/login").status_code == 401
    keys.set_password(NAME, PASSWORD)
    assert found.get("/admin/login").status_code == 200


def test_a_key_of_the_setting_logs_in_and_another_one_does_not(tmp_path: Path) -> None:
    given = settings(tmp_path, administrators=("boss",))
    boss, other = keys_of(given).add("boss"), keys_of(given).add("other")
    found = browser(given)
    for name, secret in (("other", other), ("boss", other), ("other", boss), ("boss", ""), ("", boss), ("boss", "é")):
        assert found.log_in(name, secret).status_code == 403
        assert "wrong" in found.text
    assert found.log_in("boss", boss).headers["Location"] == "/admin/"
    assert found.follow().status_code == 200
    assert "boss" in found.text


def test_a_key_in_a_header_opens_no_page(tmp_path: Path) -> None:
    given = settings(tmp_path, administrators=("boss",))
    secret = keys_of(given).add("boss")
    answer = browser(given).get("/admin/", headers={"Authorization": f"Bearer {secret}"})
    assert (answer.status_code, answer.headers["Location"]) == (303, "/admin/login")
    for path in ("/%61dmin/", "/admin//keys", "/admin/%6Beys", "/admin/./", "/admin/x/%2e%2e/keys"):
        answer = browser(given).get(path, headers={"Authorization": f"Bearer {secret}"})
        assert answer.status_code == 400, path


def test_the_cookie_is_for_the_pages_only_and_for_no_script(tmp_path: Path) -> None:
    given = settings(tmp_path, administrators=(NAME,))
    login = {"name": NAME, "secret": keys_of(given).add(NAME)}
    plain = browser(given).post("/admin/login", login).headers["Set-Cookie"]
    for part in ("HttpOnly", "SameSite=Strict", "Path=/admin/", "Max-Age=28800"):
        assert part in plain
    assert "Secure" not in plain
    through_tls = browser(given).post("/admin/login", login, headers={"Origin": "https://localhost"})
    assert "Secure" in through_tls.headers["Set-Cookie"]


def test_a_changed_or_foreign_cookie_is_no_session(tmp_path: Path) -> None:
    found = administrator(tmp_path / "a")
    cookie, foreign = cookie_of(found), cookie_of(administrator(tmp_path / "b"))
    for value in (cookie[:-1], cookie + "x", foreign, "", "x" * 4000, "a.b", "é"):
        found.client.set_cookie(COOKIE, value, path="/admin/")
        assert found.get("/admin/").status_code == 303
    found.client.set_cookie(COOKIE, cookie, path="/admin/")
    assert found.get("/admin/").status_code == 200


def edited(given: Settings, fields: str) -> None:
    file = Path(given.keys)
    file.write_text(file.read_text().replace('"name": "boss",', f'"name": "boss", {fields},'))


KEY_ENDS = {
    "another of its name": lambda given: (keys_of(given).remove("boss"), keys_of(given).add("boss")),
    "limited": lambda given: edited(given, '"forms": ["hr"]'),
    "expired": lambda given: edited(given, '"expires": "2025-03-04T05:06:07.089Z"'),
}
PASSWORD_ENDS = {
    "replaced": lambda given: keys_of(given).set_password(NAME, "another long password"),
    "removed": lambda given: keys_of(given).remove_password(NAME),
}


@pytest.mark.parametrize("end", KEY_ENDS | PASSWORD_ENDS)
def test_a_session_ends_with_what_it_was_begun_with(tmp_path: Path, end: str) -> None:
    given = settings(tmp_path, administrators=("boss", "other"))
    found, keys = browser(given), keys_of(given)
    keys.add("other")  # or else the pages are off
    if end in KEY_ENDS:
        name, secret = "boss", keys.add("boss")
    else:
        name, secret = NAME, PASSWORD
        keys.set_password(NAME, PASSWORD)
    assert found.log_in(name, secret).status_code == 303
    assert found.get("/admin/").status_code == 200
    (KEY_ENDS | PASSWORD_ENDS)[end](given)
    assert found.get("/admin/").headers["Location"] == "/admin/login"
    assert found.log_in(name, secret).status_code == 403


@pytest.mark.parametrize(
    ("began", "seen", "is_over"),
    [(3500, 3500, False), (3700, 3700, True), (28_700, 0, False), (28_900, 0, True), (-100, -100, False)],
)
def test_a_session_ends_after_an_idle_hour_and_after_eight(
    found: Browser, keys: Keys, began: int, seen: int, *, is_over: bool
) -> None:
    """The ages are in seconds; a clock that was set back ends nothing."""
    secret, now = keys.session_secret(), int(time.time())
    session = LoginSession(*serializer(secret).loads(cookie_of(found)))
    aged = replace(session, began=now - began, seen=now - seen)
    found.client.set_cookie(COOKIE, str(serializer(secret).dumps(astuple(aged))), path="/admin/")
    answer = found.get("/admin/")
    assert (answer.status_code == 303) is is_over
    assert ("Set-Cookie" in answer.headers) is (seen > 60 and not is_over)


def test_a_logout_ends_the_session_and_not_only_the_cookie(found: Browser) -> None:
    cookie = cookie_of(found)
    found.get("/admin/")
    assert found.send("logout").status_code == 303
    assert found.client.get_cookie(COOKIE, path="/admin/") is None
    found.client.set_cookie(COOKIE, cookie, path="/admin/")
    assert found.get("/admin/").status_code == 303


def test_a_login_leads_to_the_page_that_was_asked_for_and_never_elsewhere(tmp_path: Path) -> None:
    given = settings(tmp_path, administrators=(NAME,))
    login = {"name": NAME, "secret": keys_of(given).add(NAME)}
    found = browser(given)
    assert found.get("/admin/settings?a=b").headers["Location"] == "/admin/login?next=%2Fadmin%2Fsettings%3Fa%3Db"
    assert found.follow().status_code == 200
    assert found.send("", **login).headers["Location"] == "/admin/settings?a=b"
    for evil in (
        *("https://evil.example", "//evil.example", "/admin//evil.example", "/admin/\\evil", "/crud", "/admin/\r\n"),
        "/admin/../fr/service/persistence/crud/a/b/data/d/a.svg",
        *("/admin/%2e%2e/fr/service/persistence/crud/a/b/data/d/a.svg", "/admin/.%2E/keys", "/admin/%6Beys"),
        *("/admin/nowhere", "/admin/logout", "/admin/actions/api-key-new/", "/admin/keys?\r\n", "admin/keys"),
        "http://localhost/admin/keys",
    ):
        answer = found.post("/admin/login", {**login, "next": evil})
        assert answer.headers["Location"] == "/admin/"


def test_ten_failed_logins_of_a_peer_and_thirty_of_all_close_the_login_for_a_minute(tmp_path: Path) -> None:
    given = settings(tmp_path, administrators=(NAME,))
    right, found = keys_of(given).add(NAME), browser(given)

    def tried(peer: int, secret: str) -> int:
        values = {"name": NAME, "secret": secret}
        base = {"REMOTE_ADDR": f"127.0.0.{peer}"}
        answer = found.client.post("/admin/login", data=values, environ_base=base)
        assert answer.status_code != 429 or 0 < int(answer.headers["Retry-After"]) <= 60
        return answer.status_code

    assert [tried(1, "x") for _ in range(10)] == [403] * 10
    assert tried(1, right) == 429
    assert tried(2, right) == 303
    assert [tried(peer, "x") for peer in (3, 4) for _ in range(10)] == [403] * 20
    assert tried(5, right) == 429
    assert browser(given).log_in(NAME, right).status_code == 429  # another worker
    record = Path(given.home, ".pages/logins.json")
    later = json.loads(record.read_text())
    later["failed"] = [[at - 61, peer] for at, peer in later["failed"]]
    record.write_text(json.dumps(later))
    assert tried(5, right) == 303


def test_of_many_logins_at_once_ten_are_looked_at(tmp_path: Path) -> None:
    """In all workers: each waits for the record, and counts those that were written down while it waited."""
    given = settings(tmp_path, administrators=(NAME,))
    keys_of(given).set_password(NAME, PASSWORD)
    env = {"PERSISTENCE_KEYS": given.keys, "PERSISTENCE_ADMINISTRATORS": NAME}
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    with alone(tmp_path, workers=2, threads=20, env=env) as service, ThreadPoolExecutor(40) as at_once:

        def tried(number: int) -> int:
            return service.raw("POST", "/admin/login", form, f"name={NAME}&secret=wrong-{number}".encode()).status

        answers = Counter(at_once.map(tried, range(100)))
        assert answers == {403: 10, 429: 90}


def test_a_clock_that_is_set_back_neither_forgets_failed_logins_nor_keeps_them_for_longer(tmp_path: Path) -> None:
    given = settings(tmp_path, administrators=(NAME,))
    right, found = keys_of(given).add(NAME), browser(given)
    assert [found.log_in(NAME, "x").status_code for _ in range(10)] == [403] * 10
    record = Path(given.home, ".pages/logins.json")

    def passes(seconds: float) -> None:
        known = json.loads(record.read_text())
        known["failed"] = [[at - seconds, peer] for at, peer in known["failed"]]
        record.write_text(json.dumps(known))

    passes(-3600)
    assert found.log_in(NAME, right).status_code == 429
    passes(50)
    assert found.log_in(NAME, right).status_code == 429
    passes(11)
    assert found.log_in(NAME, right).status_code == 303


def test_a_form_without_the_token_of_the_session_changes_nothing(found: Browser, keys: Keys) -> None:
    for token in ("", "x", "é"):
        answer = found.post("/admin/actions/api-key-new", {"name": "evil", "csrf": token})
        assert answer.status_code == 403
        assert "not from your session" in found.text
    assert [key.name for key in keys.read()] == [NAME]


def test_a_page_elsewhere_can_send_nothing(found: Browser) -> None:
    for path in ("/admin/login", "/admin/actions/api-key-new"):
        answer = found.post(path, LOGIN, headers={"Origin": "https://evil.example"})
        assert answer.status_code == 403
    assert found.get("/admin/", headers={"Host": "evil.example"}).status_code == 421


def test_every_answer_has_the_headers(found: Browser) -> None:
    answers = [
        found.get(path) for path in ("/admin/", "/admin/nowhere", "/admin/keys", "/admin/actions/api-key-retire")
    ]
    answers += [found.post("/admin/keys", {}), Browser(found.client).get("/admin/login")]
    assert [each.status_code for each in answers] == [200, 404, 200, 404, 403, 302]
    for answer in answers:
        policy = answer.headers["Content-Security-Policy"]
        assert policy.startswith("default-src 'none'; style-src 'self'; script-src 'self'")
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["Referrer-Policy"] == "same-origin"
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Cache-Control"] == "no-store"


def test_what_is_loaded_comes_from_here_and_is_kept(found: Browser) -> None:
    page = found.get("/admin/").text
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert "https://" not in page
    for name in ("pages.css", "htmx.min.js", "pages.js"):
        path = page.partition(f"/admin/static/{name}")[2].partition('"')[0]
        answer = found.get(f"/admin/static/{name}{path}")
        assert (answer.status_code, "immutable" in answer.headers["Cache-Control"]) == (200, True)
    assert found.get("/admin/static/base.html").status_code == 404


def test_a_large_form_is_refused(tmp_path: Path) -> None:
    answer = administrator(tmp_path).post("/admin/actions/api-key-new", {"name": "x" * 70_000})
    assert answer.status_code == 413


def test_actions_are_in_the_audit_with_the_name_of_the_administrator(tmp_path: Path) -> None:
    found = administrator(tmp_path, audit="file", audit_required=True)
    found.post("/admin/login", {"name": "stranger", "secret": "x" * 2000})
    assert found.do("/admin/actions/api-key-new?name=batch").status_code == 200
    found.get("/admin/")
    found.send("logout")
    lines = [json.loads(line) for line in (tmp_path / "audit/audit.jsonl").read_text().splitlines()]
    said = [(each.get("phase", ""), each["action"], each.get("key"), each.get("details")) for each in lines]
    assert said == [
        ("", "login", NAME, None),
        ("begin", "api-key-new", NAME, None),
        ("", "api-key-new", NAME, {"name": "batch"}),
        ("begin", "logout", NAME, None),
        ("", "logout", NAME, None),
    ]


def test_a_stranger_cannot_fill_the_audit(tmp_path: Path) -> None:
    given = settings(tmp_path, audit="file")
    keys_of(given).set_password(NAME, PASSWORD)
    found = browser(given)
    for path in ("/admin/login", "/admin/logout", "/admin/actions/api-key-new"):
        found.post(path, {"name": "x", "secret": "x" * 2000})
    assert (tmp_path / "audit/audit.jsonl").read_text() == ""
