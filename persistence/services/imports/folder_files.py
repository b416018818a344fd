"""The files of a folder that an administrator names. No link in it is followed, and only regular files are read."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from io import FileIO

from persistence.errors import BadRequestError
from persistence.limits import CHUNK, DEEPEST_FOLDER
from persistence.services.imports.revisions import Content
from persistence.storage import nofollow
from persistence.storage.layout import LAYOUT


class FolderFiles:
    """The ``SourceFiles`` of a folder; ``largest`` are the bytes that a content may have."""

    def __init__(self, path: str, *, largest: int) -> None:
        self._root = os.path.realpath(path)
        self._largest = largest
        if os.path.lexists(f"{self._root}/{LAYOUT}"):
            raise BadRequestError(f"{path} is a data directory: export it, or use persistence backup and restore")

    def names(self) -> Iterator[str]:
        return self._names("", DEEPEST_FOLDER)

    def fault(self, name: str) -> str | None:
        try:
            status = os.lstat(f"{self._root}/{name}")
            name.encode()
        except OSError as error:
            return os.strerror(error.errno or 0)
        except UnicodeEncodeError:
            return "its name is not UTF-8"
        if not stat.S_ISREG(status.st_mode):
            return "it is a link, a pipe or a device, not a file"
        if status.st_size > self._largest:
            return f"it has {status.st_size} bytes; the limit is {self._largest}"
        return None

    def content(self, name: str) -> Content:
        return lambda: self._pieces(name)

    def times(self, name: str) -> tuple[None, None]:  # noqa: ARG002 - see ``SourceFiles``
        return None, None

    def _pieces(self, name: str) -> Iterator[bytes]:
        try:
            with FileIO(nofollow.open_file(f"{self._root}/{name}")) as file:
                while piece := file.read(CHUNK):
                    yield piece
        except OSError as error:
            raise BadRequestError(f"{name} cannot be read: {error.strerror}") from error

    def _names(self, folder: str, levels: int) -> Iterator[str]:
        try:
            with os.scandir(f"{self._root}/{folder}") as entries:
                found = sorted((each.name, each.is_dir(follow_symlinks=False)) for each in entries)
        except OSError as error:
            raise BadRequestError(f"the folder {folder or self._root} cannot be listed: {error.strerror}") from error
        for name, is_folder in found:
            path = f"{folder}/{name}" if folder else name
            if not is_folder:
                yield path
            elif levels:
                yield from self._names(path, levels - 1)
            else:
                raise BadRequestError(f"{path} is deeper than {DEEPEST_FOLDER} folders")
