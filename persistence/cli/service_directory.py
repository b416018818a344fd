"""``init`` and ``demo``: a new directory for a service, empty or filled with a sample application."""

from __future__ import annotations

import os
import sys
import time
from base64 import b64encode
from collections.abc import Iterator, Mapping
from functools import cache
from html import escape
from importlib.resources import files as resources
from uuid import NAMESPACE_URL, uuid5

import click

from persistence import CONFIG_FILES, shipped
from persistence import settings as configuration
from persistence.cli.declarations import command, exits
from persistence.cli.options import TREES, choose_trees, unread
from persistence.cli.terminal import own_command, progress, safe, say, say_error, say_result, shown_path
from persistence.dialect import DIALECTS
from persistence.errors import StartupError, disk_errors, one_line
from persistence.maintenance import records
from persistence.model.addresses import DATA_XML, Collection, DocumentAddress, Form
from persistence.model.permissions import Role, User
from persistence.model.versions import VersionRequest
from persistence.properties.property_table import is_database, resolved_place
from persistence.providers.locations import open_encryption_keys
from persistence.providers.opened import Providers, PublicationServers, init_places, place_at
from persistence.services.codec import EncryptionAtRest, EncryptionCodec
from persistence.services.definitions import Definitions, Publication, Publishing
from persistence.services.documents import Documents
from persistence.services.rules import Access, AccessTokens, Delete, Put
from persistence.settings import DEFAULT_FILE, Effective, Settings
from persistence.storage import files, owner, root


@command("init", "Make a directory for a service, or data directories.", unread(TREES))
@exits(
    "there is a service or a data directory now; the latter may have been there before",
    "could not: the directory holds something else, or belongs to another user",
)
@click.argument("directory", metavar="[DIR]", required=False)
def init(*, directory: str | None, options: Mapping[str, str | None]) -> None:
    """Make a service directory in DIR, which must be empty or missing: settings, and a data directory.

    Run it as the user of the service. With --data only a data directory, or the tables in a database, is made.
    Without DIR and --data the data directories of the settings are made: the default one and that of each datasource,
    or only that of --datasource. A data directory that exists is left as it is.
    """
    if directory is not None and is_database(directory):
        if options["data"] is not None or options["datasource"] is not None:
            raise click.UsageError("the address of a database excludes --data and --datasource")
    elif directory is not None:
        if any(value is not None for value in options.values()):
            raise click.UsageError("DIR excludes --data, --datasource, --config and --dialect")
        settings, tree = map(shown_path, make_service_directory(resolved_place(directory)))
        text = f"settings:        {settings}\ndata directory:  {tree}\n"
        text += f"start it with:   {own_command()} serve --config {settings}"
        say_result({"settings": settings, "data": tree}, text)
        return
    options = {**options, "data": directory or options["data"]}
    if options["data"] is not None and options["datasource"] is not None:
        raise click.UsageError("--data and --datasource exclude each other")
    choice = choose_trees(**options)
    if choice.is_named:
        made = [place_at(choice.settings, choice.trees[0].place).init()]
    else:
        made = init_places(choice.settings, choice.properties)
    for place, is_new in made:
        is_what = "is a data directory" if os.path.isabs(place) else "is prepared"
        text = f"{safe(place)} {is_what} {'now' if is_new else 'already'}"
        say_result({"place": safe(place), "new": is_new}, text)


def make_service_directory(path: str) -> tuple[str, str]:
    """Make a service directory at an absolute path; return the paths of its settings file and data directory.

    Keys will be beside the data directory, not in it.
    """
    file, data = f"{path}/{DEFAULT_FILE}", f"{path}/{Settings().data}"
    owner.require_closed(path)
    with disk_errors(f"directory {path}"):
        files.ensure(path)
        found = min((name for name in os.listdir(path) if name != "lost+found"), default=None)
        if found is not None:
            raise StartupError(
                f"{path} is not empty (it holds {found!r}): a service directory is made in an empty one;"
                " 'persistence init --data DIR' makes only a data directory"
            )
        root.init(data)
        files.ensure(os.path.dirname(file))
        files.write_durably(file, shipped("persistence.toml"))
    return file, data


_UNIT_COMMAND = "/srv/persistence/.venv/bin/persistence"


@command("config-files", "Write the files that systemd, nginx and others need.")
@exits("written", "could not be written, or one of them is there already")
@click.argument("directory", metavar="DIR")
def config_files(*, directory: str) -> None:
    """Write units, and files for nginx, logrotate, Prometheus and Grafana, into DIR, to be changed and installed.

    They name this command. Lines that end in EDIT may have to change. No file is replaced.
    """
    called, target = os.path.abspath(sys.argv[0]), os.path.abspath(directory)
    own = called if os.path.basename(called) == "persistence" else _UNIT_COMMAND
    with disk_errors(f"directory {safe(directory)}"):
        files.ensure(target)
        for name in CONFIG_FILES:
            if os.path.lexists(f"{target}/{name}"):
                raise StartupError(f"{shown_path(f'{target}/{name}')} is there already: no file is replaced")
        for name in CONFIG_FILES:
            files.write_durably(f"{target}/{name}", shipped(name).replace(_UNIT_COMMAND.encode(), os.fsencode(own)))
            path = shown_path(f"{target}/{name}")
            say_result({"file": path}, path)


CLAIMS = Form("demo", "expense-claim")
COUNT = 200
_DRAFT_EACH = 25
"""Every claim of so many has a draft."""

_PEOPLE = (("Lea Example", "lea"), ("Bob Sample", "bob"), ("Zoë Muster", "zoe"), ("Mia Beispiel", "mia"))
_DEPARTMENTS = ("research", "sales", "accounting", "workshop", "library")
_CITIES = ("Lisbon", "Paris", "Zürich", "Oslo", "Kraków", "Dublin", "Athens")
_PURPOSES = ("Visit to a customer", "Conference", "Messe", "Training", "Installation on site")
_ITEMS = (("Train", 4250), ("Hotel", 11900), ("Meal", 1840), ("Taxi", 2210), ("Tram", 320))
_STAGES = ("submitted", "approved", "paid")


class SampleClaim:
    """One expense claim, by its number.

    ``document`` is its id, a UUID, and always the same. ``stages`` are the workflow stages of the saves, oldest first.
    ``receipt_name`` is the file name of the attachment, empty without one.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.document = str(uuid5(NAMESPACE_URL, f"persistence-demo/{number}"))
        self.name, self.owner = _PEOPLE[number % len(_PEOPLE)]
        self.stages = _STAGES[: 1 + number % len(_STAGES)]
        receipt = uuid5(NAMESPACE_URL, f"persistence-demo/{number}/receipt")
        self.receipt_name = "" if number % 4 else f"{receipt.hex}.bin"

    @property
    def receipt_type(self) -> str:
        return "application/pdf" if self.number % 8 else "image/png"

    @property
    def receipt(self) -> bytes:
        """The attachment: a PDF of one line, or a picture."""
        if self.receipt_type == "image/png":
            return _sample("png")
        total = sum(cents for _, cents in self._items(len(self.stages) - 1))
        text = f"Receipt {self.number}: {_euros(total)} EUR"
        placeholder = b"RECEIPT".ljust(30)  # the PDF has the positions of what is behind it
        return _sample("pdf").replace(placeholder, text.encode().ljust(len(placeholder)))

    def xml(self, save: int, collection: Collection = Collection.DATA) -> bytes:
        """Return the form data of a save, counted from 0; each adds an item to the claim."""
        items = "".join(
            f"<items><day>2026-{1 + self.number % 12:02}-{1 + (self.number + at) % 28:02}</day><what>{what}</what>"
            f"<amount>{_euros(cents)}</amount></items>"
            for at, (what, cents) in enumerate(self._items(save))
        )
        receipt = "<receipt/>"
        if self.receipt_name:
            path = f"/fr/service/persistence/crud/{CLAIMS}/{collection.value}/{self.document}/{self.receipt_name}"
            name = f"receipt-{self.number}.{self.receipt_type[-3:]}"
            about = f'filename="{name}" mediatype="{self.receipt_type}" size="{len(self.receipt)}"'
            receipt = f"<receipt {about}>{path}</receipt>"
        values = {
            "department": _DEPARTMENTS[self.number // 3 % len(_DEPARTMENTS)],
            "city": _CITIES[self.number % len(_CITIES)],
            "purpose": escape(f"<p><b>{_PURPOSES[self.number // 2 % len(_PURPOSES)]}</b>, as agreed.</p>"),
            "total": _euros(sum(cents for _, cents in self._items(save))),
            "approved": "false" if self.number % 3 else "true",
            "signature": f"data:image/png;base64,{b64encode(_sample('png')).decode()}" if save else "",
            "remarks": "Please keep this between us." if self.number % 5 == 0 else "",
        }
        return _sample("xml").decode().format(claim=self, items=items, receipt=receipt, **values).encode()

    def _items(self, save: int) -> list[tuple[str, int]]:
        return [_ITEMS[(self.number + at) % len(_ITEMS)] for at in range(1 + save)]


@cache
def _sample(suffix: str) -> bytes:
    return resources(__package__).joinpath(f"expense-claim.{suffix}").read_bytes()


def all_claims() -> Iterator[SampleClaim]:
    return (SampleClaim(number) for number in range(1, COUNT + 1))


def _euros(cents: int) -> str:
    return f"{cents // 100}.{cents % 100:02}"


_VERSION = VersionRequest(number=1)
_ACCOUNTANT = User("max", roles=(Role("accountant"),))


@command("demo", "Fill a new directory with a sample application.", has_json=False)
@exits("done", "could not: the directory holds something, or the disk refused")
@click.argument("directory", metavar="[DIR]", default="demo")
def demo(*, directory: str) -> None:
    """Make a service directory with a sample application in DIR (default: demo), which must be empty or missing.

    The application has one form in two languages, with indexed and encrypted controls and permissions, and 200
    documents with older revisions, attachments, drafts, and one that was deleted. They are the same each time. To get
    rid of it, remove the directory.
    """
    file, _ = make_service_directory(resolved_place(directory))
    started = time.monotonic()
    _fill(configuration.load(file, environment={}))
    shown, command, seconds = shown_path(file), own_command(), time.monotonic() - started
    say(
        f"{CLAIMS}: {COUNT} documents, 1 of them deleted, {COUNT // _DRAFT_EACH} drafts, in {seconds:.1f} s\n\n"
        f"Look at it:   {command} forms --config {shown}\n"
        f"Search it:    {command} search {CLAIMS} Lisbon --config {shown}\n"
        f"One document: {command} history {CLAIMS}/data/{SampleClaim(2).document} --config {shown}\n"
        f"Serve it:     {command} serve --config {shown}\n"
        f"In a browser: {command} password set NAME --config {shown}, then serve it"
    )


def _fill(effective: Effective) -> None:
    settings = effective.settings
    keys = open_encryption_keys(settings, effective.properties)
    records.note(settings.home, [keys.new()])
    dialect = DIALECTS[settings.dialect]
    with Providers(
        settings, effective.properties, lambda _, error: say_error(f"persistence: the index: {one_line(str(error))}")
    ) as providers:
        router = providers.router
        access = Access(dialect, AccessTokens(lambda: ()))
        codec = EncryptionCodec(EncryptionAtRest(router, dialect, keys))
        plain = Documents(router, dialect, access)
        publishing = Publishing(dialect, plain, Definitions(router), PublicationServers(settings))
        publication = Publication(VersionRequest(wants_next=True), True, None, User("ada"), None)  # noqa: FBT003
        publishing.from_body([_sample("xhtml")], publication)
        documents = Documents(router, dialect, access, codec)
        with progress("storing", lambda: COUNT) as bar:
            for claim in all_claims():
                for save, stage in enumerate(claim.stages):
                    _put(documents, claim, Collection.DATA, DATA_XML, claim.xml(save), stage)
                if claim.receipt_name:
                    _put(documents, claim, Collection.DATA, claim.receipt_name, claim.receipt)
                if claim.number % _DRAFT_EACH == 0:
                    _put(documents, claim, Collection.DRAFT, DATA_XML, claim.xml(len(claim.stages), Collection.DRAFT))
                bar.step()
        address = DocumentAddress(CLAIMS, Collection.DATA, SampleClaim(199).document)
        documents.delete(address, Delete(user=_ACCOUNTANT))


def _put(  # noqa: PLR0913, PLR0917 - a request has as many parts
    documents: Documents, claim: SampleClaim, collection: Collection, name: str, body: bytes, stage: str | None = None
) -> None:
    is_first = stage in (None, claim.stages[0])
    user = User(claim.owner) if is_first else _ACCOUNTANT
    kind = "application/xml" if name == DATA_XML else claim.receipt_type
    put = Put(version=_VERSION, user=user, content_type=kind, valid=True, stage=stage)
    documents.write(DocumentAddress(CLAIMS, collection, claim.document, name), put, [body])
