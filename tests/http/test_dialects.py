"""The same requests in each dialect and through each API: the answers are alike but for names and what the tables say.

All else is shown in dialect svc through the public API. Orbeon's provider API has a contract of its own.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace

import pytest

from tests import orders
from tests.in_process import serving
from tests.service import PROVIDER, PUBLIC, V1, Answer, Service

PAIRS = {"svc-public": ("svc", PUBLIC), "svc-provider": ("svc", PROVIDER), "orbeon-public": ("orbeon", PUBLIC)}
LEA = {"Username": "lea", "Group": "staff", "Workflow_Stage": "begun"}
OWN = (
    '<permissions><permission operations="create read update delete"><owner/></permission>'
    '<permission operations="read"><user-role any-of="clerk"/></permission></permissions>'
)
ADA, BOB = (f"<form><customer><name>{name}</name></customer></form>" for name in ("Ada", "Bob"))
FORM, DATA, DRAFT, FILE = "form/form.xhtml", "data/D/data.xml", "draft/D/data.xml", "data/D/a.bin"
NAME = '<query path="customer/name" match="exact">Ada</query>'
LOCK = '<d:lockinfo xmlns:d="DAV:"><d:owner><username>lea</username></d:owner></d:lockinfo>'
SEALED = {"Hash_Algorithm": "SHA-256", "Hash_Value": "abc="}
REQUESTS: list[tuple[str, str, str | None, dict[str, object]]] = [
    ("PUT", f"crud/acme/order/{FORM}?document=S", orders.definition(OWN).decode(), LEA),
    ("GET", f"crud/acme/order/{FORM}", None, {}),
    ("HEAD", f"crud/acme/order/{FORM}", None, V1),
    ("GET", f"crud/acme/order/{FORM}?form-definition-format-version=4.8.0", None, {}),
    ("PUT", f"crud/acme/order/{FORM}", "<f/>", {"Form_Definition_Version": "x"}),
    ("PUT", f"crud/acme/order/{DATA}?valid=false", ADA, LEA | V1),
    ("PUT", f"crud/acme/order/{DATA}", BOB, LEA),
    ("PUT", f"crud/acme/order/{DATA}", BOB, {"Username": "eve"}),
    ("PUT", f"crud/acme/order/{DATA}", "<d", LEA),
    ("PUT", f"crud/acme/order/{DATA}", BOB, LEA | {"Form_Definition_Version": 2}),
    ("GET", f"crud/acme/order/{DATA}", None, LEA),
    ("HEAD", f"crud/acme/order/{DATA}", None, LEA),
    ("GET", f"crud/acme/order/{DATA}", None, {"Username": "eve", "Roles": "clerk"}),
    ("GET", f"crud/acme/order/{DATA}", None, {}),
    ("GET", f"crud/acme/order/{DATA}", None, {"Roles": "clerk"}),
    ("GET", f"crud/acme/order/{DATA}", None, {"Credentials": '{"username":"lea","organizations":[["a","b"]]}'}),
    ("GET", f"crud/acme/order/{DATA}", None, {"Credentials": "{"}),
    ("GET", f"crud/acme/order/{DATA}?as-of=2001-01-01T00:00:00Z", None, LEA),
    ("GET", f"crud/acme/order/{FORM}", None, {"For_Document_Id": "D"}),
    ("PUT", f"crud/acme/order/{FILE}", "bytes", LEA | V1 | SEALED),
    ("GET", f"crud/acme/order/{FILE}", None, LEA),
    ("PUT", f"crud/acme/order/{DRAFT}", ADA, LEA | V1),
    ("GET", f"crud/acme/order/{DRAFT}", None, LEA),
    ("DELETE", f"crud/acme/order/{DRAFT}", None, LEA),
    ("LOCK", f"crud/acme/order/{DATA}", LOCK, LEA),
    ("UNLOCK", f"crud/acme/order/{DATA}", LOCK, LEA),
    ("POST", f"crud/acme/order/{DATA}", "", {}),
    ("GET", "crud/acme/none", None, {}),
    ("POST", "search/acme/order", f"<search>{NAME}</search>", V1),
    ("POST", "search/acme/order", "<search/>", V1 | LEA),
    ("POST", "search/acme/order", "<search/>", {"Form_Definition_Version": "x"}),
    ("POST", "search/acme/ordre", "<search/>", V1),
    ("POST", "search/acme/order", "<search", V1),
    ("GET", "search/acme/order", None, V1),
    ("POST", "distinct-values/acme/order", f"<d>{NAME}</d>", LEA | V1),
    ("GET", "form", None, LEA),
    ("GET", "form/acme/order?all-versions=true", None, {}),
    ("GET", "form?all-forms=yes", None, {}),
    ("POST", "form", "<search all-forms='true'/>", LEA),
    ("PUT", "form", None, {}),
    ("GET", "history/acme/order/D", None, LEA),
    ("GET", "history/acme/order/D", None, {}),
    ("GET", "history/acme/order/D?page-size=0", None, LEA),
    ("GET", "history/acme/order/D?include-diffs=true", None, LEA),
    ("POST", "history/acme/order/D/restore?as-of=2001-01-01T00:00:00Z", "", LEA),
    ("POST", "history/acme/order/D/restore", "", LEA),
    ("POST", "reindex", "", {}),
    ("GET", "reindex/status", None, {}),
    ("POST", "reindex/acme/order", "", {}),
    ("POST", "reindex/acme/order", "", V1),
    ("PUT", "crud/one/of/form/form.xhtml", orders.definition("<singleton>true</singleton>").decode(), {}),
    ("PUT", "crud/one/of/data/A/data.xml", ADA, V1),
    ("PUT", "crud/one/of/data/B/data.xml", ADA, V1),
    ("DELETE", f"crud/acme/order/{FILE}", None, LEA),
    ("DELETE", f"crud/acme/order/{DATA}", None, LEA),
    ("DELETE", f"crud/acme/order/{DATA}", None, LEA),
    ("GET", "/fr/service/one/of/attachments?document=A", None, {}),
    ("DELETE", "crud/one/of/data/", None, V1),
    ("DELETE", f"crud/acme/order/{FORM}", None, {}),
    ("POST", "/fr/service/publish", "<a/>", {}),
    ("POST", "/fr/service/one/of/duplicate", "<document-id>none</document-id>", {}),
    ("GET", "/", None, {}),
]
MOVING = {
    "date",
    "x-request-id",
    "etag",
    "last-modified",
    "created",
    "own-last-modified",
    "own-created",
    "content-length",
}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Service]]:
    with ExitStack() as stack:

        def started(pair: str) -> Service:
            dialect, face = PAIRS[pair]
            directory = tmp_path_factory.mktemp(pair)
            return replace(stack.enter_context(serving(directory, dialect=dialect, alone=True)), face=face)

        yield {pair: started(pair) for pair in PAIRS}.__getitem__


def asked(service: Service, method: str, path: str, body: str | None, own: dict[str, object]) -> Answer:
    headers = {"Content-Type": "application/xml", "Timeout": "Second-600"}
    url = path if path.startswith("/") else f"{service.face}/{path}"
    return service.raw(method, url, headers, None if body is None else body.encode(), **own)


def shown(service: Service, answer: Answer) -> tuple[int, dict[str, list[str]], str]:
    """What an answer shows, without times, tags and the names of the dialect."""

    def neutral(text: str) -> str:
        text = re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+Z", "TIME", text.replace(service.prefix, "Own-"))
        return text.replace(f"dialect {service.dialect}", "dialect")

    names = {neutral(name).lower(): name for name in answer.headers}
    kept = {known: answer.headers.get_all(name) or [] for known, name in names.items() if known not in MOVING}
    return (
        answer.status,
        {name: list(map(neutral, values)) for name, values in kept.items()},
        neutral(answer.body.decode()),
    )


def test_the_answers_are_alike(served: Callable[[str], Service]) -> None:
    reference, *others = map(served, PAIRS)
    for request in REQUESTS:
        expected = shown(reference, asked(reference, *request))
        for service in others:
            found = shown(service, asked(service, *request))
            assert found == expected, (service.dialect, service.face, request)
            assert "Svc-" not in str(found) or service.dialect == "svc", request


@pytest.mark.parametrize("pair", PAIRS)
def test_what_differs(served: Callable[[str], Service], pair: str) -> None:
    """Design, section 2: statuses of what is gone, versions that are not sent, quotes of tags, words of searches."""
    service = served(pair)
    is_svc, builder = service.dialect == "svc", f"{service.dialect}/builder"
    unknown = '<search xmlns:x="urn:x"><x:word/><qery/></search>'
    stored = service.put("x/y/data/D/data.xml", **V1)
    assert re.fullmatch('"[0-9a-f]{40}"' if is_svc else "[0-9a-f]{40}", stored["ETag"] or "")
    service.delete("x/y/data/D/data.xml")
    for method, path, body, statuses in (
        ("GET", "crud/x/y/data/D/data.xml", None, (404, 410)),
        ("PUT", "crud/x/y/data/E/data.xml", "<d/>", (201, 400)),
        ("POST", "search/x/y", unknown, (400, 200)),
        ("GET", "reindex", None, (405, 200)),
        ("PUT", f"crud/{builder}/data/D/data.xml", "<d/>", (201, 201)),
        ("PUT", f"crud/{'orbeon' if is_svc else 'svc'}/builder/data/D/data.xml", "<d/>", (201, 400)),
    ):
        assert asked(service, method, path, body, {}).status == statuses[not is_svc], (method, path)
    other = {("Orbeon-" if is_svc else "Svc-") + "Username": "lea"}
    assert service.get("x/y/data/D/data.xml", other).refuses(400, f"this service speaks dialect '{service.dialect}'")
