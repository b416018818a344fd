"""Published forms for tests: definitions as a designer writes them, and what is laid down at instants of one's own."""

from pathlib import Path

import msgspec

from persistence.closable import Closable
from persistence.dialect import DIALECTS
from persistence.forms.definition_metadata import MetadataReader
from persistence.model.addresses import DATA_XML, Address, Collection, DefinitionAddress, DocumentAddress, Form
from persistence.model.permissions import ANONYMOUS, User
from persistence.model.texts import Instant
from persistence.model.versions import FormMetadata
from persistence.properties.properties import Properties
from persistence.properties.property_table import is_database
from persistence.providers.opened import Providers, init_places, unheard
from persistence.services.rules import Delete, Put, Received, next_revision, tombstone_over
from persistence.settings import Settings
from persistence.storage.storage import Leases, Storage
from persistence.storage.store import Store
from tests import service as services
from tests.initialised import initialised
from tests.opened import close, opened

_DEFINITION = """<xh:html xmlns:xh="http://www.w3.org/1999/xhtml" xmlns:xf="http://www.w3.org/2002/xforms">
  <xh:head><xh:title>Form</xh:title>
    <xf:model id="fr-form-model">
      <xf:instance id="fr-form-instance"><form/></xf:instance>
      <xf:instance id="fr-form-metadata"><metadata>{}</metadata></xf:instance>
    </xf:model>
  </xh:head><xh:body/>
</xh:html>"""

PERMISSIONS = (
    '<permissions><permission operations="create"></permission>'
    '<permission operations="read update"><owner></owner></permission>'
    '<permission operations="read"><user-role any-of="clerk"></user-role></permission></permissions>'
)
"""Those of spec search 8.2, T11."""


def definition(metadata: str) -> bytes:
    """A form definition with this inside its ``metadata``."""
    return _DEFINITION.format(metadata).encode()


class Planter(Closable):
    """Publishes and saves in a storage that no service serves yet, at instants of one's own; in a tree by its path."""

    def __init__(self, data: Path | Storage) -> None:
        self._opened: Closable | None = None
        self.leases: Leases | None = None
        """The leases of the storage, where it was opened here."""
        self._store = self._in_place_of(data) if isinstance(data, Path) else data

    def close(self) -> None:
        """Let go of a tree, which happens at the end of a test in any case."""
        if self._opened is not None:
            close(self._opened)

    def _in_place_of(self, data: Path) -> Storage:
        """Open what services have in the place of a data directory."""
        place = services.place_of(data)
        if not is_database(place):
            self._opened = tree = opened(Store(initialised(data), lock_timeout=1))
            self.leases = tree.leases
            return tree
        settings = Settings(data=place, local=str(data.parent / "planting"))
        properties = Properties.load({}, DIALECTS["svc"].property_prefix)
        init_places(settings, properties)
        self._opened = providers = opened(Providers(settings, properties, listener_at=unheard))
        provider = providers.at(place)
        self.leases = provider.storage.leases
        return provider.storage

    def publish(self, form: str, version: int, metadata: str, when: str, by: str | None = None) -> None:
        """One PUT of a ``form.xhtml`` with little but metadata."""
        self.define(form, version, definition(metadata), when, by)

    def define(self, form: str, version: int, body: bytes, when: str, by: str | None = None) -> None:
        """One PUT of a ``form.xhtml``; the first of a version is its creation."""
        with MetadataReader() as reader:
            metadata = reader.read([body]).metadata
        address = DefinitionAddress(Form(*form.split("/")), version, "form.xhtml")
        self._put(address, Put(user=User(by)), version, body, when, metadata)

    def save(
        self,
        form: str,
        document: str,
        body: bytes,
        when: str,
        by: User = ANONYMOUS,
        stage: str | None = None,
        *,
        version: int = 1,
        collection: Collection = Collection.DATA,
    ) -> None:
        """One PUT of a ``data.xml``; the first of a document is its creation. No draft is erased."""
        address = DocumentAddress(Form(*form.split("/")), collection, document, DATA_XML)
        self._put(address, Put(user=by, stage=stage), version, body, when)

    def delete(self, address: Address, version: int, when: str) -> None:
        """One DELETE of a ``data.xml`` or ``form.xhtml``."""
        with self._store.writing(address) as writer:
            over = writer.current(address)
            tombstone = tombstone_over(over, version, Delete(user=ANONYMOUS))
            writer.delete(address, msgspec.structs.replace(tombstone, modified=Instant(when)), over=over)

    def _put(
        self, address: Address, put: Put, version: int, body: bytes, when: str, metadata: FormMetadata | None = None
    ) -> None:
        with self._store.upload(address) as upload:
            upload.write(body)
            with self._store.writing(address) as writer:
                over = writer.current(address)
                received = Received(upload.id, upload.size, upload.digest, "application/xml", metadata)
                made = next_revision(put, received, version, over=over, owner=put.user)
                created = made.created if over and not over.sidecar.deleted else Instant(when)
                sidecar = msgspec.structs.replace(made, modified=Instant(when), created=created)
                writer.commit(address, sidecar, upload, over=over)
