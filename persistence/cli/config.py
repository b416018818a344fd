"""``persistence config``: the settings and properties in force, where each came from, and the route of a form."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import click

from persistence.cli.options import (
    common_options,
    form_and_version,
    form_names,
    read_settings,
    settings_options,
    usage_errors,
)
from persistence.cli.terminal import json_option, safe, say_json
from persistence.dialect import DIALECTS
from persistence.model.addresses import Form
from persistence.properties.properties import ExplainedProperty, Properties, ProviderProperties, Reason
from persistence.properties.property_table import DATA, FORM, shown_address
from persistence.providers.locations import (
    as_toml,
    base_of,
    database_of,
    effective_properties,
    effective_settings,
    plain_property,
    root_of,
    shown_property,
)
from persistence.settings import Effective

_TREE = "a tree here"


@click.group(invoke_without_command=True, short_help="Print the effective settings and properties.")
@json_option
@settings_options
@click.pass_context
def config(context: click.Context, /, *, as_json: bool, **options: object) -> None:
    """Print the effective settings and properties, and where each came from."""
    context.obj = options
    if context.invoked_subcommand is not None:
        if as_json:
            raise click.UsageError(f"--json goes after {context.invoked_subcommand}")
        return
    effective = read_settings(options)
    if as_json:
        for kind, found in (("setting", effective_settings(effective)), ("property", effective_properties(effective))):
            for each in found:
                say_json({kind: each.name, "value": each.plain, "origin": each.origin, "meaning": each.meaning})
        return
    for each in effective_settings(effective):
        click.echo(f"{each.name} = {each.value}  # {each.origin}: {each.meaning}")
    for each in effective_properties(effective):
        click.echo(f"{as_toml(each.name)} = {each.value}  # {each.origin}: {each.meaning}")


@config.command("property")
@click.argument("name")
@common_options
@json_option
@click.pass_obj
def property_(outer: Mapping[str, object], /, name: str, *, as_json: bool, **options: str | None) -> None:
    """Say what a property is, which entry wins, and why.

    NAME is a full name without wildcards: svc.persistence.provider.hr.leave.data, svc.persistence.files.autosave.

    An application or form whose own name has a dot cannot be told apart in NAME; for it only entries with * count.
    """
    properties = _effective(outer, options).properties
    answer = properties.explain(name)
    if as_json:
        say_json(_explanation_facts(answer, properties))
    else:
        click.echo("\n".join(_explained(answer, properties)))


@config.command(short_help="Say which provider has a form's definitions or data.")
@click.argument("path", metavar="APP/FORM", shell_complete=form_names)
@click.argument("kind", type=click.Choice([FORM, DATA]))
@common_options
@json_option
@click.pass_obj
def route(outer: Mapping[str, object], /, path: str, kind: str, *, as_json: bool, **options: str | None) -> None:
    """Say which provider has the definitions (form) or the data of a form, and why.

    Then its place, whether it is active, the headers that tell it its own properties, and the place of the attachments.
    """
    effective = _effective(outer, options)
    with usage_errors():
        form, version = form_and_version(path)
    if version is not None:
        raise click.UsageError(f"{safe(path)} is not APP/FORM: all versions of a form have one provider")
    properties = effective.properties
    found = properties.of(form).route
    if as_json:
        say_json(_route_facts(effective, form, kind))
        return
    lines = [*_explained(properties.explain_provider(form, kind), properties)]
    lines += _place(found.definition if kind == FORM else found.data, effective)
    if kind == FORM:
        lines.append("attachments of definitions are always with it")
    elif found.attachments is None:
        lines.append("attachments are with it")
    else:
        lines += _explained(properties.explain_provider(form, kind, attachments=True), properties)
        lines.append(f"attachments are {_attachments_place(found.attachments)}")
    for line in lines:
        click.echo(safe(line))


def _route_facts(effective: Effective, form: Form, kind: str) -> dict[str, object]:
    properties = effective.properties
    found = properties.of(form).route
    provider = found.definition if kind == FORM else found.data
    attachments = None if kind == FORM else found.attachments
    dialect = DIALECTS[provider.dialect or effective.settings.dialect]
    kind_of_place, place = _kind_and_place(provider, effective)
    explained = properties.explain_provider(form, kind)
    return {
        "form": str(form),
        "kind": kind,
        "provider": provider.name,
        "is": kind_of_place,
        "place": place,
        "datasource": provider.datasource or None,
        "active": provider.is_active,
        "headers": {dialect.header(name): shown_address(value) for name, value in provider.mirrored},
        "property": _explanation_facts(explained, properties),
        "attachments": None
        if attachments is None
        else {
            "provider": attachments.name,
            "place": _attachments_place(attachments),
            "property": _explanation_facts(properties.explain_provider(form, kind, attachments=True), properties),
        },
    }


def _explanation_facts(answer: ExplainedProperty, properties: Properties) -> dict[str, object]:
    def reason(each: Reason) -> dict[str, object]:
        entry = properties.entry(each.name)
        value = plain_property(entry.known, entry.value)
        return {"name": str(entry), "value": value, "origin": entry.origin, "reason": each.text}

    explanation = answer.explanation
    return {
        "name": ".".join(answer.name),
        "value": None if answer.value is None else plain_property(answer.known, answer.value),
        "meaning": answer.known.meaning,
        "effect": answer.known.effect.value,
        "winner": None if explanation.winner is None else reason(explanation.winner),
        "losers": list(map(reason, explanation.losers)),
        "left": [{"name": ".".join(each.name), "reason": each.text} for each in explanation.failed],
    }


def _attachments_place(provider: ProviderProperties) -> str:
    if provider.place is not None:
        endpoint = provider.place.endpoint or "the endpoint of the environment, or that of AWS"
        return f"in {provider.place}, at {endpoint}"
    base = base_of(provider)
    return f"with another service, {provider.uri}" if base is None else f"below {base}"


def _effective(outer: Mapping[str, object], options: Mapping[str, str | None]) -> Effective:
    return read_settings({**outer, **{option: value for option, value in options.items() if value is not None}})


def _explained(answer: ExplainedProperty, properties: Properties) -> Iterator[str]:
    shown = "is not configured" if answer.value is None else f"= {shown_property(answer.known, answer.value)}"
    yield f"{'.'.join(answer.name)} {shown}"
    yield f"  {answer.known.meaning}; {answer.known.effect.value}"
    winner = answer.explanation.winner
    if winner is not None:
        yield from _reasons("wins", (winner,), properties)
    if answer.entry is None or answer.entry.is_blank:
        cause = "nothing matches" if answer.entry is None else "the winner is blank, and the search does not go on"
        yield f"  {cause}: {'not configured' if answer.value is None else 'the default'}"
    yield from _reasons("loses", answer.explanation.losers, properties)
    for reason in answer.explanation.failed:
        yield f"  left {'.'.join(reason.name)}: {reason.text}"


def _reasons(word: str, reasons: tuple[Reason, ...], properties: Properties) -> Iterator[str]:
    for reason in reasons:
        entry = properties.entry(reason.name)
        yield f"  {word} {entry} = {shown_property(entry.known, entry.value)} ({entry.origin}): {reason.text}"


def _kind_and_place(provider: ProviderProperties, effective: Effective) -> tuple[str, str]:
    roots = effective.settings.roots
    database, root = database_of(provider, roots), root_of(provider, roots)
    if database is not None:
        return "a database", database
    return ("another service", provider.uri) if root is None else (_TREE, root)


def _place(provider: ProviderProperties, effective: Effective) -> Iterator[str]:
    name = f"the datasource {provider.datasource}" if provider.datasource else "the default"
    kind, place = _kind_and_place(provider, effective)
    end = f" ({name})" if kind == _TREE else ""
    yield f"provider {provider.name} is {kind}, {place}{end}"
    if not provider.is_active:
        yield "  not active: requests to all providers leave it out"
    dialect = DIALECTS[provider.dialect or effective.settings.dialect]
    for name, value in provider.mirrored:
        yield f"  {dialect.header(name)}: {shown_address(value)}"
