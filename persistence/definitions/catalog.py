"""The catalog of definitions: the snapshot of each form version, and the lists of what is published.

A fingerprint tells each stored state of a definition from every other. Whoever asks for a snapshot looks at it, with
two ``stat`` calls; so all workers see at once what one of them has published, and what a person has edited.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from operator import attrgetter

from persistence.definitions.contents import (
    EncryptedControls,
    IndexKeys,
    controls_from,
    encrypted_from,
    index_keys_from,
    published_from,
    salvaged_permissions,
)
from persistence.definitions.summaries import NO_FILE, Summaries, SummaryFile
from persistence.errors import DamagedError
from persistence.forms.controls import Control
from persistence.keeping import Kept
from persistence.limits import DEFINITIONS_KEPT, DEFINITIONS_KEPT_BYTES, PERMISSIONS_KEPT_BYTES, SALVAGED_KEPT
from persistence.model.addresses import FORM_XHTML, DefinitionAddress, Form
from persistence.model.form_versions import PublishedVersion
from persistence.model.permissions import Permissions
from persistence.storage.storage import Readable
from persistence.storage.stored_revision import NOTHING_THERE, Fingerprint


@dataclass(frozen=True, slots=True)
class Definition:
    """A form version as it was stored when the catalog was asked: one value, passed to whoever decides by it.

    Each part is read when it is first asked for, and cached by the fingerprint. Properties raise ``DamagedError`` for
    a definition that cannot be read, and ``DiskError``. A definition that was replaced since has another fingerprint.
    """

    form: Form
    version: int
    fingerprint: Fingerprint
    _catalog: Catalog = field(repr=False, compare=False)

    @property
    def address(self) -> DefinitionAddress:
        """Return the address of its ``form.xhtml``."""
        return DefinitionAddress(self.form, self.version, FORM_XHTML)

    @property
    def is_stored(self) -> bool:
        """Return whether the version was ever published; a deleted one was."""
        return self.fingerprint != NOTHING_THERE

    @property
    def published(self) -> PublishedVersion | None:
        """Return the summary; ``None`` where the version was never published, or was deleted."""
        known = self._catalog.summary(self)
        return None if known is None or known.deleted else known

    @property
    def permissions(self) -> Permissions | None:
        """Return the permissions that the definition gives on its data, ``None`` where it has none.

        Data of a version that was deleted, or never published, has those of the version published last (spec crud
        5.2). Where none is left, those of the deleted one hold: who could not read its data must not be able to
        because the form is gone.
        """
        is_published, own = self._own()
        if is_published:
            return own
        latest = max(self._catalog.published(self.form), key=attrgetter("modified"), default=None)
        return own if latest is None else latest.permissions

    @property
    def controls(self) -> tuple[Control, ...] | None:
        """Return the controls; ``None`` where the version is not published. Raises as ``encrypted`` does."""
        return self._catalog.controls.of(self._key, lambda: controls_from(self._catalog.storage, self.address))

    @property
    def encrypted(self) -> EncryptedControls | None:
        """Return the encrypted controls; ``None`` where the version is not published.

        Raises:
            BadRequestError: the definition is too large, or has too many controls.
        """
        return self._catalog.encrypted.of(self._key, lambda: encrypted_from(self._catalog.storage, self.address))

    def index_keys(self, data_format: str) -> IndexKeys:
        """Return the indexed controls, at their paths in a data format."""
        return self._catalog.index_keys.of(
            (*self._key, data_format), lambda: index_keys_from(self._catalog.storage, self.address, data_format)
        )

    def known_index_keys(self, data_format: str) -> IndexKeys | None:
        """Return the indexed controls if they are cached: nothing is read."""
        return self._catalog.index_keys.known((*self._key, data_format))

    def own_permissions(self) -> Permissions | None:
        """Return the permissions of this very version, also of a deleted or damaged one."""
        return self._own()[1]

    def _own(self) -> tuple[bool, Permissions | None]:
        """Return whether the version is published, and its permissions; those of a damaged one are salvaged."""
        if self.fingerprint == NOTHING_THERE:
            return False, None
        try:
            known = self._catalog.summary(self)
        except DamagedError:
            known = None
        if known is not None:
            return not known.deleted, known.permissions
        salvaged = self._catalog.salvaged.of(
            self._key, lambda: (salvaged_permissions(self._catalog.storage, self.address),)
        )
        return True, salvaged[0]

    @property
    def _key(self) -> tuple[Form, int, Fingerprint]:
        return self.form, self.version, self.fingerprint


class Catalog:
    """The definitions of one storage. Methods raise ``DamagedError`` for one that cannot be read, and ``DiskError``."""

    def __init__(self, storage: Readable, file: SummaryFile = NO_FILE) -> None:
        self.storage = storage
        self.controls: Kept[tuple[Control, ...] | None] = Kept(DEFINITIONS_KEPT, DEFINITIONS_KEPT_BYTES)
        self.encrypted: Kept[EncryptedControls | None] = Kept(DEFINITIONS_KEPT, DEFINITIONS_KEPT_BYTES)
        self.index_keys: Kept[IndexKeys] = Kept(DEFINITIONS_KEPT, DEFINITIONS_KEPT_BYTES)
        self.salvaged: Kept[tuple[Permissions | None]] = Kept(SALVAGED_KEPT, PERMISSIONS_KEPT_BYTES)
        self._summaries = Summaries(file)

    def of(self, form: Form, version: int) -> Definition:
        """Return the snapshot of a version, whether or not there is anything of it."""
        return Definition(form, version, self.storage.fingerprint(DefinitionAddress(form, version, FORM_XHTML)), self)

    def latest(self, form: Form) -> Definition | None:
        """Return the highest published version of a form; ``None`` where there is none."""
        found = (self.of(form, number) for number in self.storage.versions(form))
        return next((definition for definition in found if definition.published is not None), None)

    def published(self, form: Form) -> Iterator[PublishedVersion]:
        """Return the published versions of a form, highest first."""
        found = (self.of(form, number).published for number in self.storage.versions(form))
        return (published for published in found if published is not None)

    def alike(self, form: Form) -> tuple[int, ...]:
        """Return the highest version, even a deleted one, and all others that have the same permissions."""
        every = (self.of(form, number) for number in self.storage.versions(form))
        defined = [(each.version, each.own_permissions()) for each in every if each.is_stored]
        return tuple(number for number, permissions in defined if permissions == defined[0][1])

    def forms(
        self, app: str | None = None, name: str | None = None
    ) -> Iterator[tuple[Form, Iterator[PublishedVersion]]]:
        """Return the versions of every form, of an application or of a form name; without damaged ones."""
        self._summaries.load()
        for form in self.storage.forms(app):
            if name is None or form.name == name:
                yield form, self.readable(form)
        self._summaries.save()

    def readable(self, form: Form) -> Iterator[PublishedVersion]:
        """Return the published versions of a form, highest first, without damaged ones."""
        known = self._summaries.of(form)
        for number, mark in self.storage.fingerprints(form):
            found = known.get(number)
            try:
                if found is not None and found[0] == mark:
                    published = found[1]
                else:
                    published = self.summary(Definition(form, number, mark, self))
            except DamagedError:
                continue
            if published is not None and not published.deleted:
                yield published

    def summary(self, definition: Definition) -> PublishedVersion | None:
        """Return the summary of a version, also of a deleted one; ``None`` where it was never published."""
        form, number, mark = definition.form, definition.version, definition.fingerprint
        if mark[0] is None:
            return None
        known = self._summaries.of(form).get(number)
        if known is not None and known[0] == mark:
            return known[1]
        published = published_from(self.storage, definition.address)
        self._summaries.add(form, number, mark, published)
        return published
