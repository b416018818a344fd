"""The vectors T2 to T10 and T13 of spec search 8.2 as tables: a request, and the documents that it finds in order."""

from typing import NamedTuple
from xml.sax.saxutils import escape

PRODUCT, NAME, STATUS, TOPICS, NOTES = (
    "items/lines/product",
    "customer/name",
    "customer/status",
    "customer/topics",
    "customer/notes",
)


class Vector(NamedTuple):
    """Its number, the children of the request, and what is found: a total stands before names only if it differs."""

    number: str
    children: str
    found: list[str]

    @property
    def body(self) -> str:
        """The request."""
        return f"<search>{self.children}</search>"


def control(path: str, text: str = "", **attributes: str) -> str:
    """A query about a control."""
    return f'<query path="{path}"{_said(attributes)}>{escape(text)}</query>'


def field(metadata: str, text: str = "", **attributes: str) -> str:
    """A query about a field."""
    return f'<query metadata="{metadata}"{_said(attributes)}>{escape(text)}</query>'


def _said(attributes: dict[str, str]) -> str:
    return "".join(f' {name}="{value}"' for name, value in attributes.items())


def _page(size: str, number: str = "") -> str:
    return f"<page-size>{size}</page-size><page-number>{number}</page-number>"


_ALL = ["d-2", "d-3", "d-1"]

T2 = """<documents search-total="3">
  <document created="2024-05-02T10:00:00.000Z" last-modified="2024-05-04T09:30:00.000Z" created-by="bob"
            created-by-groupname="support" last-modified-by="cid" workflow-stage="review" name="d-2" draft="false"
            operations="*">
    <details><detail path="items/lines/product">valve b</detail><detail path="customer/name">Bob</detail></details>
  </document>
  <document created="2024-05-03T10:00:00.000Z" last-modified="2024-05-03T10:00:00.000Z" created-by="ann"
            created-by-groupname="sales" last-modified-by="ann" workflow-stage="approved" name="d-3" draft="false"
            operations="*">
    <details><detail path="items/lines/product"/><detail path="customer/name">Zoe</detail></details>
  </document>
  <document created="2024-05-01T10:00:00.000Z" last-modified="2024-05-01T10:00:00.000Z" created-by="ann"
            created-by-groupname="sales" last-modified-by="ann" name="d-1" draft="false" operations="*">
    <details><detail path="items/lines/product">Pump A, Valve_9</detail><detail path="customer/name">Ada</detail>
    </details>
  </document>
</documents>"""
T2_QUERY = f"<search>{control(PRODUCT)}{control('customer[1]/name[1]')}</search>"

VECTORS = (
    Vector("T3a", control(PRODUCT, "valve_", match="substring"), ["d-1"]),
    Vector("T3b", control(PRODUCT, "VALVE", match="substring"), ["d-2", "d-1"]),
    Vector("T3c", control(STATUS, "open", match="exact"), ["d-3", "d-1"]),
    Vector("T3d", control(STATUS, "Open", match="exact"), []),
    Vector("T3e", control(PRODUCT, "Pump A", match="exact"), ["d-1"]),
    Vector("T3f", control(PRODUCT, "Pump A, Valve_9", match="exact"), []),
    Vector("T3g", control(TOPICS, "red", match="token"), ["d-1"]),
    Vector("T3h", control(TOPICS, "GREEN red", match="token"), ["d-1"]),
    Vector("T3i", control(TOPICS, "green", control="select"), ["d-2", "d-1"]),
    Vector("T3j", control(NAME, "O", control="input"), ["d-2", "d-3"]),
    Vector("T3k", control(NAME, "bo"), []),
    Vector("T3l", control(NOTES, "call", match="substring"), []),
    Vector("T3m", control(NOTES), _ALL),
    Vector("T3n", control(PRODUCT, "pump", match="substring") + control(PRODUCT, "valve", match="substring"), ["d-1"]),
    Vector("T3o", control(NAME, match="gte"), _ALL),
    Vector("T4a", "<query>100%</query>", ["d-2"]),
    Vector("T4b", "<query>CALL</query>", ["d-1"]),
    Vector("T4c", "<query/><query>CALL</query>", _ALL),
    Vector("T4d", control(STATUS, "open", match="exact") + "<query>CALL</query>", ["d-1"]),
    Vector("T5a", field("created", "2024-05-02T10:00:00.000Z", match="gte"), ["d-2", "d-3"]),
    Vector("T5b", field("created", "2024-05-02T10:00:00.000Z", match="lt"), ["d-1"]),
    Vector("T5c", field("created", "2024-05-02Z", match="lt"), ["d-1"]),
    Vector(
        "T5d",
        field("last-modified", "2024-05-03T10:00:00Z", match="gte")
        + field("last-modified", "2024-05-04T00:00:00Z", match="lt"),
        ["d-3"],
    ),
    Vector("T5e", field("last-modified-by", "cid", match="exact"), ["d-2"]),
    Vector("T5f", field("workflow-stage", "approved", match="exact"), ["d-3"]),
    Vector("T5g", field("created-by", "ann", match="exact") + control(STATUS, "open", match="exact"), ["d-3", "d-1"]),
    Vector("T5h", field("created", "2024-05-02T10:00:00.0001Z", match="gte"), ["d-3"]),
    Vector("T5i", field("created", "2024-05-02T10:00:00.0001Z", match="lt"), ["d-2", "d-1"]),
    Vector("T5j", field("workflow-stage", "Approved", match="exact"), []),
    Vector("T6a", control(NAME, sort="desc"), ["d-3", "d-2", "d-1"]),
    Vector("T6b", control(STATUS, sort="asc"), ["d-2", "d-3", "d-1"]),
    Vector("T6c", control("customer/email", sort="ASC "), ["d-3", "d-1", "d-2"]),
    Vector("T6d", field("created-by", sort="asc"), ["d-3", "d-1", "d-2"]),
    Vector("T6e", field("created", sort="asc"), ["d-1", "d-2", "d-3"]),
    Vector("T6f", control(PRODUCT, sort="asc"), ["d-3", "d-1", "d-2"]),
    Vector("T6g", control(PRODUCT, sort="desc"), ["d-1", "d-2", "d-3"]),
    Vector("T6h", field("workflow-stage", sort="desc"), ["d-2", "d-3", "d-1"]),
    Vector("T7a", _page("2", "1"), ["3", "d-2", "d-3"]),
    Vector("T7b", _page("2", "2"), ["3", "d-1"]),
    Vector("T7c", _page("2", "3"), ["3"]),
    Vector("T7d", "<page-size/>", _ALL),
    Vector("T7e", _page("9" * 18, "9" * 18), ["3"]),
    Vector("T7f", _page("9" * 18), _ALL),
    Vector("T9g", "<drafts>only</drafts>", _ALL),
    Vector("T9h", "<drafts>anything</drafts>", _ALL),
    Vector("anyone's", '<operations any-of="create"/>', _ALL),
)
"""For anonymous callers, who see no drafts. Those that the specification does not have carry on its letters."""

DRAFTS = (
    Vector("T9a", "", ["d-4°", "d-3°", "d-2", "d-3", "d-1"]),
    Vector("T9b", "<drafts>exclude</drafts>", _ALL),
    Vector("T9c", "<drafts>only</drafts>", ["d-4°", "d-3°"]),
    Vector("T9d", '<drafts for-document-id="d-3">only</drafts>', ["d-3°"]),
    Vector("T9e", '<drafts for-document-id="d-1">only</drafts>', []),
    Vector("T9f", '<drafts for-never-saved-document="true">only</drafts>', ["d-4°"]),
    Vector("T9i", '<drafts for-never-saved-document="" for-document-id="d-3">only</drafts>', ["d-3°"]),
    Vector("T9j", '<drafts for-document-id="d-1">include</drafts>', ["d-4°", "d-3°", "d-2", "d-3", "d-1"]),
)
"""For bob."""

ERRORS = (
    "<page-size>0</page-size>",
    "<page-number>x</page-number>",
    control(NAME, "x", match="like"),
    field("invalid"),
    field("created-by", "string", match="gte"),
    field("created", "2024-12-31T01:30:00.000Z", match="exact"),
    field("created-by", "x"),
    field("created-by", "x", sort="desc"),
    field("created-by", sort="sort"),
    control(NAME, sort="asc") + field("created", sort="asc"),
    '<operations any-of="read fly"/>',
)
"""T8: what is 400."""

NO_ERRORS = (
    field("created-by", "x", match="exact"),
    field("created-by", sort="asc"),
    control(NAME, sort="asc") + control(STATUS, "open") + field("created-by", "ann", match="exact"),
)
"""T8: what is 200."""

T10_CLOSED = f'<search return-all-indexed-fields="true">{control(STATUS, "closed", match="exact")}</search>'
T10_NOT_INDEXED = f'<search return-all-indexed-fields="true">{control(NOTES, "call", match="substring")}</search>'
T10_DETAILS = [
    (NAME, "Bob"),
    (TOPICS, "green"),
    ("customer/email", "bob@Example.org"),
    (STATUS, "closed"),
    (PRODUCT, "valve b"),
]

T13_QUERY = f"<distinct-values>{field('workflow-stage')}{control(NAME)}{control(PRODUCT)}</distinct-values>"
T13 = """<distinct-values>
  <query path="customer/name"><value>Ada</value><value>Bob</value><value>New</value><value>Zoe</value>
    <value>Zoe B</value></query>
  <query path="items/lines/product"><value>Pump A</value><value>valve b</value><value>Valve_9</value></query>
  <query metadata="workflow-stage"><value/><value>approved</value><value>review</value></query>
</distinct-values>"""
"""For a known user; the values of products are in the order of this service, which the specification leaves free."""
