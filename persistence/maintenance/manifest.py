"""The manifest of a backup: its parts, each a tree or a directory of attachments, and the paths they were saved from.

::

    <backup>/SHA256SUMS                    the digest of every file
    <backup>/.backup/backup.json           the manifest
    <backup>/.backup/settings.toml         a copy of the settings file
    <backup>/.backup/keys.json             the API keys and
    <backup>/.backup/encryption-keys.json  the encryption keys, if they were asked for
    <backup>/.backup/wrong                 what ``backup --verify`` found wrong; only there if it did

A single tree without a directory of attachments lies in the backup itself. Otherwise the parts have directories::

    <backup>/data/                         the tree of the setting ``data``
    <backup>/datasource/<name>/            the tree of ``[datasource.<name>]``
    <backup>/attachments/<provider>/       the ``base-path`` of a provider of attachments

No application's name starts with a dot, so ``.backup`` collides with none.
"""

from __future__ import annotations

import os
from typing import Annotated, Literal
from urllib.parse import quote

import msgspec

from persistence.errors import StartupError
from persistence.storage import nofollow

DIRECTORY = ".backup"
MANIFEST = f"{DIRECTORY}/backup.json"
SETTINGS = f"{DIRECTORY}/settings.toml"
API_KEYS = f"{DIRECTORY}/keys.json"
ENCRYPTION_KEYS = f"{DIRECTORY}/encryption-keys.json"
WRONG = f"{DIRECTORY}/wrong"
FORMAT = 2
"""The format of backups that this version writes. Format 1 had no manifest: one tree, and an unsorted list."""

_DATA = "data"
_DATASOURCE = "datasource"
_ATTACHMENTS = "attachments"


class BackupPart(msgspec.Struct, frozen=True, omit_defaults=True):
    """A tree or a directory of attachments in a backup.

    ``name`` is ``data``, ``datasource/NAME`` or ``attachments/PROVIDER``. ``directory`` is its path in the backup,
    empty for the backup itself. ``root`` is the path it was saved from. ``missing`` tells why it could not be saved,
    and is empty if it was.
    """

    kind: Literal["tree", "attachments"]
    name: str
    directory: Annotated[str, msgspec.Meta(pattern=r"^([^./][^/\x00]*(/[^./][^/\x00]*)*)?\Z")]
    root: str
    missing: str = ""

    def path(self, inside: str) -> str:
        """Return the path in the backup of a path in the part."""
        return f"{self.directory}/{inside}" if self.directory else inside

    def inside(self, path: str) -> str | None:
        """Return the path in the part of a path in the backup; ``None`` if it is in another part."""
        if not self.directory:
            return None if path.split("/", 1)[0] == DIRECTORY else path
        prefix = f"{self.directory}/"
        return path.removeprefix(prefix) if path.startswith(prefix) else None


class Manifest(msgspec.Struct, frozen=True, omit_defaults=True):
    """The content of ``backup.json``."""

    format: int
    parts: tuple[BackupPart, ...]

    def part(self, name: str) -> BackupPart | None:
        """Return the part of a name."""
        return next((part for part in self.parts if part.name == name), None)


def tree_name(datasource: str) -> str:
    """Return the name of the tree of a datasource; an empty name means the default tree."""
    return f"{_DATASOURCE}/{datasource}" if datasource else _DATA


def attachments_name(provider: str) -> str:
    """Return the name of the directory of a provider of attachments."""
    return f"{_ATTACHMENTS}/{provider}"


def directory_of(name: str) -> str:
    """Return the directory in a backup of a part: its name, percent-encoded where it cannot be a file name."""
    first, slash, rest = name.partition("/")
    encoded = quote(rest, safe="")
    if encoded.startswith("."):
        encoded = f"%2E{encoded[1:]}"
    return f"{first}{slash}{encoded}"


def encode(manifest: Manifest) -> bytes:
    """Encode the content of the file."""
    return msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n"


def read(backup: str) -> Manifest:
    """Read the manifest of a backup; without one the backup has the first format, and holds one tree.

    Raises:
        StartupError: the manifest cannot be read, or a newer version has written it.
        OSError: it cannot be opened.
    """
    path = f"{backup}/{MANIFEST}"
    try:
        descriptor = nofollow.open_file(path)
    except FileNotFoundError:
        return Manifest(1, (BackupPart("tree", _DATA, "", ""),))
    try:
        manifest = msgspec.json.decode(nofollow.read_small(descriptor), type=Manifest)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise StartupError(f"{path} cannot be read: {error}") from error
    finally:
        os.close(descriptor)
    if manifest.format > FORMAT:
        raise StartupError(f"{path} says format {manifest.format}: a newer version wrote it; this one knows {FORMAT}")
    return manifest
