"""Commands about documents and definitions: search, history, diff, revert, change, and the group definition."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import click

from persistence.cli import options
from persistence.cli.declarations import FAILED, REMAINS, always, command, exits, group, unless_dry
from persistence.cli.report_commands import revision_facts
from persistence.cli.terminal import (
    Columns,
    Facts,
    counted,
    is_json,
    progress,
    safe,
    say,
    say_error,
    say_json,
    say_result,
    say_table,
    to_second,
)
from persistence.cli.tree_commands import listed_leases
from persistence.dialect import DIALECTS
from persistence.errors import BadRequestError, DamagedError, NotFoundError, PersistenceError
from persistence.index.protocol import RebuildAim
from persistence.maintenance import indexes
from persistence.maintenance.indexes import FormSearch
from persistence.maintenance.reports import in_words
from persistence.model.addresses import DocumentAddress, Form
from persistence.model.permissions import Bearer, User
from persistence.model.queries import (
    Comparison,
    ControlFilter,
    DraftFilter,
    Drafts,
    Field,
    FieldFilter,
    Hit,
    Hits,
    Query,
    Sort,
    TextMatch,
)
from persistence.model.sidecar import ListedRevision
from persistence.model.texts import Instant, short
from persistence.model.versions import Searched
from persistence.properties.property_table import FORM
from persistence.providers.locations import open_encryption_keys
from persistence.providers.opened import Providers, open_index, unheard
from persistence.services import definition_texts, histories
from persistence.services.codec import AS_STORED, EncryptionCodec
from persistence.services.definitions import Definitions
from persistence.services.documents import Documents, FactsChange
from persistence.services.rules import AdministratorAccess, Get
from persistence.services.searching import MergedHits, with_leased
from persistence.storage.storage import RevisionStorage

_FOUND: Columns = (
    "document",
    ("DRAFT", lambda hit: "draft" if hit["draft"] else ""),
    "version",
    ("CREATED", lambda hit: to_second(hit["created"])),
    ("BY", "creator"),
    ("MODIFIED", lambda hit: to_second(hit["modified"])),
    ("BY", "modifier"),
    "stage",
)
_PATH = re.compile(r"(?:[^=\[]|\[[^\]]*\])+")
_FIELDS = {field.value: field for field in Field if field is not Field.LEASED_BY}
_NAMED = {field.value: field for field in Field if field not in {Field.CREATED, Field.LAST_MODIFIED}}


@command("search", None, options.TREES)
@exits(
    "searched, whatever was found",
    "could not: no such form, version or indexed control, no data directory, another user's",
)
@click.argument("path", metavar="APP/FORM|APP|*", shell_complete=options.form_names)
@click.argument("text", required=False, default="")
@click.option("--path", "paths", metavar="PATH[=TEXT]", multiple=True, help="A control that has TEXT; alone, a column.")
@click.option("--field", "named", metavar="FIELD=NAME", multiple=True, help=f"A field: {', '.join(_NAMED)}.")
@click.option("--match", type=click.Choice([kind.value for kind in TextMatch]), default="substring", show_default=True)
@click.option("--any", "is_any", is_flag=True, help="One of the conditions of --path and --field must hold, not all.")
@click.option("--sort", metavar="PATH|FIELD", help=f"A control, or one of: {', '.join(_FIELDS)}.")
@click.option("--descending", is_flag=True, help="Sort from the highest to the lowest.")
@click.option("--version", metavar="N|all", help="Instead of the latest published version.")
@click.option("--drafts", type=click.Choice([kind.value for kind in Drafts]), default="include", show_default=True)
@click.option("--page-size", type=click.IntRange(1, 1_000_000), default=20, show_default=True)
@click.option("--page", type=click.IntRange(1, 1_000_000_000), default=1, show_default=True)
def search(*, path: str, version: str | None, choice: options.TreeChoice, **given: Any) -> int:
    """Find documents of a form or of several, as over HTTP.

    APP means all its forms, and * all forms, each in all versions and without --path. TEXT is looked for anywhere in
    the text of a document, --path in one indexed control. All conditions must hold, with --any one of those of --path
    and --field.
    Permissions do not count: everything is found. Without --sort the last saved ones come first. The tree is that of
    the form's data, as persistence config route says.

    The service may run. A missing index is made.

    \b
    persistence search hr/leave
    persistence search hr/leave 'back pain' --drafts exclude
    persistence search hr/leave --path person/name=lea --path person/days
    persistence search hr/leave --path state=sent --match exact --sort created
    persistence search hr/leave --path state=sent --path state=late --any
    persistence search hr/leave --version all --page-size 1000 --json | jq .values
    persistence search '*' --field created-by=lea --field leased-by=lea --any
    """  # noqa: D301 - click's mark for lines that stay apart
    drafts = DraftFilter(Drafts(given.pop("drafts")))
    query, columns = _query(**given)
    if "/" not in path:
        with options.usage_errors():
            merged = MergedHits(query, names_controls=bool(columns))
            if version not in {None, Searched.ALL.value}:
                raise BadRequestError("of several forms all versions are searched")
        status = _search_forms(merged, None if path == "*" else path, drafts, choice)
        _say_hits(merged.page, query, (("FORM", "form"), *_FOUND))
        return status
    form, in_path = options.form_and_version(path)
    if in_path is not None:
        raise click.UsageError(f"{safe(path)} is not APP/FORM; --version says which version")
    by, asked = query.sort.by, _asked(version)
    controls = dict.fromkeys((*columns, *((by,) if isinstance(by, str) else ())))
    tree = choice.tree_of(form)
    with opened_search(tree, form, asked, controls) as run:
        query = with_leased(query, partial(listed_leases, tree))
        hits = run.run(query, drafts, open_encryption_keys(tree.settings, tree.properties))
    shown = [*_FOUND, *((each, lambda hit, each=each: ", ".join(hit["values"].get(each, ()))) for each in columns)]
    _say_hits(hits, query, shown)
    return 0


def _search_forms(merged: MergedHits, app: str | None, drafts: DraftFilter, choice: options.TreeChoice) -> int:
    found, status = False, 0
    for tree in choice.trees:
        query = with_leased(merged.query, partial(listed_leases, tree))
        with options.reading(tree) as reader:
            forms = sorted(reader.store.forms(app))
        for form in forms:
            try:
                if choice.tree_of(form) is tree:
                    with opened_search(tree, form, Searched.ALL, ()) as run:
                        merged.add(form, run.run(query, drafts))
                    found = True
            except DamagedError as error:
                options.say_failed(tree.name, error)
                status = FAILED
    if app is not None and not found:
        raise NotFoundError(f"there are no forms of {app}")
    return status


def _say_hits(hits: Hits, query: Query, shown: Columns) -> None:
    columns = tuple(shown)
    say_table([_facts(hit) for hit in hits.page], columns, flexible=len(columns) - 1)
    counts = f"{hits.total:,} found"
    if hits.page:
        counts += f", {query.offset + 1:,} to {query.offset + len(hits.page):,} shown"
    elif hits.total:
        counts += ", this page is empty"
    say_error(counts)


@contextmanager
def opened_search(
    tree: options.ChosenTree, form: Form, version: int | Searched, controls: Iterable[str]
) -> Iterator[FormSearch]:
    """Open the search of a form with these controls for a block; a missing index is made."""
    dialect = DIALECTS[tree.settings.dialect]
    if tree.is_database:
        with tree.managing() as place:
            if form not in place.storage.forms(form.app):
                raise NotFoundError(f"{form} does not exist")
            with options.usage_errors():
                run = FormSearch(options.reader_of(tree, place), place.provider.index, dialect, form, version)
            run.require_controls(controls)
            yield run
        return
    with indexes.writable_tree(tree.root) as view, open_index(tree.settings, tree.properties, tree.root) as index:
        with options.usage_errors():
            indexes.require_form(view, index, form)
            run = FormSearch(tree.reader(), index, dialect, form, version)
        run.require_controls(controls)
        if not index.is_ready(form):
            job = indexes.plan(view, index, RebuildAim.READY, form)
            with progress("making the index", job.count) as bar:
                job.run(bar.step)
        yield run


def _asked(version: str | None) -> int | Searched:
    if version is None:
        return Searched.LATEST
    if version == Searched.ALL.value:
        return Searched.ALL
    try:
        return options.version_number(version)
    except BadRequestError as error:
        raise click.UsageError(f"{error}, or all") from error


def _query(
    *, text: str, paths: Sequence[str], match: str, page_size: int, page: int, **given: Any
) -> tuple[Query, tuple[str, ...]]:
    conditions, columns, any_of = [], [], "any" if given["is_any"] else ""
    for condition in paths:
        found = _PATH.match(condition)
        path, rest = (found.group(), condition[found.end() :]) if found is not None else ("", condition)
        if not path or (rest and rest[0] != "="):
            raise click.UsageError(f"--path {safe(condition)} is not PATH or PATH=TEXT")
        columns.append(path.replace("[1]", ""))
        if wanted := rest[1:].strip():
            conditions.append(ControlFilter(columns[-1], TextMatch(match), wanted, any_of))
    fields = []
    for condition in given["named"]:
        name, _, wanted = condition.partition("=")
        if name not in _NAMED or not wanted.strip():
            raise click.UsageError(f"--field {safe(condition)} is not FIELD=NAME, of a field {', '.join(_NAMED)}")
        fields.append(FieldFilter(_NAMED[name], Comparison.EXACT, wanted.strip(), any_of))
    by = given["sort"]
    sort = Sort() if by is None else Sort(_FIELDS.get(by, by), given["descending"])
    query = Query(
        text.strip(), tuple(conditions), tuple(fields), sort=sort, offset=(page - 1) * page_size, size=page_size
    )
    return query, tuple(dict.fromkeys(columns))


def _facts(hit: Hit) -> Facts:
    names = ("version", "created", "creator", "group", "modified", "modifier", "stage")
    facts = {} if hit.form is None else {"form": str(hit.form)}
    facts |= {name: getattr(hit.facts, name) for name in names}
    values = {path: list(texts) for path, texts in hit.values.items()}
    return {"document": hit.document, "draft": hit.is_draft, **facts, "values": values}


@command("history", "List the revisions of a document or an attachment.", options.TREES)
@exits(
    "all could be read",
    "there is nothing there, or its current sidecar is damaged",
    remains="an older sidecar is damaged, as its line says",
)
@click.argument("path")
def history(*, path: str, choice: options.TreeChoice) -> int:
    """List the revisions of a document or an attachment, newest first.

    \b
    PATH is one of  APP/FORM/data/DOCUMENT        a document
                    APP/FORM/data/DOCUMENT/FILE   an attachment of it

    A time in the first column is the last-modified-time with which a GET reads that revision. Permissions do not
    count, and revisions of earlier owners are listed, too. The tree or database is that of the form's data, as
    persistence config route says. Nothing is changed, and the service may run.
    """  # noqa: D301 - click's mark for lines that stay apart
    address = options.data_address(path)
    with options.usage_errors(), options.reading(choice.tree_of(address.form)) as reader:
        found = reader.store.history(address)
        if not found.total:
            raise NotFoundError(f"{safe(path)} does not exist")
        revisions = found.every()
    columns: Columns = ("modified", ("BY", "modified_by"), "owner", "group", "stage", "version")
    rows = [revision_facts(each.instant, each.sidecar) for each in revisions]
    size: Columns = [("BYTES", lambda revision: None if revision.get("deleted") else revision.get("size"))]
    say_table(rows, (*columns, *size, ("NOTES", _notes)))
    if not is_json():
        deleted = sum(revision.sidecar is not None and revision.sidecar.deleted for revision in revisions)
        say(counted(len(revisions), "revision") + (f", {counted(deleted, 'deletion')}" if deleted else ""))
    return REMAINS if any(revision.sidecar is None for revision in revisions) else 0


def _notes(revision: Facts) -> str:
    notes = ["damaged: persistence check says more"] if "damaged" in revision else []
    notes += [name for name in ("deleted", "adopted", "encrypted") if revision.get(name)]
    return ", ".join((*notes, *([f"restored {revision['restored']}"] if "restored" in revision else [])))


@command("diff", "Print the differences between two revisions.", options.TREES)
@exits(
    "compared, whether or not something differs",
    "could not: no such revision, revisions of two form versions, one that is not published",
)
@click.argument("path")
@click.argument("older", type=options.instant, required=False)
@click.argument("newer", type=options.instant, required=False)
@click.option("--lang", "language", metavar="LANG", help="Language of labels; without it, the first of the form.")
@click.option("--truncate", "truncation", type=click.IntRange(1), metavar="N", help="Shorten values to N characters.")
@click.option("--decrypt", is_flag=True, help="Show encrypted values, too; the keys are needed.")
def diff(
    *, path: str, older: Instant | None, newer: Instant | None, decrypt: bool, choice: options.TreeChoice, **shown: Any
) -> None:
    """Print the differences between two revisions of the document APP/FORM/data/DOCUMENT.

    OLDER and NEWER are times of revisions, as persistence history lists them. Without NEWER it is the current one, or
    of a deleted document the last one that was not deleted; without OLDER, the one before NEWER.

    They are those of the history over HTTP: values, iterations of repeats, and elements, found by the definition of
    the version. Other differences, and all of the designer's data, are one line. Encrypted values are not shown without
    --decrypt. Permissions do not count. Nothing is changed, and the service may run.
    """
    address = options.data_address(path)
    if not address.is_main:
        raise click.UsageError(f"{safe(path)} is not APP/FORM/data/DOCUMENT")
    tree = choice.tree_of(address.form)
    settings, dialect = tree.settings, DIALECTS[tree.settings.dialect]
    with Providers(settings, tree.properties, listener_at=unheard) as providers:
        router = providers.router
        codec = EncryptionCodec(options.at_rest(settings, tree.properties, router)) if decrypt else AS_STORED
        comparing = histories.RevisionDiffs(Documents(router, dialect, AdministratorAccess(dialect), codec))
        pair = _pair(router.of(address.form).storage, address, older, newer)
        lines = comparing.lines(pair, Bearer(), histories.DiffOptions(**shown), as_json=is_json())
    if is_json():
        for line in lines:
            click.echo(line)
        return
    say(f"{pair.older} -> {pair.newer}")
    for line in lines:
        say(safe(line))
    say(counted(len(lines), "difference"))


def _pair(
    storage: RevisionStorage, address: DocumentAddress, older: Instant | None, newer: Instant | None
) -> histories.RevisionPair:
    revisions = storage.history(address)
    if not revisions.total:
        raise NotFoundError(f"{address} does not exist")
    listed = revisions.each()
    after = next((each for each in listed if (each.instant == newer if newer else _lives(each))), None)
    if after is None or after.sidecar is None:
        raise NotFoundError(f"{address} has no revision{f' of {newer}' if newer else ''} that can be compared")
    before = older or next((each.instant for each in listed if _lives(each)), None)
    if before is None:
        raise NotFoundError(f"{address} has no revision before {after.instant}")
    return histories.RevisionPair(address, after.sidecar.version, before, after.instant)


def _lives(revision: ListedRevision) -> bool:
    return revision.sidecar is not None and not revision.sidecar.deleted


@command(
    "revert", "Bring back an older revision, or what was deleted.", options.TREES, audits=unless_dry, subject="path"
)
@exits(
    "brought back",
    "could not: no such revision, one of another form version, somebody else writes, another user's tree",
)
@click.argument("path")
@click.argument("instant", type=options.instant, required=False)
@click.option("--as", "user", metavar="USER", help="The last modifier of the new revision.")
@click.option("--dry-run", is_flag=True, help="Only say what would come back.")
def revert(*, path: str, instant: Instant | None, user: str | None, dry_run: bool, choice: options.TreeChoice) -> None:
    """Make an older revision of a document the current one again, as a new revision.

    \b
    PATH is one of  APP/FORM/data/DOCUMENT       a document and its attachments
                    APP/FORM/data/DOCUMENT/FILE  one attachment

    INSTANT is the time of a revision, as persistence history lists it. Without it, the revision before the
    current one comes back, and of something deleted the last one that was not.

    Only attachments that the revision names come back with a document, and one attachment alone only if its
    document is not deleted. Attachments that were deleted or replaced since come back as they were then. The current
    revision stays in the history, and the draft of the document is removed, as with a save. Permissions do not count,
    leases do where the property enforce-lease is set. The service may run. The next run completes one that was
    interrupted.
    """  # noqa: D301 - click's mark for lines that stay apart
    with options.usage_errors():
        address, by = options.data_address(path), User(name=short(user, "user name"))
    tree = choice.tree_of(address.form)
    with opened_documents(tree) as documents:
        reverting = histories.Reverting(documents)
        asked = Get(instant=instant or histories.before_current(documents, address), user=by)
        plan = reverting.plan(address, asked)
        if not dry_run:
            reverting.restore(plan)
    say_restored(plan, is_trial=dry_run)


@command("change", "Give documents another owner or stage.", options.TREES, audits=unless_dry, subject="path")
@exits(
    "changed",
    "could not: no such document, another user's tree",
    remains="a document was not changed, as its line says: somebody saved it meanwhile, or it is damaged",
)
@click.argument("path", metavar="APP/FORM[/data/DOCUMENT]")
@click.option("--owner", metavar="USER", help="The new owner.")
@click.option("--group", metavar="GROUP", help="The group of the new owner.")
@click.option("--no-owner", is_flag=True, help="Nobody is the owner any more.")
@click.option("--stage", metavar="STAGE", help="The new stage; an empty one removes it.")
@click.option("--owned-by", metavar="USER", help="Of a form: all documents of this owner.")
@click.option("--as", "user", metavar="USER", help="The last modifier of the new revisions.")
@click.option("--dry-run", is_flag=True, help="Only say what would be changed.")
def change(
    *, path: str, user: str | None, owned_by: str | None, dry_run: bool, choice: options.TreeChoice, **to: Any
) -> int:
    """Give a document, or all documents of an owner, another owner or stage, as a new revision with the same content.

    \b
    persistence change hr/leave --owned-by bob --owner zoe --group staff
    persistence change hr/leave/data/DOCUMENT --stage approved

    The draft of a document is removed, as with a save. Permissions do not count, leases do where the property
    enforce-lease is set. The service may run. The next run completes one that was interrupted.
    """  # noqa: D301 - click's mark for lines that stay apart
    if not (to["owner"] or to["no_owner"] or to["stage"] is not None) or (to["owner"] and to["no_owner"]):
        raise click.UsageError("one of --owner and --no-owner, or --stage, says what is changed")
    with options.usage_errors():
        parts, by = options.parts_of(path, "APP/FORM", "APP/FORM/data/DOCUMENT"), User(name=short(user, "user name"))
        owner = User(name=short(to["owner"], "user name"), group=short(to["group"], "group"))
        short(to["stage"], "stage")
    form, document = Form(parts["APP"], parts["FORM"]), parts.get("DOCUMENT")
    if (document is None) == (owned_by is None):
        raise click.UsageError("--owned-by says which documents of a form; one document has no such option")
    asked = FactsChange(by, owner if to["owner"] or to["no_owner"] else None, to["stage"])
    changed, failed = list[Facts](), 0
    with opened_documents(choice.tree_of(form)) as documents:
        for name, before, cause in documents.change_each(form, document, owned_by, asked, is_trial=dry_run):
            if before is None:
                failed += 1
                say_error(safe(cause))
            else:
                changed.append({"document": name, "owner": before.creator, "stage": before.stage})
    say_table(changed, (("DOCUMENT", "document"), ("OWNER BEFORE", "owner"), ("STAGE BEFORE", "stage")))
    say_error(f"{counted(len(changed), 'document')} {'would be ' * dry_run}changed")
    return REMAINS if failed else 0


@contextmanager
def opened_documents(tree: options.ChosenTree) -> Iterator[Documents]:
    """Open the documents of a place, as they are stored, for a block; the index hears of changes."""
    settings, dialect = tree.settings, DIALECTS[tree.settings.dialect]
    with tree.managing() as place:
        yield Documents(place.providers.router, dialect, AdministratorAccess(dialect))
    if tree.is_database:
        return
    with suppress(OSError, PersistenceError), open_index(settings, tree.properties, tree.root) as index:
        index.recover()  # or the next search reads the journal


def say_restored(plan: histories.RestorePlan, document: str | None = None, *, is_trial: bool) -> None:
    """Print the files that have come back, or would; and before them ``document``, if it is not the only one."""
    files = [
        {
            "file": each.address.name,
            "comes_back": each.older.modified,
            "by": each.older.modifier,
            "size": each.older.size,
            "instead_of": None if each.replaced is None else each.replaced.modified,
            "was_deleted": each.is_deleted,
        }
        for each in (*plan.attachments, plan.file)
    ]
    if is_json():
        named = {} if document is None else {"document": document}
        say_json({**named, "files": files, "missing": plan.missing, "dry_run": is_trial})
        return
    if document is not None:
        say(safe(document))

    def instead_of(file: Facts) -> object:
        return file["instead_of"] and file["instead_of"] + (", deleted" if file["was_deleted"] else "")

    say_table(files, ("file", "comes_back", "by", ("BYTES", "size"), ("INSTEAD OF", instead_of)))
    if plan.notice is not None:
        say(safe(plan.notice))
    say(f"{counted(len(files), 'file')} {'would come' if is_trial else 'came'} back")


@group("definition", short_help="Print and compare published definitions, and pull them into the designer.")
def definition() -> None:
    """Print and compare published definitions, and pull them back into the form designer.

    The tree or database is that of the definition, as persistence config route says. The service may run.
    """


_number = options.usage_errors(click.BadParameter)(options.version_number)
"""A type of click."""


@options.usage_errors()
def _form(path: str) -> Form:
    parts = options.parts_of(path, "APP/FORM")
    return Form(parts["APP"], parts["FORM"])


@command("definition show", "Print a definition with canonical indentation.", options.TREES, has_json=False)
@exits("printed", "could not: no such form or version, one that is malformed or too large")
@click.argument("path", metavar="APP/FORM", shell_complete=options.form_names)
@click.argument("version", type=_number, required=False)
def show_definition(*, path: str, version: int | None, choice: options.TreeChoice) -> None:
    """Print a published definition, the latest one without VERSION, as XML for people and for diff.

    Two definitions that differ in blanks between elements alone are printed alike. Elements and attributes keep their
    order, and text stays as it is, also beside elements. On a terminal, characters that it would obey are replaced.
    """
    form = _form(path)
    with options.reading(choice.tree_of(form, FORM)) as reader:
        found = definition_texts.published_definition(reader.catalog_of(form), form, version)
        text = definition_texts.print_definition(found)
    if sys.stdout.isatty():
        for line in text.decode().split("\n")[:-1]:
            say(safe(line.replace("\t", " ")))
    else:
        click.echo(text, nl=False)


@command("definition diff", "Print the differences between two versions.", options.TREES)
@exits(
    "compared, whether or not something differs",
    "could not: no such form or version, one that is malformed or too large",
)
@click.argument("path", metavar="APP/FORM", shell_complete=options.form_names)
@click.argument("older", type=_number, required=False)
@click.argument("newer", type=_number, required=False)
def diff_definitions(*, path: str, older: int | None, newer: int | None, choice: options.TreeChoice) -> None:
    """Print what differs between two published versions: titles, permissions, controls, labels, items and rules.

    Without NEWER it is the latest version; without OLDER, the one before NEWER. A control that is under its name at
    another place has moved. What else differs, such as actions and styles, is one line, if nothing of these does.
    """
    form = _form(path)
    with options.reading(choice.tree_of(form, FORM)) as reader:
        catalog = reader.catalog_of(form)
        after = definition_texts.published_definition(catalog, form, newer)
        before = (
            definition_texts.version_before(catalog, after)
            if older is None
            else definition_texts.published_definition(catalog, form, older)
        )
        found = list(definition_texts.compare_definitions(before, after, in_words))
    if is_json():
        for each in found:
            facts = {"place": each.place, "what": each.what, "of": each.of, "from": each.older, "to": each.newer}
            say_json(
                {name: value for name, value in facts.items() if value or (name in {"from", "to"} and value == "")}
            )
        return
    say(f"{safe(str(form))} version {before.version} -> {after.version}")
    for each in found:
        say(safe(_difference_line(each)))
    say(counted(len(found), "difference"))


def _difference_line(each: definition_texts.DefinitionDifference) -> str:
    if each.what == definition_texts.OTHER:
        return "elsewhere: something differs"
    if each.what == "kind" and (each.older is None or each.newer is None):
        return f"{each.place}: {'added' if each.older is None else 'removed'}, {each.newer or each.older}"
    if each.what == "path":
        return f"{each.place}: moved, was {each.older}"
    texts = ("none" if text is None else repr(text) for text in (each.older, each.newer))
    return f"{each.place or 'form'}: {each.what}{f' ({each.of})' if each.of else ''} {' -> '.join(texts)}"


@command("definition pull", "Put a version back into the form designer.", options.TREES, audits=always, subject="path")
@exits(
    "stored",
    "could not: no such form or version, several documents have the form, or the document another, or it is malformed",
    remains="stored, without an attachment that is missing, as its line says",
)
@click.argument("path", metavar="APP/FORM", shell_complete=options.form_names)
@click.argument("version", type=_number, required=False)
@click.option("--document", "target", metavar="ID", help="The designer's document that gets the new revision.")
@click.option("--new", "is_new", is_flag=True, help="A new document, also if there is one with the form.")
@click.option("--as", "user", metavar="USER", help="The last modifier of the new revision.")
def pull_definition(
    *, path: str, version: int | None, target: str | None, choice: options.TreeChoice, **given: Any
) -> int:
    """Put a published definition, the latest one without VERSION, with its attachments back into the form designer.

    It becomes the current revision of the designer's document from which it was published, else of the only one that
    has the form, else a new document. Older revisions stay in the history. Permissions do not count.
    """
    form = _form(path)
    if target is not None and given["is_new"]:
        raise click.UsageError("--document and --new exclude each other")
    with options.usage_errors():
        by = User(name=short(given["user"], "user name"))
    designer = DIALECTS[choice.settings.dialect].designer
    tree = choice.tree_of(designer)
    found = list[str]()
    if not given["is_new"]:
        with suppress(NotFoundError), opened_search(tree, designer, Searched.ALL, ()) as search:  # nothing there yet
            hits = search.run(definition_texts.designer_query(form), DraftFilter(Drafts.EXCLUDE))
            found = [hit.document for hit in hits.page]
    with opened_documents(tree) as documents:
        pulling = definition_texts.Pulling(documents, Definitions(documents.router))
        pulled = pulling.pull(form, version, pulling.document_of(form, version, found, target), by)
    for name in pulled.missing:
        say_error(f"persistence: the attachment {safe(name)} of the definition is missing")
    facts: Facts = {"document": pulled.address.document, "version": pulled.version, "new": pulled.is_new}
    facts |= {"attachments": pulled.attachments, "missing": pulled.missing}
    at = f"{pulled.address.form}/{pulled.address.collection.value}/{pulled.address.document}"
    text = f"{form} version {pulled.version} is now {at}, a new {'document' if pulled.is_new else 'revision'}"
    text += f", with {counted(len(pulled.attachments), 'attachment')}" if pulled.attachments else ""
    say_result(facts, safe(text))
    return REMAINS if pulled.missing else 0
