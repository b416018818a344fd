"""Bounds on definitions: extracted and generated values, publications, and the caches of what a definition becomes."""

MOST_DECLARATIONS = 50_000
"""Namespace declarations in a document that becomes a tree. The time of lxml grows with their square."""

LARGEST_TREE = 16 << 20
"""Bytes of a document that becomes a tree, which takes ten times as much memory, and at worst forty times."""

MOST_NESTED_CELLS = 200_000
"""Cells in the grids of a form, counted once for each enclosing grid."""

MOST_REST = 1 << 20
"""Characters of text that belongs to no key. Further text is left out."""

LONGEST_WORD = 2_000
"""Characters of ASCII without a blank in a text that is searched: a longer word is the content of a file, in base64.

URLs are rarely longer, and languages without blanks have other letters.
"""

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

MOST_UNUSABLE = 20
"""Marks without effect that are reported of one definition."""

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

MOST_MIGRATED = 32 << 20
"""Characters that one migration may add to a definition.

Without a bound, a section template with many grids in many sections, or nested initial iterations, would multiply.
"""

LONGEST_COMMENT = 4096
"""Characters of the comment of a publication, which is a header of its own in a request to another service."""

MOST_PUBLISHED_ATTACHMENTS = 500
"""Attachments of one publication. Each is copied."""

LONGEST_TITLE = 2_000
"""Characters of the title of a form in one language. Real ones have up to 64."""

MOST_METADATA = 64 << 10
"""Characters of titles, their languages and permissions together, which are stored beside every published version."""

MOST_CATALOG = 32 << 20
"""Bytes in memory of the definitions that a worker caches of a provider: metadata, permissions, controls, index keys.

The controls of a usual form take less than 50 KB.
"""

PERMISSION_COSTS = 250
"""Bytes of memory for a tag of permissions. Each element becomes an object or two."""

VERSIONS_KEPT = 1 << 15
"""Published versions that a worker caches."""

PERMISSIONS_KEPT = 256
"""Distinct permissions that are cached. Many versions share the same permissions."""

PERMISSIONS_KEPT_BYTES = 8 << 20
"""Bytes of memory of these."""

DEFINITIONS_KEPT = 256
"""Versions for which the readers of their indexed controls are cached."""

DEFINITIONS_KEPT_BYTES = 2 << 20
"""Bytes of memory of these readers."""
