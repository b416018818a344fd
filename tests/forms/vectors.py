"""Definitions slot by slot, and as infosets; the vectors of their migration (spec forms 1.12) with what comes out."""

from dataclasses import dataclass, replace
from functools import reduce

from lxml import etree

from persistence.forms.definition_metadata import Announcement, prepare

COMPONENT = "http://orbeon.org/oxf/xml/form-builder/component/lab/library"
META_2019 = "<created-with-version>2023.1.4.202409210000 PE</created-with-version>"
META_4_8 = "<created-with-version>4.8.0</created-with-version>"
META_LEGACY = "<created-with-version>4.7.0.201410092230 PE</created-with-version>"


@dataclass(frozen=True)
class Form:
    """A definition, as the slots of the common envelope."""

    data: str
    binds: str = ""
    body: str = ""
    templates: str = ""
    meta: str = META_2019
    xbl: str = ""

    def document(self) -> str:
        return f"""<xh:html xmlns:xh="http://www.w3.org/1999/xhtml" xmlns:xf="http://www.w3.org/2002/xforms"
         xmlns:xxf="http://orbeon.org/oxf/xml/xforms" xmlns:fr="http://orbeon.org/oxf/xml/form-runner"
         xmlns:fb="http://orbeon.org/oxf/xml/form-builder" xmlns:xbl="http://www.w3.org/ns/xbl">
 <xh:head>
  <xf:model id="fr-form-model">
   <xf:instance id="fr-form-instance">{self.data}</xf:instance>
   <xf:bind id="fr-form-binds" ref="instance('fr-form-instance')">{self.binds}</xf:bind>
   <xf:instance id="fr-form-metadata"><metadata><application-name>lab</application-name>
     <form-name>vec</form-name>{self.meta}</metadata></xf:instance>
   {self.templates}
  </xf:model>{self.xbl}
 </xh:head>
 <xh:body><fr:view><fr:body>{self.body}</fr:body></fr:view></xh:body>
</xh:html>"""


def published(form: Form) -> str:
    """Return the definition of a form as publishing stores it: with the lists of its grids."""
    return prepare(form.document().encode(), Announcement(), lambda *_: False).content.decode()


@dataclass(frozen=True)
class Vector:
    """A form, what is asked, and what comes out."""

    form: Form
    target: str
    expected: Form
    is_unpublished: bool = False


def without(text: str, *parts: str) -> str:
    """The text without parts that must be in it."""
    assert all(part in text for part in parts), parts
    return reduce(lambda rest, part: rest.replace(part, ""), parts, text)


def changed(text: str, old: str, new: str) -> str:
    """The text with a part that must be in it replaced."""
    assert old in text, old
    return text.replace(old, new)


def bind(name: str, inside: str = "", more: str = "") -> str:
    return f'<xf:bind id="{name}-bind" ref="{name}" name="{name}"{more}>{inside}</xf:bind>'


def cell(name: str, kind: str = "input", place: str = 'x="1" y="1" w="12"') -> str:
    return f'<fr:c {place}><xf:{kind} id="{name}-control" bind="{name}-bind"/></fr:c>'


def old_cell(name: str, kind: str = "input") -> str:
    return f'<xh:td><xf:{kind} id="{name}-control" bind="{name}-bind"/></xh:td>'


def grid(name: str, cells: str, more: str = "") -> str:
    return f'<fr:grid id="{name}-grid" bind="{name}-bind"{more}>{cells}</fr:grid>'


def section(name: str, inside: str, more: str = "") -> str:
    return f'<fr:section id="{name}-section" bind="{name}-bind"{more}>{inside}</fr:section>'


def template(name: str, binds: str, body: str) -> str:
    """A section template, which ``use`` shows."""
    return f"""<xbl:xbl><xbl:binding class="fr-section-component" element="k|{name}" xmlns:k="{COMPONENT}">
      <xbl:implementation><xf:model><xf:bind id="fr-form-binds" ref="instance('fr-form-instance')">{binds}</xf:bind>
      </xf:model></xbl:implementation><xbl:template><xf:group>{body}</xf:group></xbl:template></xbl:binding></xbl:xbl>"""


def use(name: str = "one") -> str:
    return f'<k:{name} xmlns:k="{COMPONENT}"/>'


Infoset = tuple[object, ...]


def infoset(document: bytes | str) -> Infoset:
    """Names, attributes, text and comments as nested tuples; not whitespace between elements, nor prefixes."""
    parser = etree.XMLParser(resolve_entities=False, remove_blank_text=True)
    return _node(etree.fromstring(document if isinstance(document, bytes) else document.encode(), parser))


def _node(node: etree._Element) -> Infoset:
    inside = [_text(node.text), *(part for child in node for part in (_node(child), _text(child.tail)))]
    return str(node.tag), tuple(sorted(node.items())), *(part for part in inside if part)


def _text(text: str | None) -> str:
    return (text or "") if (text or "").strip() else ""


V1 = Form(
    "<form><person><person-grid><first-name>Ada</first-name><last-name/></person-grid></person></form>",
    bind("person", bind("person-grid", bind("first-name", more=' required="true()"') + bind("last-name"))),
    section(
        "person",
        grid(
            "person-grid", cell("first-name", place='x="1" y="1" w="6"') + cell("last-name", place='x="7" y="1" w="6"')
        ),
    ),
)
V1_DOWN = replace(
    V1,
    data='<form fr:data-format-version="4.8.0"><person><first-name>Ada</first-name><last-name/></person></form>',
    binds=bind("person", bind("first-name", more=' required="true()"') + bind("last-name")),
    body=without(V1.body, ' bind="person-grid-bind"'),
)

_LEGS = """<legs><legs-iteration><dest>Oslo</dest></legs-iteration>
                 <legs-iteration><dest>Bern</dest></legs-iteration></legs>"""
_LEGS_BIND = bind("legs", bind("legs-iteration", bind("dest")))
V2 = Form(
    f"<form><trip><top><code>T1</code></top>{_LEGS}<bottom><note/></bottom></trip></form>",
    bind("trip", bind("top", bind("code")) + _LEGS_BIND + bind("bottom", bind("note"))),
    section(
        "trip",
        grid("top", cell("code"))
        + grid("legs", cell("dest"), """ repeat="content" min="1" template="instance('legs-template')\"""")
        + grid("bottom", cell("note", "textarea")),
    ),
    '<xf:instance id="legs-template" xxf:readonly="true"><legs-iteration><dest/></legs-iteration></xf:instance>',
)
V2_DOWN = replace(
    V2,
    data=f'<form fr:data-format-version="4.8.0"><trip><code>T1</code>{_LEGS}<note/></trip></form>',
    binds=bind("trip", bind("code") + _LEGS_BIND + bind("note")),
    body=without(V2.body, ' bind="top-bind"', ' bind="bottom-bind"'),
)
V3_DOWN = replace(
    V2_DOWN,
    data="""<form fr:data-format-version="4.0.0"><trip><code>T1</code>
              <legs><dest>Oslo</dest></legs><legs><dest>Bern</dest></legs><note/></trip></form>""",
    binds=bind("trip", bind("code") + bind("legs", bind("dest")) + bind("note")),
    body=changed(V2_DOWN.body, 'repeat="content"', 'repeat="true"'),
    templates='<xf:instance id="legs-template" xxf:readonly="true"><legs><dest/></legs></xf:instance>',
)

_TOYS = (
    """<toys><toys-iteration><toy>car</toy></toys-iteration><toys-iteration><toy>kite</toy></toys-iteration></toys>"""
)
_TOYS_BIND = bind("toys", bind("toys-iteration", bind("toy")))
_TOYS_TEMPLATE = '<xf:instance id="toys-template"><toys-iteration><toy/></toys-iteration></xf:instance>'
V4 = Form(
    f"""<form><kids><kids-iteration><kg><name>A</name></kg>{_TOYS}</kids-iteration>
          <kids-iteration><kg><name>B</name></kg><toys/></kids-iteration></kids></form>""",
    bind("kids", bind("kids-iteration", bind("kg", bind("name")) + _TOYS_BIND)),
    section(
        "kids",
        grid("kg", cell("name"))
        + grid(
            "toys",
            cell("toy"),
            """ repeat="content" template="instance('toys-template')" fb:initial-iterations="first\"""",
        ),
        """ repeat="content" min="1" template="instance('kids-template')\"""",
    ),
    """<xf:instance id="kids-template"><kids-iteration><kg><name/></kg>
         <toys><toys-iteration><toy/></toys-iteration></toys></kids-iteration></xf:instance>"""
    + _TOYS_TEMPLATE,
)
V4_DOWN = replace(
    V4,
    data=f"""<form fr:data-format-version="4.8.0"><kids><kids-iteration><name>A</name>{_TOYS}</kids-iteration>
               <kids-iteration><name>B</name><toys/></kids-iteration></kids></form>""",
    binds=bind("kids", bind("kids-iteration", bind("name") + _TOYS_BIND)),
    body=without(V4.body, ' bind="kg-bind"'),
    templates="""<xf:instance id="kids-template"><kids-iteration><name/><toys><toys-iteration><toy/></toys-iteration>
                   <toys-iteration><toy/></toys-iteration></toys></kids-iteration></xf:instance>"""
    + _TOYS_TEMPLATE,
)

V5_SAME = replace(V2, data=changed(V2.data, "<form>", '<form fr:data-format-version="2019.1.0">'))
V5_OBSOLETE = replace(V2, templates=changed(V2.templates, "<dest/>", "<dest/><obsolete/>"))

_PHONES = "<phones><phones-iteration><num>1</num></phones-iteration></phones>"
_PHONES_BIND = bind("phones", bind("phones-iteration", bind("num")))
V6 = Form(
    f"<form><addr><street>Main</street><city/>{_PHONES}<remark/></addr></form>",
    bind("addr", bind("street") + bind("city") + _PHONES_BIND + bind("remark")),
    section(
        "addr",
        f"""<fr:grid id="g1-grid"><xh:tr>{old_cell("street")}{old_cell("city")}</xh:tr></fr:grid>"""
        + grid("phones", f"<xh:tr>{old_cell('num')}</xh:tr>", ' repeat="content"')
        + f"""<fr:grid id="g2-grid"><xh:tr>{old_cell("remark", "textarea")}</xh:tr></fr:grid>""",
    ),
    meta="",
)
V6_UP = replace(
    V6,
    data=f"""<form fr:data-format-version="2019.1.0"><addr><g1><street>Main</street><city/></g1>
               {_PHONES}<g2><remark/></g2></addr></form>""",
    binds=bind("addr", bind("g1", bind("street") + bind("city")) + _PHONES_BIND + bind("g2", bind("remark"))),
    body=changed(changed(V6.body, '"g1-grid"', '"g1-grid" bind="g1-bind"'), '"g2-grid"', '"g2-grid" bind="g2-bind"'),
)

V7 = Form(
    "<form><list><head>h</head><row><cell>1</cell></row><row><cell>2</cell></row></list></form>",
    bind("list", bind("head") + bind("row", bind("cell", more=' type="xf:decimal"'))),
    section(
        "list",
        f"""<fr:grid id="hg-grid"><xh:tr>{old_cell("head")}</xh:tr></fr:grid>"""
        + grid(
            "row",
            f"<xh:tr>{old_cell('cell')}</xh:tr>",
            """ repeat="true" min="1" template="instance('row-template')\"""",
        ),
    ),
    '<xf:instance id="row-template"><row><cell/></row></xf:instance>',
    META_LEGACY,
)
_ROW_BIND = bind("row", bind("row-iteration", bind("cell", more=' type="xf:decimal"')))
_ROWS = "<row><row-iteration><cell>1</cell></row-iteration><row-iteration><cell>2</cell></row-iteration></row>"
V7_UP = replace(
    V7,
    data=f'<form fr:data-format-version="2019.1.0"><list><hg><head>h</head></hg>{_ROWS}</list></form>',
    binds=bind("list", bind("hg", bind("head")) + _ROW_BIND),
    body=changed(V7.body, '"hg-grid"', '"hg-grid" bind="hg-bind"'),
    templates='<xf:instance id="row-template"><row-iteration><cell/></row-iteration></xf:instance>',
)
V7_HALF = replace(
    V7_UP,
    data=f'<form fr:data-format-version="4.8.0"><list><head>h</head>{_ROWS}</list></form>',
    binds=bind("list", bind("head") + _ROW_BIND),
    body=V7.body,
)

V8 = Form(
    """<form><main><mg><ref-no>7</ref-no></mg></main>
         <who><cgrid><mail>x@y</mail></cgrid><tels><tels-iteration><tel>1</tel></tels-iteration></tels></who></form>""",
    bind("main", bind("mg", bind("ref-no"))) + bind("who"),
    section("main", grid("mg", cell("ref-no"))) + section("who", use("contact")),
    xbl=template(
        "contact",
        bind("cgrid", bind("mail")) + bind("tels", bind("tels-iteration", bind("tel"))),
        grid("cgrid", cell("mail")) + grid("tels", cell("tel"), ' repeat="content"'),
    ),
)
V8_DOWN = replace(
    V8,
    data="""<form fr:data-format-version="4.8.0"><main><ref-no>7</ref-no></main>
              <who><mail>x@y</mail><tels><tels-iteration><tel>1</tel></tels-iteration></tels></who></form>""",
    binds=bind("main", bind("ref-no")) + bind("who"),
    body=without(V8.body, ' bind="mg-bind"'),
)

V10 = Form(
    """<form><s><gmin><gmin-it><a>1</a></gmin-it></gmin><gplain><c>3</c><b>2</b><stray/></gplain></s></form>""",
    bind(
        "s", bind("gmin", bind("gmin-it", bind("a"))) + bind("gplain", bind("b") + bind("c"), more=' relevant="1 = 1"')
    ),
    section(
        "s",
        grid("gmin", cell("a"), ' repeat="false" min="0"')
        + grid("gplain", cell("b", place='x="1" y="1" w="6"') + cell("c", place='x="7" y="1" w="6"')),
    ),
)

VECTORS = {
    "V1 one plain grid": Vector(V1, "4.8.0", V1_DOWN),
    "V1 to 4.0.0": Vector(V1, "4.0.0", replace(V1_DOWN, data=changed(V1_DOWN.data, "4.8.0", "4.0.0"))),
    "V2 two grids around a repeated grid": Vector(V2, "4.8.0", V2_DOWN),
    "V3 the same to 4.0.0": Vector(V2, "4.0.0", V3_DOWN),
    "V4 grids in a repeated section, initial iterations": Vector(V4, "4.8.0", V4_DOWN),
    "V5 source is target": Vector(V2, "2019.1.0", V5_SAME),
    "V5 with an obsolete element in the template": Vector(V5_OBSOLETE, "2019.1.0", V5_SAME),
    "V6 up, no version metadata, old cells": Vector(V6, "2019.1.0", V6_UP),
    "V7 up from a legacy definition": Vector(V7, "2019.1.0", V7_UP),
    "V7 to 4.8.0": Vector(V7, "4.8.0", V7_HALF),
    "V8 section template": Vector(V8, "4.8.0", V8_DOWN),
    "V8 to 4.0.0": Vector(
        V8,
        "4.0.0",
        replace(
            V8_DOWN,
            data="""<form fr:data-format-version="4.0.0"><main><ref-no>7</ref-no></main>
                      <who><mail>x@y</mail><tels><tel>1</tel></tels></who></form>""",
        ),
    ),
    "V9 unpublished definition": Vector(
        V5_SAME,
        "4.8.0",
        replace(V2_DOWN, data=without(V2_DOWN.data, ' fr:data-format-version="4.8.0"')),
        is_unpublished=True,
    ),
    "V10 recognition traps": Vector(
        V10,
        "4.8.0",
        replace(
            V10,
            data="""<form fr:data-format-version="4.8.0"><s><gmin><gmin-it><a>1</a></gmin-it></gmin>
                      <b>2</b><c>3</c><stray/></s></form>""",
            binds=bind("s", bind("gmin", bind("gmin-it", bind("a"))) + bind("b") + bind("c")),
            body=without(V10.body, ' bind="gplain-bind"'),
        ),
    ),
}
