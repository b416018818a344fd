"""Searches for the whole values of encrypted controls, by tokens (property ``field-encryption.searchable``)."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from lxml import etree, html

from persistence.crypto import EncryptionKeys
from persistence.properties.properties import Properties
from tests import orders
from tests.commands import persistence
from tests.encrypted_form import DEFINITION, OPEN, SECRETS, data, traces
from tests.http.test_encryption import raw, save
from tests.pages.administrator import NAME as ADMINISTRATOR
from tests.pages.administrator import browser, keys_of, settings
from tests.searches import control
from tests.service import PUBLIC, V1, Answer, Service, running
from tests.waiting import eventually

SSN, NOTE, NAME = "person/ssn", "person/kids/note", "person/name"
INDEXED = DEFINITION.replace(b'bind="ssn-bind"', b'bind="ssn-bind" class="fr-index"').replace(
    b'bind="note-bind"', b'bind="note-bind" class="fr-index"'
)
ON = '"svc.field-encryption.searchable.*.*" = true\n'
TOKEN = b"value-encrypted-token"


@contextmanager
def keyed(directory: Path, properties: str = ON) -> Iterator[tuple[Service, EncryptionKeys]]:
    keys = EncryptionKeys(str(directory / "var/encryption-keys.json"), trees=[str(directory / "data")])
    if not keys.list():
        keys.new()
    with running(directory, settings='encryption_keys = "var/encryption-keys.json"\n' + properties) as service:
        yield service, keys


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with keyed(tmp_path_factory.mktemp("encrypted-search")) as (service, _):
        yield service


@pytest.fixture
def form(service: Service, form: str) -> str:
    return published(service, form)


def published(service: Service, form: str, definition: bytes = INDEXED) -> str:
    assert service.put(f"{form}/form/form.xhtml", definition).status in (201, 204)
    return form


def search(service: Service, form: str, *conditions: str, kind: str = "search", **own: object) -> Answer:
    return service.post(f"/{kind}/{form}", f"<{kind}>{''.join(conditions)}</{kind}>", **(V1 | own))


def found(service: Service, form: str, *conditions: str, **own: object) -> list[str]:
    answer = search(service, form, *conditions, **own)
    assert answer.status == 200, answer.cause
    return sorted(orders.found(answer.body))


def exactly(path: str, text: str, **more: str) -> str:
    return control(path, text, match="exact", **more)


def reencrypted(service: Service, form: str, condition: str, documents: list[str]) -> None:
    assert service.raw("POST", f"{PUBLIC}/reencrypt/{form}").status == 200
    eventually(lambda: b'"finished"' in service.raw("GET", f"{PUBLIC}/reencrypt").body)
    eventually(lambda: search(service, form, condition).status == 200 and found(service, form, condition) == documents)


@pytest.mark.parametrize(
    ("conditions", "documents"),
    [
        pytest.param([exactly(SSN, SECRETS[0])], ["1"], id="the value"),
        pytest.param([exactly(NOTE, SECRETS[2])], ["1"], id="one of several values"),
        pytest.param([exactly(NOTE, SECRETS[1]), exactly(NOTE, SECRETS[2])], ["1"], id="two of several values"),
        pytest.param([exactly(NOTE, "other"), exactly(NOTE, SECRETS[2])], [], id="a value and another"),
        pytest.param([exactly(SSN, "x", **{"or": "a"}), exactly(NOTE, SECRETS[1], **{"or": "a"})], ["1"], id="or"),
        pytest.param([exactly(SSN, SECRETS[0]), exactly(NAME, OPEN)], ["1"], id="with a plain control"),
        pytest.param([exactly(SSN, SECRETS[0].upper())], [], id="other letters"),
        pytest.param([exactly(SSN, SECRETS[0][:8])], [], id="a part"),
        pytest.param([control(SSN, SECRETS[0][:8], match="substring")], [], id="a part as a substring"),
        pytest.param([control(SSN, SECRETS[0], match="token")], [], id="its words"),
        pytest.param([exactly(NOTE, SECRETS[0])], [], id="the value of another control"),
        pytest.param([f"<query>{SECRETS[0]}</query>"], [], id="in any text"),
    ],
)
def test_whole_values_of_encrypted_controls_are_found(
    service: Service, form: str, conditions: list[str], documents: list[str]
) -> None:
    save(service, form)
    save(service, form, "2", data().replace(b"078-05", b"079-06").replace(b" of ada", b" of bob"))
    assert found(service, form, *conditions) == documents


def test_nothing_of_values_or_tokens_is_in_an_answer_on_disk_or_in_the_index(service: Service, form: str) -> None:
    save(service, form)
    written = re.search(TOKEN + rb'="([^"]+)"', raw(service, f"{form}/data/1/data.xml").body)
    assert written is not None
    text = written[1].decode()
    answers = (
        search(service, form, exactly(SSN, SECRETS[0]), control(SSN), control(NOTE)),
        search(service, form, f"<query>{text}</query>"),
        search(service, form, control(SSN), kind="distinct-values"),
        service.get(f"{form}/data/1/data.xml"),
    )
    for answer in answers:
        assert answer.status == 200
        assert text.encode() not in answer.body
        assert TOKEN not in answer.body
    assert etree.fromstring(answers[0].body).get("search-total") == "1"
    assert etree.fromstring(answers[1].body).get("search-total") == "0"
    assert etree.fromstring(answers[2].body).findall("*/value") == []
    assert not traces(service.data / form, *SECRETS)
    assert not traces(service.data / ".index" / form, *SECRETS)


def test_a_notice_says_that_only_whole_values_are_found(service: Service, form: str) -> None:
    save(service, form)
    answer = search(service, form, control(SSN, "078", match="substring"))
    assert answer["Svc-Notice"] == f"'{SSN}' is encrypted: only the match exact finds its values"


@pytest.mark.parametrize(("count", "status"), [(20, 200), (21, 400)])
def test_tokens_that_another_service_sends_are_bounded(service: Service, form: str, count: int, status: int) -> None:
    save(service, form)
    ring = 199 * (f"0:{'0' * 32}",)  # and one of the service's own key
    conditions = [exactly(SSN, f"{number}", tokens=" ".join(ring), **{"or": "x"}) for number in range(count)]
    assert search(service, form, *conditions).status == status


def test_a_token_that_a_client_sends_is_dropped(service: Service, form: str) -> None:
    sent = data().replace(
        b"<ssn>", b'<ssn xmlns:fr="http://orbeon.org/oxf/xml/form-runner" fr:value-encrypted-token="k:forged">'
    )
    save(service, form, body=sent)
    stored = raw(service, f"{form}/data/1/data.xml").body
    assert (b"forged" in stored, TOKEN in stored) == (False, True)
    assert found(service, form, exactly(SSN, SECRETS[0])) == ["1"]


def test_drafts_and_versions_that_did_not_encrypt_are_found(service: Service, form: str) -> None:
    published(service, form, INDEXED.replace(b"<fr:encrypt/>", b""))
    save(service, form, "plain")
    assert service.put(f"{form}/form/form.xhtml", INDEXED, Form_Definition_Version="next").status == 201
    save(service, form, "new", Form_Definition_Version="2")
    save(service, form, "draft", collection="draft", Form_Definition_Version="2", Username="ann")
    asked = {"Form_Definition_Version": "all", "Username": "ann"}
    assert found(service, form, exactly(SSN, SECRETS[0]), **asked) == ["draft°", "new", "plain"]


def test_a_form_whose_definition_is_damaged_is_searched_by_a_control(tmp_path: Path) -> None:
    with keyed(tmp_path) as (service, _):
        form = published(service, "a/b")
        save(service, form)
        (service.data / form / "form/1/form.xhtml").write_bytes(INDEXED.replace(b"<fr:encrypt/>", b"<fr:encrypt>"))
        assert search(service, form, exactly(SSN, "other")).status == 200


def test_values_are_found_through_new_keys_and_a_change_of_the_property(tmp_path: Path) -> None:
    asked = exactly(SSN, SECRETS[0])
    with keyed(tmp_path, "") as (service, keys):
        form = published(service, "a/b")
        save(service, form, "before")
        assert found(service, form, asked) == []
        assert "searches do not find" in (search(service, form, asked)["Svc-Notice"] or "")
    with keyed(tmp_path) as (service, keys):
        save(service, form, "first")
        assert found(service, form, asked) == ["first"]
        keys.new()
        save(service, form, "second")
        assert found(service, form, asked) == ["first", "second"]
        reencrypted(service, form, asked, ["before", "first", "second"])
        keys.retire(keys.list()[0].id)
        assert found(service, form, asked) == ["before", "first", "second"]
    with keyed(tmp_path, "") as (service, _):
        reencrypted(service, form, asked, [])
        assert TOKEN not in raw(service, f"{form}/data/first/data.xml").body
        assert service.get(f"{form}/data/first/data.xml").body.count(SECRETS[0].encode()) == 1


def test_the_command_and_the_filters_of_the_pages_find_whole_values(tmp_path: Path) -> None:
    with keyed(tmp_path) as (service, _):
        published(service, "a/b")
        save(service, "a/b")
        root = service.data
    path = f"{SSN}={SECRETS[0]}"
    config = {"PERSISTENCE_CONFIG": str(tmp_path / "settings.toml")}
    for match, hits in (("exact", 1), ("substring", 0)):
        done = persistence("search", "a/b", "--path", path, "--match", match, "--json", data=root, env=config)
        assert (done.returncode, done.stdout.count('"document":"1"')) == (0, hits), done.stderr
    given = settings(
        tmp_path, administrators=(ADMINISTRATOR,), encryption_keys=str(tmp_path / "var/encryption-keys.json")
    )
    secret = keys_of(given).add(ADMINISTRATOR)
    for is_on, names in ((True, ["1"]), (False, [])):
        pages = browser(given, Properties.load({"svc.field-encryption.searchable.*.*": is_on}, "svc.", ""))
        assert pages.log_in(ADMINISTRATOR, secret).status_code == 303
        page = html.fromstring(pages.get("/admin/forms/a/b/1", query_string={f"c.{SSN}": SECRETS[0]}).text)
        assert [link.rpartition("/")[2] for link in page.xpath("//tbody/tr/th/a/@href")] == names
        assert bool(page.xpath(f"//input[@name='c.{SSN}']")) is is_on
