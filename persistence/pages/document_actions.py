"""Actions on one document or on several of a form: deleting, bringing back, another owner or stage; and downloads."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass

from flask import Response, request
from werkzeug.wrappers import Response as AnyResponse

from persistence.errors import BadRequestError, DamagedError, NotFoundError, PersistenceError, PreconditionError
from persistence.http.logs import REQUEST_ID, Unbroken
from persistence.limits import ROWS_SHOWN
from persistence.model.addresses import DATA_XML, ERRORS_ENTRY, Collection, DocumentAddress, Form
from persistence.model.permissions import ANONYMOUS, User
from persistence.model.texts import next_after, short
from persistence.model.versions import Precondition, Tags
from persistence.pages.document_pages import address_of, document_path
from persistence.pages.document_table import disposition, file_name
from persistence.pages.languages import language_of, translated
from persistence.pages.served_forms import form_path
from persistence.pages.site import Action, Done, Question, Site, Values
from persistence.services.document_tables import outline_of
from persistence.services.documents import Documents, FactsChange
from persistence.services.exporting import LEFT_OUT, ZipStream
from persistence.services.histories import Reverting, before_current
from persistence.services.rules import Delete, Get, Revert
from persistence.services.shown_documents import ShownDocument, shown_document

_LISTED = 10
_QUESTIONS = {
    "delete": ("Delete the document {name} of {form}?", "Delete {count} documents of {form}?", "Delete"),
    "restore": ("Bring back the document {name} of {form}?", "Bring back {count} documents of {form}?", "Bring back"),
    "change": ("Change the document {name} of {form}?", "Change {count} documents of {form}?", "Change"),
}  # Of each verb: the title for one document, and for several, and the button
_RESTORED = ("The last revision becomes the current one, as a new revision of yours.",)
_SUBJECT = "/<app>/<form>"


@dataclass(frozen=True, slots=True)
class _Selected:
    """A document that an action is about, its entity tag, empty where nothing is stored, and its title if listed."""

    address: DocumentAddress
    tag: str
    title: str


@dataclass(frozen=True, slots=True)
class DocumentActions:
    """The actions. They keep what is encrypted as it is."""

    documents: Documents

    def add_to(self, site: Site) -> None:
        fields = ("document", "state")
        for name, ask, do, others in (
            ("document-delete", self._ask_to_delete, self._delete, ()),
            ("document-restore", lambda values: self._question(values, "restore", _RESTORED), self._restore, ()),
            ("document-change", self._ask_to_change, self._change, ("change", "owner", "group", "stage")),
        ):
            site.action(Action(name, ask, do, (*fields, *others), _SUBJECT, several="document"))
        site.page("/admin/forms/<app>/<form>/documents.zip", "documents-zip", self.zip, reads="export")

    def _selected(self, values: Values) -> list[_Selected]:
        names = list(dict.fromkeys(filter(None, values["document"].split("/"))))
        if not names:
            raise BadRequestError("no document is selected: go back, and tick some")
        if len(names) > ROWS_SHOWN:
            raise BadRequestError(f"{len(names)} documents are selected: at most {ROWS_SHOWN} are changed at once")
        found = list[_Selected]()
        route = self.documents.router.of(Form(values["app"], values["form"]))
        for name in names:
            address = address_of(values["app"], values["form"], Collection.DATA.value, name)
            stored = route.storage.read(address, content=False)
            if stored is not None:
                is_listed = len(found) < _LISTED
                title = self._shown(address, deleted=stored.sidecar.deleted).title if is_listed else ""
                found.append(_Selected(address, stored.etag, title))
        if not found:
            raise BadRequestError("none of the selected documents exists")
        return found

    def _shown(self, address: DocumentAddress, *, deleted: bool = False) -> ShownDocument:
        try:
            instant = before_current(self.documents, address) if deleted else None
            read = self.documents.read(address, Get(instant=instant))
            outline = outline_of(self.documents.router.of(address.form), read.found.sidecar.version)
            return shown_document(address, read, outline, language_of(outline.languages))
        except PersistenceError:  # the page of the document says what is wrong
            return ShownDocument()

    def _question(self, values: Values, verb: str, effects: tuple[str, ...], *, is_dangerous: bool = False) -> Question:
        """Return a question that names the documents, and notes in ``state`` what is stored of them now."""
        found = self._selected(values)
        form, count = Form(values["app"], values["form"]), len(found)
        names = [each.title or each.address.document for each in found]
        one, several, button = _QUESTIONS[verb]
        listed: tuple[str, ...] = ()
        if count > 1:
            more = translated(" and {count} more", count=count - _LISTED) if count > _LISTED else ""
            listed = (translated("The documents are: {names}.", names=", ".join(names[:_LISTED]) + more),)
        title = translated(one, name=names[0], form=form) if count == 1 else translated(several, count=count, form=form)
        back = document_path("document", found[0].address) if count == 1 else form_path(form)
        sent = {"document": "/".join(each.address.document for each in found), "state": _state(found)}
        shown = (*listed, *map(translated, effects))
        return Question(title, shown, translated(button), back, is_dangerous=is_dangerous, sent=sent)

    def _do(self, values: Values, act: Callable[[_Selected], object], word: str) -> Done:
        found, failed = self._selected(values), list[str]()
        if _state(found) != values["state"]:
            raise PreconditionError(
                "a document has changed since you were asked. Nothing was written. Look at the documents again."
            )
        for each in found:
            try:
                act(each)
            except PersistenceError as error:
                failed.append(str(error))
        notice = translated(word, count=len(found) - len(failed))
        if failed:
            notice += " " + translated("{count} not: {cause}.", count=len(failed), cause=translated(failed[0]))
        names, app, form = values["document"].split("/"), values["app"], values["form"]
        is_one = len(names) == 1 and not failed
        address = address_of(app, form, Collection.DATA.value, names[0])
        return Done(notice, document_path("document", address) if is_one else form_path(Form(app, form)))

    def _ask_to_delete(self, values: Values) -> Question:
        effects = (
            "The history stays, and a deleted document can be brought back, until it is purged.",
            "The draft of the document is removed, if there is one.",
        )
        return self._question(values, "delete", effects, is_dangerous=True)

    def _delete(self, values: Values, by: str) -> Done:
        def delete(each: _Selected) -> None:
            unchanged = Precondition(expected=Tags(frozenset({each.tag})), must_exist=True)
            self.documents.delete(each.address, Delete(precondition=unchanged, user=User(name=by)))

        return self._do(values, delete, "Documents deleted: {count}.")

    def _restore(self, values: Values, by: str) -> Done:
        reverting = Reverting(self.documents)

        def restore(each: _Selected) -> None:
            instant = before_current(self.documents, each.address)
            reverting.restore(reverting.plan(each.address, Revert(instant=instant, user=User(name=by))))

        return self._do(values, restore, "Documents brought back: {count}.")

    def _ask_to_change(self, values: Values) -> Question:
        owner, group = short(values["owner"], "owner"), short(values["group"], "group of the owner")
        stage = short(values["stage"], "stage")
        if group and not owner:
            raise BadRequestError("a group needs an owner")
        if values["change"] == "owner":
            member = "{owner} of the group {group} becomes the owner." if group else "{owner} becomes the owner."
            what = translated(member if owner else "Nobody is the owner any more.", owner=owner, group=group)
        elif values["change"] == "stage":
            what = translated("The stage becomes {stage}." if stage else "The stage is removed.", stage=stage)
        else:
            raise BadRequestError(f"owner or stage can be changed, not {values['change'][:60]!r}")
        effects = (
            what,
            "This makes a new revision, with the same content.",
            "The draft of the document is removed, if there is one.",
        )
        return self._question(values, "change", effects)

    def _change(self, values: Values, by: str) -> Done:
        is_owner = values["change"] == "owner"
        owner = User(name=values["owner"] or None, group=values["group"] or None) if is_owner else None
        stage = None if is_owner else values["stage"]

        def change(each: _Selected) -> None:
            self.documents.change_facts(each.address, each.tag, FactsChange(User(name=by), owner, stage))

        return self._do(values, change, "Documents changed: {count}.")

    def zip(self, app: str, form: str) -> AnyResponse:
        """Send the named documents, else all of the form: a folder each, with files under their own names."""
        names = list(dict.fromkeys(request.args.getlist("document")))
        if len(names) > ROWS_SHOWN:
            raise BadRequestError(f"{len(names)} documents are selected: name at most {ROWS_SHOWN}, or none for all")
        route = self.documents.router.of(Form(app, form))
        for name in names:  # a name that leads nowhere is refused before the answer begins
            with suppress(DamagedError):
                if route.storage.sidecar(address_of(app, form, Collection.DATA.value, name)) is None:
                    raise NotFoundError(f"{app}/{form} has no document {name}")
        pieces = self._archive(route.form, iter(names) if names else route.data.storage.documents(route.form))
        headers = {"Content-Disposition": disposition(f"{names[0] if len(names) == 1 else f'{app}-{form}'}.zip")}
        body = Unbroken(pieces, request.environ.get(REQUEST_ID))
        return Response(body, content_type="application/zip", headers=headers | {"X-Accel-Buffering": "no"})

    def _archive(self, form: Form, names: Iterator[str]) -> Iterator[bytes]:
        problems = list[str]()
        with ZipStream() as archive:
            for name in names:
                main = DocumentAddress(form, Collection.DATA, name, DATA_XML)
                storage, own, taken = self.documents.router.of(form).storage, self._shown(main).file_names, {DATA_XML}
                stored = storage.sidecar(main)
                for file in () if stored is None or stored.deleted else sorted(storage.names(main)):
                    shown = file if file == DATA_XML else _free_name(file_name(own.get(file, file)), taken)
                    try:
                        yield from self._entry(archive, main.moved(Collection.DATA, file), f"{name}/{shown}")
                    except LEFT_OUT as error:
                        problems.append(str(error))
            if problems:
                errors, now = "".join(f"{line}\n" for line in problems).encode(), next_after(None)
                yield from archive.add(ERRORS_ENTRY, (now, now), [errors], len(errors), compresses=True)
            yield from archive.end()

    def _entry(self, archive: ZipStream, address: DocumentAddress, path: str) -> Iterator[bytes]:
        read = self.documents.read(address, Get(user=ANONYMOUS))
        with closing(read.found):
            sidecar = read.found.sidecar
            if sidecar.encrypted and not address.is_main:
                raise BadRequestError(f"{address} is encrypted, and these pages do not decrypt")
            times = sidecar.modified, sidecar.created
            yield from archive.add(path, times, read.pieces(), read.size, compresses=address.is_main)


def _free_name(name: str, taken: set[str]) -> str:
    """Return a name that no other file of the folder has, in any letter case: ``a.pdf``, then ``a (2).pdf``."""
    stem, dot, suffix = name.rpartition(".")
    number, free = 1, name
    while free.lower() in taken or free in {"", ".", ".."}:
        number += 1
        free = f"{stem} ({number}){dot}{suffix}" if stem else f"{name} ({number})"
    taken.add(free.lower())
    return free


def _state(found: list[_Selected]) -> str:
    stored = "".join(f"{each.address.document}/{each.tag}\n" for each in found)
    return hashlib.sha256(stored.encode()).hexdigest()[:32]
