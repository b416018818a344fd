"""All pages of a service, with the objects that each of them shows and changes."""

from __future__ import annotations

from dataclasses import dataclass

from flask import Flask

from persistence.crypto.encryption_keys import EncryptionKeys
from persistence.dialect import DIALECTS
from persistence.maintenance.manifest import tree_name
from persistence.metrics.service import Metrics
from persistence.pages.api_keys import KeysPage
from persistence.pages.audit_page import AuditPage
from persistence.pages.background import BackgroundCommand
from persistence.pages.contents_routes import ContentRoutes
from persistence.pages.definition_page import DefinitionPage
from persistence.pages.document_page import DocumentPage
from persistence.pages.form_page import FormPages
from persistence.pages.forms_page import FormsPage, ServedForms
from persistence.pages.health import HealthPage
from persistence.pages.key_uses import KeyUses
from persistence.pages.login import LoginPage
from persistence.pages.logins import LoginRecord
from persistence.pages.overview import OverviewPage
from persistence.pages.recent_errors import RecentErrors
from persistence.pages.revision_pages import RevisionPages
from persistence.pages.sessions import Administrators, Sessions
from persistence.pages.settings_page import SettingsPage
from persistence.pages.site import Site
from persistence.providers.opened import Providers
from persistence.services.access import as_administrator
from persistence.services.documents import Documents
from persistence.services.jobs import ReencryptionJobs
from persistence.settings import Effective
from persistence.storage.layout import PAGES, Layout


class PageFiles:
    """The files of the pages, in the directory that the service writes to in any case.

    The directory of the keys may be one that the service can only read.
    """

    def __init__(self, home: str) -> None:
        self._home = home
        self._directory = Layout(home).own(PAGES)
        self.errors = RecentErrors(home)
        self.key_uses = KeyUses.of(home)

    def logins(self) -> LoginRecord:
        return LoginRecord(f"{self._directory}/logins.json", tree=self._home)


@dataclass(frozen=True, slots=True)
class Pages:
    """The pages of a service that is being wired.

    The middleware that lets requests for them through asks the same ``administrators``. The service owns ``providers``
    and closes them. ``files`` are also written where requests are counted.
    """

    administrators: Administrators
    effective: Effective
    providers: Providers
    metrics: Metrics | None
    files: PageFiles
    at_rest: EncryptionKeys
    reencrypts: ReencryptionJobs

    def add_to(self, app: Flask) -> None:
        """Add every page, in the order of the navigation."""
        effective, providers, keys = self.effective, self.providers, self.administrators.keys
        sessions = Sessions(self.administrators, self.files.logins())
        site = Site(sessions)
        LoginPage(sessions).add_to(site)
        OverviewPage(effective, providers, keys, self.metrics, self.files.errors, self.at_rest).add_to(site)
        forms = ServedForms(providers)
        FormsPage(forms).add_to(site)
        FormPages(forms).add_to(site)
        DefinitionPage(forms).add_to(site)
        dialect = DIALECTS[effective.settings.dialect]
        documents = Documents(providers.router, dialect, as_administrator(dialect))
        DocumentPage(forms, documents).add_to(site)
        for page in (ContentRoutes, RevisionPages):
            page(documents).add_to(site)
        check, reindex, audit = (BackgroundCommand(each, effective) for each in ("check", "reindex", "audit"))
        mend = BackgroundCommand("check", effective, "mend")
        HealthPage(
            effective.settings.home,
            {"": (), **{tree_name(name): ("--datasource", name) for name in ("", *effective.settings.roots.named)}},
            providers.router,
            check,
            mend,
            reindex,
            self.reencrypts,
        ).add_to(site)
        AuditPage(effective.settings, keys, audit).add_to(site)
        KeysPage(keys, self.administrators.named, self.files.key_uses, self.at_rest).add_to(site)
        SettingsPage(effective).add_to(site)
        site.add_to(app)
