"""The pages of reference have every request, status, response header, metric and kind of finding, and no other.

tests/rigs/fuzz/test_openapi.py compares docs/openapi.yaml with the code: paths, parameters, request headers, statuses.
"""

import ast
import re
from collections.abc import Iterator

from persistence.errors import STATUS
from persistence.http.responses import RESPONSE_NAMES
from persistence.storage.findings import FindingKind, Remedy
from tests.docs.markdown import DOCS, ROOT, rows, spans
from tests.metrics.test_metrics import known
from tests.rigs.fuzz import interface
from tests.service import PUBLIC

HTTP = DOCS / "http.md"
METRICS, FINDINGS = DOCS / "metrics.md", DOCS / "maintenance.md"
_ELSEWHERE = {
    "429": "the pages for administrators answer it, and not the interface",
    "414": "gunicorn answers it",
    "431": "gunicorn answers it",
    "405": "belongs to the methods that a path does not have",
}
"""Statuses that no operation has, each with the reason why it is described."""

Request = tuple[str, str]


def described_requests(text: str) -> list[tuple[str, re.Pattern[str], set[str]]]:
    """Return each path in the table of a page, what it matches (``$name`` a part, ``…`` any rest), and its methods."""
    return [
        (path, re.compile(re.sub(r"\\\$\w+", "[^/]+", re.escape(path)).replace("…", ".*")), set(methods.split()))
        for paths, methods, _ in rows(text, "Path")
        for path in spans(paths)
    ]


def requests() -> set[Request]:
    """Return the methods and paths of the interface, without the prefix of the public API."""
    operations = interface.read().operations
    return {(each.method, (each.face + re.sub(r"{\w+}", "a", each.path)).removeprefix(PUBLIC)) for each in operations}


def unlisted(text: str) -> set[Request]:
    """Return the requests that are in no row of a page, and the paths of a page that no request has."""
    table = described_requests(text)
    missing = {
        (method, path)
        for method, path in requests()
        if not any(method in methods and pattern.fullmatch(path) for _, pattern, methods in table)
    }
    idle = {("", path) for path, pattern, _ in table if not any(pattern.fullmatch(each) for _, each in requests())}
    return missing | idle


def sent_headers() -> Iterator[str]:
    """Yield the names of response headers: of the service, and those that the code writes."""
    yield from (f"Svc-{name}" for name in RESPONSE_NAMES)
    for file in (ROOT / "persistence/http").glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            match node:
                case (
                    ast.Tuple(elts=[ast.Constant(value=str(name)), _])
                    | ast.Subscript(slice=ast.Constant(value=str(name)), ctx=ast.Store())
                ) if re.fullmatch("[A-Z][A-Za-z]*(-[A-Z][A-Za-z]*)+|Allow|Vary", name) and name not in RESPONSE_NAMES:
                    yield name


def statuses() -> set[str]:
    """Return the statuses of errors and of operations."""
    return {str(status) for _, status in STATUS} | {
        str(status) for each in interface.read().operations for status in each.headers
    }


def described_statuses(text: str) -> set[str]:
    """Return the statuses that a page describes."""
    return {status for cells in rows(text, "Status") for status in re.findall(r"\d{3}", cells[0])}


def described_headers() -> set[str]:
    """Return the names of response headers in the interface, with ``Allow``, which its text describes."""
    assert "405 with `Allow`" in interface.read().document["info"]["description"]
    return {name for each in interface.read().operations for names in each.headers.values() for name in names} | {
        "Allow"
    }


def test_every_request_is_described_and_the_reverse() -> None:
    assert unlisted(HTTP.read_text()) == set()


def test_every_response_header_of_the_code_is_described() -> None:
    assert set(sent_headers()) - described_headers() == set()
    assert set(sent_headers()) - (described_headers() - {"Svc-Notice"}) == {"Svc-Notice"}


def test_every_status_is_described_and_the_reverse() -> None:
    assert described_statuses(HTTP.read_text()) == statuses() | set(_ELSEWHERE)


def test_what_is_left_out_and_what_does_not_exist_are_found() -> None:
    page = HTTP.read_text()
    assert {path for _, path in unlisted(page.replace("`/search…`", "`/find…`"))} == {
        *("/search", "/search/a", "/search/a/a", "/find…")
    }
    assert {method for method, _ in unlisted(page.replace("GET HEAD PUT DELETE LOCK", "GET HEAD PUT LOCK"))} == {
        "DELETE"
    }
    assert "507" not in described_statuses(HTTP.read_text().replace("| 507 |", "| 508 |"))


def test_headers_of_the_code_are_found() -> None:
    assert {"Retry-After", "Allow", "Vary", "X-Accel-Buffering"} <= set(sent_headers())


def test_the_reasons_for_other_statuses_are_needed() -> None:
    assert statuses().isdisjoint(_ELSEWHERE)


Described = dict[str, tuple[str, tuple[str, ...]]]


def described_metrics(text: str) -> Described:
    """Return the kind and the labels of each metric of a page."""
    return {
        name.strip("`"): (kind, tuple(re.findall(r"\w+", labels))) for name, kind, labels, _ in rows(text, "Metric")
    }


def test_every_metric_is_described_and_the_reverse() -> None:
    assert described_metrics(METRICS.read_text()) == dict(known())


def test_a_metric_that_is_left_out_or_described_wrongly_is_found() -> None:
    page = METRICS.read_text()
    assert described_metrics(page.replace("| `persistence_workers` ", "| `persistence_walkers` ")) != dict(known())
    assert described_metrics(page.replace("`method`, `kind`, `status`", "`method`, `status`")) != dict(known())


def described_findings(text: str) -> dict[str, tuple[str, str]]:
    """Return the severity and the remedy of each kind of finding of a page."""
    return {cells[0].strip("`"): (cells[1], cells[-1]) for cells in rows(text, "Kind")}


def test_every_kind_of_finding_is_described_with_its_severity_and_remedy_and_the_reverse() -> None:
    found = described_findings(FINDINGS.read_text())
    assert {label: severity for label, (severity, _) in found.items()} == {
        kind.label: kind.severity.value for kind in FindingKind
    }
    for kind in FindingKind:
        is_automatic = f"`{kind.remedy.value}`" in found[kind.label][1]
        assert is_automatic == (kind.remedy is not Remedy.NONE) or kind is FindingKind.DIGEST_WRONG


def test_a_finding_that_is_left_out_is_found() -> None:
    kind = next(iter(FindingKind)).label
    assert kind not in described_findings(FINDINGS.read_text().replace(f"| `{kind}` |", "| `forgotten` |"))
