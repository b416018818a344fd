"""Bounds on what is held of bodies in object stores, and on how they are read and written.

A body is received in a file, so that what is in memory does not grow with it. The default of 4 calls at a time and
these bounds are some 40 MiB of a worker at worst.

The time of a body is bounded by its pieces: each is a request of its own, which must end within ``remote_timeout``,
also if bytes keep coming. So a store that is just fast enough may take that long for each PART up, and for each
LARGEST_PIECE down: with the defaults 60 seconds for 5 MiB, and 100 minutes for 500 MiB. There is no deadline for a
whole body: it would have to be a rate, and refuse on a slow line what arrives today.
"""

PART = 5 << 20
"""Bytes of a part of a large object: the smallest that stores take."""

LARGEST_SINGLE = PART
"""Bytes up to which an object is stored by one request, which is conditional; they are in memory meanwhile."""

AT_ONCE = 1
"""Parts of one object that are sent at a time: each is in memory until the store has it.

With two of them a worker would need some 10 MiB more, and one body is not to take the bandwidth of all.
"""

MOST_PARTS = 9_000
"""Parts of an object: stores take 10,000. Larger bodies have larger parts."""

FIRST_PIECE = 256 << 10
"""Bytes that are read of an object at first, and the size up to which it is read by one request.

A client that wants a small range must not make the store send much more; one that reads on gets pieces that double.
"""

LARGEST_PIECE = 4 << 20
"""Bytes of a piece that is read at once. It is in memory until the client has taken it.

Each piece is a request of its own, so that a slow client holds no connection to the store.
"""

KEYS_AT_ONCE = 1_000
"""Keys in a page of a list, or removed by one call: as many as stores give and take."""

LONGEST_KEY = 1024
"""Bytes of a key: the limit of S3."""

ABANDONED_OBJECT_AFTER = 3600.0
"""Seconds after which an object that no record names belongs to nobody: its request has ended long since.

Locks and transactions have deadlines of seconds or minutes, and clocks of stores may differ by minutes.
"""

SWEEP_EVERY = 600.0
"""Seconds between two looks at what failed requests may have left: notes of bodies, in databases unclaimed contents.

Nearly always there is nothing, and a look costs next to nothing.
"""
