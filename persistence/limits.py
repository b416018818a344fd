"""The bounds on what one request may cost, each with its reason; what exceeds one is refused with 400 or 413.

Sizes are in bytes and times in seconds unless a name says otherwise. docs/security.md says what all of them promise
together, and `make test-cost` searches for requests that break the promise.
"""

# XML: every document, definition and query is read within these.

# Names, headers and identity.

HOST_LENGTH = 300
"""Characters of a `Host` header that can be one of the service's: a name has at most 253."""

HOSTS_KEPT = 256
"""`Host` headers of which a worker remembers whether they are its own: some 100 KB, were all of them long."""

# Search, distinct values and flat views.

SEARCHED_OWNERS = 64
"""Conditions on owners in one search, such as that it is the user, or of one of the user's organizations. Permissions
have one or two of them; roles that are bound to organizations, several in one permission, can make hundreds, each of
which is looked for at every document. SQLite takes 500 parts in one statement."""

# Lists: forms, attachments.

# A worker.
