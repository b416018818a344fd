"""The attributes by which form data says what of it is encrypted (spec forms 4.3)."""

from __future__ import annotations

from collections.abc import Mapping

from persistence.forms.relevance import FR
from persistence.xml.streaming import SEPARATOR

VALUE_ENCRYPTED = "value-encrypted"
ATTACHMENT_ENCRYPTED = "attachment-encrypted"
OLD_MARKER = "encrypted"

MARKER_WORD = b"encrypted"
"""A word in the names of all of them."""

VALUE_MARKER = f"{FR}{SEPARATOR}{VALUE_ENCRYPTED}"
ATTACHMENT_MARKER = f"{FR}{SEPARATOR}{ATTACHMENT_ENCRYPTED}"


def is_value_marked(attributes: Mapping[str, str]) -> bool:
    """Whether the element says that its value is encrypted, in the new or in the old way (spec forms 4.3)."""
    return attributes.get(VALUE_MARKER) == "true" or attributes.get(OLD_MARKER) == "true"
