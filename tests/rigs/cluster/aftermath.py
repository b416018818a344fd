"""The state after a run: every acknowledged write, whole, with its headers, and in the searches."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from urllib.parse import quote

from tests.rigs.cluster.load import FORM, SHARED, Acknowledged, Seen, ask, found, path_of, search_body, search_path

_THREADS = 4
_SAMPLE = 50
_PAGE = 100


def lost(ports: Sequence[int], seen: Iterable[Seen]) -> list[str]:
    """Return a line for each acknowledged write that is not there, or not as it was acknowledged."""
    every = [each for client in seen for each in client.acknowledged]
    asked = [(ports[number % len(ports)], each) for number, each in enumerate(every)]
    with ThreadPoolExecutor(_THREADS) as pool:
        found_out = list(pool.map(lambda pair: _wrong(*pair), asked))
    return [line for line in found_out if line]


def _wrong(port: int, each: Acknowledged) -> str:
    """Return the difference, or nothing: a new document must be there as it was, of a shared one the revision."""
    if each.document not in SHARED:
        return each.differs(*ask(port, "GET", each.path))
    answer, body = ask(port, "GET", f"{each.path}?last-modified-time={quote(each.instant)}")
    return each.differs(answer, body, owner=answer.headers["Svc-Username"])


def miscounted(ports: Sequence[int], seen: Sequence[Seen]) -> list[str]:
    """Return a line for each total, search and history that cannot be after these writes."""
    new = [each for client in seen for each in client.acknowledged if each.document not in SHARED]
    unknown = sum(client.unknown for client in seen)
    lines = list(_forgotten(ports[0], seen))
    for port in ports:
        answer, body = ask(port, "POST", search_path(), search_body())
        total = _total(body) if answer.status == HTTPStatus.OK else -1
        if not len(new) <= total <= len(new) + unknown + len(SHARED):
            lines.append(f"a search finds {total}; {len(new)} were acknowledged, of {unknown} nothing is known")
        for each in new[port % _SAMPLE :: _SAMPLE]:
            answer, body = ask(port, "POST", search_path(), search_body(each.token))
            if found(body) != [each.document]:
                lines.append(f"a search for {each.token} is answered {answer.status}: {body[:200]!r}")
    return lines


def _forgotten(port: int, seen: Sequence[Seen]) -> Iterator[str]:
    """Compare the number of the revisions of each shared document with what was acknowledged."""
    for document in SHARED:
        acknowledged = sum(each.document == document for client in seen for each in client.acknowledged)
        answer, body = ask(port, "GET", f"/fr/service/persistence/history/{FORM}/{document}?page-size={_PAGE}")
        total = _total(body) if answer.status == HTTPStatus.OK else -1
        if total < acknowledged:
            yield f"{path_of(document)} has {total} revisions; {acknowledged} were acknowledged"


def _total(body: bytes) -> int:
    found_total = re.search(rb'(?:search-)?total="(\d+)"', body)
    return int(found_total[1]) if found_total else -1
