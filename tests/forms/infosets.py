"""Comparing documents as infosets: names, attributes, text, comments; not whitespace between elements, nor prefixes."""

from lxml import etree

Infoset = tuple[object, ...]


def infoset(document: bytes | str) -> Infoset:
    """A document as nested tuples, in which two documents can be compared and their difference read."""
    parser = etree.XMLParser(resolve_entities=False, remove_blank_text=True)
    return _node(etree.fromstring(document if isinstance(document, bytes) else document.encode(), parser))


def _node(node: etree._Element) -> Infoset:
    inside = [_text(node.text), *(part for child in node for part in (_node(child), _text(child.tail)))]
    return str(node.tag), tuple(sorted(node.items())), *(part for part in inside if part)


def _text(text: str | None) -> str:
    return (text or "") if (text or "").strip() else ""
