"""A runtime's own properties: which provider each form would get, and what is missing for this service as one.

No runtime is needed: its file is read, and its defaults that matter here are known (spec crud 10).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlsplit

from persistence.dialect import ORBEON
from persistence.errors import BadRequestError, NotFoundError, disk_errors
from persistence.forms.messages import attributes_of, element, read_children, text_in
from persistence.limits import LARGEST_RUNTIME_PROPERTIES
from persistence.model.addresses import DESIGNER_FORM, LIBRARY_FORM, Form
from persistence.properties.properties import FormProperties, NameTree
from persistence.properties.property_table import ANY, DATA, FORM, SERVICES, Name
from persistence.xml import SEPARATOR

_ATTACHMENTS = "attachments"
_BUILT_IN = "sqlite"
_OWN_APPS = (ORBEON.designer.app, f"{ORBEON.designer.app}-features")
"""The applications whose definitions the runtime has a default of its own for."""

_SENDS_PASSWORDS = ("current",)
_BOOLEANS = ("false", "true")
_PREFIX: Name = (*ORBEON.property_prefix.split(".")[:-1], "persistence")
_PROVIDER = (*_PREFIX, "provider")


@dataclass(frozen=True, slots=True)
class RuntimeRoute:
    """The providers of a form, or of all forms that a name with ``*`` stands for."""

    # ``definition`` is empty for the designer's own form, which comes with the runtime; ``attachments`` if with data.
    form: Form
    definition: str
    data: str
    attachments: str


@dataclass(frozen=True, slots=True)
class NeededProperty:
    """A property that the runtime needs for this service; ``found`` is what it has, empty if that is nothing."""

    name: str
    value: str
    found: str
    reason: str = ""

    @property
    def line(self) -> str:
        kind = "boolean" if self.value in _BOOLEANS else "string"
        return element("property", attributes_of({"as": f"xs:{kind}", "name": self.name, "value": self.value}))


@dataclass(frozen=True, slots=True)
class RuntimeProperties:
    """The properties of a runtime's file by name, over the defaults of a release."""

    own: Mapping[Name, str]
    release: str
    defaults: Mapping[Name, str]
    _names: NameTree = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_names", NameTree((*self.own, *self.defaults)))

    @classmethod
    def load(cls, path: str, release: str) -> RuntimeProperties:
        if not os.path.isfile(path):
            raise NotFoundError(f"there is no file {path}")
        with disk_errors(path), open(path, "rb") as file:
            data = file.read(LARGEST_RUNTIME_PROPERTIES + 1)
        if len(data) > LARGEST_RUNTIME_PROPERTIES:
            raise BadRequestError(f"{path} has more than {LARGEST_RUNTIME_PROPERTIES} bytes: it is not read")
        defaults: dict[Name, str] = {(*_PROVIDER, ANY, ANY, ANY): _BUILT_IN, (*_PREFIX, _BUILT_IN, "active"): "true"}
        if release != "2023.1":
            defaults |= {(*_PROVIDER, app, ANY, FORM): _BUILT_IN for app in _OWN_APPS}
        try:
            return cls(_read(data), release, defaults)
        except BadRequestError as error:
            raise BadRequestError(f"{path} is not a file of properties: {error}") from error

    def value(self, *tokens: str) -> str:
        """Return the value of a name without its prefix, in which ``*`` stands for all others; empty without one."""
        name = self._names.find((*_PREFIX, *tokens))
        return "" if name is None else self._stored(name)

    def _stored(self, name: Name) -> str:
        return self.own.get(name, self.defaults.get(name, "")).strip()

    @property
    def services(self) -> Mapping[str, str]:
        found = {
            name[-2]: value.strip() for name, value in self.own.items() if name[-1] == "uri" and name[:-2] == _PREFIX
        }
        return {name: uri for name, uri in found.items() if uri.partition(":")[0].lower() in SERVICES}

    def route(self, form: Form) -> RuntimeRoute:
        names = ("provider", form.app, form.name)
        is_shipped = form == ORBEON.designer and (*_PREFIX, *names, FORM) not in self.own
        definition = "" if is_shipped else self.value(*names, FORM)
        return RuntimeRoute(form, definition, self.value(*names, DATA), self.value(*names, DATA, _ATTACHMENTS))

    def forms(self, stored: Iterable[Form]) -> list[Form]:
        """Return the forms and patterns that the properties name, those of the runtime itself, and the stored ones."""
        named = {Form(*name[len(_PROVIDER) :][:2]) for name in (*self.own, *self.defaults) if _is_of_form(name)}
        designer = ORBEON.designer.app
        own = {Form(designer, DESIGNER_FORM), Form(designer, LIBRARY_FORM)}
        found = named | own | {Form(app, ANY) for app in _OWN_APPS} | set(stored)
        return sorted(found, key=lambda form: (form.app == ANY, form.app, form.name == ANY, form.name))

    def providers(self) -> set[str]:
        names = {name for kind in (FORM, DATA) for name in self._names.reachable((*_PROVIDER, ANY, ANY, kind))}
        return set(map(self._stored, names))

    def needed(self, service: FormProperties) -> list[NeededProperty]:
        """Return what is missing, or other than it must be, for a service with properties in force."""
        names = self.services
        found = [each for name in names for each in self._of_provider(name, service)]
        general = self.value("provider", ANY, ANY, FORM)
        if general in names:
            for app in _OWN_APPS:
                route = (*_PROVIDER, app, ANY, FORM)
                if route not in self.own and route in self.defaults:
                    found.append(
                        NeededProperty(".".join(route), general, "", f"the runtime's own {_BUILT_IN} is more specific")
                    )
        complete = replace(self, own={**self.own, **{tuple(each.name.split(".")): each.value for each in found}})
        active = (*_PREFIX, _BUILT_IN, "active")
        if names and _BUILT_IN not in complete.providers() and _plain(self._stored(active)) != "false":
            found.append(NeededProperty(".".join(active), "false", self.own.get(active, ""), "it has no form any more"))
        return found

    def _of_provider(self, provider: str, service: FormProperties) -> Iterator[NeededProperty]:
        must = {
            "versioning": _word(service.has_versions),
            "lease": _word(service.has_leases),
            "sort": "true",
            "distinct": "true",
            "reindex": "true",
            "data-format-version": service.data_format,
        }
        may = {"active": "true", "autosave": _word(service.has_drafts), "reencrypt": "false"}
        for token, value in (must | may).items():
            found = self.value(provider, token)
            is_default = not found and (token in may or value == "false")
            if _plain(found) != value and not is_default:
                yield NeededProperty(".".join((*_PREFIX, provider, token)), value, found)

    def problems(self) -> Iterator[str]:
        """Yield what is wrong, and no added property corrects."""
        services = self.services
        if not services:
            uri = ".".join((*_PREFIX, "NAME", "uri"))
            yield f"no provider is another service: {uri} must be the address of one, such as http://127.0.0.1:8080"
        for name, uri in services.items():
            parts = urlsplit(uri)
            if parts.path.strip("/"):
                yield f"the uri of {name} has the path {parts.path}, but the proxy adds /crud, /search and so on itself"
            if "@" in parts.netloc and self.release not in _SENDS_PASSWORDS:
                yield f"the uri of {name} has a password, which this release does not send with a save"
        for stored, value in self.own.items():
            if _is_of_form(stored) and stored[-1] == _ATTACHMENTS and value.strip() in services:
                yield f"{'.'.join(stored)} names a service, which keeps attachments with its data only: remove it"

    def notes(self, routes: Iterable[RuntimeRoute]) -> Iterator[str]:
        """Yield what an administrator must know, and may be meant so."""
        services, used = self.services, self.providers()
        yield from (f"no form has the provider {name}" for name in services if name not in used)
        for route in routes:
            if route.data in services and route.attachments:
                kept = f"attachments of {route.form} are kept by {route.attachments}"
                yield f"{kept}: {route.data} has empty records of them, and no backup of it has their bytes"
        for name, value in self.own.items():
            if name[: len(_PREFIX)] == _PREFIX and "{" in value and "}" in value:
                yield f"{'.'.join(name)} is an expression, which is not evaluated here"


def _is_of_form(name: Name) -> bool:
    kinds = ((FORM,), (DATA,), (ANY,), (DATA, _ATTACHMENTS), (ANY, _ATTACHMENTS))
    return name[: len(_PROVIDER)] == _PROVIDER and name[len(_PROVIDER) + 2 :] in kinds


def _word(value: bool) -> str:  # noqa: FBT001 - a value of a property
    return "true" if value else "false"


def _plain(value: str) -> str:
    plain = value.strip()
    return {"1": "true", "0": "false"}.get(plain, plain)


def _read(data: bytes) -> dict[Name, str]:
    found = dict[Name, str]()

    def take(child: Any) -> None:
        if child.tag.rpartition(SEPARATOR)[2] == "property" and child.get("name") and not child.get("processor-name"):
            found[tuple(child.get("name").strip().split("."))] = child.get("value", text_in(child))

    read_children([data], take)
    if not found:
        raise BadRequestError("no element <property> with a name is below its root")
    return found
