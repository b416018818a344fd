"""Buckets of stores that speak S3, with the beginning of the keys there."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from urllib.parse import parse_qs, urlsplit

from persistence.errors import BadRequestError

SCHEME = "s3"
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{2,62}")
_NAME = re.compile(r"[A-Za-z0-9_=-][A-Za-z0-9._=-]*")
_LONGEST_PREFIX = 256


@dataclass(frozen=True, slots=True)
class Bucket:
    """A bucket, and a ``prefix`` of keys without slashes around it.

    The environment has ``endpoint`` and ``region`` where they are empty.
    """

    name: str
    prefix: str = ""
    endpoint: str = ""
    region: str = ""

    def __str__(self) -> str:
        return f"{SCHEME}://{self.name}/{self.prefix}".rstrip("/")

    def holds(self, other: Bucket) -> bool:
        """Return whether the keys of another place begin with those of this one."""
        is_below = not self.prefix or f"{other.prefix}/".startswith(f"{self.prefix}/")
        return (self.name, self.endpoint) == (other.name, other.endpoint) and is_below

    def meets(self, other: Bucket) -> bool:
        """Return whether this and another place may have keys in common: one without an endpoint may be anywhere."""
        endpoint = self.endpoint if self.endpoint and other.endpoint else other.endpoint
        here, there = replace(self, endpoint=endpoint), replace(other, endpoint=other.endpoint or endpoint)
        return here.holds(there) or there.holds(here)


def is_bucket(text: str) -> bool:
    return text.strip().lower().startswith(f"{SCHEME}:")


def parse_bucket(text: str, endpoint: str = "", region: str = "") -> Bucket:
    """Read an address ``s3://BUCKET/PREFIX``."""
    name, _, prefix = text.strip().removeprefix(f"{SCHEME}://").partition("/")
    prefix = prefix.strip("/")
    names = prefix.split("/") if prefix else []
    if not _BUCKET.fullmatch(name) or len(prefix) > _LONGEST_PREFIX or not all(map(_NAME.fullmatch, names)):
        instead = "" if "@" in text else f", not {text!r}"
        raise BadRequestError(
            f"must be {SCHEME}://BUCKET/PREFIX, of letters, digits and the signs . _ = - (no user, no query){instead}"
        )
    return Bucket(name, prefix, endpoint, region)


def parse_addressed_bucket(text: str) -> Bucket:
    """Read an address ``s3://BUCKET/PREFIX?endpoint=URL&region=NAME``; both may be missing."""
    address, _, query = text.strip().partition("?")
    given = parse_qs(query, keep_blank_values=True)
    is_known = set(given) <= {"endpoint", "region"} and all(len(values) == 1 for values in given.values())
    if not is_bucket(address) or not is_known:
        raise BadRequestError(f"must be {SCHEME}://BUCKET/PREFIX?endpoint=URL&region=NAME, without anything else")
    endpoint, region = ("".join(given.get(name, ())) for name in ("endpoint", "region"))
    return parse_bucket(address, object_endpoint(endpoint), region)


def object_endpoint(text: str) -> str:
    """Read the address of a store that speaks S3; blank is empty."""
    given = text.strip()
    try:
        parts = urlsplit(given)
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        is_address = False
    if given and (not is_address or "@" in given or parts.path.strip("/") or parts.query or parts.fragment):
        instead = "" if "@" in given else f", not {given!r}"
        raise BadRequestError(f"must be an address such as https://s3.example.org, without user or path{instead}")
    return given.rstrip("/")
