"""The one XML parser's settings: nothing is fetched, nothing is expanded, nothing may be huge.

A parser is made anew for each document: lxml's process-wide default is never used.
"""

from __future__ import annotations

from typing import Protocol

from lxml import etree

DEEPEST = 256
MOST_ELEMENTS = 1_000_000


class Target(Protocol):
    """What a streaming parse reports to."""

    def close(self) -> object:
        """End of the document."""


def streaming_parser(target: Target) -> etree.XMLParser:
    """A parser that builds no tree and calls ``target`` for what it meets."""
    return etree.XMLParser(
        target=target,  # type: ignore[arg-type]  # lxml asks for the methods that are there, the stubs for all
        resolve_entities=False,
        no_network=True,
        load_dtd=False,
        dtd_validation=False,
        attribute_defaults=False,
        huge_tree=False,
        strip_cdata=False,
    )
