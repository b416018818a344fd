"""What a backup holds: its parts, each a tree or a directory of attachments, and where they were.

::

    <backup>/SHA256SUMS                    the digest of every file
    <backup>/.backup/backup.json           this
    <backup>/.backup/settings.toml         the settings file as it was
    <backup>/.backup/keys.json             the API keys and
    <backup>/.backup/encryption-keys.json  the encryption keys, where they were asked for
    <backup>/.backup/wrong                 what ``backup --verify`` found wrong; there only if it did

One tree without a directory of attachments lies in the backup itself. Else the parts have directories::

    <backup>/data/                         the tree of the setting ``data``
    <backup>/datasource/<name>/            the tree of ``[datasource.<name>]``
    <backup>/attachments/<provider>/       the ``base-path`` of a provider of attachments

No name of an application starts with a dot, so ``.backup`` is never in the way of one.
"""

from __future__ import annotations

import os
from typing import Annotated, Literal
from urllib.parse import quote

import msgspec

from persistence.errors import StartupError
from persistence.storage import files, nofollow

DIRECTORY = ".backup"
MANIFEST = f"{DIRECTORY}/backup.json"
SETTINGS = f"{DIRECTORY}/settings.toml"
API_KEYS = f"{DIRECTORY}/keys.json"
ENCRYPTION_KEYS = f"{DIRECTORY}/encryption-keys.json"
WRONG = f"{DIRECTORY}/wrong"
FORMAT = 2
"""The format of backups that this version writes. 1 had no manifest: one tree, and a list that is not sorted."""

DATA = "data"
_DATASOURCE = "datasource"
_ATTACHMENTS = "attachments"

Kind = Literal["tree", "attachments"]


class Part(msgspec.Struct, frozen=True, omit_defaults=True):
    """A tree or a directory of attachments in a backup.

    ``name`` is what people call it: ``data``, ``datasource/NAME`` or ``attachments/PROVIDER``. ``directory`` is where
    it lies in the backup, empty for the backup itself. ``root`` is where it was when it was saved. ``missing`` says why
    it could not be saved, and is empty where it was.
    """

    kind: Kind
    name: str
    directory: Annotated[str, msgspec.Meta(pattern=r"^([^./][^/\x00]*(/[^./][^/\x00]*)*)?\Z")]
    root: str
    missing: str = ""

    def path(self, inside: str) -> str:
        """The path in the backup of a path in the part."""
        return f"{self.directory}/{inside}" if self.directory else inside

    def inside(self, path: str) -> str | None:
        """The path in the part of a path in the backup; ``None`` where it is not in this part."""
        if not self.directory:
            return None if path.split("/", 1)[0] == DIRECTORY else path
        prefix = f"{self.directory}/"
        return path.removeprefix(prefix) if path.startswith(prefix) else None


class Manifest(msgspec.Struct, frozen=True, omit_defaults=True):
    """The content of ``backup.json``."""

    format: int
    parts: tuple[Part, ...]

    def part(self, name: str) -> Part | None:
        """The part of a name."""
        return next((part for part in self.parts if part.name == name), None)


def tree_name(datasource: str) -> str:
    """The name of the tree of a datasource, or with an empty name of the default tree."""
    return f"{_DATASOURCE}/{datasource}" if datasource else DATA


def attachments_name(provider: str) -> str:
    """The name of the directory of a provider of attachments."""
    return f"{_ATTACHMENTS}/{provider}"


def directory_of(name: str) -> str:
    """The directory in a backup of a part: its name, with what no directory can be called percent-encoded."""
    first, slash, rest = name.partition("/")
    encoded = quote(rest, safe="")
    if encoded.startswith("."):
        encoded = f"%2E{encoded[1:]}"
    return f"{first}{slash}{encoded}"


def encode(manifest: Manifest) -> bytes:
    """The content of the file."""
    return msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n"


def read(backup: str) -> Manifest:
    """What a backup holds; one without a manifest is of the first format, and holds one tree.

    Raises:
        StartupError: the manifest cannot be read, or a newer version has written it.
        OSError: it cannot be opened.
    """
    path = f"{backup}/{MANIFEST}"
    try:
        descriptor = nofollow.open_file(path)
    except FileNotFoundError:
        return Manifest(1, (Part("tree", DATA, "", ""),))
    try:
        manifest = msgspec.json.decode(files.read_small(descriptor), type=Manifest)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise StartupError(f"{path} cannot be read: {error}") from error
    finally:
        os.close(descriptor)
    if manifest.format > FORMAT:
        raise StartupError(f"{path} says format {manifest.format}: a newer version wrote it; this one knows {FORMAT}")
    return manifest
