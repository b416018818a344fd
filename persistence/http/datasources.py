"""Whose services a request asks for: on the provider face, a header may name the tree (spec crud 10.2)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from flask import request

from persistence.errors import BadRequestError
from persistence.http.parsing import RequestParser
from persistence.services.services import Services

ServicesOf = Callable[[], Services]
"""Gives the services that answer the request of the context."""


@dataclass(frozen=True, slots=True)
class Datasources:
    """Picks the services of the datasource that a header of the request names; without one, the default ones."""

    parser: RequestParser
    default: Services
    named: Mapping[str, Services]

    def __call__(self) -> Services:
        """The services.

        Raises:
            BadRequestError: there is no such datasource.
        """
        name = self.parser.datasource(request)
        if not name:
            return self.default
        found = self.named.get(name)
        if found is None:
            raise BadRequestError(f"there is no datasource {name!r} here")
        return found
