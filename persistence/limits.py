"""The bounds on what one request may cost, each with its reason; what exceeds one is refused with 400 or 413.

Sizes are in bytes and times in seconds unless a name says otherwise. docs/security.md says what all of them promise
together, and `make test-cost` searches for requests that break the promise.
"""

CHUNK = 1 << 18
"""Bytes that are read or written at a time wherever content streams: large enough that the calls cost little."""

# XML: every document, definition and query is read within these.

XML_STEP = 16 << 10
"""Bytes that the XML parser is given at a time. Between two steps it is checked how much the parser has kept."""

XML_LONG_STEP = 64 << 10
"""The same within a token that has not ended after as many: the parser begins each step with the token's first byte."""

LONGEST_TOKEN = 1 << 20
"""Bytes in one tag or comment. The parser holds it as a whole, and scans it again with every step that it lasts.

Real tags have up to 1 KB. Text is no token: it may be of any length.
"""

MOST_ATTRIBUTES = 1_000
"""Attributes of an element: each becomes a string with its whole namespace. Real elements have up to 9."""

MOST_NAMESPACES = 1_000
"""Declarations of namespaces in scope, which are in memory at a time. Real documents have up to 25."""

LONGEST_NAMESPACE = 1_000
"""Characters of ASCII in the name of a namespace, which is written out in every name that is in it: it multiplies.

Where there are others, a quarter as many: a string with one of them may take four bytes for each of its characters.
Real ones have up to 62.
"""

LONGEST_XML_NAME = 10_000
"""Characters in the name of an element, with its namespace: handlers keep the names of all elements around one."""

MOST_NAMES = 50_000
"""Different names of elements, attributes, prefixes and namespaces in a document: the parser keeps each to its end.

Real documents have up to 250.
"""

MOST_NAME_BYTES = 16 << 20
"""Bytes in memory of all these names together, with their namespaces."""

MOST_SEALED = 20_000
"""Values of a document that are encrypted when it is received: each costs some 20 microseconds."""

MOST_EDITED = 40 << 20
"""Bytes of an element that are held until it is known whether it is to be encrypted: comments count, too.

It is more than any value has, were all of it written in character references.
"""

MOST_TREE_NODES = 500_000
"""Elements and attributes of a definition that becomes a tree, where each takes some 300 bytes. Real ones: 2,000."""

MOST_WALKED = 5_000_000
"""Steps from elements of a definition to those around them: some 0.2 microseconds each."""

DEEPEST = 256
"""Elements inside one another. Real documents have up to 12; libxml2 takes no more than this unless it is told to."""

MOST_ELEMENTS = 1_000_000
"""Elements in a document, each of which costs a microsecond and more wherever it is read."""

MOST_CHILDREN = 200
"""Elements of a query that mean something: each may be work for every document or form there is."""

MOST_QUERY_ELEMENTS = 10_000
"""Elements in a query, of which 200 can mean something."""

MOST_QUERY_NAMES = 1_000
"""Different names in a query."""

# Definitions and data: what is read of them and made of them.

MOST_DECLARATIONS = 50_000
"""Declarations of namespaces in a document that is made a tree; lxml takes time that grows with their square."""

LARGEST_TREE = 16 << 20
"""Bytes in a document that is made a tree, which takes ten times as much memory, and at worst forty times."""

MOST_NESTED_CELLS = 200_000
"""Cells that the grids of a form may hold, counted once for each grid around them."""

MOST_REST = 1 << 20
"""Characters of text that belongs to no key; what follows is left out."""

MOST_HELD = 8 << 20
"""Bytes of a document in which an element of a key may end; one that is longer has no value."""

MOST_VALUES = 8 << 20
"""Characters in all values; those that would be more are left out."""

MOST_NESTED_TEXT = 64 << 20
"""Characters in the values of elements with elements inside, after which such elements have no value any more.

They may lie inside each other, so that the text of a document multiplies.
"""

MOST_STEPS = 150_000
"""Names in the paths of all controls, each of which takes some 6 microseconds. Real forms have some hundreds.

A section template of many controls that many sections show would multiply without a bound.
"""

LONGEST_ENCRYPTED = 4 << 20
"""Characters in a value that is encrypted: it is in memory as a whole."""

MOST_VIEWS = 1000
"""Views of a form."""

MOST_COLUMNS = 2000
"""Columns of a view: a table of SQLite can have no more."""

MOST_VIEW_CHARACTERS = 4 << 20
"""Characters in the names on the paths of all views and columns, and tags of elements on the way."""

MOST_CELLS = 1_000_000
"""Values in all rows of a document, empty ones included."""

MOST_KEY_CHARACTERS = 4 << 20
"""Characters in the paths of all keys."""

MOST_PATTERNS = 20
"""Keys that have values though not all their steps are plain names: one element may match all of them."""

MOST_MIGRATED = 32 << 20
"""Characters that one migration may add to a definition.

Without a bound, a section template of many grids that many sections show, or initial iterations inside one another,
would multiply.
"""

# Names, headers and identity.

HOST_LENGTH = 300
"""Characters of a `Host` header that can be one of the service's: a name has at most 253."""

HOSTS_KEPT = 256
"""`Host` headers of which a worker remembers whether they are its own: some 100 KB, were all of them long."""

LONGEST_NAME = 255
"""Bytes of a name in a path: what the usual file systems take. A longer one is refused before it is kept anywhere."""

NAMES_KEPT = 4096
"""Names whose file names are kept: 9 MB at worst, a name being 255 characters of 4 bytes in memory."""

LOOKED_AT = 4096
"""Contents of which it is remembered whether something in them is encrypted, because their sidecars do not say it."""

LOOKED_AT_BYTES = 2 << 20
"""Bytes of memory of these."""

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

LARGEST_SMALL_FILE = 1 << 20
"""Bytes of a sidecar, or of another file that is read as a whole: who owns a tree may plant a larger one.

A sidecar with the permissions of a form may have some 65,000 characters.
"""

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

MOST_INDEXED_VALUES = 100_000
"""Indexed values of a document: further ones have no entry. With their cost, those of any document fit into an answer.

Otherwise one document with a million short values would make every page on which it is be refused.
"""

SEARCH_SECONDS = 0.75
"""Processor time of a search, or of all distinct values of a request, on a form without documents.

The promise is one second for each MB of body: the rest is for parsing and writing.
"""

SEARCH_SECONDS_PER_DOCUMENT = 10e-6
"""Processor time that is added for each document of the form: free text that no index helps with reads all of them."""

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

SEARCHED_OWNERS = 64
"""Conditions on owners in one search, such as that it is the user, or of one of the user's organizations. Permissions
have one or two of them; roles that are bound to organizations, several in one permission, can make hundreds, each of
which is looked for at every document. SQLite takes 500 parts in one statement."""

# Lists: forms, attachments.

MOST_FILTERS = 100
"""Filters in a query for forms: each is compared with every form there is."""

MOST_PUBLISHED_ATTACHMENTS = 500
"""Attachments of one publication: each is copied."""

LONGEST_TITLE = 2_000
"""Characters of the title of a form in one language. Real ones have up to 64."""

MOST_METADATA = 64 << 10
"""Characters of titles, their languages and permissions together, which are kept beside every published version."""

LARGEST_LIST = 32 << 20
"""Bytes in memory of the metadata of all forms that a list is selected from, and so of about its answer."""

MOST_CATALOG = 32 << 20
"""Bytes in memory of the metadata and permissions of published forms that a worker keeps."""

PERMISSION_COSTS = 250
"""Bytes that a tag of permissions takes when they are read: each element becomes an object or two."""

VERSIONS_KEPT = 1 << 15
"""Published versions that a worker keeps."""

MOST_WRITTEN_LIST = 16 << 20
"""Bytes of entries of the list of forms that are kept as they were written."""

LARGEST_CATALOG_FILE = 48 << 20
"""Bytes of the file in which workers leave each other what is published: it is read into memory."""

LONGEST_PATH = 4096
"""Characters of text after which it is no path of an attachment any more."""

MOST_HOLDERS = 100_000
"""Elements that name an attachment in one document."""

LARGEST_ATTACHMENT_LIST = 64 << 20
"""Bytes in memory of the holders of attachments that one document names, and so of about their list."""

HOLDER_COSTS = 400
"""Bytes that a holder takes beside its attributes and text."""

# What is kept of definitions: what a definition is read into can be much larger than its text.

PERMISSIONS_KEPT = 256
"""Different permissions that are kept, because many versions have those of another."""

SALVAGED_KEPT = 64
"""Damaged or deleted versions whose permissions are kept."""

PERMISSIONS_KEPT_BYTES = 8 << 20
"""Bytes of memory of each of these two."""

DEFINITIONS_KEPT = 256
"""Versions whose controls are kept; those that are indexed of other forms as many."""

DEFINITIONS_KEPT_BYTES = 2 << 20
"""Bytes of memory of the controls, those that are encrypted, those that are indexed and their readers, each.

Those of a usual form take less than 50 KB.
"""

# Other services.

LARGEST_ANSWER = 64 << 20
"""Bytes of an answer that is read into memory: a page of a search, a list of forms."""

# A worker.

WORKER_MEMORY = 1 << 30
"""Bytes in memory with which a worker is replaced, by default: the last line of defence, far above what it needs."""

LEAST_WORKER_MEMORY = 128 << 20
"""Bytes that the setting may be at least, but for 0: an idle worker has 45 to 70 MB, and one request adds to them."""

LONGEST_GROWN = 10.0
"""Seconds for which a worker may have more, while it answers: then it is replaced after the requests it has."""

TRIMMED_FROM = 8 << 20
"""Bytes above the least that a worker ever had in memory from which it looks what it can give back."""

ARENAS = 2
"""Heaps of the C library: each keeps what was once needed in it."""

LARGE_BLOCK = 1 << 20
"""Bytes of a block from which the system is asked for it, and given it back at once."""
