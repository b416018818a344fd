"""The documents of the sample application of ``persistence demo``: always the same, made of a number and some lists."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from uuid import NAMESPACE_URL, uuid5

from persistence.model.addresses import Collection, Form

CLAIMS = Form("demo", "expense-claim")
COUNT = 200

_PEOPLE = (("Lea Example", "lea"), ("Bob Sample", "bob"), ("Zoë Muster", "zoe"), ("Mia Beispiel", "mia"))
_DEPARTMENTS = ("Research", "Sales", "Buchhaltung", "Workshop", "Library")
_CITIES = ("Lisbon", "Paris", "Zürich", "Oslo", "Kraków", "Dublin", "Athens")
_PURPOSES = ("Visit to a customer", "Conference", "Messe", "Training", "Installation on site")
_ITEMS = (("Train", 4250), ("Hotel", 11900), ("Meal", 1840), ("Taxi", 2210), ("Tram", 320))
_STAGES = ("submitted", "approved", "paid")
_WITH_RECEIPT, _WITH_REMARKS = 4, 5


@dataclass(frozen=True, slots=True)
class SampleClaim:
    """One expense claim, by its number."""

    number: int

    @property
    def document(self) -> str:
        """The id of the document: a UUID, always the same."""
        return str(uuid5(NAMESPACE_URL, f"persistence-demo/{self.number}"))

    @property
    def owner(self) -> str:
        return _PEOPLE[self.number % len(_PEOPLE)][1]

    @property
    def stages(self) -> tuple[str, ...]:
        """The workflow stages of the saves, oldest first."""
        return _STAGES[: 1 + self.number % len(_STAGES)]

    @property
    def receipt_name(self) -> str:
        """The file name of the attachment; empty without one."""
        if self.number % _WITH_RECEIPT:
            return ""
        return f"{uuid5(NAMESPACE_URL, f'persistence-demo/{self.number}/receipt').hex}.bin"

    @property
    def receipt(self) -> bytes:
        """The attachment: a PDF of one line."""
        total = sum(cents for _, cents in self._items(len(self.stages) - 1))
        text = f"Receipt {self.number}: {_euros(total)} EUR"
        drawn = f"BT /F1 18 Tf 40 100 Td ({text}) Tj ET"
        objects = (
            "<</Type/Catalog/Pages 2 0 R>>",
            "<</Type/Pages/Kids[3 0 R]/Count 1>>",
            "<</Type/Page/Parent 2 0 R/MediaBox[0 0 360 200]/Contents 4 0 R/Resources<</Font<</F1 5 0 R>>>>>>",
            f"<</Length {len(drawn)}>>stream\n{drawn}\nendstream",
            "<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
        )
        pdf, places = "%PDF-1.4\n", []
        for number, each in enumerate(objects, 1):
            places.append(len(pdf))
            pdf += f"{number} 0 obj{each}endobj\n"
        entries = "".join(f"{place:010} 00000 n \n" for place in places)
        end = f"trailer<</Size {len(objects) + 1}/Root 1 0 R>>\nstartxref\n{len(pdf)}\n%%EOF\n"
        return f"{pdf}xref\n0 {len(objects) + 1}\n0000000000 65535 f \n{entries}{end}".encode()

    def xml(self, save: int, collection: Collection = Collection.DATA) -> bytes:
        """Return the form data of a save, counted from 0; each adds an item to the claim."""
        name = _PEOPLE[self.number % len(_PEOPLE)][0]
        department, city = _of(_DEPARTMENTS, self.number // 3), _of(_CITIES, self.number)
        total = _euros(sum(cents for _, cents in self._items(save)))
        items = "".join(
            f"<items><day>2026-{1 + self.number % 12:02}-{1 + (self.number + at) % 28:02}</day><what>{what}</what>"
            f"<amount>{_euros(cents)}</amount></items>"
            for at, (what, cents) in enumerate(self._items(save))
        )
        remarks = "Please keep this between us." if self.number % _WITH_REMARKS == 0 else ""
        return (
            f"<form><applicant><name>{name}</name><department>{department}</department>"
            f"<account>XX00 0000 0000 {self.number:04}</account></applicant>"
            f"<trip><city>{city}</city><purpose>{_of(_PURPOSES, self.number // 2)}</purpose></trip>"
            f"<expenses>{items}</expenses><closing><total>{total}</total>"
            f"{self._holder(collection)}<remarks>{remarks}</remarks></closing></form>"
        ).encode()

    def _items(self, save: int) -> list[tuple[str, int]]:
        return [_ITEMS[(self.number + at) % len(_ITEMS)] for at in range(1 + save)]

    def _holder(self, collection: Collection) -> str:
        if not self.receipt_name:
            return "<receipt/>"
        path = f"/fr/service/persistence/crud/{CLAIMS}/{collection.value}/{self.document}/{self.receipt_name}"
        about = f'filename="receipt-{self.number}.pdf" mediatype="application/pdf" size="{len(self.receipt)}"'
        return f"<receipt {about}>{path}</receipt>"


def all_claims() -> Iterator[SampleClaim]:
    return (SampleClaim(number) for number in range(1, COUNT + 1))


def _of(values: tuple[str, ...], number: int) -> str:
    return values[number % len(values)]


def _euros(cents: int) -> str:
    return f"{cents // 100}.{cents % 100:02}"
