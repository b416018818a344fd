"""Looking at the bodies of attachments that have a directory of their own: each record must have its body."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from persistence.errors import ConfigurationError, DamagedError
from persistence.maintenance.findings import Finding, Kind
from persistence.maintenance.listing import History
from persistence.maintenance.revisions import readable
from persistence.maintenance.tree import Folder
from persistence.model.addresses import DefinitionAddress, Form
from persistence.model.sidecar import Body, Sidecar
from persistence.storage import digests
from persistence.storage.attachment_bodies import BodiesReader
from persistence.storage.layout import Place
from persistence.storage.stored_revision import StoredRevision

BodiesOf = Callable[[Form], BodiesReader | None]
"""Says where the bodies of a form's attachments are, if they have a directory that is known."""


class BodyInspector:
    """Looks for the bodies of records; ``deep`` reads each and compares its digest."""

    def __init__(self, bodies_of: BodiesOf, *, deep: bool) -> None:
        self._bodies_of = bodies_of
        self._deep = deep

    def of_folder(self, folder: Folder, sidecars: Mapping[str, Sidecar], history: History) -> Iterator[Finding]:
        """What is to say of a document's bodies; ``sidecars`` are those of its current revisions."""
        for name, sidecar in sidecars.items():
            place = Place(folder.path, name)
            yield from self._of_record(folder, name, place, sidecar)
            for revision, older in readable(history, name):
                yield from self._of_record(folder, name, revision.place, older)

    def _of_record(self, folder: Folder, name: str, place: Place, record: Sidecar) -> Iterator[Finding]:
        address, body = folder.address(name), record.body
        bodies = None if body is None or record.deleted else self._known(folder.form)
        if bodies is None or body is None or isinstance(address, DefinitionAddress):
            return
        try:
            found = bodies.find(address, record, content=True)
            if found is None:
                what = f"the body of {record.modified} is not in {bodies.root}"
                yield Finding(Kind.BODY_MISSING, place.content, what, place)
                return
            with found.opened:
                fault = self._fault(found, body)
        except DamagedError as error:
            yield Finding(Kind.BODY_DAMAGED, place.content, f"{error} in {bodies.root}", place)
            return
        except OSError as error:
            yield Finding(Kind.UNREADABLE, place.content, f"its body in {bodies.root}: {error.strerror}", place)
            return
        if fault is not None:
            yield Finding(Kind.BODY_DAMAGED, place.content, f"{fault} in {bodies.root}", place)

    def _known(self, form: Form) -> BodiesReader | None:
        try:
            return self._bodies_of(form)
        except ConfigurationError:  # no provider has the form any more
            return None

    def _fault(self, found: StoredRevision, body: Body) -> str | None:
        if found.size != body.size:
            return f"its body has {found.size} bytes, and not {body.size},"
        if (self._deep or found.is_edited) and digests.of_open(found.opened) != body.digest:
            return f"the digest of its body is not {body.digest}"
        return None
