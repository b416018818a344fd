"""Sequences of requests that a runtime sends in daily use: a table of steps, each with what the proxy must conclude."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import Literal, NamedTuple

from persistence.client.runtime_proxy import (
    BOB,
    CLERK,
    CLOSED,
    HIDDEN,
    LEA,
    LEASED,
    LEAVE,
    METADATA,
    NOT_ALLOWED,
    Release,
    Resource,
    RuntimeProxy,
    as_latin,
    field,
)
from persistence.errors import BadRequestError, NotSupportedError, RemoteTimeoutError
from persistence.forms.messages import text
from persistence.limits import LONGEST_NAME
from persistence.model.addresses import DATA_XML, LIBRARY_FORM
from persistence.model.permissions import ANONYMOUS, User

_CALLER_REFUSED = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.MISDIRECTED_REQUEST)
_FILE_NAMES = ("report.pdf.json", ".hidden", "Übersicht 100%.pdf", f"{'a' * (LONGEST_NAME - 4)}.pdf")
_FILE = "0123456789abcdef0123456789abcdef01234567.bin"
_BYTES = (("Content-Type", "application/octet-stream"),)
_OF_FILE = {"Path-To-Holder": "details/file", "Hash-Algorithm": "SHA-256", "Hash-Value": "9f86d081"}
_NAMES = (
    User("Jürgen Öztürk", "Käufer"),
    User("Zoë 50%", "a b"),
    User("王小明", "部門"),
    User("Ève e\u0301va 😀", "š"),
)
"""Users in Latin-1, with a percent sign, beyond Latin-1, and with a combining mark."""
_NAMESAKE = User("李小龍", "部門")
"""A user whose name differs from the third one's only in what Latin-1 lacks."""
_ADMIN_TOKEN = (("fr-internal-admin-token", "of a runtime"),)
_FORM_DATA = "<form><details><reason>{}</reason></details></form>"


class SequenceStep(NamedTuple):
    """A step of a sequence: its action, and the results that the proxy may expect of it.

    ``see`` is the row of the table in docs/orbeon.md that says what to do when it fails.
    """

    label: str
    see: str
    do: Callable[[RuntimeProxy], object]
    expected: tuple[str, ...]


def _step(label: str, see: str, do: Callable[[RuntimeProxy], object], *expected: str) -> SequenceStep:
    return SequenceStep(label, see, do, expected)


@dataclass(frozen=True, slots=True)
class StepResult:
    """``detail`` is the result of a failed step, or the reason why one was skipped."""

    sequence: str
    step: str
    result: Literal["ok", "failed", "skipped"]
    detail: str = ""
    see: str = ""


def play(proxy: RuntimeProxy) -> Iterator[StepResult]:
    """Play all sequences of the proxy's release, in the order in which they build on each other."""
    for name, sequence in SEQUENCES.items():
        for step in sequence(proxy.release):
            proxy.refusal = 0, ""
            try:
                found = str(step.do(proxy))
            except NotSupportedError as error:
                yield StepResult(name, step.label, "skipped", str(error))
                continue
            except (BadRequestError, ValueError) as error:  # not XML, or no number where one must be
                found = f"an answer that cannot be read: {error}"
            if found in step.expected:
                yield StepResult(name, step.label, "ok")
                continue
            status, line = proxy.refusal
            detail = f"{found}; expected {' or '.join(step.expected)}" + (f" ({status} {line})" if line else "")
            see = "callers" if status in _CALLER_REFUSED else step.see
            yield StepResult(name, step.label, "failed", detail, see)


def _publishing(release: Release) -> Iterator[SequenceStep]:
    def published(form: str, asked: int | str | None, proxy: RuntimeProxy) -> str:
        answer = proxy.publish(form, asked)
        return f"{answer.status}, version {field(answer, 'Form-Definition-Version')}"

    for form in METADATA:
        yield _step(f"{form}, version 1", "versions", partial(published, form, None), "201, version 1")
        yield _step(f"{form}, the next version", "versions", partial(published, form, "next"), "201, version 2")
    again = (f"{status}, version 1" for status in release.replaced)
    yield _step(f"{LEAVE}, version 1 again", "versions", partial(published, LEAVE, 1), *again)
    yield _step("load version 1", "versions", lambda proxy: proxy.definition(LEAVE, 1).status, "200")


def _lists(release: Release) -> Iterator[SequenceStep]:
    def versions(form: str, user: User, proxy: RuntimeProxy) -> str:
        found = proxy.listed(form, release.all_versions, user)
        numbers = sorted(each.version for each in found)
        closed = sorted(each.version for each in found if each.has_permissions)
        return f"versions {_joined(numbers)}; with permissions {_joined(closed)}"

    def latest(proxy: RuntimeProxy) -> str:
        return _joined(each.version for each in proxy.listed(LEAVE, release.latest or ()))

    def home(proxy: RuntimeProxy) -> str:
        return _joined(sorted(f"{each.form.name} {each.version}" for each in proxy.posted_list()))

    both = "versions 1 2; with permissions 1 2"
    for form in (LEAVE, CLOSED, HIDDEN, LIBRARY_FORM):
        for user in (BOB, ANONYMOUS):
            who = "a user without a role" if user is BOB else "nobody"
            yield _step(f"{form}, for {who}", "list", partial(versions, form, user), both)
    if release.latest is not None:
        yield _step(f"{LEAVE}, the latest version", "list", latest, "2")
    if release.posts_list:
        yield _step("home page", "list", home, _joined(f"{form} 2" for form in sorted(METADATA)))


def _data(release: Release) -> Iterator[SequenceStep]:
    def facts(names: Resource, proxy: RuntimeProxy) -> str:
        answer = proxy.get(names)
        names_and_stage = _joined(field(answer, name) for name in ("Username", "Group", "Workflow-Stage"))
        return f"{answer.status}, version {field(answer, 'Form-Definition-Version')}, {names_and_stage}"

    def by_another(states: bool, proxy: RuntimeProxy) -> str:  # noqa: FBT001 - the variant of a release
        names = _document(f"by-another-{states}".lower())
        proxy.put(names)
        before = proxy.head(names)
        status = proxy.put(names, BOB, states_existing=states).status
        after = proxy.head(names)
        is_same = field(after, "Created") == field(before, "Created")
        modifier = field(after, "Last-Modified-By-Username")
        created = "before" if is_same else "anew"
        return f"{status}, owner {field(after, 'Username')}, created {created}, modified by {modifier}"

    names = _document("new")
    stage = {"Workflow-Stage": "geprüft"}
    yield _step("look for new data", "data", lambda proxy: proxy.head(names).status, "404")
    yield _step("save new data", "data", lambda proxy: proxy.put(names, own=stage).status, "201")
    yield _step("read it", "names", partial(facts, names), "200, version 2, lea staff geprüft")
    yield _step("save it again", "data", lambda proxy: proxy.put(names, own=stage).status, *release.replaced)
    for states in release.existing:
        statuses = ("204",) if states else release.replaced
        label = f"save by a second user, {'with' if states else 'without'} *-Existing"
        kept = tuple(f"{status}, owner lea, created before, modified by bob" for status in statuses)
        yield _step(label, "owner", partial(by_another, states), *kept)


def _attachments(release: Release) -> Iterator[SequenceStep]:
    def kept(name: str, body: bytes, proxy: RuntimeProxy) -> str:
        names = ("data", "attached", name)
        put = proxy.put(names, body=body, fields=_BYTES, own=_OF_FILE)
        got = proxy.get(names, fields=() if body else (("Range", "bytes=0-"),))
        is_same = got.body == body and field(got, "Hash-Value") == _OF_FILE["Hash-Value"]
        return f"{put.status}, {got.status}, {'as sent' if is_same else 'not as sent'}"

    for name in (_FILE, *_FILE_NAMES):
        label = f"a name of {len(name)} characters" if len(name) == LONGEST_NAME else name
        yield _step(label, "attachments", partial(kept, name, b"\x00bytes\xff"), "201, 200, as sent")
    yield _step("the data after them", "data", lambda proxy: proxy.put(_document("attached")).status, "201")
    empty = partial(kept, "elsewhere.bin", b"")
    yield _step("kept by the runtime: empty, read by a range", "attachments", empty, "201, 200, as sent")
    again = tuple(f"{status}, 200, as sent" for status in release.replaced)
    yield _step("kept by the runtime, replaced", "attachments", empty, *again)


def _drafts(release: Release) -> Iterator[SequenceStep]:
    draft, saved = ("draft", "drafted"), ("data", "drafted")

    def autosaved(proxy: RuntimeProxy) -> str:
        file = proxy.put((*draft, _FILE), body=b"draft", fields=_BYTES, own=_OF_FILE)
        return f"{file.status}, {proxy.put((*draft, DATA_XML)).status}"

    def found(proxy: RuntimeProxy) -> str:
        only = '<search><query/><drafts for-document-id="drafted">only</drafts></search>'
        return f"{proxy.search(only)[0]} found, attachment {proxy.get((*draft, _FILE)).status}"

    def replaced(proxy: RuntimeProxy) -> str:
        proxy.put((*saved, _FILE), body=b"draft", fields=_BYTES, own=_OF_FILE)
        status = proxy.put((*saved, DATA_XML)).status
        left = [proxy.head((*draft, name)).status for name in (DATA_XML, _FILE)]
        return f"{status}, draft {left[0]}, its attachment {left[1]}"

    yield _step("autosave", "drafts", autosaved, "201, 201")
    again = tuple(f"{status}, {status}" for status in release.replaced)
    yield _step("autosave again", "drafts", autosaved, *again)
    yield _step("find it and its attachment", "drafts", found, "1 found, attachment 200")
    yield _step("save", "drafts", replaced, "201, draft 404, its attachment 404")


def _names(release: Release) -> Iterator[SequenceStep]:
    states = release.existing[-1]

    def owns(user: User, proxy: RuntimeProxy) -> str:
        names = _document(f"of-{_NAMES.index(user)}")
        proxy.put(names, user, states_existing=states)
        proxy.put(names, user, states_existing=states)
        return of(user, names, proxy)

    def stays(owner: User, proxy: RuntimeProxy) -> str:
        names = _document(f"of-{_NAMES.index(owner)}")
        proxy.put(names, _NAMESAKE, states_existing=states)
        return of(owner, names, proxy)

    def of(user: User, names: Resource, proxy: RuntimeProxy) -> str:
        """Return the owner by headers, and the creators of what a search by that user finds."""
        answer = proxy.get(names, user)
        creators = {each.creator or "" for each in proxy.search("<search/>", user)[1]}
        return f"{field(answer, 'Username')} {field(answer, 'Group')}; {_joined(sorted(creators))}"

    def expected(user: User) -> tuple[str, ...]:
        """Return the headers and the creator; Latin-1 may have one or two marks for a character beyond 16 bits."""
        sent = f"{user.name} {user.group}"
        latin = (as_latin(sent), sent.encode("latin-1", "replace").decode("latin-1"))
        return tuple(dict.fromkeys(f"{each}; {user.name}" for each in latin))

    for user in _NAMES:
        yield _step(f"{user.name} saves twice and stays the owner", "names", partial(owns, user), *expected(user))
    owner = _NAMES[2]
    label = f"{_NAMESAKE.name} saves the data of {owner.name}"
    yield _step(label, "names", partial(stays, owner), *expected(owner))


def _conflicts(_: Release) -> Iterator[SequenceStep]:
    def conflict(proxy: RuntimeProxy) -> str:
        names = _document("conflict")
        tag = proxy.put(names).headers.get("ETag", "")
        saves = ((tag, BOB), (tag, LEA), ("*", LEA))
        return _joined(proxy.put(names, user, fields=(("If-Match", given),)).status for given, user in saves)

    expected = tuple(f"{one} 412 {one}" for one in ("204", "201"))
    yield _step("save under If-Match: in time, too late, and with *", "conflicts", conflict, *expected)


def _searches(_: Release) -> Iterator[SequenceStep]:
    def prepared(proxy: RuntimeProxy) -> str:
        reasons = {"s1": "alpine holiday", "s2": "beach holiday", "s3": "illness"}
        bodies = {name: _FORM_DATA.format(text(reason)) for name, reason in reasons.items()}
        puts = [
            proxy.put(_document(name), body=body.encode(), own={"Workflow-Stage": "s"}) for name, body in bodies.items()
        ]
        return _joined(put.status for put in puts)

    def search(body: str, user: User, fields: tuple[tuple[str, str], ...], proxy: RuntimeProxy) -> str:
        total, page = proxy.search(f"<search>{body}<drafts>exclude</drafts></search>", user, fields=fields)
        found = (f"{each.document} {' '.join(each.values.values())}".strip() for each in page)
        return f"{total}: {', '.join(found)}"

    def distinct(proxy: RuntimeProxy) -> str:
        body = '<distinct-values><query path="details/reason"/><query metadata="created-by"/></distinct-values>'
        return "; ".join(", ".join(sorted(each)) for each in proxy.distinct(body))

    by_reason = '<query path="details/reason" match="substring" sort="asc">holiday</query>'
    second = f"{by_reason}<page-size>1</page-size><page-number>2</page-number>"
    by_facts = '<query metadata="workflow-stage" match="exact">s</query><query path="details/reason">illness</query>'
    free = "<query>alpine</query>"
    all_of_it = "2: s1 alpine holiday, s2 beach holiday"
    cases = (
        ("by a control, sorted", by_reason, LEA, (), all_of_it),
        ("the second page", second, LEA, (), "2: s2 beach holiday"),
        ("by stage and an exact value", by_facts, LEA, (), "1: s3 illness"),
        ("by free text", free, LEA, (), "1: s1"),
        ("of another owner's data", by_reason, BOB, (), "0: "),
        ("by a role that may read", by_reason, CLERK, (), all_of_it),
        ("of an export, with fr-internal-admin-token", by_reason, ANONYMOUS, _ADMIN_TOKEN, all_of_it),
    )
    yield _step("save three documents", "data", prepared, "201 201 201")
    for label, body, user, fields, expected in cases:
        yield _step(label, "search", partial(search, body, user, fields), expected)
    yield _step("distinct values", "search", distinct, "alpine holiday, beach holiday, check, illness; lea")


def _history(_: Release) -> Iterator[SequenceStep]:
    def revisions(proxy: RuntimeProxy) -> str:
        for reason in ("one", "two"):
            proxy.put(_document("history"), body=_FORM_DATA.format(reason).encode())
        return str(len(proxy.revisions("history")))

    yield _step("two revisions", "history", revisions, "2")
    yield _step("their difference", "history", lambda proxy: proxy.difference("history"), "value-changed: one, two")


def _leases(_: Release) -> Iterator[SequenceStep]:
    def leases(proxy: RuntimeProxy) -> str:
        proxy.put(LEASED)
        calls = (("LOCK", LEA), ("LOCK", BOB), ("UNLOCK", LEA), ("LOCK", BOB), ("UNLOCK", BOB))
        statuses = [proxy.lease(method, user).status for method, user in calls]
        if statuses[0] == HTTPStatus.FORBIDDEN:
            raise NotSupportedError("leases are off in the service: the runtime must have lease=false")
        return _joined(statuses)

    yield _step("LOCK by two users, UNLOCK", "leases", leases, "200 423 200 200 200")


def _deletion(_: Release) -> Iterator[SequenceStep]:
    def deleted(proxy: RuntimeProxy) -> str:
        names = _document("deleted")
        proxy.put(names)
        return f"{proxy.delete(names).status}, then {proxy.head(names).status}"

    def batch(proxy: RuntimeProxy) -> str:
        for number in range(3):
            proxy.put(_document(f"batch-{number}"), version=1)
        return f"{proxy.delete_all(version=1)} deleted, {proxy.search('<search/>', version=1)[0]} left"

    yield _step("delete data", "data", deleted, "204, then 410")
    yield _step("delete all data of a version", "data", batch, "3 deleted, 0 left")


def _purge(_: Release) -> Iterator[SequenceStep]:
    def purged(proxy: RuntimeProxy) -> str:
        names = _document("purged")
        for _number in range(3):
            proxy.put(names)
        older = proxy.revisions("purged")
        tombstone = field(proxy.delete(names), "Last-Modified")
        statuses = proxy.purge("purged", [*older[:1], tombstone, *older[1:]])
        if statuses[0] in NOT_ALLOWED:
            raise NotSupportedError("needs a caller whom the setting administrators names: see --key-file")
        return f"{_joined(statuses)}, then {proxy.head(names).status}"

    yield _step("purge data with its history, newest first", "purge", purged, "204 204 204 204, then 404")


def _reindexing(release: Release) -> Iterator[SequenceStep]:
    def reindexed(proxy: RuntimeProxy) -> str:
        try:
            return str(proxy.reindex().status)
        except RemoteTimeoutError:
            raise NotSupportedError("the rebuild of the index takes long, and goes on") from None

    yield _step(f"{release.reindexes} /reindex", "reindex", reindexed, "200")


SEQUENCES: Mapping[str, Callable[[Release], Iterable[SequenceStep]]] = {
    "publish": _publishing,
    "list of forms": _lists,
    "data": _data,
    "attachments": _attachments,
    "drafts": _drafts,
    "names": _names,
    "conflict": _conflicts,
    "search": _searches,
    "history": _history,
    "leases": _leases,
    "deletion": _deletion,
    "purge": _purge,
    "reindex": _reindexing,
}
"""The sequences by name, each with its steps for a release."""


def _joined(values: Iterable[object]) -> str:
    return " ".join(map(str, values)) or "none"


def _document(name: str) -> Resource:
    return ("data", name, DATA_XML)
