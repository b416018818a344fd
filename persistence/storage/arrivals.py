"""The forms that are being moved into a tree, in a small file of its root, and the drafts that moves have stored there.

What the tree has of these forms came by the move alone. So a move that was interrupted may replace it when it goes on.
A draft leaves no trace in the source when it is saved or discarded. So its entity tags are kept in a file of their own,
a line each with the source, also when all has arrived: a later move knows by them what an earlier one has put there.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

import msgspec

from persistence.errors import DamagedError, disk_errors
from persistence.model.addresses import Form
from persistence.storage import files, nofollow
from persistence.storage.layout import ARRIVED_DRAFTS, ARRIVING, Layout
from persistence.storage.storage import Arrivals


class _ArrivingFile(msgspec.Struct, frozen=True):
    """The content of the file: for each place the forms that come from there, as application and name."""

    sources: dict[str, list[tuple[str, str]]]


class TreeArrivals(Arrivals):
    """The ``Arrivals`` of a tree, in which one move works at a time."""

    def __init__(self, root: str) -> None:
        self._path = Layout(root).own(ARRIVING)
        self._drafts = Layout(root).own(ARRIVED_DRAFTS)

    def begun(self, source: str) -> set[Form]:
        return {Form(app, name) for app, name in self._read().get(source, ())}

    def begin(self, source: str, form: Form) -> None:
        known = self._read()
        self._write({**known, source: [*known.get(source, ()), (form.app, form.name)]})

    def end(self, source: str, forms: Iterable[Form]) -> None:
        known, ended = dict(self._read()), {(form.app, form.name) for form in forms}
        left = [form for form in known.pop(source, ()) if form not in ended]
        self._write({**known, source: left} if left else known)

    def bring_drafts(self, source: str, etags: Iterable[str]) -> None:
        with disk_errors("writing", os.path.basename(self._drafts)):
            files.append(self._drafts, "".join(f"\n{etag} {source}" for etag in etags).encode())

    def drafts_of(self, source: str) -> set[str]:
        with disk_errors("reading", os.path.basename(self._drafts)):
            try:
                descriptor = nofollow.open_file(self._drafts)
            except FileNotFoundError:
                return set()
            with open(descriptor, encoding="utf-8", errors="replace") as file:
                lines = (line.rstrip("\n").partition(" ") for line in file)
                return {etag for etag, _, place in lines if place == source}

    def _read(self) -> Mapping[str, list[tuple[str, str]]]:
        with disk_errors("reading", os.path.basename(self._path)):
            try:
                descriptor = nofollow.open_file(self._path)
            except FileNotFoundError:
                return {}
            try:
                return msgspec.json.decode(nofollow.read_small(descriptor), type=_ArrivingFile).sources
            except (msgspec.DecodeError, ValueError, RecursionError) as error:
                raise DamagedError(f"{self._path} cannot be read: {error}") from error
            finally:
                os.close(descriptor)

    def _write(self, sources: Mapping[str, list[tuple[str, str]]]) -> None:
        with disk_errors("writing", os.path.basename(self._path)):
            if sources:
                files.write_durably(self._path, msgspec.json.encode(_ArrivingFile(dict(sources))) + b"\n")
            else:
                files.remove(self._path)
