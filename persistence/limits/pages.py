"""Bounds on the pages for administrators: logins, sessions, forms, and what a page shows."""

SHORTEST_PASSWORD = 12
"""Characters of a password at least: fewer are guessed from a stolen digest."""

SCRYPT_COST, SCRYPT_BLOCK, SCRYPT_PARALLEL = 1 << 14, 8, 5
"""The cost of a comparison of passwords: OWASP's choice for 16 MB."""

SCRYPT_MEMORY = 24 << 20
"""Bytes that a comparison may take: 128 * cost * block, and a little."""

LONGEST_PASSWORD_BYTES = 1024
"""Bytes of a password. A longer one is refused before anything is computed."""

FAILED_LOGINS = 10
"""Failed logins of one peer in ``LOGIN_WINDOW``; further ones are refused unseen (429)."""

FAILED_LOGINS_OF_ALL = 30
"""Failed logins of all peers in ``LOGIN_WINDOW``. A peer may have many addresses."""

LOGIN_WINDOW = 60.0
"""Seconds for which a failed login counts."""

LONGEST_SESSION = 8 * 3600
"""Seconds after which an administrator logs in again."""

LONGEST_IDLE = 3600
"""Seconds without a request after which a session has ended."""

SESSION_RENEWED = 60
"""Seconds after which a request renews the cookie of a session, so that not every response carries one."""

LARGEST_FORM = 1 << 16
"""Bytes of a form that a page sends."""

LONGEST_NOTICE = 300
"""Characters of a notice after an action. It travels in the cookie."""

ENDED_SESSIONS = 1000
"""Sessions that were ended and are remembered until they would have expired; then the oldest is forgotten."""

LONGEST_NEXT = 1000
"""Characters of the path to which a login leads."""

LONGEST_DETAIL = 200
"""Characters of a value of an action in the audit."""

MOST_PLOTTED = 1500
"""Values in a plot: a day has 1,440 minutes. Of more, the last are drawn."""

DAYS_COUNTED = 90
"""Days of which new documents are counted, and plotted."""

DELETED_LISTED = 200
"""Deleted documents of a form that are listed: those that were deleted last."""

FORMS_COUNTED = 5_000
"""Forms whose documents are counted for the pages. The counts of one take some kilobytes in each worker."""

COUNTING_SHARE = 0.05
"""The part of the time of one processor that counting may take, while somebody looks at the pages."""

COUNTING_AWAITED = 0.25
"""Seconds for which a page waits for the first counts, and for later ones where the last took no longer."""

ROWS_SHOWN = 50
"""Documents on a page of a table."""

STORED_LISTED = 1_000
"""Documents that are looked at for a table without an index: some 60 microseconds each, in a database a millisecond."""

ROWS_AT_ONCE = 500
"""Documents that are held while a table is exported as CSV."""

COLUMNS_SHOWN = 24
"""Indexed controls with a column on a page. A CSV file has all of them."""

LONGEST_CELL = 200
"""Characters of a text in a table; the rest is "…"."""

VALUES_SHOWN = 2_000
"""Lines of values on the page of a document, and of controls on that of a definition."""

LONGEST_OUTPUT = 1 << 18
"""Bytes of each stream of a command that are kept and read, and the last line: some thousand findings."""

LONGEST_OUTPUT_LINE = 1 << 16
"""Bytes of a line of them. A longer one counts as several."""

MOST_FINDINGS_SHOWN = 200
"""Findings of a check on a page. The command prints all."""

AUDIT_BYTES_READ = 32 << 20
"""Bytes of the audit that are read for a page, from its end; then it says from where on there may be more."""

AUDIT_LINES_SHOWN = 100
"""Lines of the audit on a page."""

ERRORS_KEPT = 50
"""Answers with a status from 500 that the overview shows."""

LARGEST_ERRORS = 1 << 16
"""Bytes of the file of these answers, above which the older half is removed."""

KEY_USE_NOTED = 60.0
"""Seconds between two notes of a worker about which keys were used."""

LONGEST_VALUE = 10_000
"""Characters of one value on the page of a document; the rest is "…"."""

LARGEST_SHOWN = 1 << 20
"""Bytes of form data whose values are shown. Larger data can be downloaded."""

LARGEST_XML_SHOWN = 256 << 10
"""Bytes of XML that are shown indented, from its beginning."""

XML_LINES_SHOWN = 5_000
"""Lines of indented XML."""

REVISIONS_SHOWN = 20
"""Revisions on a page of a timeline. The record of each is read."""
