"""Bounds on names, headers, identity and bodies of requests, and on the memory of the worker that serves them."""

CHUNK = 1 << 18
"""Bytes that are read or written at a time wherever content streams: large enough that the calls cost little."""

HOST_LENGTH = 300
"""Characters of a `Host` header that can be one of the service's names. A name has at most 253."""

LONGEST_NAME = 255
"""Bytes of a name in a path, the limit of common file systems. A longer one is refused before any cache keeps it."""

NAMES_KEPT = 4096
"""Names whose file names are cached: 9 MB at worst, with 255 characters of 4 bytes in memory."""

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

LONGEST_PASSWORD = 1024
"""Characters of the user name, and of the password, for another server that is published to."""

LONGEST_SERVER_URL = 1000
"""Characters of the address of another server that is published to, which is compared with those of the settings."""

LONGEST_SHOWN = 60
"""Characters of a name in an error."""

LONGEST_CAUSE = 300
"""Characters of an error, in a response and in the log."""

LARGEST_QUERY = 1 << 20
"""Bytes of the body of a query, which is held in memory."""

MOST_DRAINED = 1 << 28
"""Bytes of a refused body that are read and discarded, so that the client reads the response and not a reset."""

WORKER_MEMORY = 1 << 30
"""Bytes in memory above which a worker is replaced, by default. It is the last line of defence, far above its needs."""

LEAST_WORKER_MEMORY = 128 << 20
"""Smallest value of the setting except 0. An idle worker has 45 to 70 MB, and each request adds to that."""

LONGEST_GROWN = 10.0
"""Seconds for which a worker may have more while it answers. Then it is replaced after its current requests."""

WRITTEN_AT_ONCE = 8 << 20
"""Bytes of a body that wait in memory before the disk is told to write them, while more arrive."""

LONGEST_AUDIT_LINE = 1 << 16
"""Bytes of a line of the audit that is read; those that the service writes have some 3,000 at worst."""

LONGEST_AUDIT_EVENT = 1 << 15
"""Bytes of the facts of such a line; with more, the details of a request or command are left out."""

MOST_AUDIT_UNPACKED = 200
"""Bytes to which one byte of a compressed file of the audit is unpacked at most. Each line has a digest, which does not
compress: the longest lines of the service reach some 70."""

LONGEST_FORWARDED = 200
"""Characters of `X-Forwarded-For` in the audit. Anybody may send any."""

OBSERVATIONS_KEPT = 1 << 14
"""Observations of one kind that wait to be counted in the metrics, which happens each second."""

PEERS_KEPT = 256
"""Addresses of peers of which a worker keeps whether they are proxies: each that connects is one."""

LINGER = 5
"""Milliseconds for which a thread waits for the next request on its connection, while no other connection waits."""
