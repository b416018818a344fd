"""Texts and attributes that the service writes: a parser reads them as they were."""

import re
from xml.etree import ElementTree as ET

from hypothesis import given
from hypothesis import strategies as st

from persistence.forms.messages import attribute, element, text

NOT_IN_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_texts = st.text(st.sampled_from("ab&<>'\"\t\r\n \x00\x1f\x7f\ud800\ufffeé\U0001f600") | st.characters())


@given(_texts)
def test_what_is_written_is_read_as_it_was(value: str) -> None:
    read = ET.fromstring(element("e", attribute("a", value), text(value)))  # noqa: S314 - it was just written
    expected = NOT_IN_XML.sub("\ufffd", value)
    assert (read.get("a"), read.text or "") == (expected, expected)
