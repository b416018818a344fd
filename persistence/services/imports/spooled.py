"""The import of a request body, which is received first into an unnamed file: a ZIP file is read from its end.

One import runs at a time in each process.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from io import BufferedReader

from persistence.errors import BusyError, disk_errors
from persistence.services.imports.importer import Importer, ImportOptions
from persistence.services.imports.report import ImportReport
from persistence.services.imports.sources import sent_source
from persistence.storage.uploads import Upload

_RETRY_AFTER = 30


class SpooledImports:
    """Imports the bodies of requests; ``spool`` begins to receive one."""

    def __init__(self, importer: Importer, spool: Callable[[], Upload]) -> None:
        self._importer = importer
        self._spool = spool
        self._running = threading.Lock()

    def run(self, content_type: str | None, chunks: Iterable[bytes], options: ImportOptions) -> bytes:
        """Import a body, and return the report as XML."""
        if not self._running.acquire(blocking=False):
            raise BusyError("another import is running", _RETRY_AFTER)
        report = ImportReport()
        try:
            with self._spool() as upload:
                for chunk in chunks:
                    with disk_errors("receiving an import"):
                        upload.write(chunk)
                with BufferedReader(upload.opened()) as file:
                    source = sent_source(file, content_type, largest=self._importer.largest)
                    for outcome in self._importer.run(source, options):
                        report.add(outcome)
        finally:
            self._running.release()
        return report.as_xml(is_dry=options.is_dry)
