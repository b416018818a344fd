"""Rights: which permissions hold for a form, and what they give a caller on its data (spec crud 6)."""

from __future__ import annotations

from operator import attrgetter

from persistence.model import permissions
from persistence.model.addresses import Form
from persistence.model.form_versions import PublishedVersion
from persistence.model.permissions import Operations, Permissions
from persistence.model.sidecar import Sidecar
from persistence.model.users import User
from persistence.properties.properties import FormProperties, Properties
from persistence.services.catalog import Catalog
from persistence.services.rules import owner_of


class Rights:
    """What callers may do. Methods raise ``DamagedError`` where the definition cannot be read: nobody is let in."""

    def __init__(self, catalog: Catalog, properties: Properties) -> None:
        self._catalog = catalog
        self._properties = properties

    def on_data(self, form: Form, document: Sidecar, user: User) -> Operations:
        """What a user may do with a document; ``document`` is the sidecar of its ``data.xml``."""
        return permissions.on_data(self.of_data(form, document.version), user, owner_of(document))

    def on_creation(self, form: Form, version: int, user: User) -> Operations:
        """What a user may do with a document that is not there yet."""
        return permissions.on_creation(self.of_data(form, version), user)

    def of_version(self, published: PublishedVersion) -> Permissions | None:
        """The permissions of a published version: its own, else those of the property, else none are defined."""
        configured = self._properties.of(published.form)
        return _in_force(configured, published.permissions) if configured.has_permissions else None

    def of_data(self, form: Form, version: int) -> Permissions | None:
        """The permissions for data of a version.

        Where the version was deleted, they are those of the version that was published last (spec crud 5.2); where
        that was the last one, those it had itself: who could not read its data shall not be able to because somebody
        has deleted the form.
        """
        configured = self._properties.of(form)
        if not configured.has_permissions:
            return None
        defined = self._catalog.defined(form, version)
        if defined is None or defined.is_deleted:
            latest = max(self._catalog.versions(form), key=attrgetter("modified"), default=defined)
            return _in_force(configured, None if latest is None else latest.permissions)
        return _in_force(configured, defined.permissions)


def _in_force(configured: FormProperties, own: Permissions | None) -> Permissions | None:
    return configured.permissions if own is None else own
