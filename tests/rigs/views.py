"""What a client finds: every resource of a disturbed request with its headers, before, after, and undisturbed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from pathlib import PurePosixPath

from persistence.model.texts import parse_instant, to_datetime
from tests.rigs.scenarios import Chain, Moment, Resource, Scenario, Step, lease_probe, lease_told, send
from tests.service import Answer, Service

_OF_THE_ANSWER = {"date", "x-request-id", "server", "connection"}
_OF_THE_REVISION = {"etag", "last-modified", "svc-last-modified", "created", "svc-created", "svc-form-definition-app"}
_VERSION = "svc-form-definition-version"
_ETAG = re.compile(r'"[0-9a-f]{40}"')


@dataclass(frozen=True, slots=True)
class View:
    """An answer to a read: status, content, and the headers in small letters that do not belong to the answer alone."""

    status: int
    body: bytes
    headers: Mapping[str, str]

    @property
    def content(self) -> bytes | None:
        return self.body or None if self.status == 200 else None

    @property
    def lasting(self) -> dict[str, str]:
        """The headers that the same request made twice gives twice."""
        return {name: value for name, value in self.headers.items() if name not in _OF_THE_REVISION}


Views = Mapping[Resource, View]


@dataclass(frozen=True, slots=True)
class Kept:
    path: str
    instant: str
    etag: str
    body: bytes


def seen(service: Service, form: str, resources: Iterable[Resource]) -> dict[Resource, View]:
    return {resource: _seen(service, form, resource) for resource in resources}


def _seen(service: Service, form: str, resource: Resource) -> View:
    if resource.is_lease:
        answer = send(service, form, lease_probe(resource.path))
        is_held = answer.status == HTTPStatus.LOCKED
        return View(200, lease_told(answer), {}) if is_held else View(answer.status, b"", {})
    return view_of(send(service, form, Step("GET", resource.path, version=resource.version)))


def view_of(answer: Answer) -> View:
    """What two reads of one revision have in common."""
    headers = {name.lower(): value for name, value in answer.headers.items()}
    return View(answer.status, answer.body, {name: headers[name] for name in sorted(headers.keys() - _OF_THE_ANSWER)})


@dataclass(frozen=True, slots=True)
class Comparison:
    """What was found after a request that may have been killed, beside what was there before and what should be."""

    before: Views
    found: Views
    reference: Views

    def committed(self, scenario: Scenario) -> list[bool]:
        return [self._is_new(moment[0]) for chain in scenario.chains for moment in chain]

    def unfinished(self, scenario: Scenario) -> Iterator[Resource]:
        """What has not changed yet, although what goes before it in its chain has."""
        for chain in scenario.chains:
            if self._is_new(chain[0][0]):
                yield from (resource for moment in chain for resource in moment if not self._is_new(resource))

    def faults(self, scenario: Scenario) -> Iterator[str]:
        """Everything that is neither as before nor as after."""
        for chain in scenario.chains:
            yield from self._chain_faults(chain)
        begun = [self._is_new(chain[0][0]) for chain in scenario.chains]
        if scenario.in_order and begun != sorted(begun, reverse=True):
            yield f"{scenario.chains[-1][0][0].path} has changed before {scenario.chains[0][0][0].path}"
        for resource in scenario.unchanged:
            if self.found[resource] != self.before[resource]:
                yield f"{resource.path} has changed: {_shown(self.found[resource])}"

    def _chain_faults(self, chain: Chain) -> Iterator[str]:
        for moment in chain:
            yield from self._moment_faults(moment)
        new = [self._is_new(moment[0]) for moment in chain]
        if new != sorted(new, reverse=True):
            yield f"{chain[-1][0].path} has changed before {chain[0][0].path}"

    def _moment_faults(self, moment: Moment) -> Iterator[str]:
        if len({self._is_new(resource) for resource in moment}) > 1:
            yield f"only a part of {[resource.path for resource in moment]} has changed"
        for resource in moment:
            if self._is_new(resource):
                yield from self._new_faults(resource)
            elif self.found[resource] != self.before[resource]:
                yield f"{resource.path} is neither old nor new: {_shown(self.found[resource])}"

    def _is_new(self, resource: Resource) -> bool:
        found, reference = self.found[resource], self.reference[resource]
        return found.status == reference.status and found.content == reference.content

    def _new_faults(self, resource: Resource) -> Iterator[str]:
        before, found, reference = self.before[resource], self.found[resource], self.reference[resource]
        if found.content is None or resource.is_lease:
            return
        if found.lasting != reference.lasting:
            yield f"{resource.path} has other headers than the request gives: {_shown(found)}"
        if not _ETAG.fullmatch(found.headers["etag"]) or found.headers["etag"] == before.headers.get("etag"):
            yield f"{resource.path} has the entity tag {found.headers['etag']}, of another content"
        if not before.headers.get("svc-last-modified", "") < found.headers["svc-last-modified"]:
            yield f"{resource.path} is not younger than what it replaces"
        same = before.headers.get(_VERSION) == found.headers[_VERSION]
        if same and before.headers["svc-created"] != found.headers["svc-created"]:
            yield f"{resource.path} was created at another time than before"
        for name in ("last-modified", "created"):
            exact = to_datetime(parse_instant(found.headers[f"svc-{name}"])).replace(microsecond=0)
            if parsedate_to_datetime(found.headers[name]) != exact:
                yield f"{resource.path} has two different instants for {name}"


def kept_of(views: Views) -> Iterator[Kept]:
    """The revisions of form data that were found, to be looked up by their instants later."""
    for resource, view in views.items():
        if view.content is not None and resource.path.startswith("data/") and not resource.is_lease:
            yield Kept(resource.path, view.headers["svc-last-modified"], view.headers["etag"], view.content)


def history_faults(service: Service, form: str, kept: Iterable[Kept], found: Views) -> Iterator[str]:
    """What of the older revisions cannot be read; attachments of a document that is gone cannot be asked for."""
    gone = {PurePosixPath(one.path).parent for one, view in found.items() if _is_main(one) and view.content is None}
    for revision in kept:
        path = PurePosixPath(revision.path)
        if path.name != "data.xml" and path.parent in gone:
            continue
        answer = send(service, form, Step("GET", f"{revision.path}?last-modified-time={revision.instant}"))
        if (answer.status, answer.body, answer["ETag"]) != (200, revision.body, revision.etag):
            yield f"{revision.path} of {revision.instant} is answered {answer.status}: {answer.body[-40:]!r}"


def _is_main(resource: Resource) -> bool:
    return resource.path.endswith("/data.xml") and not resource.is_lease


def _shown(view: View) -> str:
    return f"{view.status} {dict(view.headers)} {view.body[-40:]!r}"
