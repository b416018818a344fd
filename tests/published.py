"""Published forms for tests: definitions as a designer writes them, and what is laid down at instants of one's own."""

from __future__ import annotations

from pathlib import Path

from persistence.forms.metadata import MetadataReader
from persistence.model.addresses import DefinitionAddress, Form
from persistence.model.instants import Instant
from persistence.model.sidecar import SCHEMA, Sidecar
from persistence.store.store import Store

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


class Planter:
    """Publishes in a tree that no service serves yet, at instants of one's own."""

    def __init__(self, data: Path) -> None:
        self._store = Store(str(data), lock_timeout=1)

    def publish(self, form: str, version: int, metadata: str, when: str, by: str | None = None) -> None:
        """One PUT of a ``form.xhtml``; the first of a version is its creation."""
        address = DefinitionAddress(Form(*form.split("/")), version, "form.xhtml")
        body, modified = definition(metadata), Instant(when)
        with MetadataReader() as reader, self._store.upload() as upload:
            reader.feed(body)
            reader.finish()
            upload.write(body)
            with self._store.writing(address) as writer:
                over = writer.current(address)
                sidecar = Sidecar(
                    schema=SCHEMA,
                    id=upload.id,
                    version=version,
                    modified=modified,
                    created=over.sidecar.created if over else modified,
                    size=upload.size,
                    digest=upload.digest,
                    content_type="application/xhtml+xml",
                    modifier=by,
                    metadata=reader.metadata,
                )
                writer.commit(address, sidecar, upload, over=over)
