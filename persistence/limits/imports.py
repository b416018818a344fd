"""Bounds on what is imported, from archives, folders and JSON lines (spec crud 8.4), and on what is moved."""

LARGEST_IMPORT = 4 << 30
"""Bytes of an archive that a request sends. It is spooled to disk. The command takes files of any size."""

LARGEST_DIRECTORY = 256 << 20
"""Bytes of the central directory of a ZIP file, which `zipfile` holds in memory, and of the entries in it.

An entry takes some 600 bytes of memory beside it: a million entries take some 800 MB. A larger export is to be cut by
forms.
"""

LARGEST_SENT_DIRECTORY = 32 << 20
"""Bytes of the central directory of a ZIP file that a request sends: some 150,000 entries."""

MOST_FILES = 1_000_000
"""Entries of an archive, or files of a folder. Their names are in memory, to find those of one document."""

LARGEST_RATIO = 200
"""Bytes of all contents for each byte of a ZIP file. XML of forms has 10 to 30.

An archive with more is refused as a bomb, before anything is read of its contents.
"""

FREE_OF_RATIO = 256 << 20
"""Bytes of contents for which the ratio does not matter."""

LONGEST_LINE = 32 << 20
"""Bytes of a line of JSON. It is in memory several times. A larger document is imported from an archive or a folder."""

MOST_AT_ONCE = 64
"""Revisions of a document that are received before any of them is stored. Each is an open file.

A document with more is stored in steps: so far as it was at an earlier time, if a later content is bad.
"""

LARGEST_AT_ONCE = 1 << 30
"""Bytes of the revisions of a document that a move receives before any of them is stored, unless one alone has more.

They are on the disk of the destination, which may be small if attachments are in an object store.
"""

LARGEST_RUNTIME_PROPERTIES = 8 << 20
"""Bytes of a runtime's `properties-local.xml` that is read. Real ones have some 100 KB."""

MOST_NAMED = 1_000
"""Refusals that the report of a request names, and documents without an owner that any report names.

All are counted.
"""

MOST_NOTES = 100
"""Different notes in a report.

Each has a count. Notes come from the archive, as far as they name facts that are not understood.
"""

LONGEST_ENTRY = 200
"""Characters of a name in a report. A whole name may have thousands, and there may be a thousand names."""

DEEPEST_FOLDER = 16
"""Levels of folders in a folder. The deepest layout, below the path of the interface, has 11."""

MOST_REMEMBERED = 4_000_000
"""Documents whose state a move remembers, some 70 bytes for each. Others are compared with the destination again."""

MOVED_AT_ONCE = 4
"""Documents that a move copies at once: while a disk or database stores one, the others are read and sent.

Each may have MOST_AT_ONCE open files, and LARGEST_AT_ONCE bytes of disk.
"""
