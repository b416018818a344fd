"""docs/definitions.md and permissions.md: every snippet of a definition is published, and has the effect of its row."""

import re
from collections.abc import Callable, Iterator
from itertools import count

import pytest

from persistence.forms.controls import INDEXED
from persistence.limits import LONGEST_TITLE, MOST_METADATA
from persistence.model import permissions
from persistence.model.permissions import OPERATIONS, GrantCondition
from tests.commands import persistence
from tests.docs.markdown import DOCS, blocks, rows, spans
from tests.in_process import serving
from tests.service import Answer, Service

PAGE = DOCS / "definitions.md"
TEXT = PAGE.read_text() + (DOCS / "permissions.md").read_text()
DEFINITION = blocks(PAGE)[0].text.partition("<<'END'\n")[2].partition("END\n")[0]
_CONDITIONS = {condition.value for condition in GrantCondition if condition.value} | {"user-role"}
_LEA = {"Username": "lea", "Group": "staff", "Form_Definition_Version": "1"}
_numbers = count(1)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    directory = tmp_path_factory.mktemp("definitions")
    file = directory / "config/persistence.toml"
    file.parent.mkdir()
    file.write_text("")
    done = persistence("encryption-key", "new", "--config", str(file), data=directory / "data")
    assert done.returncode == 0, done.stderr
    with serving(directory, options=("--config", str(file)), data=directory / "data") as service:
        yield service


def described(heading: str, text: str = TEXT) -> set[str]:
    """Return the words in the first column of a table."""
    return {span for cells in rows(text, heading) for span in spans(cells[0])}


def with_permissions(snippet: str) -> str:
    """Return the definition of the page with other permissions."""
    return re.sub(r"(?s)<permissions>.*</permissions>", f"<permissions>{snippet}</permissions>", DEFINITION)


def with_mark(snippet: str) -> str:
    """Return the definition of the page with another mark in the control ``city``, and everyone's."""
    control = '<xf:input id="city-control" bind="city-bind"><fr:index/></xf:input>'
    attribute, child = ("", snippet) if snippet.startswith("<") else (f" {snippet}", "")
    marked = f'<xf:input id="city-control" bind="city-bind"{attribute}>{child}</xf:input>'
    assert control in DEFINITION
    return re.sub(r"(?s)<permissions>.*</permissions>", "", DEFINITION).replace(control, marked)


def publish(service: Service, definition: str) -> tuple[str, Answer]:
    """PUT a definition as that of a form of its own; return the form, and the answer."""
    form = f"hr/form-{next(_numbers)}"
    return form, service.put(f"{form}/form/form.xhtml", definition.encode())


def with_document(service: Service, definition: str) -> str:
    """Return a form with a document and its attachment, which Lea created while everyone might do everything."""
    form, answer = publish(service, re.sub(r"(?s)<permissions>.*</permissions>", "", definition))
    assert answer.status == 201
    for name in ("data.xml", "a.bin"):
        body = b"<form><trip><city>Lisbon</city></trip></form>"
        assert service.put(f"{form}/data/1b4e28ba/{name}", body, **_LEA).status == 201
    assert service.put(f"{form}/form/form.xhtml", definition.encode()).status == 204
    return form


def test_every_word_of_permissions_is_described_and_the_reverse() -> None:
    assert described("Operation") == set(OPERATIONS)
    assert described("Condition") == _CONDITIONS
    in_property = {span for cells in rows(TEXT, "Condition") for span in spans(cells[2])}
    assert in_property == {*permissions._PermissionsJson.__struct_encode_fields__}  # noqa: SLF001 - the words of the code


def test_every_word_of_permissions_has_an_example() -> None:
    examples = " ".join(cells[0] for cells in rows(TEXT, "In `<permissions>`") if len(cells) == 3)
    assert [word for word in OPERATIONS if not re.search(rf'[" -]{word}\b', examples)] == []
    assert [word for word in _CONDITIONS if f"<{word}" not in examples] == []


def test_every_mark_of_a_control_is_described() -> None:
    marks = {*(f'class="{word}"' for word in INDEXED), "<fr:index/>", "<fr:encrypt/>", 'class="fr-encrypt"'}
    assert marks <= described("In the control")


EXAMPLES = [cells for cells in rows(TEXT, "In `<permissions>`") if len(cells) == 3]
REFUSED = [cells for cells in rows(TEXT, "In `<permissions>`") if len(cells) == 2]


@pytest.mark.parametrize(("snippet", "caller", "answer"), EXAMPLES)
def test_permissions_allow_what_the_page_says(service: Service, snippet: str, caller: str, answer: str) -> None:
    form = with_document(service, with_permissions(*spans(snippet)))
    sent = dict(header.split(": ") for header in spans(caller))
    got = service.get(f"{form}/data/1b4e28ba/data.xml", sent)
    assert (str(got.status) if got.status == 403 else got["Svc-Operations"]) == answer.strip("`")


@pytest.mark.parametrize("snippet", [cells[0] for cells in REFUSED])
def test_permissions_are_refused_as_the_page_says(service: Service, snippet: str) -> None:
    _, answer = publish(service, with_permissions(*spans(snippet)))
    assert answer.status == 400
    assert "permissions" in answer.cause


def test_missing_and_empty_permissions(service: Service) -> None:
    for definition, expected in ((with_mark(""), "*"), (with_permissions(""), None)):
        got = service.get(f"{with_document(service, definition)}/data/1b4e28ba/data.xml")
        assert got["Svc-Operations"] == expected


REQUESTS: dict[str, Callable[[Service, str], Answer]] = {
    "PUT of new data.xml": lambda service, form: service.put(f"{form}/data/new/data.xml", **_LEA),
    "PUT of an attachment of new data": lambda service, form: service.put(f"{form}/data/newer/b.bin", **_LEA),
    "GET of data.xml": lambda service, form: service.get(f"{form}/data/1b4e28ba/data.xml"),
    "GET of an attachment": lambda service, form: service.get(f"{form}/data/1b4e28ba/a.bin"),
    "GET of the history": lambda service, form: service.raw("GET", f"{service.face}/history/{form}/1b4e28ba"),
    "PUT of data.xml": lambda service, form: service.put(f"{form}/data/1b4e28ba/data.xml", **_LEA),
    "PUT of an attachment": lambda service, form: service.put(f"{form}/data/1b4e28ba/b.bin", **_LEA),
    "DELETE of an attachment": lambda service, form: service.delete(f"{form}/data/1b4e28ba/a.bin"),
    "DELETE of data.xml": lambda service, form: service.delete(f"{form}/data/1b4e28ba/data.xml"),
}


@pytest.mark.parametrize(("operation", "requests"), [cells[:2] for cells in rows(TEXT, "Operation")])
def test_an_operation_allows_the_requests_that_the_page_says(service: Service, operation: str, requests: str) -> None:
    """Each request is sent to a form of its own, as a DELETE would take the document from the next."""
    (word,) = spans(operation)
    snippet = f'<permission operations="{word}{"" if word == "list" else " -list"}"/>'
    allowed = set()
    for name, request in REQUESTS.items():
        status = request(service, with_document(service, with_permissions(snippet))).status
        assert status in {200, 201, 204, 403}
        allowed |= {name} if status != 403 else set()
    assert allowed == set(spans(requests))


@pytest.mark.parametrize("cells", rows(TEXT, "In the control"), ids=lambda cells: cells[0])
def test_a_mark_of_a_control_has_the_effect_that_the_page_says(service: Service, cells: list[str]) -> None:
    definition = with_mark(*spans(cells[0]))
    if "refused" in cells[1]:
        _, answer = publish(service, definition)
        assert (answer.status, "encrypt" in answer.cause) == (400, True)
        return
    form = with_document(service, definition)
    query = b'<search><query path="trip/city" match="exact">Lisbon</query></search>'
    found = service.raw("POST", f"{service.face}/search/{form}", {}, query)
    is_encrypted = "Lisbon" not in (service.data / form / "data/1b4e28ba/data.xml").read_text()
    assert (b'search-total="1"' in found.body) == cells[1].startswith("yes")
    assert is_encrypted == ("encrypt" in cells[0])
    assert b"Lisbon" in service.get(f"{form}/data/1b4e28ba/data.xml").body


@pytest.mark.parametrize("snippet", [cells[0] for cells in rows(TEXT, "Where")])
def test_a_mark_without_effect_is_refused_as_the_page_says(service: Service, snippet: str) -> None:
    (view,) = spans(snippet)
    control = '<xf:input id="city-control" bind="city-bind" ></xf:input>'
    assert control in with_mark("")
    _, answer = publish(service, with_mark("").replace(control, view))
    assert (answer.status, "has no effect" in answer.cause) == (400, True)


def test_an_indexed_and_encrypted_control_is_not_in_the_index(service: Service) -> None:
    form = with_document(service, with_mark("<fr:index/><fr:encrypt/>"))
    query = b'<search><query path="trip/city" match="exact">Lisbon</query></search>'
    assert b'search-total="0"' in service.raw("POST", f"{service.face}/search/{form}", {}, query).body


def test_a_form_that_is_not_available_is_not_listed_and_takes_data(service: Service) -> None:
    form, _ = publish(service, with_mark("").replace("<form-name>", "<available>false</available><form-name>"))
    assert service.put(f"{form}/data/1/data.xml", Form_Definition_Version=1).status == 201
    listed = f"{service.face}/form/{form}"
    assert b"<title" in service.raw("GET", f"{listed}?all-forms=true").body
    assert b"<title" not in service.raw("GET", listed).body


def test_elements_of_the_metadata_count_once(service: Service) -> None:
    twice = '<title xml:lang="en">A</title><singleton>no</singleton><singleton>true</singleton>'
    form, _ = publish(
        service, with_mark("").replace("<form-name>", f"{twice}<form-name>").replace("Expense claim", "C")
    )
    assert re.findall(b"<title[^>]*>([^<]*)", service.raw("GET", f"{service.face}/form/{form}").body)[0] == b"C"
    for name in "AB":
        assert service.put(f"{form}/data/{name}/data.xml", Form_Definition_Version=1).status == 201


def test_a_word_that_is_left_out_is_found() -> None:
    assert set(OPERATIONS) - described("Operation", TEXT.replace("| `update` |", "| `alter` |")) == {"update"}
    assert _CONDITIONS - described("Condition", TEXT.replace("| `owner` |", "| the owner |")) == {"owner"}


def test_bounds_are_those_of_the_code() -> None:
    assert f"at most {LONGEST_TITLE:,} characters each" in TEXT
    assert f"at most {MOST_METADATA >> 10} Ki characters" in TEXT


def test_the_least_definition_can_be_published(service: Service) -> None:
    (least,) = re.findall(r"`(<html [^`]+/>)`", TEXT)
    assert publish(service, least)[1].status == 201
    nowhere = service.raw("POST", "/fr/service/publish", {}, least.encode())
    assert nowhere.status == 400
