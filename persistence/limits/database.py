"""Bounds on statements, connections and contents in a database."""

INLINE = 1 << 18
"""Bytes of a content that is kept in the row of its revision; a larger one is in pieces."""

PIECE = 1 << 19
"""Bytes of a piece of a content. A worker holds two of each content on its way, up or down."""

MOST_CONNECTIONS = 64
"""Connections of a process to one database. A request uses one at a time."""

STATEMENT_SECONDS = 30
"""Seconds after which the database cancels a statement of a request."""

IDLE_SECONDS = 300
"""Seconds after which the database ends a transaction in which nothing happens: its node may be gone."""

CONNECT_SECONDS = 5
"""Seconds for a connection to one host, where the address does not say it."""

SILENT_SECONDS = 12
"""Seconds after which a database that answers nothing at all, not even to its network's probes, is lost."""

LISTED_ROWS = 1000
"""Rows that are read at a time of a listing of any length."""

UNCLAIMED_SECONDS = 3600
"""Seconds for which a content in pieces that no revision has stays: so long readers may take, and so may an upload."""

LONGEST_SCHEMA = 63
"""Characters of the name of a schema, the limit of PostgreSQL."""
