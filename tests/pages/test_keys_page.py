"""The page of the keys, and its actions."""

from __future__ import annotations

import time
from pathlib import Path

from persistence.keys import key_of
from tests.pages.administrator import NAME, administrator, browser, keys_of, settings


def test_a_key_is_made_after_a_confirmation_and_shown_once(tmp_path: Path) -> None:
    found, keys = administrator(tmp_path), keys_of(settings(tmp_path))
    assert found.get("/admin/actions/api-key-new?name=batch").status_code == 200
    assert "Make the API key batch?" in found.text
    assert [key.name for key in keys.read()] == [NAME]
    answer = found.send()
    secret = answer.text.partition('class="secret" tabindex="0">')[2].partition("<")[0]
    made = key_of(secret, keys.read())
    assert made is not None
    assert made.name == "batch"
    found.get("/admin/keys")
    assert "batch" in found.text
    assert secret not in found.text


def test_a_key_is_removed_after_a_confirmation(tmp_path: Path) -> None:
    found, keys = administrator(tmp_path), keys_of(settings(tmp_path))
    keys.add("batch")
    found.do("/admin/actions/api-key-retire?name=batch")
    assert "The API key batch is retired." in found.text
    assert [key.name for key in keys.read()] == [NAME]
    assert "is retired" not in (found.get("/admin/keys") and found.text)


def test_what_cannot_be_done_says_why(tmp_path: Path) -> None:
    found = administrator(tmp_path)
    for path, status, cause in (
        ("/admin/actions/api-key-new?name=a+b", 400, "cannot be the name of a key"),
        ("/admin/actions/api-key-new", 400, "cannot be the name of a key"),
        ("/admin/actions/api-key-retire?name=%3Cb%3E", 404, "there is no key <b>"),
    ):
        assert found.get(path).status_code == status
        assert cause in found.text


def test_a_key_expires_if_that_is_asked_for(tmp_path: Path) -> None:
    found, keys = administrator(tmp_path), keys_of(settings(tmp_path))
    found.get("/admin/actions/api-key-new?name=trial&days=90")
    assert "It expires on 20" in found.text
    assert found.send().status_code == 200
    assert keys.read()[-1].expires is not None
    assert found.get("/admin/actions/api-key-new?name=x&days=-1").status_code == 400
    found.get("/admin/actions/api-key-new?name=x")
    assert "It does not expire." in found.text


def test_the_session_of_a_key_ends_when_it_expires(tmp_path: Path) -> None:
    given = settings(tmp_path, administrators=("boss",))
    keys, found = keys_of(given), browser(given)
    keys.set_password("other", "another long password")  # or else the pages are off
    secret = keys.add("boss", 1.0)
    assert found.log_in("boss", secret).status_code == 303
    assert found.get("/admin/").status_code == 200
    time.sleep(1.0)
    assert found.get("/admin/").status_code == 303
    assert found.log_in("boss", secret).status_code == 403


def test_who_retires_a_key_is_told_what_that_ends_and_opens(tmp_path: Path) -> None:
    found, keys = administrator(tmp_path), keys_of(settings(tmp_path))
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


def test_what_limits_a_key_is_shown(tmp_path: Path) -> None:
    found = administrator(tmp_path)
    keys_of(settings(tmp_path)).add("reports", None, ["read"], ["hr", "fin/claim"])
    found.get("/admin/keys")
    assert "reports" in found.text
    assert "read: hr, fin/claim" in found.text


def test_a_limited_key_is_made(tmp_path: Path) -> None:
    found, keys = administrator(tmp_path), keys_of(settings(tmp_path))
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


def test_the_session_of_a_key_ends_when_the_key_is_limited(tmp_path: Path) -> None:
    given = settings(tmp_path, administrators=("boss",))
    keys, found = keys_of(given), browser(given)
    keys.set_password("other", "another long password")  # or else the pages are off
    secret = keys.add("boss")
    assert found.log_in("boss", secret).status_code == 303
    file = Path(given.keys)
    file.write_text(file.read_text().replace('"name": "boss",', '"name": "boss", "forms": ["hr"],'))
    assert found.get("/admin/").status_code == 303
    assert found.log_in("boss", secret).status_code == 403
