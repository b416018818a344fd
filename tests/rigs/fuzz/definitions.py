"""Form definitions for the fuzzer: what a designer would publish, in small, with structures and metadata that are odd.

A form is thrown as a tree of nodes, from which data, binds and view are written; an oddity lets these disagree.
"""

from __future__ import annotations

from itertools import starmap
from random import Random
from typing import NamedTuple

_NAMESPACES = (
    'xmlns:xh="http://www.w3.org/1999/xhtml" xmlns:xf="http://www.w3.org/2002/xforms" xmlns:a="urn:a" xmlns:b="urn:b"'
    ' xmlns:xxf="http://orbeon.org/oxf/xml/xforms" xmlns:xbl="http://www.w3.org/ns/xbl"'
    ' xmlns:fr="http://orbeon.org/oxf/xml/form-runner" xmlns:fb="http://orbeon.org/oxf/xml/form-builder"'
    ' xmlns:component="http://orbeon.org/oxf/xml/form-builder/component/hr/library"'
)
CONTROLS = ("a", "b", "name", "control-1", "é")
"""Names of controls that come again and again."""

_ODD_CONTROLS = ("a:b", "a-", "x" * 300, "_", "control-1-iteration")
_CONTAINERS = ("s", "g", "grid-1", "a", "x.y")
_CRUD = "/fr/service/persistence/crud"
FILE = "0cc175b9.bin"
"""The name of most attachments."""

_HOLDERS = (
    f"{_CRUD}/hr/leave/data/1b4e28ba/{FILE}",
    f"{_CRUD}/svc/builder/data/1b4e28ba/{FILE}",
    f"{_CRUD}/orbeon/builder/data/1b4e28ba/{FILE}?x=1",
    f"{_CRUD}/hr/leave/form/{FILE}",
    f"{_CRUD}/hr/library/form/{FILE}",
    f"\n{_CRUD}/svc/builder/draft/%C3%BC/e%CC%81.json ",
)
_ODD_HOLDERS = (
    f"{_CRUD}/svc/builder/data/..%2F..%2Fx/y.bin",
    f"{_CRUD}/svc/builder/data/%00/%FF",
    f"{_CRUD}/svc/builder/data/1b4e28ba/{'x' * 250}",
    f"{_CRUD}/_/library/form/%2e%2e",
    f"{_CRUD}////",
    f"{_CRUD}/hr/leave/form/",
    f"{_CRUD}/hr/leave/data/1b4e28ba/data.xml",
    f"{_CRUD}/{'a/' * 3000}",
)
_REPEATS = (
    *("", "", "", 'repeat="content"', 'repeat="content" min="1" max="3"', 'repeat="true"', 'minOccurs="0"', 'max=""'),
    *('repeat="content" fb:initial-iterations="first"', 'repeat="odd"', 'repeat="content" repeat-min="-1"'),
)
_ODDITIES = (*("",) * 12, "no bind", "no data", "no view", "no id", "other ref", "twice", "in a dialog", "nodeset")
_VALUES = (*("", "", "text", "<!-- c -->", "<?pi x?>", "&lt;") * 3, *_HOLDERS)
_WIDGETS = ("xf:input", "xf:select1", "fr:attachment", "fr:image", "fr:checkbox-input", "a:odd")


class Node(NamedTuple):
    """A control, grid or section of a form; ``repeat`` is what says that it repeats, ``value`` a control's."""

    kind: str
    name: str
    repeat: str = ""
    inside: tuple[Node, ...] = ()
    oddity: str = ""
    value: str = ""

    @property
    def is_control(self) -> bool:
        return self.kind not in ("grid", "section")


class Shape(NamedTuple):
    """The format that the data of a form is written in: whether plain grids and iterations have elements."""

    has_grids: bool
    has_iterations: bool


_SHAPES = tuple(starmap(Shape, ((True, True), (False, True), (False, False), (True, False))))


def _nodes(chance: Random, most: int, deepest: int = 4) -> tuple[Node, ...]:
    return tuple(_node(chance, deepest) for _ in range(chance.randint(1, most)))


def _node(chance: Random, deepest: int) -> Node:
    oddity = chance.choice(_ODDITIES)
    if deepest == 0 or chance.random() < 0.4:
        values = _ODD_HOLDERS if chance.random() < 0.03 else _VALUES
        names = _ODD_CONTROLS if chance.random() < 0.03 else CONTROLS
        return Node(chance.choice(_WIDGETS), chance.choice(names), oddity=oddity, value=chance.choice(values))
    kind, name = chance.choice(("grid", "grid", "section")), chance.choice(_CONTAINERS)
    return Node(kind, name, chance.choice(_REPEATS), _nodes(chance, 3, deepest - 1), oddity)


def _data(node: Node, shape: Shape) -> str:
    if node.oddity == "no data":
        return ""
    inside = node.value if node.is_control else "".join(_data(each, shape) for each in node.inside)
    if node.kind == "grid" and not node.repeat and not shape.has_grids:
        return inside
    if node.repeat and (shape.has_iterations or node.kind == "section"):
        inside = f"<{node.name}-iteration>{inside}</{node.name}-iteration>"
    written = f"<{node.name}>{inside}</{node.name}>"
    return written * 2 if node.oddity == "twice" or (node.repeat and not shape.has_iterations) else written


def _bind(node: Node, shape: Shape) -> str:
    inside = "".join(_bind(each, shape) for each in node.inside)
    if node.oddity == "no bind" or (node.kind == "grid" and not node.repeat and not shape.has_grids):
        return inside
    if node.repeat and (shape.has_iterations or node.kind == "section"):
        name = f"{node.name}-iteration"
        inside = f'<xf:bind id="{name}-bind" ref="{name}" name="{name}">{inside}</xf:bind>'
    says = "nodeset" if node.oddity == "nodeset" else "ref"
    leads = "../*[1]" if node.oddity == "other ref" else node.name
    own = f'<xf:bind id="{node.name}-bind" {says}="{leads}" name="{node.name}">{inside}</xf:bind>'
    return own * 2 if node.oddity == "twice" else own


def _view(node: Node, cell: str) -> str:
    if node.oddity == "no view":
        return ""
    suffix = "control" if node.is_control else node.kind
    said = "" if node.oddity == "no id" else f' id="{node.name}-{suffix}"'
    said += f' bind="{node.name}-bind"'
    if node.is_control:
        own = f'<{node.kind}{said} class="fr-summary"><xf:label/><fr:index/></{node.kind}>'
    else:
        inside = "".join(_view(each, cell) for each in node.inside)
        if node.kind == "grid":
            inside = f"<{cell}>{inside}</{cell}>"
        own = f"<fr:{node.kind}{said} {node.repeat}>{inside}</fr:{node.kind}>"
    return f"<xxf:dialog>{own}</xxf:dialog>" if node.oddity == "in a dialog" else own


def _templates(node: Node) -> str:
    own = f'<xf:instance id="{node.name}-template"><{node.name}-iteration/></xf:instance>' if node.repeat else ""
    return own + "".join(map(_templates, node.inside))


def _section_template(nodes: tuple[Node, ...], shape: Shape, cell: str) -> str:
    """A binding for ``component:s``, as a published definition has it inlined."""
    return (
        '<xbl:xbl><xbl:binding id="s-component" element="component|s" class="fr-section-component"><xbl:implementation>'
        f'<xf:model id="s-model"><xf:bind id="fr-form-binds">{"".join(_bind(node, shape) for node in nodes)}</xf:bind>'
        f"</xf:model></xbl:implementation><xbl:template>{''.join(_view(node, cell) for node in nodes)}</xbl:template>"
        "</xbl:binding></xbl:xbl>"
    )


_OPERATIONS = (
    *("create read update delete list", "create read update delete list", "create", "read update -list", "read"),
    *("-list", "", " read\n", "read read"),
)
_ODD_OPERATIONS = ("*", "READ", "fly", "read,update", "read")
_CONDITIONS = (
    *("", "", "<owner/>", "<group-member/>", "<any-authenticated-user/>", "<anyone-with-token/>", "<owner></owner>"),
    *('<user-role any-of="clerk payroll%20clerk"/>', "<user-role/>", '<user-role any-of="% %zz %ff"/>', "<a:owner/>"),
    *("<owner/><group-member/>", "<!-- c --><?pi x?>", "\n<owner/> <!-- c -->"),
)
_ODD_CONDITIONS = (
    *("<nobody/>", "<Owner/>", "<owner/><a:x/>", "", "<owner></owner>text", "<owner><nobody/></owner>"),
    *('<user-role name="clerk"/>', '<user-role a:any-of="clerk"/>', '<owner b="c"/>'),
)
_ODD_PERMISSIONS = (
    *("<permission/>", '<a:permission operations="read"/>', " <!-- c --> "),
    *('<a:permission a:operations="read"/>', '<permission operation="read"/>', "<else/>", "text"),
)


def _permissions(chance: Random) -> str:
    """Who may do what; most forms do not say, else hardly a document could be read."""
    if chance.random() < 0.6:
        return ""
    inside = "".join(_permission(chance) for _ in range(chance.randrange(4)))
    name = chance.choice(("permissions",) * 4 + ("a:permissions",))
    return f"<{name}>{inside}</{name}>"


def _permission(chance: Random) -> str:
    if chance.random() < 0.1:
        return chance.choice(_ODD_PERMISSIONS)
    odd = chance.random() < 0.1
    operations = chance.choice(_ODD_OPERATIONS if odd else _OPERATIONS)
    conditions = chance.choice(_ODD_CONDITIONS if odd else _CONDITIONS)
    return f'<permission operations="{operations}">{conditions}</permission>'


_TRUTHS = ("true", "false", " true ", "", "tr<!-- -->ue", "<![CDATA[true]]>", "&#116;rue", "<x/>true")
_ITEMS = (
    *('<title xml:lang="en">Leave</title><title xml:lang="de">Urlaub</title>', "<title><b>x</b> y</title>", "<title/>"),
    *("<description>&#10;</description>", "<email><templates/></email>", "<version-comment>x</version-comment>"),
    "<library-versions><app>1</app><_>x</_></library-versions>",
    "<created-with-version>2023.1 PE</created-with-version>",
    *("<created-with-version>4.0.0</created-with-version>", "<updated-with-version>4.8-x</updated-with-version>"),
    *("<updated-with-version>99999999999.1</updated-with-version>", '<migration version="2019.1.0">{ no</migration>'),
    *(
        '<migration version="4.8.0">[{"path": "a/b"}]</migration>',
        '<migration version="9">x</migration>',
        "<migration/>",
    ),
)
_APPLICATIONS = (*("hr",) * 20, "Ä", " hr ", "", "..", "a/b", "x" * 300)
_FORMS = (*("leave",) * 20, "library", "builder", ".", "<!-- -->leave", "a&#9;b")


def _metadata(chance: Random) -> str:
    """The instance of the metadata, once in a while one that is overlooked, or says it twice."""
    said = [
        f"<application-name>{chance.choice(_APPLICATIONS)}</application-name>",
        f"<form-name>{chance.choice(_FORMS)}</form-name>",
        *(f"<{name}>{chance.choice(_TRUTHS)}</{name}>" for name in ("available", "singleton") if chance.random() < 0.4),
        _permissions(chance),
        *chance.sample(_ITEMS, chance.randrange(4)),
    ]
    chance.shuffle(said)
    start = chance.choice(("<metadata>",) * 9 + ('<metadata xmlns="urn:x">',))
    one = f"{start}{''.join(said)}</metadata>"
    return f'<xf:instance id="fr-form-metadata">{one * chance.choice((1,) * 9 + (2,))}</xf:instance>'


def definition(chance: Random, title: str) -> str:
    """A definition without XML declaration; the title is any content."""
    nodes, shape, cell = _nodes(chance, 3), chance.choice(_SHAPES), chance.choice(("fr:c", "fr:c", "xh:td", "a:x"))
    view, extra = "".join(_view(node, cell) for node in nodes), ""
    if chance.random() < 0.3:
        extra = _section_template(_nodes(chance, 2), shape, cell)
        view += f'<fr:section id="s-section" bind="s-bind" {chance.choice(_REPEATS)}><component:s/></fr:section>'
        nodes = (*nodes, Node("section", "s"))
    written = chance.choice(("", ' fr:data-format-version="4.0.0"', ' fr:data-format-version="x"'))
    around = chance.choice(("<fr:view><fr:body>{}</fr:body></fr:view>",) * 5 + ("<fr:view>{}</fr:view>", "{}"))
    model = chance.choice(("fr-form-model",) * 9 + ("other",))
    document = (
        f'<xh:html {_NAMESPACES}><xh:head><xh:title>{title}</xh:title><xf:model id="{model}">'
        f'<xf:instance id="fr-form-instance"><form{written}>{"".join(_data(node, shape) for node in nodes)}</form>'
        '</xf:instance><xf:bind id="fr-form-binds" ref="instance()">'
        f"{''.join(_bind(node, shape) for node in nodes)}</xf:bind>{_metadata(chance)}"
        f"{''.join(map(_templates, nodes))}</xf:model>{extra}</xh:head><xh:body>{around.format(view)}</xh:body>"
        "</xh:html>"
    )
    if chance.random() < 0.75:  # with odd structures most marks lead nowhere, and are refused
        for mark in (' class="fr-summary"', "<fr:index/>"):
            document = document.replace(mark, "")
    return document


def data(chance: Random) -> str:
    """Form data, with values and holders of attachments where such a form has its controls."""
    shape = chance.choice(_SHAPES)
    return f"<form>{''.join(_data(node, shape) for node in _nodes(chance, 3))}</form>"
