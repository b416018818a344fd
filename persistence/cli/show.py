"""``persistence show``: all that is known of a published version, a document or a draft."""

from __future__ import annotations

import sys
from collections.abc import Iterable

import click

from persistence.cli.edition import edition_lines
from persistence.cli.forms_and_versions import version as parsed
from persistence.cli.options import Choice, Chosen, chosen, tree_options
from persistence.cli.record import record_lines
from persistence.cli.status import REMAINS
from persistence.cli.texts import safe, say
from persistence.errors import BadRequestError
from persistence.maintenance.reports import report_document, report_version
from persistence.model.addresses import DATA_XML, Collection, DocumentAddress, Form
from persistence.storage import owner

_SHAPES = "APP/FORM, APP/FORM/VERSION, APP/FORM/data/DOCUMENT or APP/FORM/draft/DOCUMENT"
_COLLECTIONS = {collection.value: collection for collection in Collection}


@click.command()
@click.argument("path")
@tree_options
def show(*, path: str, **options: str | None) -> None:
    """Say what is known of a form or a document, without its content.

    \b
    PATH is one of  APP/FORM                 the latest published version
                    APP/FORM/VERSION         another one; APP/FORM/form/VERSION, as it is on disk, too
                    APP/FORM/data/DOCUMENT   a document
                    APP/FORM/draft/DOCUMENT  its draft

    It is looked for where the form is, as persistence config route says. Names are those of the URL, without
    percent-encoding. Nothing is changed, and the service may run.

    \b
    Exit status: 0  all could be read
                 1  there is nothing there, or it is damaged
                 2  wrong usage
                 4  a part of it is damaged, as the lines say
    """  # noqa: D301 - click's mark for lines that stay apart
    choice = chosen(options)
    try:
        lines, is_damaged = _shown(path.split("/"), choice)
    except BadRequestError as error:
        raise click.UsageError(str(error)) from error
    for line in lines:
        say(line)
    if is_damaged:
        sys.exit(REMAINS)


def _shown(parts: list[str], choice: Choice) -> tuple[Iterable[str], bool]:
    """The lines about what a path names, and whether a part of that is damaged; the number of names tells what."""
    match parts:
        case [app, name]:
            return _edition(choice.with_definition(Form(app, name)), Form(app, name))
        case [app, name, version] | [app, name, "form", version]:
            number = parsed(version)
            return _edition(choice.with_definition(Form(app, name)), Form(app, name), number)
        case [app, name, collection, document] if collection in _COLLECTIONS:
            main = DocumentAddress(Form(app, name), _COLLECTIONS[collection], document, DATA_XML)
            tree = choice.with_data(main.form)
            with owner.acting(tree.root):
                seen = report_document(tree.reader(), main)
            return record_lines(seen), seen.is_damaged
        case _:
            raise BadRequestError(f"{safe('/'.join(parts))} is not {_SHAPES}")


def _edition(tree: Chosen, form: Form, version: int | None = None) -> tuple[Iterable[str], bool]:
    with owner.acting(tree.root):
        found = report_version(tree.reader(), form, version)
    return edition_lines(found), found.is_damaged
