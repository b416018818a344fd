"""Names in a form definition: namespaces, elements, and what an id says (spec forms 0, 1.4)."""

from __future__ import annotations

import re

from lxml import etree

from persistence.forms.trees import Element
from persistence.limits import LONGEST_XML_NAME

XH = "{http://www.w3.org/1999/xhtml}"
XF = "{http://www.w3.org/2002/xforms}"
XXF = "{http://orbeon.org/oxf/xml/xforms}"
FR = "{http://orbeon.org/oxf/xml/form-runner}"
FB = "{http://orbeon.org/oxf/xml/form-builder}"
XBL = "{http://www.w3.org/ns/xbl}"

BIND = f"{XF}bind"
INSTANCE = f"{XF}instance"
MODEL = f"{XF}model"
SECTION = f"{FR}section"
GRID = f"{FR}grid"
REPEAT = f"{FR}repeat"

SUFFIXES = frozenset({"control", "bind", "grid", "section", "template", "repeat"})
"""What follows the last hyphen of an id that carries a name."""

etree.register_namespace("fr", FR[1:-1])  # where a definition declares no prefix for it


def control_name(element: Element) -> str | None:
    """The name in the element's id: ``main-grid`` is ``main``, ``grid-1-grid`` is ``grid-1``, ``fb-body`` has none."""
    name, _, suffix = element.get("id", "").rpartition("-")
    return name if name and suffix in SUFFIXES else None


def is_element_name(text: str | None) -> bool:
    """Whether an element without namespace can have this name; asked of lxml, which refuses to make any other."""
    if not text or len(text) > LONGEST_XML_NAME or text.startswith("{"):
        return False
    try:
        etree.QName(text)
    except ValueError:
        return False
    return True


def classes(element: Element) -> frozenset[str]:
    """The tokens of the ``class`` attribute."""
    return frozenset(element.get("class", "").split())


_LIBRARY = re.compile(r"\{http://orbeon\.org/oxf/xml/form-builder/component/[^/{}]+/[^/{}]+\}")


def is_template_use(element: Element) -> bool:
    """Whether the element stands for a section template: its namespace is that of a library."""
    return _LIBRARY.match(element.tag) is not None
