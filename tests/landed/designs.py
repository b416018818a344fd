"""The form definitions and documents of the recorded history, written as a form designer and its forms write them."""

from __future__ import annotations

from xml.sax.saxutils import escape

OWNERS = (
    '<permissions><permission operations="create"/>'
    '<permission operations="read update"><owner/></permission>'
    '<permission operations="read list"><user-role any-of="clerk"/></permission>'
    '<permission operations="read update delete list"><group-member/></permission>'
    '<permission operations="create read update delete list"><user-role any-of="boss"/></permission></permissions>'
)
FR = 'xmlns:fr="http://orbeon.org/oxf/xml/form-runner"'


def definition(form: str, *, controls: str = "", body: str = "", data: str = "<form/>", metadata: str = "") -> bytes:
    """Return a definition; ``controls`` are its binds, ``body`` its sections."""
    app, name = form.split("/")
    return f"""<?xml version="1.0" encoding="UTF-8"?>
<xh:html xmlns:xh="http://www.w3.org/1999/xhtml" xmlns:xf="http://www.w3.org/2002/xforms"
         xmlns:xxf="http://orbeon.org/oxf/xml/xforms" {FR}>
 <xh:head><xh:title>{escape(name)}</xh:title>
  <xf:model id="fr-form-model">
   <xf:instance id="fr-form-instance">{data}</xf:instance>
   <xf:bind id="fr-form-binds" ref="instance('fr-form-instance')">{controls}</xf:bind>
   <xf:instance id="fr-form-metadata"><metadata><application-name>{escape(app)}</application-name>
    <form-name>{escape(name)}</form-name>{metadata}</metadata></xf:instance>
  </xf:model>
 </xh:head>
 <xh:body><fr:view><fr:body>{body}</fr:body></fr:view></xh:body>
</xh:html>
""".encode()


def bind(name: str, inside: str = "") -> str:
    """Return a bind."""
    return f'<xf:bind id="{name}-bind" ref="{name}" name="{name}">{inside}</xf:bind>'


def cell(name: str, kind: str = "input", marks: str = "", classes: str = "") -> str:
    """Return a cell with one control; ``marks`` are elements such as ``<fr:index/>``."""
    said = f' class="{classes}"' if classes else ""
    return (
        f'<fr:c x="1" y="1" w="12"><xf:{kind} id="{name}-control" bind="{name}-bind"{said}>{marks}</xf:{kind}></fr:c>'
    )


def order(form: str, *, metadata: str = "", more: str = "") -> bytes:
    """Return the definition of orders: a section with a grid, a repeated grid, indexed controls, three formats.

    ``more`` is one more indexed control of the customer.
    """
    names = ("name", "email", "notes", "topics", "status", *((more,) if more else ()))
    top = (
        cell("name", marks="<fr:index><fr:summary-show/><fr:summary-search/></fr:index>")
        + cell("email", classes="fr-search")
        + cell("notes", "textarea")
        + cell("topics", "select", "<fr:index/>")
        + cell("status", "select1", classes="fr-summary fr-search")
        + (cell(more, marks="<fr:index/>") if more else "")
    )
    holders = ",".join(f'{{"value":"{name}"}}' for name in names)
    return definition(
        form,
        data="<form><customer><customer-grid>"
        + "".join(f"<{name}/>" for name in names)
        + "</customer-grid></customer><items><lines><lines-iteration><product/><scan/></lines-iteration></lines>"
        "</items></form>",
        controls=bind("customer", bind("customer-grid", "".join(map(bind, names))))
        + bind("items", bind("lines", bind("lines-iteration", bind("product") + bind("scan")))),
        body='<fr:section id="customer-section" bind="customer-bind">'
        f'<fr:grid id="customer-grid-grid" bind="customer-grid-bind">{top}</fr:grid></fr:section>'
        '<fr:section id="items-section" bind="items-bind">'
        '<fr:grid id="lines-grid" bind="lines-bind" repeat="content">'
        f"{cell('product', classes='fr-summary')}{cell('scan', 'upload')}</fr:grid></fr:section>",
        metadata=f'<title xml:lang="en">Order</title><title xml:lang="de">Bestellung</title>'
        f'<description xml:lang="en">An order &amp; its lines</description>'
        f"<created-with-version>2023.1.4.202409210000 PE</created-with-version>{metadata}"
        '<migration version="4.8.0">[{"path":"items/lines","iteration-name":"lines-iteration"}]</migration>'
        '<migration version="2019.1.0">{"migrations":[{"containerPath":[{"value":"customer"}],'
        '"newGridElem":{"value":"customer-grid"},"afterElem":null,'
        f'"content":[{holders}],"topLevel":true}}]}}</migration>',
    )


def order_data(name: str, email: str, notes: str, topics: str, status: str, *products: str, scan: str = "") -> bytes:
    """Return the data of an order, in the format of data at rest."""
    lines = "".join(f"<lines><product>{escape(each)}</product><scan/></lines>" for each in products)
    if scan:
        lines += f'<lines><product/><scan filename="scan.png" mediatype="image/png" size="9">{scan}</scan></lines>'
    values = {"name": name, "email": email, "notes": notes, "topics": topics, "status": status}
    customer = "".join(f"<{each}>{escape(text)}</{each}>" for each, text in values.items())
    return f"<form><customer>{customer}</customer><items>{lines}</items></form>".encode()


def secret(form: str, metadata: str = "") -> bytes:
    """Return a definition with encrypted controls: values, one repeated, an attachment and several attachments."""
    marked = "<fr:encrypt/>"
    return definition(
        form,
        controls=bind(
            "person",
            bind("top", "".join(map(bind, ("ssn", "name", "scan", "photo", "files"))))
            + bind("kids", bind("kids-iteration", bind("note"))),
        ),
        body='<fr:section id="person-section" bind="person-bind"><fr:grid id="top-grid" bind="top-bind">'
        + cell("ssn", marks=marked)
        + cell("name", marks="<fr:index/>")
        + cell("scan", "upload", marked)
        + cell("photo", "upload")
        + cell("files", "upload", classes="fr-encrypt")
        + '</fr:grid><fr:grid id="kids-grid" bind="kids-bind" repeat="content">'
        + cell("note", "textarea", marked)
        + "</fr:grid></fr:section>",
        metadata=metadata,
    )


def secret_data(
    ssn: str, name: str, *notes: str, scan: str = "", photo: str = "", files: tuple[str, ...] = ()
) -> bytes:
    """Return data with values to encrypt."""
    several = "".join(f"<_ filename='f.txt'>{file}</_>" for file in files)
    kids = "".join(f"<kids><note>{note}</note></kids>" for note in notes)
    return (
        f"<form><person><ssn>{ssn}</ssn><name>{name}</name><scan filename='s.bin'>{scan}</scan>"
        f"<photo>{photo}</photo><files>{several}</files>{kids}</person></form>"
    ).encode()
