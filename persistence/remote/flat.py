"""Flat views that another service makes."""

from __future__ import annotations

from persistence.model.addresses import Form


class RemoteTables:
    """A ``ReportTables`` with nothing to do: a field of the request that stored the definition has asked for them."""

    def create(self, form: Form, version: int) -> None:
        """As ``ReportTables`` says."""

    def drop(self, form: Form, version: int) -> None:
        """As ``ReportTables`` says."""
