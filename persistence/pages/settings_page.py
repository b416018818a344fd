"""The settings and properties in force, and the routes of forms."""

from __future__ import annotations

from dataclasses import dataclass

from flask import render_template

from persistence.pages.site import Site
from persistence.properties.properties import ProviderProperties
from persistence.providers.in_force import effective_properties, effective_settings
from persistence.providers.locations import shown_location
from persistence.settings import Effective


@dataclass(frozen=True, slots=True)
class ShownProvider:
    """A provider of forms or attachments: where it keeps them, and whether it is asked where all are."""

    name: str
    keeps: str
    place: str
    is_active: bool


@dataclass(frozen=True, slots=True)
class SettingsPage:
    """The page. It changes nothing: settings are in a file, and the service reads them again on SIGHUP."""

    effective: Effective

    def add_to(self, site: Site) -> None:
        site.page("/admin/settings", "settings", self.show, "Settings")

    def show(self) -> str:
        properties = self.effective.properties
        providers = [self._shown(each, "forms") for each in properties.form_providers]
        providers += [self._shown(each, "attachments") for each in properties.attachment_providers]
        return render_template(
            "settings.html",
            file=self.effective.file,
            settings=list(effective_settings(self.effective)),
            properties=list(effective_properties(self.effective)),
            providers=providers,
        )

    def _shown(self, provider: ProviderProperties, keeps: str) -> ShownProvider:
        place = shown_location(provider, self.effective.settings.roots, is_of_forms=keeps == "forms")
        return ShownProvider(provider.name, keeps, place, provider.is_active)
