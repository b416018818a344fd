"""The bounds on what one request may cost, each with its reason; what exceeds one is refused with 400 or 413.

Sizes are in bytes and times in seconds unless a name says otherwise. docs/security.md says what all of them promise
together, and `make test-cost` searches for requests that break the promise.
"""

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

# Names, headers and identity.

# Search, distinct values and flat views.

# Lists: forms, attachments.

LONGEST_TITLE = 2_000
"""Characters of the title of a form in one language. Real ones have up to 64."""

MOST_METADATA = 16 << 10
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

# A worker.
