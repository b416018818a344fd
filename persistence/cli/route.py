"""``persistence config route``: which provider has a form's definitions or data, where that is, and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import click

from persistence import settings
from persistence.cli.forms_and_versions import form_and_version
from persistence.cli.options import file_options
from persistence.cli.property import explained
from persistence.cli.texts import safe
from persistence.dialect import DIALECTS
from persistence.errors import BadRequestError
from persistence.properties.entries import without_user
from persistence.properties.properties import ProviderProperties
from persistence.properties.property_table import DATA, FORM
from persistence.providers.places import base_of, root_of
from persistence.settings import Effective


@click.command()
@click.argument("path", metavar="APP/FORM")
@click.argument("kind", type=click.Choice([FORM, DATA]))
@file_options
@click.pass_obj
def route(outer: Mapping[str, object], /, path: str, kind: str, **options: str | None) -> None:
    """Say which provider has the definitions (form) or the data of a form, and why.

    Then where that is, whether it is asked where all providers are, the headers that tell it its own properties, and
    who keeps the attachments.
    """
    given = {**outer, **{option: value for option, value in options.items() if value is not None}}
    file = given.pop("file")
    effective = settings.load(None if file is None else str(file), given)
    try:
        form, version = form_and_version(path)
    except BadRequestError as error:
        raise click.UsageError(str(error)) from error
    if version is not None:
        raise click.UsageError(f"{safe(path)} is not APP/FORM: all versions of a form have one provider")
    properties = effective.properties
    found = properties.of(form).route
    for line in explained(properties.explain_provider(form, kind), properties):
        click.echo(safe(line))
    for line in _place(found.definition if kind == FORM else found.data, effective):
        click.echo(safe(line))
    if kind == FORM:
        click.echo("attachments of definitions are with it, whatever the properties say")
    elif found.attachments is None:
        click.echo("attachments are with it")
    else:
        for line in explained(properties.explain_provider(form, kind, attachments=True), properties):
            click.echo(safe(line))
        click.echo(safe(f"attachments are {_where_attached(found.attachments)}"))


def _place(provider: ProviderProperties, effective: Effective) -> Iterator[str]:
    yield f"provider {provider.name} is {_where(provider, effective)}"
    if not provider.is_active:
        yield "  not active: it is not asked where all providers are"
    dialect = DIALECTS[provider.dialect or effective.settings.dialect]
    for name, value in provider.mirrored:
        yield f"  {dialect.header(name)}: {without_user(value)}"


def _where(provider: ProviderProperties, effective: Effective) -> str:
    if provider.is_remote:
        return f"another service, {provider.address}"
    name = f"the datasource {provider.datasource}" if provider.datasource else "the default"
    return f"a tree here, {root_of(provider, effective.settings.roots)} ({name})"


def _where_attached(provider: ProviderProperties) -> str:
    return f"with another service, {provider.address}" if provider.is_remote else f"below {base_of(provider)}"
