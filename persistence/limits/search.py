"""Bounds on searches, distinct values, lists of forms and flat views."""

MOST_CHILDREN = 200
"""Meaningful elements of a query. Each may cause work for every document or form."""

MOST_QUERY_ELEMENTS = 10_000
"""Elements in a query, of which 200 can be meaningful."""

MOST_QUERY_NAMES = 1_000
"""Distinct names in a query."""

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

MOST_WAITING = 1_000
"""New changes of a process that wait for the index before writers wait, too: a search takes them in before it answers.

Those that something is in the way of, another rebuild or a flat view that is being filled, are not counted.
"""

MOST_READ_AHEAD = 1 << 20
"""Characters of documents that are read before the transaction that writes them; the others are read in it."""

LONGEST_TURN = 1.0
"""Seconds for which a writer, whose document is stored, waits for the index at most."""

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

MOST_FILTERS = 100
"""Filters in a query for forms. Each is compared with every form."""

LARGEST_LIST = 32 << 20
"""Bytes in memory of the metadata of all forms that a list is selected from, and so of about its response."""

MOST_WRITTEN_LIST = 16 << 20
"""Bytes of serialized entries of the list of forms that are cached."""
