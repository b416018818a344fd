"""The pages of a document: its revisions and their differences, its contents, and the actions on it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec
from flask import Response, render_template, request, url_for
from werkzeug.wrappers import Response as AnyResponse

from persistence import errors
from persistence.http.logs import REQUEST_ID, unbroken
from persistence.http.responses import SHOWN_TYPES
from persistence.limits import MOST_SHOWN, REVISIONS_SHOWN, ROWS_SHOWN, VALUES_SHOWN
from persistence.maintenance.reports import AttachmentFacts, DocumentReport, report_document
from persistence.model.addresses import DATA_XML, ERRORS_ENTRY, Collection, DocumentAddress, Form
from persistence.model.permissions import ANONYMOUS, Bearer, User
from persistence.model.sidecar import ListedRevision, Sidecar
from persistence.model.texts import Instant, next_after, parse_instant, short
from persistence.model.versions import Precondition, Tags
from persistence.pages.form_pages import ServedForms, disposition, file_name, form_path, page_number, title_of
from persistence.pages.languages import language_of, translated
from persistence.pages.site import NAME, Done, Question, Site, Values
from persistence.providers.router import Route
from persistence.services import histories, shown_documents
from persistence.services.document_tables import outline_of
from persistence.services.documents import Documents, FactsChange
from persistence.services.exporting import LEFT_OUT, ZipStream
from persistence.services.rules import Delete, Get
from persistence.storage.storage import NO_REVISIONS

PATH = "/admin/forms/<app>/<form>/<any(data, draft):collection>/<document>"
"""The rule of the page of a document or a draft, below which others are."""


def address_of(app: str, form: str, collection: str, document: str, name: str = DATA_XML) -> DocumentAddress:
    return DocumentAddress(Form(app, form), Collection(collection), document, name)


def document_path(endpoint: str, address: DocumentAddress, **values: Any) -> str:
    names: dict[str, Any] = {"app": address.form.app, "form": address.form.name, "document": address.document}
    return url_for(f"{NAME}.{endpoint}", collection=address.collection.value, **names, **values)


def asked_instant(name: str = "at") -> Instant | None:
    return instant_of(request.args.get(name, ""))


def instant_of(text: str) -> Instant | None:
    try:
        return parse_instant(text) if text else None
    except (ValueError, OverflowError):
        raise errors.NotFoundError(f"{text[:60]!r} is not a time of a revision") from None


_POLICY = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; sandbox"


# Contents of documents for a browser: XML and attachments to download, and images and PDF to look at.
#
# A content is a stranger's: it may be a page with scripts. Only a few types are shown in the browser, under a policy
# that lets them load and run nothing and takes their origin from them; all else is saved as a file.


def preview_of(content_type: str | None) -> str:
    """Return how an attachment can be shown: ``image``, ``pdf``, or empty."""
    kind = (content_type or "").partition(";")[0].strip().lower()
    return {"image": "image", "application": "pdf"}.get(kind.partition("/")[0], "") if kind in SHOWN_TYPES else ""


@dataclass(frozen=True, slots=True)
class OpenedDocument:
    """A document, and its ``revision`` of the ``instant`` if one is asked for, else the current one."""

    route: Route
    report: DocumentReport
    instant: Instant | None
    revision: Sidecar | None

    @property
    def address(self) -> DocumentAddress:
        return self.report.address

    @property
    def is_deleted(self) -> bool:
        return self.report.sidecar is not None and self.report.sidecar.deleted

    def path(self, endpoint: str, **values: Any) -> str:
        return document_path(endpoint, self.address, **values)


_LISTED = 10
_QUESTIONS = {
    "delete": ("Delete the document {name} of {form}?", "Delete {count} documents of {form}?", "Delete"),
    "restore": ("Bring back the document {name} of {form}?", "Bring back {count} documents of {form}?", "Bring back"),
    "change": ("Change the document {name} of {form}?", "Change {count} documents of {form}?", "Change"),
}  # Of each verb: the title for one document, and for several, and the button


@dataclass(frozen=True, slots=True)
class _Selected:
    """A document that an action is about, its entity tag, empty where nothing is stored, and its title if listed."""

    address: DocumentAddress
    tag: str
    title: str


_SUBJECT = "/<app>/<form>/<document>"


@dataclass(frozen=True, slots=True)
class DocumentPages:
    """The pages and actions. They read what is stored, without keys: encrypted values and files stay encrypted."""

    forms: ServedForms
    documents: Documents

    def add_to(self, site: Site) -> None:
        site.page(PATH, "document", self.show, reads="read")
        site.page(f"{PATH}/data.xml", "document-xml", self.xml, reads="read")
        site.page(f"{PATH}/attachments/<name>", "attachment", self.attachment, reads="read")
        site.page(f"{PATH}/changes", "changes", self.changes, reads="history")
        site.action("revert", self._revert, "revision", "current", subject=_SUBJECT)
        site.action("lease-break", self._break_lease, "holder", subject=_SUBJECT)
        of_several = partial(site.action, subject="/<app>/<form>", several="document")
        of_several("document-delete", self._delete, "document", "state")
        of_several("document-restore", self._restore, "document", "state")
        of_several("document-change", self._change, "document", "state", "change", "owner", "group", "stage")
        site.page("/admin/forms/<app>/<form>/documents.zip", "documents-zip", self.zip, reads="export")

    def show(self, app: str, form: str, collection: str, document: str) -> str:
        address = address_of(app, form, collection, document)
        shown = self._shown(address, asked_instant())
        outline = outline_of(shown.route, shown.revision.version if shown.revision else 1)
        language = language_of(outline.languages)
        living = shown
        if shown.is_deleted and shown.instant is None:  # its last values are shown
            with suppress(errors.NotFoundError):
                living = self._shown(address, histories.before_current(self.documents, address))
        values = self._contents(living, language)
        number = page_number(request.args.get("page", "1"))
        kept = {name: request.args[name] for name in ("at", "lang") if request.args.get(name)}
        revisions, total = _revisions(shown, number)
        published, lease = None, None
        if shown.revision is not None:
            with suppress(errors.PersistenceError):
                published = shown.route.catalog.of(address.form, shown.revision.version).published
        try:
            shown.route.data.storage.leases.require(address, ANONYMOUS)
        except errors.LockedError as error:
            lease = error
        return render_template(
            "document.html",
            shown=shown,
            title=title_of(published),
            values=values,
            at=living.instant,
            languages=outline.languages,
            language=language if language in outline.languages else next(iter(outline.languages), None),
            files=shown.report.attachments,
            images=_images(shown.report),
            named=shown.report.named if isinstance(shown.report.named, frozenset) else None,
            preview_of=preview_of,
            most=REVISIONS_SHOWN,
            other=document_path("document", address.counterpart),
            action=lambda name, **values: url_for(f"{NAME}.{name}", app=app, form=form, document=document, **values),
            here=lambda **values: shown.path("document", **(kept | values)),
            revisions=revisions,
            total=total,
            page=number,
            pages=max(1, -(-total // REVISIONS_SHOWN)),
            lease=lease,
            sidecar=msgspec.json.format(msgspec.json.encode(shown.revision)).decode() if shown.revision else "",
        )

    def _shown(self, address: DocumentAddress, instant: Instant | None) -> OpenedDocument:
        route = self.documents.router.of(address.form)
        place = self.forms.place_of(route)
        if place is None:
            raise errors.NotFoundError(
                f"the service {route.properties.route.data.name} has the documents of {address.form}"
            )
        report = report_document(place, address, with_revisions=False)
        revision = report.sidecar
        if instant is not None:
            found = route.storage.read(address, instant, content=False)
            if found is None:
                raise errors.NotFoundError(f"{address} has no revision of {instant}")
            revision = found.sidecar
        return OpenedDocument(route, report, instant, revision)

    def _contents(self, shown: OpenedDocument, language: str | None) -> shown_documents.ShownDocument:
        revision = shown.revision
        if revision is None or revision.deleted:
            return shown_documents.ShownDocument()
        try:
            read = self.documents.read(shown.address, Get(instant=shown.instant))
            return shown_documents.shown_document(
                shown.address, read, outline_of(shown.route, revision.version), language
            )
        except errors.DamagedError as error:
            return shown_documents.ShownDocument(cause=f"It is damaged: {error}", is_damaged=True)

    def xml(self, app: str, form: str, collection: str, document: str) -> AnyResponse:
        return self._sent(address_of(app, form, collection, document), f"{document}.xml", "application/xml")

    def attachment(self, app: str, form: str, collection: str, document: str, name: str) -> AnyResponse:
        """Answer with an attachment: inline if that is asked for and safe, else as a download under its own name."""
        own = name
        if request.args.get("show") != "yes":
            shown = self._shown(address_of(app, form, collection, document), asked_instant())
            own = self._contents(shown, None).file_names.get(name, name)
        return self._sent(address_of(app, form, collection, document, name), own, "")

    def _sent(self, address: DocumentAddress, name: str, content_type: str) -> AnyResponse:
        instant = asked_instant()
        # An attachment is older than the revision of the data that names it.
        get = Get(instant=instant) if address.is_main else Get(as_of=instant)
        read = self.documents.read(address, get)
        found = read.found
        if found.sidecar.encrypted and not address.is_main:
            found.close()
            raise errors.ForbiddenError(f"{address} is encrypted, and these pages do not decrypt")
        given = (found.sidecar.content_type or "").partition(";")[0].strip().lower()
        is_shown = request.args.get("show") == "yes" and bool(preview_of(given))
        kind = content_type or (given if preview_of(given) else "application/octet-stream")
        headers = {
            "Content-Security-Policy": _POLICY,
            "Content-Disposition": disposition(name, is_shown=is_shown),
            "Cross-Origin-Resource-Policy": "same-origin",
        }
        body = unbroken(read.pieces(), request.environ.get(REQUEST_ID))
        return Response(body, content_type=kind, headers=headers)

    def changes(self, app: str, form: str, collection: str, document: str) -> str:
        address = address_of(app, form, collection, document)
        older, newer = asked_instant("older"), asked_instant("newer")
        if older is None or newer is None:
            raise errors.NotFoundError("the times of two revisions are needed, as older and newer")
        found = self.documents.router.of(address.form).storage.read(address, newer, content=False)
        if found is None:
            raise errors.NotFoundError(f"{address} has no revision of {newer}")
        pair, shown = histories.RevisionPair(address, found.sidecar.version, older, newer), self._shown(address, None)
        language = request.args.get("lang") or None
        options = histories.DiffOptions(language, in_removed=True)
        before = shown.route.storage.read(address, older, content=False)
        facts = [] if before is None else list(_changed_facts(before.sidecar, found.sidecar))
        differing = histories.RevisionDiffs(self.documents).compared(pair, Bearer(), options)
        rows, left, has_more = list[shown_documents.ShownChange](), MOST_SHOWN, False
        for row in shown_documents.shown_changes(differing, address, language):
            if has_more := len(rows) == VALUES_SHOWN or left <= 0:
                break
            rows.append(row)
            left -= row.cost
        return render_template(
            "changes.html",
            address=address,
            back=document_path("document", address),
            pair=pair,
            shown=shown,
            images=_images(shown.report),
            by=found.sidecar.modifier or "",
            rows=facts + rows,
            has_more=has_more,
        )

    def _revert(self, values: Values) -> Question:
        address = address_of(values["app"], values["form"], "data", values["document"])
        reverting = histories.Reverting(self.documents)
        instant = instant_of(values["revision"]) or histories.before_current(self.documents, address)
        plan = reverting.plan(address, Get(instant=instant))
        older, current, is_deleted = plan.file.older, plan.file.current, plan.file.is_deleted
        tag = "" if current is None else current.etag

        def do(by: str) -> Done:
            if values["current"] != tag:  # ``If-Match`` never holds for a tombstone
                cause, now = "", plan.file.replaced
                if now is not None and not (current is not None and current.is_edited):
                    who = now.modifier or "somebody without a name"
                    cause = f": {'deleted' if now.deleted else 'saved'} by {who} at {now.modified}"
                raise errors.PreconditionError(
                    f"{address.form}/{address.document} has changed since you were asked{cause}. Nothing was written. "
                    "Look at the document again."
                )
            reverting.restore(reverting.plan(address, Get(instant=instant, user=User(name=by))))
            return Done(translated("The revision of {revision} is the current one again.", revision=older.modified))

        by = translated(" by {name}", name=older.modifier) if older.modifier else ""
        text = translated(
            "The revision of {revision} becomes the current one, as a new revision of yours.",
            revision=f"{older.modified}{by}",
        )
        effects = [text]
        if count := len(plan.attachments):
            effects.append(translated("{count} attachments come back as they were then.", count=count))
        effects += [] if is_deleted else [translated("What is current now stays in the history.")]
        effects.append(translated("The draft of the document is removed, if there is one."))
        effects += [] if plan.notice is None else [f"{translated(plan.notice)}."]
        name = f"{address.form}/{address.document}"
        button = translated("Bring it back" if is_deleted else "Make it current")
        older_one = translated("Make an older revision of {name} current again?", name=name)
        title = translated("Bring back the deleted document {name}?", name=name) if is_deleted else older_one
        sent = {"revision": str(instant), "current": tag}
        return Question(title, tuple(effects), button, document_path("document", address), do, sent=sent)

    def _break_lease(self, values: Values) -> Question:
        address = address_of(values["app"], values["form"], "data", values["document"])
        storage = self.documents.router.of(address.form).data.storage

        def do(_by: str) -> Done:
            if storage.is_remote:
                raise errors.NotSupportedError(f"another service has the leases of {address.form}")
            try:
                lease = storage.leases.broken(address.document, values["holder"])
            except errors.PreconditionError as error:
                raise errors.PreconditionError(f"{error}. Nothing was broken: look at the document again.") from error
            return Done(translated("The lease of {user} is broken.", user=lease.user))

        try:
            storage.leases.require(address, ANONYMOUS)
        except errors.LockedError as error:
            leased = "{user} has leased it for {count} more seconds, and may be editing it now."
            effects = (
                translated(leased, user=error.user or translated("Somebody"), count=error.seconds),
                translated("Others can then lease and save it. Only If-Match stops the one who saves last."),
            )
            name, back = f"{address.form}/{address.document}", document_path("document", address)
            title, sent = translated("Break the lease of {name}?", name=name), {"holder": error.user or ""}
            return Question(title, effects, translated("Break the lease"), back, do, is_dangerous=True, sent=sent)
        raise errors.NotFoundError(f"nobody has leased the document {address.document}")

    # Actions on one document or on several of a form: deleting, bringing back, another owner or stage; and downloads.

    def _selected(self, values: Values) -> list[_Selected]:
        names = list(dict.fromkeys(filter(None, values["document"].split("/"))))
        if not names:
            raise errors.BadRequestError("no document is selected: go back, and tick some")
        if len(names) > ROWS_SHOWN:
            raise errors.BadRequestError(
                f"{len(names)} documents are selected: at most {ROWS_SHOWN} are changed at once"
            )
        found = list[_Selected]()
        route = self.documents.router.of(Form(values["app"], values["form"]))
        for name in names:
            address = address_of(values["app"], values["form"], Collection.DATA.value, name)
            stored = route.storage.read(address, content=False)
            if stored is not None:
                is_listed = len(found) < _LISTED
                title = self._last_content(address, deleted=stored.sidecar.deleted).title if is_listed else ""
                found.append(_Selected(address, stored.etag, title))
        if not found:
            raise errors.BadRequestError("none of the selected documents exists")
        return found

    def _last_content(self, address: DocumentAddress, *, deleted: bool = False) -> shown_documents.ShownDocument:
        try:
            instant = histories.before_current(self.documents, address) if deleted else None
            read = self.documents.read(address, Get(instant=instant))
            outline = outline_of(self.documents.router.of(address.form), read.found.sidecar.version)
            return shown_documents.shown_document(address, read, outline, language_of(outline.languages))
        except errors.PersistenceError:  # the page of the document says what is wrong
            return shown_documents.ShownDocument()

    def _question(
        self, values: Values, verb: str, effects: tuple[str, ...], act: Callable[[_Selected, User], object], word: str
    ) -> Question:
        """Return a question that names the documents, and notes in ``state`` what is stored of them now.

        ``act`` is done with each of them; ``word`` is the notice of how many.
        """
        found, failed = self._selected(values), list[str]()
        form, count = Form(values["app"], values["form"]), len(found)
        names = [each.title or each.address.document for each in found]
        one, several, button = _QUESTIONS[verb]
        listed: tuple[str, ...] = ()
        if count > 1:
            more = translated(" and {count} more", count=count - _LISTED) if count > _LISTED else ""
            listed = (translated("The documents are: {names}.", names=", ".join(names[:_LISTED]) + more),)
        title = translated(one, name=names[0], form=form) if count == 1 else translated(several, count=count, form=form)
        back = document_path("document", found[0].address) if count == 1 else form_path(form)
        state = hashlib.sha256("".join(f"{each.address.document}/{each.tag}\n" for each in found).encode())
        sent = {"document": "/".join(each.address.document for each in found), "state": state.hexdigest()[:32]}

        def do(by: str) -> Done:
            if sent["state"] != values["state"]:
                raise errors.PreconditionError(
                    "a document has changed since you were asked. Nothing was written. Look at the documents again."
                )
            for each in found:
                try:
                    act(each, User(name=by))
                except errors.PersistenceError as error:
                    failed.append(str(error))
            notice = translated(word, count=count - len(failed))
            if failed:
                notice += " " + translated("{count} not: {cause}.", count=len(failed), cause=translated(failed[0]))
            return Done(notice, to=form_path(form) if failed else "")

        shown, is_dangerous = (*listed, *map(translated, effects)), verb == "delete"
        return Question(title, shown, translated(button), back, do, is_dangerous=is_dangerous, sent=sent)

    def _delete(self, values: Values) -> Question:
        def delete(each: _Selected, user: User) -> None:
            unchanged = Precondition(expected=Tags(frozenset({each.tag})), must_exist=True)
            self.documents.delete(each.address, Delete(precondition=unchanged, user=user))

        effects = (
            "The history stays, and a deleted document can be brought back, until it is purged.",
            "The draft of the document is removed, if there is one.",
        )
        return self._question(values, "delete", effects, delete, "Documents deleted: {count}.")

    def _restore(self, values: Values) -> Question:
        reverting = histories.Reverting(self.documents)

        def restore(each: _Selected, user: User) -> None:
            instant = histories.before_current(self.documents, each.address)
            reverting.restore(reverting.plan(each.address, Get(instant=instant, user=user)))

        effects = ("The last revision becomes the current one, as a new revision of yours.",)
        return self._question(values, "restore", effects, restore, "Documents brought back: {count}.")

    def _change(self, values: Values) -> Question:
        owner, group = short(values["owner"], "owner"), short(values["group"], "group of the owner")
        stage = short(values["stage"], "stage")
        if group and not owner:
            raise errors.BadRequestError("a group needs an owner")
        to = partial(FactsChange, owner=None, stage=stage or "")
        if values["change"] == "owner":
            member = "{owner} of the group {group} becomes the owner." if group else "{owner} becomes the owner."
            what = translated(member if owner else "Nobody is the owner any more.", owner=owner, group=group)
            to = partial(FactsChange, owner=User(name=owner, group=group), stage=None)
        elif values["change"] == "stage":
            what = translated("The stage becomes {stage}." if stage else "The stage is removed.", stage=stage)
        else:
            raise errors.BadRequestError(f"owner or stage can be changed, not {values['change'][:60]!r}")
        effects = (
            what,
            "This makes a new revision, with the same content.",
            "The draft of the document is removed, if there is one.",
        )

        def change(each: _Selected, user: User) -> None:
            self.documents.change_facts(each.address, each.tag, to(user))

        return self._question(values, "change", effects, change, "Documents changed: {count}.")

    def zip(self, app: str, form: str) -> AnyResponse:
        """Send the named documents, else all of the form: a folder each, with files under their own names."""
        names = list(dict.fromkeys(request.args.getlist("document")))
        if len(names) > ROWS_SHOWN:
            raise errors.BadRequestError(
                f"{len(names)} documents are selected: name at most {ROWS_SHOWN}, or none for all"
            )
        route = self.documents.router.of(Form(app, form))
        for name in names:  # a name that leads nowhere is refused before the answer begins
            with suppress(errors.DamagedError):
                if route.storage.sidecar(address_of(app, form, Collection.DATA.value, name)) is None:
                    raise errors.NotFoundError(f"{app}/{form} has no document {name}")
        pieces = self._archive(route.form, iter(names) if names else route.data.storage.documents(route.form))
        headers = {"Content-Disposition": disposition(f"{names[0] if len(names) == 1 else f'{app}-{form}'}.zip")}
        body = unbroken(pieces, request.environ.get(REQUEST_ID))
        return Response(body, content_type="application/zip", headers=headers | {"X-Accel-Buffering": "no"})

    def _archive(self, form: Form, names: Iterator[str]) -> Iterator[bytes]:
        problems = list[str]()
        with ZipStream() as archive:
            for name in names:
                main = DocumentAddress(form, Collection.DATA, name)
                storage, taken = self.documents.router.of(form).storage, {DATA_XML}
                own = self._last_content(main).file_names
                stored = storage.sidecar(main)
                for file in () if stored is None or stored.deleted else sorted(storage.names(main)):
                    shown = file if file == DATA_XML else _free_name(file_name(own.get(file, file)), taken)
                    try:
                        yield from self._entry(archive, main.moved(Collection.DATA, file), f"{name}/{shown}")
                    except LEFT_OUT as error:
                        problems.append(str(error))
            if problems:
                lines, now = "".join(f"{line}\n" for line in problems).encode(), next_after(None)
                yield from archive.add(ERRORS_ENTRY, (now, now), [lines], len(lines), compresses=True)
            yield from archive.end()

    def _entry(self, archive: ZipStream, address: DocumentAddress, path: str) -> Iterator[bytes]:
        read = self.documents.read(address, Get(user=ANONYMOUS))
        with closing(read.found):
            sidecar = read.found.sidecar
            if sidecar.encrypted and not address.is_main:
                raise errors.BadRequestError(f"{address} is encrypted, and these pages do not decrypt")
            times = sidecar.modified, sidecar.created
            yield from archive.add(path, times, read.pieces(), read.size, compresses=address.is_main)


def _changed_facts(older: Sidecar, newer: Sidecar) -> Iterator[shown_documents.ShownChange]:
    for label, before, after in (
        ("Stage", older.stage, newer.stage),
        ("Owner", older.creator, newer.creator),
        ("Group of the owner", older.group, newer.group),
    ):
        if before != after:
            was, now = (shown_documents.DisplayedValue(each) if each else None for each in (before, after))
            yield shown_documents.ShownChange("", translated(label), was, now)


def _images(report: DocumentReport) -> frozenset[str]:
    files = (each for each in report.attachments if isinstance(each, AttachmentFacts) and not each.is_encrypted)
    return frozenset(each.name for each in files if preview_of(each.content_type) == "image")


def _revisions(shown: OpenedDocument, number: int) -> tuple[list[ListedRevision], int]:
    history = shown.route.storage.history(shown.address) if shown.address.keeps_history else NO_REVISIONS
    begin = (number - 1) * REVISIONS_SHOWN
    # One more than is shown: the last one of a page is compared with the one before it.
    return history.page(begin, begin + REVISIONS_SHOWN + 1), history.total


def _free_name(name: str, taken: set[str]) -> str:
    """Return a name that no other file of the folder has, in any letter case: ``a.pdf``, then ``a (2).pdf``."""
    stem, dot, suffix = name.rpartition(".")
    number, free = 1, name
    while free.lower() in taken or free in {"", ".", ".."}:
        number += 1
        free = f"{stem} ({number}){dot}{suffix}" if stem else f"{name} ({number})"
    taken.add(free.lower())
    return free
