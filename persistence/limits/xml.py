"""Bounds on XML: every document, definition and query is read within these."""

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

SMALL = 1 << 20
"""Bytes of a stored document up to which it is parsed at once: some 20 milliseconds at worst."""

MOST_PARSED = 2
"""Larger stored documents that a worker parses at a time for requests. Its other threads serve small ones."""

PARSING_PATIENCE = 1.0
"""Seconds for which a request waits for its turn to parse; then it is 503. It holds a thread while it waits."""

DEEPEST = 256
"""Levels of nested elements. Real documents have up to 12. This is libxml2's default limit, too."""

MOST_ELEMENTS = 1_000_000
"""Elements in a document. Each costs a microsecond or more whenever it is read."""
