"""The form and the documents of spec search 8.1: as files to plant, as hits, and what an answer says of them."""

from collections.abc import Iterator
from dataclasses import dataclass
from xml.etree import ElementTree as ET

from persistence.model.addresses import Collection, Form
from persistence.model.permissions import User
from persistence.model.queries import Hit
from persistence.model.sidecar import DocumentFacts
from persistence.model.texts import Instant
from tests.index.oracle import Stored
from tests.published import Planter

ORDER = Form("acme", "order")
INDEXED = ("customer/name", "customer/topics", "customer/email", "customer/status", "items/lines/product")
"""In the order of the index (T0)."""

DEFINITION = """\
<xh:html xmlns:xh="http://www.w3.org/1999/xhtml" xmlns:xf="http://www.w3.org/2002/xforms"
         xmlns:fr="http://orbeon.org/oxf/xml/form-runner">
  <xh:head>
    <xh:title>Order</xh:title>
    <xf:model id="fr-form-model">
      <xf:instance id="fr-form-instance">
        <form>
          <customer><customer-grid><name/><email/><notes/><topics/><status/></customer-grid></customer>
          <items><lines><lines-iteration><product/></lines-iteration></lines></items>
        </form>
      </xf:instance>
      <xf:bind id="fr-form-binds" ref="instance('fr-form-instance')">
        <xf:bind id="customer-bind" name="customer" ref="customer">
          <xf:bind id="customer-grid-bind" name="customer-grid" ref="customer-grid">
            <xf:bind id="name-bind" name="name" ref="name"/>
            <xf:bind id="email-bind" name="email" ref="email"/>
            <xf:bind id="notes-bind" name="notes" ref="notes"/>
            <xf:bind id="topics-bind" name="topics" ref="topics"/>
            <xf:bind id="status-bind" name="status" ref="status"/>
          </xf:bind>
        </xf:bind>
        <xf:bind id="items-bind" name="items" ref="items">
          <xf:bind id="lines-bind" name="lines" ref="lines">
            <xf:bind id="lines-iteration-bind" name="lines-iteration" ref="lines-iteration">
              <xf:bind id="product-bind" name="product" ref="product"/>
            </xf:bind>
          </xf:bind>
        </xf:bind>
      </xf:bind>
      <xf:instance id="fr-form-metadata">
        <metadata>
          <application-name>acme</application-name>
          <form-name>order</form-name>
          <title xml:lang="en">Order</title>
          <title xml:lang="de">Bestellung</title>
          <description xml:lang="en">Test form</description>
          <created-with-version>2023.1</created-with-version>
          <migration version="4.8.0">[{"path":"items/lines","iteration-name":"lines-iteration"}]</migration>
          <migration version="2019.1.0">{"migrations":[{"containerPath":[{"value":"customer"}],
            "newGridElem":{"value":"customer-grid"},"afterElem":null,"content":[{"value":"name"},{"value":"email"},
            {"value":"notes"},{"value":"topics"},{"value":"status"}],"topLevel":true}]}</migration>
        </metadata>
      </xf:instance>
    </xf:model>
  </xh:head>
  <xh:body><fr:view><fr:body>
    <fr:section id="customer-section" bind="customer-bind">
      <fr:grid id="customer-grid-grid" bind="customer-grid-bind">
        <fr:c x="1" y="1" w="6"><xf:input id="name-control" bind="name-bind">
          <fr:index><fr:summary-show/></fr:index></xf:input></fr:c>
        <fr:c x="7" y="1" w="6"><xf:input id="email-control" bind="email-bind" class="fr-search"/></fr:c>
        <fr:c x="1" y="2" w="12"><xf:textarea id="notes-control" bind="notes-bind"/></fr:c>
        <fr:c x="1" y="3" w="6"><xf:select id="topics-control" bind="topics-bind"><fr:index/></xf:select></fr:c>
        <fr:c x="7" y="3" w="6"><xf:select1 id="status-control" bind="status-bind" class="fr-summary fr-search"/></fr:c>
      </fr:grid>
    </fr:section>
    <fr:section id="items-section" bind="items-bind">
      <fr:grid id="lines-grid" bind="lines-bind" repeat="content">
        <fr:c x="1" y="1" w="12"><xf:input id="product-control" bind="product-bind" class="fr-summary"/></fr:c>
      </fr:grid>
    </fr:section>
  </fr:body></fr:view></xh:body>
</xh:html>
"""

ANN, BOB, CID = User("ann", "sales"), User("bob", "support"), User("cid")
PUBLISHED = "2024-04-01T09:00:00.000Z"


def definition(metadata: str = "") -> bytes:
    """The form, with this among its metadata."""
    return DEFINITION.replace("<migration", f"{metadata}<migration", 1).encode()


@dataclass(frozen=True)
class Save:
    """One PUT of a document."""

    when: str
    by: User
    stage: str | None = None


@dataclass(frozen=True)
class Document:
    """A document or draft of the table: its saves, and the values of its controls."""

    name: str
    saves: tuple[Save, ...]
    values: tuple[str, str, str, str, str]
    products: tuple[str, ...]
    is_draft: bool = False

    @property
    def body(self) -> bytes:
        """Its data, in format 4.0.0."""
        names = ("name", "email", "notes", "topics", "status")
        customer = "".join(_element(name, text) for name, text in zip(names, self.values, strict=True))
        lines = "".join(f"<lines>{_element('product', product)}</lines>" for product in self.products)
        return f"<form><customer>{customer}</customer><items>{lines}</items></form>".encode()

    @property
    def stored(self) -> Stored:
        """What an index knows of it."""
        name, email, _, topics, status = self.values
        values = {
            path: (text,) if text else () for path, text in zip(INDEXED, (name, topics, email, status), strict=False)
        }
        values[INDEXED[-1]] = tuple(filter(None, self.products))
        first, last = self.saves[0], self.saves[-1]
        hit = Hit(
            document=self.name,
            is_draft=self.is_draft,
            facts=DocumentFacts(
                version=1,
                created=Instant(first.when),
                modified=Instant(last.when),
                creator=first.by.name,
                group=first.by.group,
                modifier=last.by.name,
                stage=last.stage,
            ),
            values={path: tuple(filter(None, texts)) for path, texts in values.items() if any(texts)},
        )
        return Stored(hit, tuple(filter(None, (*self.values, *self.products))))


def _element(name: str, text: str) -> str:
    element = ET.Element(name)
    element.text = text or None
    return ET.tostring(element, encoding="unicode")


def _save(when: str, by: User, stage: str | None = None) -> Save:
    return Save(f"2024-{when}:00.000Z", by, stage)


DOCUMENTS = (
    Document(
        "d-1",
        (_save("05-01T10:00", ANN),),
        ("Ada", "ada@example.org", "call back", "red green", "open"),
        ("Pump A", "Valve_9"),
    ),
    Document(
        "d-2",
        (_save("05-02T10:00", BOB), _save("05-04T09:30", CID, "review")),
        ("Bob", "bob@Example.org", "100% sure", "green", "closed"),
        ("valve b",),
    ),
    Document("d-3", (_save("05-03T10:00", ANN, "approved"),), ("Zoe", "", "", "reddish blue", "open"), ("",)),
    Document("d-3", (_save("05-05T08:00", ANN),), ("Zoe B", "", "", "blue", "open"), ("",), is_draft=True),
    Document("d-4", (_save("05-06T08:00", BOB),), ("New", "", "", "", "open"), ("",), is_draft=True),
)


def named(name: str | bytes, *products: str) -> bytes:
    """A document with the name of a customer, which may be no XML, and with products."""
    lines = b"".join(b"<lines><product>%s</product></lines>" % each.encode() for each in products)
    customer = b"<customer><name>%s</name></customer>" % (name.encode() if isinstance(name, str) else name)
    return b"<form>%s<items>%s</items></form>" % (customer, lines) if products else b"<form>%s</form>" % customer


def plant(planter: Planter) -> None:
    """Lay everything down, the form as version 1."""
    planter.define(str(ORDER), 1, definition(), PUBLISHED)
    for document in DOCUMENTS:
        collection = Collection.DRAFT if document.is_draft else Collection.DATA
        for save in document.saves:
            planter.save(
                str(ORDER), document.name, document.body, save.when, save.by, save.stage, collection=collection
            )


def tree(body: bytes) -> ET.Element:
    """An answer as a tree."""
    return ET.fromstring(body)  # noqa: S314 - the service's own answer


def canonical(xml: str | bytes) -> str:
    """XML as it is compared: without regard to space between elements."""
    return ET.canonicalize(xml.decode() if isinstance(xml, bytes) else xml, strip_text=True)


def found(body: bytes) -> list[str]:
    """The documents in an answer, drafts with a ring, after the total where that is another number."""
    root = tree(body)
    names = [each.attrib["name"] + ("°" if each.attrib["draft"] == "true" else "") for each in root]
    total = root.attrib["search-total"]
    return names if int(total) == len(names) else [total, *names]


def details(body: bytes) -> Iterator[list[tuple[str, str]]]:
    """Of each document the paths and texts of its details."""
    for document in tree(body):
        yield [(detail.attrib["path"], detail.text or "") for detail in document.iter("detail")]


def body(text: str) -> bytes:
    """Data with a text in several controls."""
    values = f"<name>{text}</name><email>{text}@example.org</email><notes>of {text}</notes>"
    return f"<form><customer>{values}</customer></form>".encode()


def plant_old(planter: Planter, documents: int) -> None:
    """The form, and documents of one text each."""
    planter.define(str(ORDER), 1, definition(), PUBLISHED)
    for number in range(documents):
        planter.save(str(ORDER), f"old-{number}", body(f"old {number}"), f"2024-05-01T10:00:00.{number % 1000:03}Z")
