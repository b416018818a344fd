"""Orders for benchmarks of the index: a form with eight indexed controls, and any number of documents of it.

A document is the same whenever it is asked for. Words are made up of syllables as natural words are, and some are much
more frequent than others.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from persistence.model.sidecar import SCHEMA, Sidecar, digest_text, fresh_id, stamp
from persistence.model.texts import Instant, from_datetime
from persistence.storage import stored_revision
from persistence.storage.root import init
from persistence.storage.store import Store

APP, FORM = "acme", "order"
FIELDS = ("name", "email", "status", "due", "city", "amount", "topics", "remark")
PATHS = tuple(f"order/{name}" for name in FIELDS)
RARE = 100
"""Documents in which each of the next words is, however many documents there are."""

RARE_CITY, RARE_NAME, RARE_TEXT = "Quixville", "Quixote", "zyzzyva"
OF_EACH_USER = 50

_STATES, _TOPICS = ("open", "closed", "pending"), ("red", "green", "blue", "large", "small")
_PUBLISHED = Instant("2019-12-31T00:00:00.000Z")
_BEGAN, _SECONDS = datetime(2020, 1, 1, tzinfo=UTC), 5 * 365 * 86400
_CONSONANTS, _VOWELS = "bcdfghjklmnprstvwz", "aeiou"
_CLUSTERS = ("st", "tr", "ch", "sh", "th", "pl", "br", "sch", "gr", "qu", "cl")
_DIPHTHONGS = ("ea", "ei", "ou", "ie", "y", "ai", "oo", "au")
_ENDINGS = (*"nrstlmdkg", "ng", "nd", "rt", "ck", "ll", "x", "mp")
_MOST_WORDS = 20_000


@dataclass(frozen=True)
class Order:
    """One document: the values of its controls in the order of ``FIELDS``, and texts that belong to none."""

    id: str
    creator: str
    stage: str | None
    saved: Instant
    values: tuple[str, ...]
    texts: tuple[str, ...]

    def xml(self) -> bytes:
        """The form data."""
        fields = "".join(f"<{name}>{value}</{name}>" for name, value in zip(FIELDS, self.values, strict=True))
        lines = "".join(f"<line-description>{text}</line-description>" for text in self.texts)
        return f"<form><order>{fields}</order><lines>{lines}</lines></form>".encode()


class Orders:
    """``count`` documents, each of about ``size`` bytes of XML, of which a third is text."""

    def __init__(self, count: int, size: int) -> None:
        self.count = count
        self._texts = max(1, (size - 400) // 63)
        chance = random.Random(1)
        self._words = [_word(chance) for _ in range(_MOST_WORDS)]
        self._frequencies = list(itertools.accumulate(1 / (rank + 2) for rank in range(_MOST_WORDS)))

    def __iter__(self) -> Iterator[Order]:
        return map(self.order, range(self.count))

    def order(self, number: int) -> Order:
        """One of them."""
        chance = random.Random(number)
        is_rare = number % (self.count // RARE) == 0
        words = chance.choices(self._words, cum_weights=self._frequencies, k=9 + 3 * self._texts)
        first, last = chance.choice(self._words).title(), chance.choice(self._words).title()
        saved = _BEGAN + timedelta(seconds=chance.randrange(_SECONDS), milliseconds=chance.randrange(1000))
        values = (
            f"{RARE_NAME if is_rare else first} {last}",
            f"{first.lower()}{number}@example.org",
            chance.choice(_STATES),
            f"20{chance.randrange(20, 30)}-{chance.randrange(1, 13):02}-{chance.randrange(1, 29):02}",
            RARE_CITY if is_rare else words[0].title(),
            str(chance.randrange(1_000_000)),
            " ".join(chance.sample(_TOPICS, 2)),
            " ".join(words[1:9]),
        )
        texts = [" ".join(words[at : at + 3]) for at in range(9, 9 + 3 * self._texts, 3)]
        if is_rare:
            texts[-1] += f" {RARE_TEXT}"
        return Order(
            id=f"{number:08x}-{chance.randrange(1 << 48):012x}",
            creator=f"user-{number % (self.count // OF_EACH_USER)}",
            stage=chance.choice((None, "review", "done")),
            saved=from_datetime(saved),
            values=values,
            texts=tuple(texts),
        )


def plant(root: Path, orders: Orders, forms: Sequence[str] = (FORM,)) -> None:
    """Lay down forms, and documents of each in turn, as the service leaves them, without its fsyncs."""
    init(str(root))
    Store(str(root), lock_timeout=1).close()
    for form in forms:
        lay(root, form, *published(form))
    for at, content in enumerate(documents(orders)):
        lay(root, forms[at % len(forms)], *content)


def published(form: str = FORM) -> tuple[str, bytes, Sidecar]:
    """Return the path of a form's definition below the form, its bytes, and its sidecar."""
    content = definition(form=form)
    return "form/1/form.xhtml", content, Sidecar(**_common(content, _PUBLISHED))


def documents(orders: Orders) -> Iterator[tuple[str, bytes, Sidecar]]:
    """Yield the path of each document below its form, its bytes, and its sidecar."""
    for order in orders:
        body = order.xml()
        sidecar = Sidecar(
            **_common(body, order.saved),
            creator=order.creator,
            modifier=order.creator,
            group="sales",
            stage=order.stage,
            valid=True,
        )
        yield f"data/{order.id}/data.xml", body, sidecar


def definition(permissions: str = "", form: str = FORM) -> bytes:
    """The form."""
    types = {"due": "xf:date", "amount": "xf:integer"}
    binds = "".join(
        f'<xf:bind id="{name}-bind" name="{name}" ref="{name}" type="{types.get(name, "xf:string")}"/>'
        for name in FIELDS
    )
    inputs = "".join(
        f'<fr:c><xf:input id="{name}-control" bind="{name}-bind"><fr:index/></xf:input></fr:c>' for name in FIELDS
    )
    return f"""<xh:html xmlns:xh="http://www.w3.org/1999/xhtml" xmlns:xf="http://www.w3.org/2002/xforms"
 xmlns:fr="http://orbeon.org/oxf/xml/form-runner"><xh:head><xf:model id="fr-form-model">
<xf:instance id="fr-form-instance"><form><order/><lines/></form></xf:instance>
<xf:bind id="fr-form-binds" ref="instance('fr-form-instance')"><xf:bind id="order-bind" name="order" ref="order">
{binds}</xf:bind></xf:bind><xf:instance id="fr-form-metadata"><metadata><application-name>{APP}</application-name>
<form-name>{form}</form-name>{permissions}</metadata></xf:instance></xf:model></xh:head><xh:body><fr:view><fr:body>
<fr:section id="order-section" bind="order-bind"><fr:grid id="g-grid">{inputs}</fr:grid></fr:section>
</fr:body></fr:view></xh:body></xh:html>""".encode()


def _common(body: bytes, at: Instant) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "id": fresh_id(),
        "version": 1,
        "modified": at,
        "created": at,
        "size": len(body),
        "digest": digest_text(hashlib.sha256(body).hexdigest()),
    }


def lay(root: Path, form: str, path: str, body: bytes, sidecar: Sidecar) -> None:
    """Lay down one content of a form at a path below it."""
    file = root / APP / form / path
    file.parent.mkdir(parents=True, mode=0o750)
    file.with_name(f"{file.name}.json").write_bytes(stored_revision.encode(sidecar, f"{APP}/{form}/{path}"))
    file.write_bytes(body)
    os.utime(file, ns=(stamp(sidecar),) * 2)


def _word(chance: random.Random) -> str:
    word = ""
    for _ in range(chance.randint(1, 4)):
        word += chance.choice(_CONSONANTS) if chance.random() < 0.85 else chance.choice(_CLUSTERS)
        word += chance.choice(_VOWELS) if chance.random() < 0.85 else chance.choice(_DIPHTHONGS)
        word += chance.choice(_ENDINGS) if chance.random() < 0.5 else ""
    return word
