"""The bounds on what one request may cost, each with its reason; what exceeds one is refused with 400 or 413.

Sizes are in bytes and times in seconds unless a name says otherwise. docs/security.md says what all of them promise
together, and `make test-cost` searches for requests that break the promise.
"""

# XML: every document, definition and query is read within these.

# Names, headers and identity.

LONGEST_NAME = 255
"""Bytes of a name in a path: what the usual file systems take. A longer one is refused before it is kept anywhere."""

NAMES_KEPT = 4096
"""Names whose file names are kept: 9 MB at worst, a name being 255 characters of 4 bytes in memory."""

FORMS_KEPT = 2048
"""Forms for which answers are kept. Names come from requests: 5 MB at worst in each of at most four caches."""

LONGEST_TEXT = 255
"""Characters in a user, group, stage or other text that is kept beside a document (spec crud 4.4)."""

LONGEST_CREDENTIAL = 4096
"""Characters of a text in the credentials header, before it is decoded and found too long to be kept."""

MOST_LEVELS = 32
"""Levels of an organization: each is a response header (spec crud 4.3); clients and proxies take only so many."""

MOST_ROLES = 500
"""Roles of a caller: each is compared with those of every permission of a form, for every owner on a page."""

LONGEST_COMPARED = 200
"""Characters of a name that is compared with known ones to suggest one: the time grows with the square."""

MOST_COMPARED = 50
"""Names with which one is compared in full: 50 of 200 characters take some 20 ms at worst."""

MOST_KNOWN = 10_000
"""Names among which the ones to compare are chosen, by how they begin and end."""

LONGEST_SHOWN = 60
"""Characters of a name in an error."""

LONGEST_CAUSE = 300
"""Characters of an error, in an answer and in the log."""

LONGEST_COMMENT = 4096
"""Characters of the comment of a publication: it is a header of its own where another service is asked."""

LARGEST_QUERY = 1 << 20
"""Bytes of a body that only asks for something: it is held in memory."""

MOST_DRAINED = 1 << 28
"""Bytes of a refused body that are read and thrown away, so that the client reads the answer and not a reset."""

# Search, distinct values and flat views.

MOST_TOKENS = 200
"""Tokens in all queries of a search together: each may be looked for in every value there is."""

LONGEST_SOUGHT = 1000
"""Characters of a text that is looked for inside others; SQLite's ``instr`` takes time that grows with its length.

What must be equal to a value may be as long as one.
"""

MOST_SOUGHT = 16_000
"""Characters in the queries by substring and by token of a search together."""

MOST_INDEXED = 1 << 20
"""Characters in all indexed values of a document. One that would be more has no entry: it is not found by its control.

A page reads these values, 4 MB where all characters are large, some five times over for a moment.
"""

SEARCH_SECONDS = 0.75
"""Processor time of a search, or of all distinct values of a request, on a form without documents.

The promise is one second for each MB of body: the rest is for parsing and writing.
"""

SEARCH_SECONDS_PER_DOCUMENT = 10e-6
"""What is added for each document of the form: free text that no index helps with reads all of them."""

LARGEST_FOUND = 32 << 20
"""Bytes of the answer of a search, or of distinct values: all of what was found is in memory while it is sent."""

HIT_COSTS = 512
"""Bytes that a found document counts for beside its values: what it takes in memory is more than what is written."""

VALUE_COSTS = 64
"""Bytes that a value counts for beside its text."""

LARGEST_HANDED = 64 << 10
"""Bytes of a document of which the index is handed what a PUT has read, so that it need not read it again."""

MOST_HANDED = 1_000
"""Documents of which that waits: they may have been refused, and are then never taken."""

MOST_HANDED_CHARACTERS = 4 << 20
"""Characters of text that wait so: 16 MB in memory at worst, and as much for the pieces."""

READERS_KEPT = 4
"""Connections to an index that are kept for the next search."""

INDEXES_KEPT = 32
"""Forms whose index files are kept open."""

READER_CACHE = 4 << 10
"""KiB of pages that a connection keeps; the kernel keeps all that are in use."""

SQLITE_KEPT = 24 << 20
"""Bytes after which SQLite takes pages from its caches instead of more memory, in all connections of a process."""

QUERIES_KEPT = 4
"""Parts of queries that are kept as they were taken apart: each is asked of many documents in turn."""

# Lists: forms, attachments.

MOST_FILTERS = 100
"""Filters in a query for forms: each is compared with every form there is."""

MOST_PUBLISHED_ATTACHMENTS = 500
"""Attachments of one publication: each is copied."""

# What is kept of definitions: what a definition is read into can be much larger than its text.

VERSIONS_KEPT = 1 << 15
"""Versions of forms whose metadata is kept."""

MOST_PERMISSIONS_KEPT = 1 << 20
"""Characters of permissions in what is kept of versions: what they are read into takes up to fifty times as much."""

PERMISSIONS_KEPT = 256
"""Different permissions that are kept, because many versions have those of another."""

SALVAGED_KEPT = 64
"""Damaged or deleted versions whose permissions are kept."""

PERMISSIONS_KEPT_BYTES = 8 << 20
"""Bytes of memory of each of these two."""

DEFINITIONS_KEPT = 256
"""Versions whose controls are kept; those that are indexed of other forms as many."""

DEFINITIONS_KEPT_BYTES = 32 << 20
"""Bytes of memory of the controls, those that are encrypted, and those that are indexed, each."""

# Other services.

LARGEST_ANSWER = 64 << 20
"""Bytes of an answer that is read into memory: a page of a search, a list of forms."""

# A worker.

WORKER_MEMORY = 1 << 30
"""Bytes in memory with which a worker is replaced, by default: the last line of defence, far above what it needs."""

LONGEST_GROWN = 10.0
"""Seconds for which a worker may have more, while it answers: then it is replaced after the requests it has."""

TRIMMED_FROM = 8 << 20
"""Bytes above the least that a worker ever had in memory from which it looks what it can give back."""

ARENAS = 2
"""Heaps of the C library: each keeps what was once needed in it."""

LARGE_BLOCK = 1 << 20
"""Bytes of a block from which the system is asked for it, and given it back at once."""
