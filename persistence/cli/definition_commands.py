"""``definition``: published definitions as text, their differences, and back into the form designer."""

from __future__ import annotations

import sys
from typing import Any

import click

from persistence.cli.declarations import REMAINS, always, command, exits, group
from persistence.cli.document_commands import opened_documents, opened_search
from persistence.cli.options import TREES, TreeChoice, form_names, parts_of, reading, usage_errors, version_number
from persistence.cli.terminal import Facts, counted, is_json, safe, say, say_error, say_json, say_result
from persistence.dialect import DIALECTS
from persistence.errors import BadRequestError, NotFoundError
from persistence.maintenance.reports import in_words
from persistence.model.addresses import DESIGNER_FORM, Form
from persistence.model.permissions import User
from persistence.model.queries import DraftFilter, Drafts
from persistence.model.texts import short
from persistence.model.versions import Searched
from persistence.properties.property_table import FORM
from persistence.services.definition_texts import (
    OTHER,
    DefinitionDifference,
    Pulling,
    compare_definitions,
    designer_query,
    print_definition,
    published_definition,
    version_before,
)
from persistence.services.definitions import Definitions


@group("definition", short_help="Print and compare published definitions, and pull them into the designer.")
def definition() -> None:
    """Print and compare published definitions, and pull them back into the form designer.

    The tree or database is that of the definition, as persistence config route says. The service may run.
    """


def _number(text: str) -> int:
    """Parse the number of a version, as a type of click."""
    try:
        return version_number(text)
    except BadRequestError as error:
        raise click.BadParameter(str(error)) from error


@usage_errors()
def _form(path: str) -> Form:
    parts = parts_of(path, "APP/FORM")
    return Form(parts["APP"], parts["FORM"])


@command("definition show", "Print a definition with canonical indentation.", TREES, has_json=False)
@exits("printed", "could not: no such form or version, one that is malformed or too large")
@click.argument("path", metavar="APP/FORM", shell_complete=form_names)
@click.argument("version", type=_number, required=False)
def show_definition(*, path: str, version: int | None, choice: TreeChoice) -> None:
    """Print a published definition, the latest one without VERSION, as XML for people and for diff.

    Two definitions that differ in blanks between elements alone are printed alike. Elements and attributes keep their
    order, and text stays as it is, also beside elements. On a terminal, characters that it would obey are replaced.
    """
    form = _form(path)
    with reading(choice.tree_of(form, FORM)) as reader:
        text = print_definition(published_definition(reader.catalog_of(form), form, version))
    if sys.stdout.isatty():
        for line in text.decode().split("\n")[:-1]:
            say(safe(line.replace("\t", " ")))
    else:
        click.echo(text, nl=False)


@command("definition diff", "Print the differences between two versions.", TREES)
@exits(
    "compared, whether or not something differs",
    "could not: no such form or version, one that is malformed or too large",
)
@click.argument("path", metavar="APP/FORM", shell_complete=form_names)
@click.argument("older", type=_number, required=False)
@click.argument("newer", type=_number, required=False)
def diff_definitions(*, path: str, older: int | None, newer: int | None, choice: TreeChoice) -> None:
    """Print what differs between two published versions: titles, permissions, controls, labels, items and rules.

    Without NEWER it is the latest version; without OLDER, the one before NEWER. A control that is under its name at
    another place has moved. What else differs, such as actions and styles, is one line, if nothing of these does.
    """
    form = _form(path)
    with reading(choice.tree_of(form, FORM)) as reader:
        catalog = reader.catalog_of(form)
        after = published_definition(catalog, form, newer)
        before = version_before(catalog, after) if older is None else published_definition(catalog, form, older)
        found = list(compare_definitions(before, after, in_words))
    if is_json():
        for each in found:
            say_json(_facts(each))
        return
    say(f"{safe(str(form))} version {before.version} -> {after.version}")
    for each in found:
        say(safe(_line(each)))
    say(counted(len(found), "difference"))


def _facts(each: DefinitionDifference) -> Facts:
    facts = {"place": each.place, "what": each.what, "of": each.of, "from": each.older, "to": each.newer}
    return {name: value for name, value in facts.items() if value or (value is not None and name in {"from", "to"})}


def _line(each: DefinitionDifference) -> str:
    if each.what == OTHER:
        return "elsewhere: something differs"
    if each.what == "kind" and (each.older is None or each.newer is None):
        return f"{each.place}: {'added' if each.older is None else 'removed'}, {each.newer or each.older}"
    if each.what == "path":
        return f"{each.place}: moved, was {each.older}"
    texts = ("none" if text is None else repr(text) for text in (each.older, each.newer))
    return f"{each.place or 'form'}: {each.what}{f' ({each.of})' if each.of else ''} {' -> '.join(texts)}"


@command("definition pull", "Put a version back into the form designer.", TREES, audits=always, subject="path")
@exits(
    "stored",
    "could not: no such form or version, several documents have the form, or the document another, or it is malformed",
    remains="stored, without an attachment that is missing, as its line says",
)
@click.argument("path", metavar="APP/FORM", shell_complete=form_names)
@click.argument("version", type=_number, required=False)
@click.option("--document", "target", metavar="ID", help="The designer's document that gets the new revision.")
@click.option("--new", "is_new", is_flag=True, help="A new document, also if there is one with the form.")
@click.option("--as", "user", metavar="USER", help="The last modifier of the new revision.")
def pull_definition(*, path: str, version: int | None, target: str | None, choice: TreeChoice, **given: Any) -> int:
    """Put a published definition, the latest one without VERSION, with its attachments back into the form designer.

    It becomes the current revision of the designer's document from which it was published, else of the only one that
    has the form, else a new document. Older revisions stay in the history. Permissions do not count.
    """
    form = _form(path)
    if target is not None and given["is_new"]:
        raise click.UsageError("--document and --new exclude each other")
    with usage_errors():
        by = User(name=short(given["user"], "user name"))
    designer = Form(DIALECTS[choice.settings.dialect].designer_app, DESIGNER_FORM)
    tree = choice.tree_of(designer)
    found = list[str]()
    if not given["is_new"]:
        try:
            with opened_search(tree, designer, Searched.ALL, ()) as search:
                hits = search.run(designer_query(form), DraftFilter(Drafts.EXCLUDE))
            found = [hit.document for hit in hits.page]
        except NotFoundError:  # the designer has nothing yet
            found = []
    with opened_documents(tree) as documents:
        pulling = Pulling(documents, Definitions(documents.router))
        pulled = pulling.pull(form, version, pulling.document_of(form, version, found, target), by)
    for name in pulled.missing:
        say_error(f"persistence: the attachment {safe(name)} of the definition is missing")
    facts = {
        "document": pulled.address.document,
        "version": pulled.version,
        "new": pulled.is_new,
        "attachments": list(pulled.attachments),
        "missing": list(pulled.missing),
    }
    at = f"{pulled.address.form}/{pulled.address.collection.value}/{pulled.address.document}"
    text = f"{form} version {pulled.version} is now {at}, a new {'document' if pulled.is_new else 'revision'}"
    text += f", with {counted(len(pulled.attachments), 'attachment')}" if pulled.attachments else ""
    say_result(facts, safe(text))
    return REMAINS if pulled.missing else 0
