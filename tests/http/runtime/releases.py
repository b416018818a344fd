"""What differs between the releases of the runtime, and whom it knows."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import quote


@dataclass(frozen=True)
class Release:
    """The points in which the proxies of releases differ (spec runtime 1 to 3 and 8).

    ``every`` and ``latest`` are the queries for all versions of a form and for its latest one. ``says_existing`` is
    whether a save says what the HEAD before has found, ``reindexes`` the method by which all forms are indexed again.
    For what Latin-1 lacks, the client has question marks, or the low bytes of its UTF-16 units.
    """

    name: str
    every: str
    latest: str
    says_existing: bool
    reindexes: str
    has_question_marks: bool
    leaves_unread: bool

    def on_the_wire(self, text: str) -> str:
        """A header value as bytes, each written as a character."""
        units = text.encode("utf-16-be")
        pairs = zip(units[::2], map(chr, units[1::2]), strict=True)
        return "".join(low if high == 0 else self._lacking(low) for high, low in pairs)

    def _lacking(self, low: str) -> str:
        return "?" if self.has_question_marks or not low.isprintable() else low


_ALL, _LATEST = "?all-versions=true&all-forms=true", "?all-versions=false&all-forms=true"
RELEASES = (
    Release("2023.1.0", _ALL, _LATEST, False, "GET", has_question_marks=False, leaves_unread=False),
    Release("2023.1", _ALL, _LATEST, True, "GET", has_question_marks=False, leaves_unread=False),
    Release("2024.1", "", "", True, "GET", has_question_marks=False, leaves_unread=False),
    Release("2025.1", "", "", True, "POST", has_question_marks=True, leaves_unread=True),
    Release("current", "?all-versions=true", "?all-versions=false", *(True, "POST", True, True)),
)
"""2023.1.0 stands for those before 2023.1.4."""


@dataclass(frozen=True)
class Person:
    """Whom the runtime knows."""

    name: str
    group: str = "staff"
    roles: tuple[str, ...] = ()

    def headers(self, release: Release) -> Iterator[tuple[str, str]]:
        """Everything that says so, as it is sent: the credentials are percent-encoded, and so have every character."""
        if not self.name:
            return
        credentials = {
            "username": _encoded(self.name),
            "groups": [_encoded(self.group)] if self.group else [],
            "roles": [{"name": _encoded(role)} for role in self.roles],
            "organizations": [["acme", _encoded("单位")]],
        }
        plain = [("Username", self.name), ("Group", self.group), *(("Roles", role) for role in self.roles)]
        yield from ((f"Orbeon-{name}", release.on_the_wire(value)) for name, value in plain if value)
        yield "Orbeon-Credentials", json.dumps(credentials, separators=(",", ":"))


def _encoded(text: str) -> str:
    return quote(text, safe=" ")


LEA, BOB, NOBODY = Person("lea", "staff", ("reader", "payroll clerk")), Person("bob", "support"), Person("")
CLEO = Person("cleo", "office", ("other", "head clerk"))

OWNERS = '<permissions><permission operations="create read update delete list"><owner/></permission></permissions>'
CLERKS = (
    '<permissions><permission operations="read list"><user-role any-of="clerk head%20clerk"/></permission>'
    "</permissions>"
)
