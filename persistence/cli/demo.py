"""``persistence demo``: a new directory for a service, filled with a sample application to look at."""

from __future__ import annotations

import sys
import time
from importlib.resources import files as resources

import click

from persistence import settings as configuration
from persistence.cli.init import make_service_directory
from persistence.cli.sample_claims import CLAIMS, SampleClaim, all_claims
from persistence.cli.terminal import own_command, progress, shown_path
from persistence.dialect import DIALECTS
from persistence.errors import one_line
from persistence.maintenance import needed_keys
from persistence.model.addresses import DATA_XML, Collection, DocumentAddress, Form
from persistence.model.users import Role, User
from persistence.model.versions import VersionRequest
from persistence.properties.property_table import resolved_place
from persistence.providers.locations import open_encryption_keys
from persistence.providers.opened import Providers
from persistence.providers.publication_servers import PublicationServers
from persistence.services.access import Access
from persistence.services.codec import EncryptionCodec
from persistence.services.definitions import Definitions
from persistence.services.documents import Documents
from persistence.services.encryption_at_rest import EncryptionAtRest
from persistence.services.publishing import Publication, Publishing
from persistence.services.rules import Delete, Put
from persistence.services.tokens import AccessTokens
from persistence.settings import DEFAULT_FILE, Effective

_FORM = "expense-claim.xhtml"
_DIRECTORY = "demo"
_DRAFTS_EVERY, _DELETED = 25, 199
_VERSION = VersionRequest(number=1)


@click.command(short_help="Fill a new directory with a sample application.")
@click.argument("directory", metavar="[DIR]", default=_DIRECTORY)
def demo(*, directory: str) -> None:
    """Make a service directory with a sample application in DIR (default: demo), which must be empty or missing.

    The application has one form in two languages, with indexed and encrypted controls and permissions, and 200
    documents with older revisions, attachments, drafts, and one that was deleted. They are the same each time. To get
    rid of it, remove the directory.
    """
    path = resolved_place(directory)
    make_service_directory(path)
    file = f"{path}/{DEFAULT_FILE}"
    started = time.monotonic()
    drafts = _fill(configuration.load(file, environment={}))
    shown, command = shown_path(file), own_command()
    click.echo(
        f"{CLAIMS}: 200 documents, 1 of them deleted, {drafts} drafts, in {time.monotonic() - started:.1f} s\n\n"
        f"Look at it:   {command} forms --config {shown}\n"
        f"Search it:    {command} search {CLAIMS} Lisbon --config {shown}\n"
        f"One document: {command} history {CLAIMS}/data/{SampleClaim(2).document} --config {shown}\n"
        f"Serve it:     {command} serve --config {shown}\n"
        f"In a browser: {command} password set NAME --config {shown}, then serve it"
    )


def _fill(effective: Effective) -> int:
    settings = effective.settings
    keys = open_encryption_keys(settings, effective.properties)
    needed_keys.note(settings.home, [keys.new()])
    dialect = DIALECTS[settings.dialect]
    with Providers(settings, effective.properties, _say_fault) as providers:
        router = providers.router
        access = Access(dialect, AccessTokens(lambda: ()))
        codec = EncryptionCodec(EncryptionAtRest(router, dialect, keys))
        plain = Documents(router, dialect, access)
        publishing = Publishing(dialect, plain, Definitions(router), PublicationServers(settings))
        publication = Publication(VersionRequest(wants_next=True), True, None, User("ada"), None)  # noqa: FBT003
        publishing.from_body([resources(__package__).joinpath(_FORM).read_bytes()], publication)
        return _store(Documents(router, dialect, access, codec))


def _store(documents: Documents) -> int:
    drafts = 0
    claims = list(all_claims())
    with progress("storing", lambda: len(claims)) as bar:
        for claim in claims:
            _save(documents, claim)
            if claim.number % _DRAFTS_EVERY == 0:
                _put(documents, claim, Collection.DRAFT, DATA_XML, claim.xml(len(claim.stages), Collection.DRAFT))
                drafts += 1
            bar.step()
    accountant = User("max", roles=(Role("accountant"),))
    address = DocumentAddress(CLAIMS, Collection.DATA, SampleClaim(_DELETED).document, DATA_XML)
    documents.delete(address, Delete(user=accountant))
    return drafts


def _save(documents: Documents, claim: SampleClaim) -> None:
    for save, stage in enumerate(claim.stages):
        _put(documents, claim, Collection.DATA, DATA_XML, claim.xml(save), stage)
    if claim.receipt_name:
        _put(documents, claim, Collection.DATA, claim.receipt_name, claim.receipt)


def _put(  # noqa: PLR0913, PLR0917 - a request has as many parts
    documents: Documents, claim: SampleClaim, collection: Collection, name: str, body: bytes, stage: str | None = None
) -> None:
    is_first = stage in (None, claim.stages[0])
    user = User(claim.owner) if is_first else User("max", roles=(Role("accountant"),))
    kind = "application/xml" if name == DATA_XML else "application/pdf"
    put = Put(version=_VERSION, user=user, content_type=kind, valid=True, stage=stage)
    documents.write(DocumentAddress(CLAIMS, collection, claim.document, name), put, [body])


def _say_fault(_: Form | None, error: Exception) -> None:
    sys.stderr.write(f"persistence: the index: {one_line(str(error))}\n")
