"""How long the pages for administrators take, with many documents of one form.

``python bench/pages.py [DOCUMENTS]`` lays down documents of a form with eight indexed controls (100,000 if nothing is
said), has them indexed, and prints a table. Pages are asked of the application in this process, without a socket.
*Processor* is the time of one processor that a page takes, which other work on the machine hardly changes.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from urllib.parse import urlencode

from orders import APP, FORM, RARE_CITY, RARE_NAME, RARE_TEXT, Orders, plant
from search import reindexed
from werkzeug.test import Client

from persistence.app import create_app
from persistence.keys import Keys
from persistence.settings import Settings

_DOCUMENTS, _SIZE = 100_000, 700
_CALLS = 41
_VERSION = f"/admin/forms/{APP}/{FORM}/1"
_ADMINISTRATOR = "bench"
_PEER = {"REMOTE_ADDR": "127.0.0.1"}


def pages(orders: Orders) -> dict[str, str]:
    """Return the paths of pages by what they show."""

    def table(**parameters: object) -> str:
        own = {name.replace("order_", "c.order/").removeprefix("saved_"): each for name, each in parameters.items()}
        return f"{_VERSION}?{urlencode(own)}"

    return {
        "overview": "/admin/",
        "forms": "/admin/forms",
        "a version, newest first": _VERSION,
        "the same, page 1,000": table(page=1000),
        "the same, sorted by a control": table(sort="order/name"),
        "a control contains a text, a third of all": table(order_status="open"),
        "the same, page 20": table(order_status="open", page=20),
        "the same, page 200": table(order_status="open", page=200),
        "the same, sorted by another control": table(order_status="open", sort="order/name"),
        "two controls contain texts": table(order_status="open", order_topics="red"),
        "a control contains a text, 100 documents": table(order_city=RARE_CITY),
        "a control contains two letters": table(order_name="qu"),
        "a control contains a text, none": table(order_name="qqq"),
        "stage, exactly": table(stage="review"),
        "saved within a month": table(saved_from="2022-03-01", saved_to="2022-03-31"),
        "text that all documents have": table(q="example.org"),
        "text that many documents have": table(q=orders.order(1).texts[0].split()[0]),
        "text that 100 documents have": table(q=RARE_TEXT),
        "text that no document has": table(q=f"{RARE_NAME}{RARE_TEXT}"),
        "the definition": f"{_VERSION}/definition",
        "a document": f"/admin/forms/{APP}/{FORM}/data/{orders.order(0).id}",
    }


def main() -> None:
    """Measure and print."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else _DOCUMENTS
    with tempfile.TemporaryDirectory(prefix="persistence-bench-") as directory:
        orders = Orders(count, _SIZE)
        plant(Path(directory, "data"), orders)
        reindexed(Path(directory, "data"))
        print(f"{count} documents\n\n| page | found | p50, ms | p95, ms | processor, ms |\n|---|--:|--:|--:|--:|")
        for row in measured(directory, orders):
            print(f"| {' | '.join(row)} |", flush=True)


def measured(directory: str, orders: Orders) -> Iterator[tuple[str, ...]]:
    """Yield a row for each page: the total on it, the median and the 95th percentile, and the processor time."""
    file, data = f"{directory}/keys.json", f"{directory}/data"
    secret = Keys(file, tree=data).add(_ADMINISTRATOR)
    settings = Settings(data=data, keys=file, administrators=(_ADMINISTRATOR,), metrics=False, log_level="error")
    with create_app(settings) as app:
        client = Client(app)
        sent = {"name": _ADMINISTRATOR, "secret": secret}
        if client.post("/admin/login", data=sent, environ_base=_PEER).status_code != HTTPStatus.SEE_OTHER:
            raise SystemExit("the login was refused")
        for title, path in pages(orders).items():
            _asked(client, path)  # what is cached is cached
            taken = [_asked(client, path) for _ in range(_CALLS)]
            clock = [each[0] * 1000 for each in taken]
            columns = (
                statistics.median(clock),
                statistics.quantiles(clock, n=20)[-1],
                min(each[1] for each in taken) * 1000,
            )
            yield title, taken[0][2], *(f"{each:.1f}" for each in columns)


def _asked(client: Client, path: str) -> tuple[float, float, str]:
    """Return the seconds of a page by the clock and of the processor, and the total above its table."""
    began, worked = time.perf_counter(), time.thread_time()
    answer = client.get(path, environ_base=_PEER)
    taken = time.perf_counter() - began, time.thread_time() - worked
    if answer.status_code != HTTPStatus.OK:
        raise SystemExit(f"GET {path} answered {answer.status_code}")
    return *taken, answer.text.partition('<h2 id="found">')[2].partition(" found")[0]


if __name__ == "__main__":
    main()
