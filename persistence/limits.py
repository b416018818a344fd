"""Bounds on the cost of one request and on caches, each with its reason. A request that exceeds one is 400 or 413.

Sizes are in bytes and times in seconds unless a name says otherwise. docs/security.md describes what the bounds promise
together, and `make test-cost` searches for requests that break the promise.
"""

CHUNK = 1 << 18
"""Bytes that are read or written at a time wherever content streams: large enough that the calls cost little."""

# XML: every document, definition and query is read within these.

XML_STEP = 16 << 10
"""Bytes that the XML parser gets at a time. Between two steps the memory of the parser is checked."""

XML_LONG_STEP = 64 << 10
"""Bytes of a step within a token longer than this: the parser begins each step with the token's first byte."""

LONGEST_TOKEN = 1 << 20
"""Bytes in one tag or comment, which the parser holds and scans again with every step. Real ones have up to 1 KB."""

MOST_ATTRIBUTES = 1_000
"""Attributes of an element. Each becomes a string with its whole namespace. Real elements have up to 9."""

MOST_NAMESPACES = 1_000
"""Namespace declarations in scope, which are in memory at a time. Real documents have up to 25."""

LONGEST_NAMESPACE = 1_000
"""ASCII characters in the name of a namespace. The name multiplies, because it is part of every name in the namespace.

A name with other characters may have a quarter as many, because a string with one of them may take four bytes for each
of its characters. Real ones have up to 62.
"""

LONGEST_XML_NAME = 10_000
"""Characters in the name of an element, with its namespace. Handlers keep the names of all enclosing elements."""

MOST_NAMES = 50_000
"""Distinct names of elements, attributes, prefixes and namespaces in a document. The parser keeps all until its end.

Real documents have up to 250.
"""

MOST_NAME_BYTES = 16 << 20
"""Bytes in memory of all these names, with their namespaces."""

MOST_ENCRYPTED = 20_000
"""Values of a document that are encrypted when it is received. Each costs some 20 microseconds."""

MOST_EDITED = 40 << 20
"""Bytes of an element that are held until it is known whether to encrypt it, with comments.

This is more than the longest value written in character references only.
"""

MOST_TREE_NODES = 500_000
"""Elements and attributes of a definition that becomes a tree. Each takes some 300 bytes. Real ones have 2,000."""

MOST_WALKED = 5_000_000
"""Steps from elements of a definition to enclosing elements, some 0.2 microseconds each."""

DEEPEST = 256
"""Levels of nested elements. Real documents have up to 12. This is libxml2's default limit, too."""

MOST_ELEMENTS = 1_000_000
"""Elements in a document. Each costs a microsecond or more whenever it is read."""

MOST_CHILDREN = 200
"""Meaningful elements of a query. Each may cause work for every document or form."""

MOST_QUERY_ELEMENTS = 10_000
"""Elements in a query, of which 200 can be meaningful."""

MOST_QUERY_NAMES = 1_000
"""Distinct names in a query."""

# Definitions and data: extracted and generated values.

MOST_DECLARATIONS = 50_000
"""Namespace declarations in a document that becomes a tree. The time of lxml grows with their square."""

LARGEST_TREE = 16 << 20
"""Bytes of a document that becomes a tree, which takes ten times as much memory, and at worst forty times."""

MOST_NESTED_CELLS = 200_000
"""Cells in the grids of a form, counted once for each enclosing grid."""

MOST_REST = 1 << 20
"""Characters of text that belongs to no key. Further text is left out."""

MOST_HELD = 8 << 20
"""Bytes of an element of a key. A longer element has no value."""

MOST_VALUES = 8 << 20
"""Characters in all values. Values that would exceed it are left out."""

MOST_NESTED_TEXT = 64 << 20
"""Characters in the values of elements that contain elements. Further elements of this kind have no value.

They may be nested, so that the text of a document multiplies.
"""

MOST_STEPS = 150_000
"""Names in the paths of all controls. Each takes some 6 microseconds. Real forms have some hundreds.

Without a bound, a section template with many controls in many sections would multiply.
"""

LONGEST_ENCRYPTED = 4 << 20
"""Characters in a value that is encrypted. The value is in memory as a whole."""

MOST_VIEWS = 1000
"""Views of a form."""

MOST_COLUMNS = 2000
"""Columns of a view. A table of SQLite can have no more."""

MOST_VIEW_CHARACTERS = 4 << 20
"""Characters in the names on the paths of all views and columns, and in the tags of elements on these paths."""

MOST_CELLS = 1_000_000
"""Values in all rows of a document, empty ones included."""

MOST_KEY_CHARACTERS = 4 << 20
"""Characters in the paths of all keys."""

MOST_PATTERNS = 20
"""Keys whose steps are not all plain names. One element may match all of these keys."""

MOST_MIGRATED = 32 << 20
"""Characters that one migration may add to a definition.

Without a bound, a section template with many grids in many sections, or nested initial iterations, would multiply.
"""

# Names, headers and identity.

HOST_LENGTH = 300
"""Characters of a `Host` header that can be one of the service's names. A name has at most 253."""

HOSTS_KEPT = 256
"""`Host` headers whose verdict a worker caches: some 100 KB if all of them are long."""

LONGEST_NAME = 255
"""Bytes of a name in a path, the limit of common file systems. A longer one is refused before any cache keeps it."""

NAMES_KEPT = 4096
"""Names whose file names are cached: 9 MB at worst, with 255 characters of 4 bytes in memory."""

SEARCHED_AT_ONCE = 1 << 20
"""Bytes of form data that are searched for marks of encryption before they are parsed for them.

Nearly all that is saved is smaller and has none; to parse 100 KB takes three times as long as all else that a PUT does.
"""

LOOKED_AT = 4096
"""Contents of which it is remembered whether something in them is encrypted, because their sidecars do not say it."""

LOOKED_AT_BYTES = 2 << 20
"""Bytes of memory of these."""

FORMS_KEPT = 2048
"""Forms for which results are cached. Names come from requests: 5 MB at worst in each of at most four caches."""

LONGEST_TEXT = 255
"""Characters in a user, group, stage or other text that is stored beside a document (spec crud 4.4)."""

LONGEST_CREDENTIAL = 4096
"""Characters of a string in the credentials header, before it is decoded and checked."""

MOST_LEVELS = 32
"""Levels of an organization. Each is a response header (spec crud 4.3), and clients and proxies limit those."""

MOST_ROLES = 500
"""Roles of a caller. Each is compared with the roles of every permission of a form, for every owner on a page."""

LONGEST_COMPARED = 200
"""Characters of a name for which a similar known name is suggested. The time grows with the square."""

MOST_COMPARED = 50
"""Known names that are compared in full: 50 of 200 characters take some 20 ms at worst."""

MOST_KNOWN = 10_000
"""Known names from which those to compare are chosen, by their first and last characters."""

LONGEST_ACCESS_TOKEN = 512
"""Characters of an access token; it has some 110. A longer one is refused before anything is computed."""

LONGEST_SHOWN = 60
"""Characters of a name in an error."""

LONGEST_CAUSE = 300
"""Characters of an error, in a response and in the log."""

LONGEST_COMMENT = 4096
"""Characters of the comment of a publication, which is a header of its own in a request to another service."""

LARGEST_QUERY = 1 << 20
"""Bytes of the body of a query, which is held in memory."""

MOST_DRAINED = 1 << 28
"""Bytes of a refused body that are read and discarded, so that the client reads the response and not a reset."""

LARGEST_SMALL_FILE = 1 << 20
"""Bytes of a sidecar, or of another file that is read as a whole. The owner of a tree may plant a larger one.

A sidecar with the permissions of a form may have some 65,000 characters.
"""

# Search, distinct values and flat views.

MOST_TOKENS = 200
"""Tokens in all queries of a search together. Each may be searched in every value."""

LONGEST_SEARCHED = 1000
"""Characters of a text that is searched inside others: time grows with it. One that equals a value may be longer."""

MOST_SEARCHED = 16_000
"""Characters in the queries by substring and by token of a search together."""

MOST_INDEXED = 1 << 20
"""Characters in all indexed values of a document. A value that would exceed it has no entry, and is not found.

A page holds these values, 4 MB if all characters are large, some five times for a moment.
"""

MOST_INDEXED_VALUES = 100_000
"""Indexed values of a document. Further ones have no entry. The values of any document fit into a response.

Otherwise every page with a document of a million short values would be refused.
"""

SEARCH_SECONDS = 0.75
"""Processor time of a search, or of all distinct values of a request, on a form without documents.

The promise is one second for each MB of body. The rest is for parsing and writing.
"""

SEARCH_SECONDS_PER_DOCUMENT = 10e-6
"""Processor time that is added for each document of the form. Free text without help of an index reads all of them."""

LARGEST_FOUND = 32 << 20
"""Bytes of the response of a search, or of distinct values. All results are in memory while they are sent."""

HIT_COSTS = 512
"""Bytes that a found document counts for beside its values, because it takes more in memory than in the response."""

VALUE_COSTS = 64
"""Bytes that a value counts for beside its text."""

LARGEST_HANDED = 64 << 10
"""Bytes of a document whose values a PUT passes on to the index, so that the index need not read it again."""

MOST_HANDED = 1_000
"""Documents whose values wait for the index. Some were refused, and their values are never used."""

MOST_HANDED_CHARACTERS = 4 << 20
"""Characters of these values: 16 MB in memory at worst, and as much for the pieces."""

READERS_KEPT = 4
"""Idle connections to an index that are kept for the next search."""

INDEXES_KEPT = 32
"""Forms whose index files are kept open."""

READER_CACHE = 4 << 10
"""KiB of pages that a connection caches. The kernel caches all that are in use."""

SQLITE_KEPT = 24 << 20
"""Bytes after which SQLite reuses pages of its caches instead of allocating memory, in all connections of a process."""

QUERIES_KEPT = 4
"""Parsed parts of queries that are cached. Each is evaluated for many documents in turn."""

SEARCHED_OWNERS = 64
"""Conditions on owners in one search, such as the user, or one of the user's organizations.

Permissions have one or two of them. Roles that are bound to organizations, several in one permission, can make
hundreds, each of which is evaluated for every document. SQLite accepts 500 parts in one statement.
"""

# Lists: forms, attachments.

MOST_FILTERS = 100
"""Filters in a query for forms. Each is compared with every form."""

MOST_PUBLISHED_ATTACHMENTS = 500
"""Attachments of one publication. Each is copied."""

LONGEST_TITLE = 2_000
"""Characters of the title of a form in one language. Real ones have up to 64."""

MOST_METADATA = 64 << 10
"""Characters of titles, their languages and permissions together, which are stored beside every published version."""

LARGEST_LIST = 32 << 20
"""Bytes in memory of the metadata of all forms that a list is selected from, and so of about its response."""

MOST_CATALOG = 32 << 20
"""Bytes in memory of the definitions that a worker caches of a provider: metadata, permissions, controls, index keys.

The controls of a usual form take less than 50 KB.
"""

PERMISSION_COSTS = 250
"""Bytes of memory for a tag of permissions. Each element becomes an object or two."""

VERSIONS_KEPT = 1 << 15
"""Published versions that a worker caches."""

MOST_WRITTEN_LIST = 16 << 20
"""Bytes of serialized entries of the list of forms that are cached."""

LARGEST_CATALOG_FILE = 48 << 20
"""Bytes of the file in which workers share the published versions. It is read into memory."""

LONGEST_PATH = 4096
"""Characters of a path of an attachment. A longer text is no path."""

MOST_HOLDERS = 100_000
"""Elements that name an attachment in one document."""

LARGEST_ATTACHMENT_LIST = 64 << 20
"""Bytes in memory of the holders of attachments in one document, and so of about their list."""

HOLDER_COSTS = 400
"""Bytes of memory for a holder beside its attributes and text."""

# Revision history.

HISTORY_PAGE = 10
"""Revisions on a page of a history, by default (spec crud 8.1)."""

LARGEST_HISTORY_PAGE = 100
"""Revisions on a page of a history (spec crud 8.1 and 16, D12). The sidecar of each is read: some 40 microseconds."""

MOST_LIVES = 100
"""Lives of a document that are judged, to decide who may see its revisions. Older ones are judged like the last."""

LARGEST_DIFFED = 2 << 20
"""Bytes of all revisions that a response compares. They take 0.6 seconds and 40 MB of memory for each MB, at worst."""

MOST_DIFFED_ELEMENTS = 50_000
"""Elements of a revision that is compared. Each becomes an object of some 400 bytes."""

MOST_ALIGNED = 500_000
"""Pairs of iterations that are compared to align those of two revisions: some 0.1 seconds. Then order decides."""

# Caches of definitions: the objects that a definition becomes can be much larger than its text.

PERMISSIONS_KEPT = 256
"""Distinct permissions that are cached. Many versions share the same permissions."""

PERMISSIONS_KEPT_BYTES = 8 << 20
"""Bytes of memory of these."""

DEFINITIONS_KEPT = 256
"""Versions for which the readers of their indexed controls are cached."""

DEFINITIONS_KEPT_BYTES = 2 << 20
"""Bytes of memory of these readers."""

# Leases of documents, and other services.

LARGEST_LOCK = 64 << 10
"""Bytes of the body of a LOCK or UNLOCK, which names a user and a group. Real ones have 400."""

LONGEST_LEASE = 24 * 60 * 60
"""Seconds of a lease. A runtime asks for ten minutes, and renews them while somebody edits."""

MOST_LEASES_OF_A_DIRECTORY = 4096
"""Leases in one of 256 directories, about a million together. A new lease lists its directory."""

LARGEST_ANSWER = 64 << 20
"""Bytes of a response that is read into memory: a page of a search, a list of forms."""

REMOTE_HISTORY_PAGE = 100
"""Revisions that are requested from another service at once. Some services do not answer with more."""

MOST_HISTORY_CALLS = 150
"""Requests to another service for one page of a history. Most pages need one or two; each deletion may need another."""

# A worker.

WORKER_MEMORY = 1 << 30
"""Bytes in memory above which a worker is replaced, by default. It is the last line of defence, far above its needs."""

LEAST_WORKER_MEMORY = 128 << 20
"""Smallest value of the setting except 0. An idle worker has 45 to 70 MB, and each request adds to that."""

LONGEST_GROWN = 10.0
"""Seconds for which a worker may have more while it answers. Then it is replaced after its current requests."""

TRIMMED_FROM = 8 << 20
"""Bytes above a worker's smallest memory from which it tries to give memory back."""

ARENAS = 2
"""Heaps of the C library. Each keeps the memory that it once needed."""

LARGE_BLOCK = 1 << 20
"""Bytes of a block that is allocated from the system directly, and given back at once."""
