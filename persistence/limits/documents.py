"""Bounds on documents: their small files, revision histories and leases, and other services that keep them."""

SEARCHED_AT_ONCE = 1 << 20
"""Bytes of form data that are searched for marks of encryption before they are parsed for them.

Nearly all that is saved is smaller and has none; to parse 100 KB takes three times as long as all else that a PUT does.
"""

LOOKED_AT = 4096
"""Contents of which it is remembered whether something in them is encrypted, because their sidecars do not say it."""

LOOKED_AT_BYTES = 2 << 20
"""Bytes of memory of these."""

LARGEST_SMALL_FILE = 1 << 20
"""Bytes of a sidecar, or of another file that is read as a whole. The owner of a tree may plant a larger one.

A sidecar with the permissions of a form may have some 65,000 characters.
"""

LONGEST_PATH = 4096
"""Characters of a path of an attachment. A longer text is no path."""

MOST_HOLDERS = 100_000
"""Elements that name an attachment in one document."""

LARGEST_ATTACHMENT_LIST = 64 << 20
"""Bytes in memory of the holders of attachments in one document, and so of about their list."""

HOLDER_COSTS = 400
"""Bytes of memory for a holder beside its attributes and text."""

HISTORY_PAGE = 10
"""Revisions on a page of a history, by default (spec crud 8.1)."""

LARGEST_HISTORY_PAGE = 100
"""Revisions on a page of a history (spec crud 8.1 and 16, D12). The sidecar of each is read: some 40 microseconds."""

MOST_RESTORED = 10_000
"""Attachments of a document that are looked at when it is brought back: some 100 microseconds each, half of it under
its lock."""

RESTORED_AT_ONCE = 64
"""Files of a document that are brought back under one lock: the new content of each is open meanwhile."""

HISTORIES_KEPT = 256
"""Lists of older revisions that are cached, each for the state of its directory."""

HISTORIES_KEPT_BYTES = 4 << 20
"""Bytes of memory of these: 25 for a revision."""

MOST_LIVES = 100
"""Lives of a document that are judged, to decide who may see its revisions. Older ones are judged like the last."""

LARGEST_DIFFED = 2 << 20
"""Bytes of all revisions that a response compares. They take 0.6 seconds and 40 MB of memory for each MB, at worst."""

MOST_DIFFED_ELEMENTS = 50_000
"""Elements of a revision that is compared. Each becomes an object of some 400 bytes."""

MOST_ALIGNED = 500_000
"""Pairs of iterations that are compared to align those of two revisions: some 0.1 seconds. Then order decides."""

LARGEST_LOCK = 64 << 10
"""Bytes of the body of a LOCK or UNLOCK, which names a user and a group. Real ones have 400."""

LONGEST_LEASE = 24 * 60 * 60
"""Seconds of a lease. A runtime asks for ten minutes, and renews them while somebody edits."""

MOST_LEASES_OF_A_DIRECTORY = 4096
"""Leases in one of 256 directories, about a million together. A new lease lists its directory."""

MOST_LEASES_BESIDE_NEW_IDS = 64
"""Leases in one of 256 directories, some 16,000 together, with which an id that nothing is stored of can be leased.

Such ids cost nothing. The room above is for documents that are there.
"""

LEASES_COUNTED = 2_000
"""Leases of a place that are read for the metrics: some 50 ms in a tree. Of more, so many are reported."""

LARGEST_ANSWER = 64 << 20
"""Bytes of a response that is read into memory: a page of a search, a list of forms."""

ANSWER_SECONDS = 120.0
"""Seconds in which a response that is read into memory must arrive, after its headers.

A service that sends a byte now and then is never silent, and would hold a thread and what it has sent for ever. With
LARGEST_ANSWER it is a rate of 0.5 MiB/s; a page of a search has some kilobytes. A content that streams has no such
limit: it would have to be a rate, and refuse on a slow line what arrives today.
"""

MOST_RECEIVED = 4 << 30
"""Bytes of a content that another service sends before it is served: form data, and what has no length.

It is received into a file, which would fill the disk if it had no end.
"""

REMOTE_HISTORY_PAGE = 100
"""Revisions that are requested from another service at once. Some services do not answer with more."""

MOST_HISTORY_CALLS = MOST_LIVES + LARGEST_HISTORY_PAGE + 50
"""Requests to another service for one page of a history.

Most pages need one or two. Each life that is judged may need another, and so may each on the page, which may be older
ones; some 50 pages may lie between.
"""

PURGED_AT_ONCE = 64
"""Revisions that are purged while a document's lock is held: some 20 ms, and four waits for the disk."""

PURGE_PAUSE = 0.02
"""Seconds without the lock after these. Who waits for a lock looks every 10 ms whether it can be had."""

MOST_PURGE_PROBLEMS = 1000
"""Problems of a purge that are reported, one for each document that has one."""

MOST_OLDER_BODIES = 6
"""Bodies of an attachment that are requested from another service to find one of an older revision."""

# Archives, which are exported and imported (spec crud 8.4).

LARGEST_ARCHIVE_METADATA = 4 << 20
"""Bytes of the facts of one revision. A sidecar has at most 1 MiB, and a character of it at most four in XML."""

MOST_EXPORT_PATTERNS = 100
"""Patterns of forms in one export. Each form and version is compared with all of them."""

MOST_EXPORT_PROBLEMS = 10_000
"""Things that an export may leave out and name. With more, something else is wrong, and the export stops."""

SPOOLED_DIRECTORY = 8 << 20
"""Bytes of the directory of an archive that are held in memory, some 50,000 entries; more go to a temporary file."""

MOST_CELL_CHARACTERS = 16 << 20
"""Characters in the controls of a document that becomes a row of a table. A row is held in memory."""
