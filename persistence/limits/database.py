"""Bounds on statements, connections and contents in a database."""

INLINE = 1 << 18
"""Bytes of a content that is kept in the row of its revision; a larger one is in pieces."""

PIECE = 1 << 19
"""Bytes of a piece of a content. A worker holds two of each content on its way, up or down."""

MOST_CONNECTIONS = 64
"""Connections of a process to one database.

A request uses one, and for a moment another one where its form or the partition of its document is new; it waits for
no other request then, and may have one beyond this number.
"""

STATEMENT_SECONDS = 30
"""Seconds after which the database cancels a statement of a request."""

ANSWER_SECONDS = 5
"""Seconds more for its answer; then the connection is given up, because the server seems to be stopped."""

CONFIRMING_SECONDS = 2
"""Seconds for a commit that tries out whether the database can be written. It is tried out again after as many."""

IDLE_SECONDS = 300
"""Seconds after which the database ends a transaction in which nothing happens: its node may be gone."""

CONNECT_SECONDS = 5
"""Seconds for a connection to one host, where the address does not say it."""

OUTAGE_SECONDS = 2
"""Seconds that a request waits for a connection while the server refuses new ones: more would only keep threads."""

SILENT_SECONDS = 12
"""Seconds after which a database that answers nothing at all, not even to its network's probes, is lost."""

DEFINITIONS_FORESEEN = 8
"""Definitions of a form, with their attachments, that are read with a document; of more, each is read by itself."""

LISTED_ROWS = 1000
"""Rows that are read at a time of a listing of any length."""

UNCLAIMED_SECONDS = 3600
"""Seconds for which a content in pieces that no revision has stays: so long readers may take, and so may an upload."""

SWEPT_AT_ONCE = 10
"""Contents that no revision has, and that are removed in one transaction: more than a large upload makes."""

MOST_SWEPT = 1000
"""Contents that one sweep of a service removes: the others have time until the next one."""

PARTITIONS_KEPT = 10_000
"""Numbers of partitions of the index that a process keeps: four of each form version that is in use."""

SEARCH_WAITS = 5.0
"""Seconds that a search, or all distinct values of a request, may take in the database on a form without documents.

Others who are served count in them, so it is far more than the processor time that a search may take in the service.
"""

SEARCH_WAITS_PER_DOCUMENT = 10e-6
"""Seconds that are added for each document of the form."""

FEW_FOUND = 2_000
"""Documents with one value up to which they are sorted; of more, the newest documents are looked at one by one."""

MOST_GATHERED = 20_000
"""Documents that are gathered by one condition and looked at one by one; where more meet it, it is met with others."""

SAMPLED = 200
"""Newest documents on which a text is tried out, to see whether it is rare."""

FOLDS_TRIED = 100
"""Distinct values of a control up to which a text is looked for in each value, and not in each document."""

NEWEST_TRIED = 2_000
"""Newest documents that are looked at for a page, before all that meet the conditions are sorted."""

FIRST_TRIED = 500
"""Newest documents that are looked at for a page before anything is counted, where its total is not needed.

It takes 18 µs for each where a text is looked for, and was in vain where little is found.
"""

LEAPS = 2_000
"""Distinct values up to which the next one is looked for; beyond, all entries of the control are read."""

READ_AT_ONCE = 500
"""Documents that a search reads again itself, because their definition indexes other controls; a job reads more."""

REREAD_AT_ONCE = 64
"""Documents that are read again in one transaction. A save of one of them waits for all."""

LARGEST_REREAD = 64 << 10
"""Bytes of a content that is read together with others; a larger one is read alone."""

MOST_READERS = 4
"""Threads of a process that read documents again at once, each with a connection."""

LONGEST_SCHEMA = 58
"""Characters of the name of a schema: PostgreSQL takes 63, and that of the flat views is five longer."""
