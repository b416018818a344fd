"""The roots of the trees of a service: the default one, and those that have a name, the datasources."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Roots:
    """Absolute paths. The default root needs no name, and may have some too."""

    default: str
    named: Mapping[str, str]

    def root(self, datasource: str) -> str | None:
        """The root of a datasource, the default one where that is empty; ``None`` where there is none of that name."""
        return self.named.get(datasource) if datasource else self.default

    def __iter__(self) -> Iterator[str]:
        """Every root once, the default one first."""
        return iter(dict.fromkeys((self.default, *self.named.values())))
