"""A second opinion on XML: libxml2, and where it and the service differ, what the recommendations say."""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass

from lxml import etree

from persistence.errors import MalformedXmlError
from persistence.limits import (
    DEEPEST,
    LONGEST_NAMESPACE,
    LONGEST_XML_NAME,
    MOST_ATTRIBUTES,
    MOST_ELEMENTS,
    MOST_NAMESPACES,
)
from persistence.xml import Streaming

FR = "http://orbeon.org/oxf/xml/form-runner"

DIFFERENCES = {
    "unmarked UTF-16": "accepted; XML 1.0 4.3.3 wants a byte order mark, which libxml2 insists on and expat does not",
    "a namespace that is no URI": "accepted; the recommendation on namespaces does not make its syntax a constraint",
    "an xml:id that is no name": "accepted; the recommendation on xml:id makes that no matter of being well-formed",
    "another encoding": "refused; a parser must know UTF-8 and UTF-16 only (2.2); a list says which others are taken",
    "untrue declaration": "refused; an encoding that is declared and not the one in use is a fatal error (4.3.3)",
    "names of the fifth edition": "refused; expat knows the names of the fourth edition of XML 1.0 only",
}
"""Where service and libxml2 differ: what the service does, and why that is right or bearable."""

_DECLARED = re.compile(r"""<\?xml[^>]*?encoding\s*=\s*["']([^"']*)["']""")
_MARKS = (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, codecs.BOM_UTF8)
_MARKED = {codecs.BOM_UTF16_LE: "UTF-16", codecs.BOM_UTF16_BE: "UTF-16", codecs.BOM_UTF8: "UTF-8"}
_HARMLESS = {
    etree.ErrorTypes.WAR_NS_URI: "a namespace that is no URI",
    etree.ErrorTypes.DTD_XMLID_VALUE: "an xml:id that is no name",
}
_PERMISSIONS = etree.XPath(
    "/xh:html/xh:head/xf:model[@id='fr-form-model']/xf:instance[@id='fr-form-metadata']/metadata/permissions",
    namespaces={"xh": "http://www.w3.org/1999/xhtml", "xf": "http://www.w3.org/2002/xforms"},
)
_OPERATIONS = {"create", "read", "update", "delete", "list", "-list"}
_CONDITIONS = {"owner", "group-member", "any-authenticated-user", "anyone-with-token", "user-role"}
_SINGLE_BYTE = re.compile(r"(?i)utf-?(8|16|16le|16be)|us-ascii|ascii|iso-8859-\d+|windows-125\d")


@dataclass(frozen=True, slots=True)
class Opinion:
    """What libxml2 says of a document, with the limits of the service: its tree, or why it is refused.

    ``harmless`` is the difference that its objection is, where it has no other.
    """

    tree: etree._Element | None
    reason: str
    harmless: str | None = None


def opinion(document: bytes) -> Opinion:
    """Parse with nothing resolved, loaded or fetched."""
    parser = etree.XMLParser(
        resolve_entities=False, no_network=True, load_dtd=False, dtd_validation=False, huge_tree=False
    )
    try:
        tree = etree.fromstring(document, parser)
    except (etree.XMLSyntaxError, ValueError) as error:
        objections = {entry.type for entry in parser.error_log if entry.level >= etree.ErrorLevels.ERROR}
        harmless = [_HARMLESS[kind] for kind in objections & _HARMLESS.keys()]
        return Opinion(None, str(error), harmless[0] if len(harmless) == len(objections) > 0 else None)
    if tree.getroottree().docinfo.doctype:
        return Opinion(None, "a document type")
    limit = _limit(tree)
    return Opinion(None if limit else tree, limit)


def difference(document: bytes, own: Opinion, *, is_accepted: bool) -> str | None:
    """Which of the known differences explains that the service did not do as ``own`` says; ``None``: none does."""
    if is_accepted:
        return own.harmless or ("unmarked UTF-16" if _is_unmarked(document) else None)
    if own.tree is None:
        return None
    if _is_untrue(document):
        return "untrue declaration"
    encoding = own.tree.getroottree().docinfo.encoding or "UTF-8"
    if document.startswith(_MARKS[:2]) or not _SINGLE_BYTE.fullmatch(encoding):
        return "another encoding"
    return "names of the fifth edition" if _has_odd_names(own.tree) else None


def _is_untrue(document: bytes) -> bool:
    """Whether a document declares another encoding than its byte order mark tells."""
    declared = _DECLARED.search(document[:400].replace(b"\0", b"").decode("latin-1"))
    return declared is not None and any(
        document.startswith(mark) and not declared[1].upper().startswith(name) for mark, name in _MARKED.items()
    )


def knows_permissions(tree: etree._Element) -> bool:
    """Whether permissions have nothing but what the specification has (spec crud 6.2): elements, attributes, words."""
    found = next(iter(_PERMISSIONS(tree)), None)
    if found is None:
        return True
    conditions = [condition for each in found.iterchildren("{*}*") for condition in each.iterchildren("{*}*")]
    return (
        all(each.xpath("local-name() = 'permission'") for each in found.iterchildren("{*}*"))
        and all(set(each.get("operations", "").split()) <= _OPERATIONS for each in found.iterchildren("{*}*"))
        and {etree.QName(condition).localname for condition in conditions} <= _CONDITIONS
        and not any(condition.xpath("*") for condition in conditions)
        and not found.xpath("descendant-or-self::text()[normalize-space()]")
        and all(_known_attributes(each) for each in (found, *found.iterdescendants("{*}*")))
    )


def _known_attributes(element: etree._Element) -> bool:
    known = {"permission": {"operations"}, "user-role": {"any-of"}}.get(etree.QName(element).localname, set())
    return set(element.attrib) <= known


def without_irrelevant(tree: etree._Element) -> bytes | None:
    """The canonical form of a document without its non-relevant elements; ``None`` where it has no canonical form."""
    mark, gone = f"{{{FR}}}relevant", "{urn:gone}gone"
    if tree.get(mark) == "false":
        tree.text = None
        for child in list(tree):
            tree.remove(child)
    for element in tree.iterdescendants(etree.Element):
        if element.get(mark) == "false":
            element.tag = gone
    etree.strip_elements(tree, gone, with_tail=False)
    return canonical(tree)


def canonical(tree: etree._Element) -> bytes | None:
    """The canonical form; relative names of namespaces have none."""
    try:
        return etree.tostring(tree.getroottree(), method="c14n")
    except etree.C14NError:
        return None


def _limit(tree: etree._Element) -> str:
    depth = deepest = count = 0
    for event, element in etree.iterwalk(tree, events=("start", "end")):
        depth += 1 if event == "start" else -1
        count += event == "start"
        deepest = max(deepest, depth)
        name = etree.QName(element)
        if len(name.localname) + len(name.namespace or "") + bool(name.namespace) > LONGEST_XML_NAME:
            return "a long name"
        if any(len(each) > LONGEST_NAMESPACE // (1 if each.isascii() else 4) for each in element.nsmap.values()):
            return "a long namespace"
        if len(element.attrib) > MOST_ATTRIBUTES:
            return "many attributes"
        if len(element.nsmap) > MOST_NAMESPACES:
            return "many namespaces"
    return "deep" if deepest > DEEPEST else "many elements" if count > MOST_ELEMENTS else ""


def _is_unmarked(document: bytes) -> bool:
    """Whether a document would be well-formed UTF-16 with a byte order mark, which it lacks."""
    if document.startswith(_MARKS):
        return False
    marked = [opinion(mark + document) for mark in _MARKS[2:4]]
    return any(own.tree is not None or own.harmless is not None for own in marked)


def _has_odd_names(tree: etree._Element) -> bool:
    """Whether expat takes the document as soon as its letters above ASCII are plain ones."""
    text = etree.tostring(tree.getroottree(), encoding="unicode")
    plain = "".join(letter if letter.isascii() else "q" for letter in text).encode()
    return is_taken(plain) and not is_taken(text.encode())


def is_taken(document: bytes) -> bool:
    try:
        with Streaming() as parser:
            parser.feed(document)
            parser.finish()
    except MalformedXmlError:
        return False
    return True
