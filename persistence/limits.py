"""Bounds on the cost of one request and on caches, each with its reason. A request that exceeds one is 400 or 413.

Bytes and seconds unless a line says otherwise. docs/security.md says what they promise; `make test-cost` tests it.
"""

# Names, headers, identity and bodies of requests.
CHUNK = 1 << 18  # read or written at a time wherever content streams: large enough that the calls cost little
HOST_LENGTH = 300  # characters of a `Host` header that can be a name of the service: a name has at most 253
LONGEST_NAME = 255  # a name in a path, the limit of common file systems: refused before any cache keeps it
NAMES_KEPT = 4096  # names whose file names are cached: 9 MB at worst, with 255 characters of 4 bytes
FORMS_KEPT = 2048  # forms for which results are cached: 5 MB at worst in each of at most four caches
LONGEST_TEXT = 255  # characters in a user, group, stage or other text beside a document (spec crud 4.4)
LONGEST_CREDENTIAL = 4096  # characters of a string in the credentials header, before it is decoded
MOST_LEVELS = 32  # levels of an organization: each is a response header (spec crud 4.3), and clients limit those
MOST_ROLES = 500  # roles of a caller: each is compared with every permission, for every owner on a page
LONGEST_COMPARED = 200  # characters of a name for which a similar one is suggested: time grows with the square
MOST_COMPARED = 50  # known names that are compared in full: 50 of 200 characters take some 20 ms at worst
MOST_KNOWN = 10_000  # known names from which those are chosen, by their first and last characters
LONGEST_ACCESS_TOKEN = 512  # characters of an access token: it has some 110
LONGEST_PASSWORD = 1024  # characters of the user, and of the password, for a server that is published to
LONGEST_SERVER_URL = 1000  # characters of the address of a server that is published to, compared with the settings
LONGEST_SHOWN = 60  # characters of a name in an error
LONGEST_CAUSE = 300  # characters of an error, in a response and in the log
LARGEST_QUERY = 1 << 20  # body of a query, which is in memory
MOST_DRAINED = 1 << 28  # read of a refused body and discarded, so that the client reads the response, not a reset
WRITTEN_AT_ONCE = 8 << 20  # of a body that wait in memory before the disk must write them, while more arrive
LONGEST_AUDIT_LINE = 1 << 16  # line of the audit that is read: the service's have some 3,000 at worst
LONGEST_AUDIT_EVENT = 1 << 15  # facts of such a line; with more, details of the request or command are left out
# Each line of the audit has a digest, which does not compress: the longest lines of the service reach some 70.
MOST_AUDIT_UNPACKED = 200  # bytes to which one byte of a compressed file of the audit is unpacked
LONGEST_FORWARDED = 200  # characters of `X-Forwarded-For` in the audit: anybody may send any
OBSERVATIONS_KEPT = 1 << 14  # observations of one kind that wait to be counted in the metrics, each second
PEERS_KEPT = 256  # addresses of peers of which a worker remembers whether they are proxies
LINGER = 5  # milliseconds for which a thread waits for the next request, while no other connection waits

# Memory of a worker.
WORKER_MEMORY = 1 << 30  # above it a worker is replaced, by default: the last line of defence, far above its needs
LEAST_WORKER_MEMORY = 128 << 20  # smallest value of the setting except 0: an idle worker has 45 to 70 MB
LONGEST_GROWN = 10.0  # for which a worker may have more while it answers, before it is replaced

# XML: every document, definition and query is read within these.
XML_STEP = 16 << 10  # that the parser gets at a time: its memory is checked between two steps
XML_LONG_STEP = 64 << 10  # a step within a longer token: the parser begins each step with the token's first byte
LONGEST_TOKEN = 1 << 20  # a tag or comment, which the parser scans again with every step: real ones have 1 KB
MOST_ATTRIBUTES = 1_000  # attributes of an element: each is a string with its whole namespace; real ones have up to 9
MOST_NAMESPACES = 1_000  # namespace declarations in scope, in memory at a time: real documents have up to 25
# The name of a namespace multiplies, because every name in it has it. A string with a character beyond ASCII may take
# four bytes for each, so such a name may have a quarter as many. Real ones have up to 62.
LONGEST_NAMESPACE = 1_000  # ASCII characters
LONGEST_XML_NAME = 10_000  # characters of an element's name with namespace: handlers keep those of all ancestors
MOST_NAMES = 50_000  # distinct names in a document, which the parser keeps until its end: real ones have up to 250
MOST_NAME_BYTES = 16 << 20  # in memory of all these names, with their namespaces
MOST_ENCRYPTED = 20_000  # values that are encrypted when a document arrives: some 20 µs each
MOST_EDITED = 40 << 20  # an element held until it is known whether to encrypt it: any value in character references
MOST_TREE_NODES = 500_000  # elements and attributes of a definition as a tree: some 300 bytes each; real: 2,000
MOST_WALKED = 5_000_000  # steps from elements of a definition to their ancestors, some 0.2 µs each
SMALL = 1 << 20  # stored document that is parsed at once: some 20 ms at worst
MOST_PARSED = 2  # larger stored documents that a worker parses at a time: its other threads serve small ones
PARSING_PATIENCE = 1.0  # a request waits for its turn to parse, and holds a thread meanwhile; then 503
DEEPEST = 256  # levels of nested elements: libxml2's default limit, too; real documents have up to 12
MOST_ELEMENTS = 1_000_000  # elements in a document: each costs a microsecond or more whenever it is read

# Definitions: extracted and generated values, publications, and the caches of what a definition becomes.
MOST_DECLARATIONS = 50_000  # namespace declarations in a tree: the time of lxml grows with their square
MOST_KEPT_SECTIONS = 10_000  # CDATA sections in a tree: lxml joins a text in time that grows with their square
LARGEST_TREE = 16 << 20  # a document that becomes a tree, which takes 10 to 40 times as much memory
MOST_NESTED_CELLS = 200_000  # cells in the grids of a form, counted once for each enclosing grid
MOST_REST = 1 << 20  # characters of text that belongs to no key; further text is left out
# A longer word is the content of a file, in base64. URLs are rarely longer; languages without blanks are not ASCII.
MOST_VALUE_TOKENS = 4_000  # tokens of encrypted values in all queries of a search, one for each key: SQLite has 32,766
LONGEST_WORD = 2_000  # characters of ASCII without a blank in a text that is searched
MOST_HELD = 8 << 20  # an element of a key; a longer one has no value
MOST_VALUES = 8 << 20  # characters in all values; values that would exceed it are left out
MOST_NESTED_TEXT = 64 << 20  # characters in values of elements that contain elements: nested ones multiply the text
MOST_STEPS = 150_000  # names in the paths of all controls, 6 µs each: nested section templates multiply them
MOST_UNUSABLE = 20  # marks without effect that are reported of one definition
LONGEST_ENCRYPTED = 4 << 20  # characters in a value that is encrypted, which is in memory as a whole
MOST_VIEWS = 1000  # views of a form
MOST_COLUMNS = 2000  # columns of a view: a table of SQLite can have no more
MOST_VIEW_CHARACTERS = 4 << 20  # characters in the names and tags on the paths of all views and columns
MOST_CELLS = 1_000_000  # values in all rows of a document, empty ones included
MOST_KEY_CHARACTERS = 4 << 20  # characters in the paths of all keys
MOST_MIGRATED = 32 << 20  # characters that one migration may add: grids in section templates multiply
LONGEST_COMMENT = 4096  # characters of the comment of a publication, a header in a request to another service
MOST_PUBLISHED_ATTACHMENTS = 500  # attachments of one publication: each is copied
LONGEST_TITLE = 2_000  # characters of the title of a form in one language: real ones have up to 64
MOST_METADATA = 64 << 10  # characters of titles, languages and permissions, stored beside every published version
MOST_CATALOG = 32 << 20  # definitions that a worker caches of a provider: controls of a usual form take 50 KB
PERMISSION_COSTS = 250  # memory for a tag of permissions: each element becomes an object or two
VERSIONS_KEPT = 1 << 15  # published versions that a worker caches
PERMISSIONS_KEPT = 256  # distinct permissions that are cached: many versions share the same
PERMISSIONS_KEPT_BYTES = 8 << 20  # memory of these
DEFINITIONS_KEPT = 256  # versions for which the readers of their indexed controls are cached
DEFINITIONS_KEPT_BYTES = 2 << 20  # memory of these readers
INDEX_KEYS_KEPT_BYTES = 16 << 20  # memory of their indexed controls: some 350 bytes each, and a form may have many

# Documents: small files, histories, leases.
SEARCHED_AT_ONCE = 1 << 20  # form data searched for marks of encryption first: to parse it takes 3 times a whole PUT
LOOKED_AT = 4096  # contents whose encryption is remembered, because their sidecars do not say it
LOOKED_AT_BYTES = 2 << 20  # memory of these
LARGEST_SMALL_FILE = 1 << 20  # a file that is read as a whole: the owner of a tree may plant a larger one
LONGEST_PATH = 4096  # characters of a path of an attachment; a longer text is not a path
MOST_HOLDERS = 100_000  # elements that name an attachment in one document
LARGEST_ATTACHMENT_LIST = 64 << 20  # memory of the holders of attachments in one document, and so of their list
HOLDER_COSTS = 400  # memory for a holder beside its attributes and text
HISTORY_PAGE = 10  # revisions on a page of a history, by default (spec crud 8.1)
LARGEST_HISTORY_PAGE = 100  # the most of them (spec crud 8.1 and 16, D12): the sidecar of each is read, some 40 µs
MOST_RESTORED = 10_000  # attachments looked at when a document is restored: 100 µs each, half of it under its lock
RESTORED_AT_ONCE = 64  # files that are restored under one lock: the new content of each is open meanwhile
HISTORIES_KEPT = 256  # lists of older revisions that are cached, each for the state of its directory
HISTORIES_KEPT_BYTES = 4 << 20  # memory of these: 25 for a revision
MOST_LIVES = 100  # lives of a document judged, to decide who may see revisions; older ones are judged like the last
LARGEST_DIFFED = 2 << 20  # revisions that a response compares: 0.6 seconds and 40 MB of memory for each MB, at worst
MOST_DIFFED_ELEMENTS = 50_000  # elements of a revision that is compared: some 400 bytes each
MOST_ALIGNED = 500_000  # pairs of iterations, or of words, that align two revisions: some 0.1 s; then order decides
LARGEST_LOCK = 64 << 10  # body of a LOCK or UNLOCK, which names a user and a group: real ones have 400
LONGEST_LEASE = 24 * 60 * 60  # a runtime asks for ten minutes, and renews them while somebody edits
MOST_LEASES_OF_A_DIRECTORY = 4096  # leases in one of 256 directories, which a new lease lists: a million together
# Ids of documents that do not exist cost nothing; the room above is for documents that exist.
MOST_LEASES_BESIDE_NEW_IDS = 64  # leases in one of 256 directories, with which an id without a document can be leased
LEASES_SEARCHED = 10_000  # leases of a place that are read to find those of a user: some 250 ms in a tree
MOST_LEASED = 1_000  # documents that users have leased, in one search
LEASES_COUNTED = 2_000  # leases of a place that are read for the metrics: some 50 ms in a tree
PURGED_AT_ONCE = 64  # revisions purged under one lock of a document: some 20 ms, and four waits for the disk
PURGE_PAUSE = 0.02  # without the lock after these: a waiting request looks every 10 ms whether it can be had
MOST_PURGE_PROBLEMS = 1000  # problems of a purge that are reported, one for each document

# Other services that keep documents.
LARGEST_ANSWER = 64 << 20  # a response that is read into memory: a page of a search, a list of forms
# A service that sends a byte now and then is never silent, and would hold a thread for ever. With LARGEST_ANSWER it is
# a rate of 0.5 MiB/s. A content that streams has no deadline: it would refuse on a slow line what arrives today.
ANSWER_SECONDS = 120.0  # in which such a response must arrive, after its headers
MOST_RECEIVED = 4 << 30  # content received into a file before it is served: without an end it would fill the disk
REMOTE_HISTORY_PAGE = 100  # revisions requested at once: some services do not answer with more
# Most pages need one or two. Each life that is judged may need another, so may each revision; 50 pages may lie between.
MOST_HISTORY_CALLS = MOST_LIVES + LARGEST_HISTORY_PAGE + 50  # requests for one page of a history
MOST_OLDER_BODIES = 6  # contents of an attachment that are requested to find that of an older revision

# Exports (spec crud 8.4).
LARGEST_ARCHIVE_METADATA = 4 << 20  # facts of a revision: a sidecar has 1 MiB, each character at most four in XML
MOST_EXPORT_PATTERNS = 100  # patterns of forms in one export: each version is compared with all of them
MOST_CHANGED = 1000  # documents that a request gives another owner or stage: their names are in the response
MOST_EXPORT_PROBLEMS = 10_000  # things that an export may leave out and name; with more, it stops
SPOOLED_DIRECTORY = 8 << 20  # directory of an archive in memory, some 50,000 entries; more go to a temporary file
MOST_CELL_CHARACTERS = 16 << 20  # characters in the controls of a document that becomes a row, which is in memory

# Imports from archives, folders and JSON lines (spec crud 8.4), and moves.
LARGEST_IMPORT = 4 << 30  # an archive that a request sends, spooled to disk; the command takes files of any size
# `zipfile` holds the directory in memory, and some 600 bytes for each entry: a million take 800 MB.
LARGEST_DIRECTORY = 256 << 20  # central directory of a ZIP file
LARGEST_SENT_DIRECTORY = 32 << 20  # the same of a ZIP file that a request sends: some 150,000 entries
MOST_FILES = 1_000_000  # entries of an archive, or files of a folder: their names are in memory
LARGEST_RATIO = 200  # unpacked bytes for each byte of a ZIP file: XML of forms has 10 to 30, a bomb has more
FREE_OF_RATIO = 256 << 20  # contents for which the ratio does not matter
LONGEST_LINE = 32 << 20  # a line of JSON, which is in memory several times; an archive or folder has no such limit
# A document with more is stored in steps: if a later content is bad, it is as it was at an earlier time.
MOST_AT_ONCE = 64  # revisions of a document received before any is stored: each is an open file
# They are on the disk of the destination, which may be small if attachments are in an object store.
LARGEST_AT_ONCE = 1 << 30  # revisions of a document that a move receives before any is stored, unless one has more
LARGEST_RUNTIME_PROPERTIES = 8 << 20  # a runtime's `properties-local.xml`: real ones have some 100 KB
MOST_NAMED = 1_000  # refusals that the report of a request names, and documents without an owner; all are counted
MOST_NOTES = 100  # different notes in a report: they come from the archive, where it has unknown facts
LONGEST_ENTRY = 200  # characters of a name in a report: there may be a thousand names of thousands
DEEPEST_FOLDER = 16  # levels of folders in a folder: the deepest layout, that of the interface, has 11
MOST_REMEMBERED = 4_000_000  # documents whose state a move remembers, some 70 bytes each; others are compared again
MOVED_AT_ONCE = 4  # documents copied at once, each within MOST_AT_ONCE and LARGEST_AT_ONCE: one is stored, others read

# Searches, distinct values, lists of forms and flat views.
MOST_CHILDREN = 200  # meaningful elements of a query: each may cause work for every document or form
MOST_QUERY_ELEMENTS = 10_000  # elements in a query, of which 200 can be meaningful
MOST_QUERY_NAMES = 1_000  # distinct names in a query
MOST_TOKENS = 200  # tokens in all queries of a search: each may be searched in every value
LONGEST_SEARCHED = 1000  # characters of a searched substring: time grows with it; an equal value may be longer
MOST_SEARCHED = 16_000  # characters in the queries by substring and by token of a search together
MOST_INDEXED = 1 << 20  # characters in all indexed values of a document: a page holds them, 4 MB each, five times
MOST_INDEXED_VALUES = 100_000  # indexed values of a document, so that those of any document fit into a response
# The promise is one second for each MB of body. The rest is for parsing and writing.
SEARCH_SECONDS = 0.75  # processor time of a search, or of all distinct values, on a form without documents
SEARCH_SECONDS_PER_DOCUMENT = 10e-6  # added for each document: free text without help of an index reads all
LARGEST_FOUND = 32 << 20  # response of a search, or of distinct values, which is in memory while it is sent
HIT_COSTS = 512  # that a found document counts for beside its values: it takes more in memory than in the response
VALUE_COSTS = 64  # that a value counts for beside its text
LARGEST_HANDED = 64 << 10  # a document whose values a PUT passes to the index, which need not read it again
# Changes that another rebuild or the filling of a flat view delays are not counted. A search writes them first.
MOST_WAITING = 1_000  # changes of a process that wait for the index before writers wait, too
MOST_READ_AHEAD = 1 << 20  # characters read before the transaction that writes them; others are read in it
LONGEST_TURN = 1.0  # a writer, whose document is stored, waits for the index
MOST_HANDED = 1_000  # documents whose values wait for the index; those of refused ones are never used
MOST_HANDED_CHARACTERS = 4 << 20  # characters of these values: 16 MB in memory at worst, and as much for the pieces
READERS_KEPT = 4  # idle connections to an index that are kept for the next search
INDEXES_KEPT = 32  # forms whose index files are kept open
READER_CACHE = 4 << 10  # KiB of pages that a connection caches: the kernel caches all that are in use
SQLITE_KEPT = 24 << 20  # after which SQLite reuses pages of its caches, in all connections of a process
QUERIES_KEPT = 4  # parsed parts of queries that are cached: each is evaluated for many documents in turn
# Permissions have one or two. Roles bound to organizations can make hundreds; SQLite accepts 500 parts in a statement.
FEW_FOUND = 2_000  # documents up to which a condition is a narrow one: it selects, and others are tested for each
MOST_GATHERED = 20_000  # documents gathered and sorted at once; where more are found, others are tested or passed by
SAMPLED = 200  # newest documents in a database on which a text is tried, to see whether it is rare
FOLDS_TRIED = 100  # distinct values of a control up to which a text is looked for in each value, not document
FIRST_TRIED = 500  # documents at the head of a list that are tested at a time before anything is counted: 18 µs each
MOST_TRIED = 5_000  # documents that are tested so, while enough of them meet the conditions to fill the page in time
LEAPS = 2_000  # distinct values up to which the next one is looked for; beyond, all entries are read
SEARCHED_OWNERS = 64  # conditions on owners in one search: each is evaluated for every document
MOST_FILTERS = 100  # filters in a query for forms: each is compared with every form
LARGEST_LIST = 32 << 20  # memory of the metadata of all forms that a list is selected from, and so of its response
MOST_WRITTEN_LIST = 16 << 20  # serialized entries of the list of forms that are cached

# Databases: statements, connections and contents.
INLINE = 1 << 18  # content that is kept in the row of its revision; a larger one is in pieces
PIECE = 1 << 19  # piece of a content: a worker holds two of each content on its way, up or down
# A request uses one connection, and for a moment another where its form or partition is new. It waits for no other
# request then, and may have one beyond this number.
MOST_CONNECTIONS = 64  # connections of a process to one database
STATEMENT_SECONDS = 30  # after which the database cancels a statement of a request
STATEMENT_ANSWER_SECONDS = 5  # more for its answer; then the connection is given up: the server seems to be stopped
CONFIRMING_SECONDS = 2  # for a commit that tests whether the database can be written, tried again after as many
IDLE_SECONDS = 300  # after which the database ends a transaction in which nothing happens: its node may be gone
CONNECT_SECONDS = 5  # for a connection to one host, where the address does not say it
OUTAGE_SECONDS = 2  # a request waits for a connection while the server refuses new ones: more would keep threads
SILENT_SECONDS = 12  # after which a database that answers nothing, not even to its network's probes, is lost
DEFINITIONS_FORESEEN = 8  # definitions of a form that are read with a document; of more, each is read by itself
LISTED_ROWS = 1000  # rows that are read at a time of a listing of any length
UNCLAIMED_SECONDS = 3600  # a content in pieces without a revision stays: so long readers and uploads may take
SWEPT_AT_ONCE = 10  # contents without a revision removed in one transaction: more than a large upload makes
MOST_SWEPT = 1000  # contents that one sweep removes: the others have time until the next one
PARTITIONS_KEPT = 10_000  # partitions of the index whose numbers a process keeps: four of each form version in use
# Other requests that the database serves count in this, so it is far more than SEARCH_SECONDS.
SEARCH_WAITS = 5.0  # that a search, or all distinct values, may take in the database on a form without documents
SEARCH_WAITS_PER_DOCUMENT = 10e-6  # added for each document of the form
READ_AT_ONCE = 500  # documents that a search reads again itself, after a new definition; a job reads more
REREAD_AT_ONCE = 64  # documents read again in one transaction: a save of one of them waits for all
LARGEST_REREAD = 64 << 10  # content that is read together with others; a larger one is read alone
MOST_READERS = 4  # threads of a process that read documents again at once, each with a connection
LONGEST_SCHEMA = 58  # characters of a schema's name: PostgreSQL takes 63, and that of the flat views is five longer

# Object stores. A content is received in a file, so that memory does not grow with it: with the default of 4 calls at a
# time, these bounds are some 40 MiB of a worker. Each piece is a request that must end within ``remote_timeout``, also
# if bytes keep coming: a store that is just fast enough may take that long for each PART up, and for each LARGEST_PIECE
# down. There is no deadline for a whole content: it would refuse on a slow line what arrives today.
PART = 5 << 20  # part of a large object: the smallest that stores take
LARGEST_SINGLE = PART  # object that is stored by one request, which is conditional; it is in memory meanwhile
AT_ONCE = 1  # parts of one object sent at a time, each in memory: one content must not take the bandwidth of all
MOST_PARTS = 9_000  # parts of an object: stores take 10,000; larger contents have larger parts
# A client that wants a small range must not make the store send much more; one that reads on gets pieces that double.
FIRST_PIECE = 256 << 10  # read of an object at first, and the size up to which it is read by one request
LARGEST_PIECE = 4 << 20  # read at once, in memory until the client has it: a slow client holds no connection
KEYS_AT_ONCE = 1_000  # keys in a page of a list, or removed by one call: as many as stores give and take
LONGEST_KEY = 1024  # the limit of S3
# Its request has ended: locks and transactions have deadlines of minutes, and clocks of stores may differ by minutes.
ABANDONED_OBJECT_AFTER = 3600.0  # after which an object that no record names is abandoned
SWEEP_EVERY = 600.0  # between two looks at what failed requests left: nearly always nothing, and next to free

# Pages for administrators: logins, sessions, forms, and what a page shows.
SHORTEST_PASSWORD = 12  # characters of a password: fewer are guessed from a stolen digest
SCRYPT_COST, SCRYPT_BLOCK, SCRYPT_PARALLEL = 1 << 14, 8, 5  # cost of a comparison: OWASP's choice for 16 MB
SCRYPT_MEMORY = 24 << 20  # that a comparison may take: 128 * cost * block, and a little
LONGEST_PASSWORD_BYTES = 1024  # password; a longer one is refused before anything is computed
FAILED_LOGINS = 10  # failed logins of one peer in LOGIN_WINDOW; further ones are refused unseen (429)
FAILED_LOGINS_OF_ALL = 30  # failed logins of all peers in LOGIN_WINDOW: a peer may have many addresses
LOGIN_WINDOW = 60.0  # for which a failed login counts
LONGEST_SESSION = 8 * 3600  # after which an administrator logs in again
LONGEST_IDLE = 3600  # without a request, after which a session has ended
SESSION_RENEWED = 60  # after which a request renews the cookie: not every response carries one
LARGEST_FORM = 1 << 16  # form that a page sends
LONGEST_NOTICE = 300  # characters of a notice after an action, which travels in the cookie
ENDED_SESSIONS = 1000  # ended sessions remembered until they would have expired; then the oldest is forgotten
LONGEST_NEXT = 1000  # characters of the path to which a login leads
LONGEST_DETAIL = 200  # characters of a value of an action in the audit
MOST_PLOTTED = 1500  # values in a plot: a day has 1,440 minutes; of more, the last are drawn
DAYS_COUNTED = 90  # days of which new documents are counted, and plotted
DELETED_LISTED = 200  # deleted documents of a form that are listed: those deleted last
FORMS_COUNTED = 5_000  # forms whose documents are counted: some kilobytes each in each worker
COUNTING_SHARE = 0.05  # part of one processor's time that counting may take, while somebody looks at the pages
COUNTING_AWAITED = 0.25  # a page waits for the first counts, and for later ones where the last took no longer
ROWS_SHOWN = 50  # documents on a page of a table
STORED_LISTED = 1_000  # documents looked at for a table without an index: 60 µs each, in a database 1 ms
ROWS_AT_ONCE = 500  # documents that are held while a table is exported as CSV
COLUMNS_SHOWN = 24  # columns of a table on a page; a CSV file has all
CONTROLS_SHOWN = 4  # indexed controls with a column on a page that no columns were chosen for
VERSIONS_JOINED = 20  # versions, the latest, whose columns the table of all versions has
MOST_OPTIONS = 100  # values in a list to choose from; for more, there is a text field
MOST_MERGED = 1_000  # documents of each form that a search of several forms puts in order: its last page ends there
SEARCH_FORMS_SECONDS = 10.0  # after which a search of several forms is refused
HITS_OF_A_FORM = 5  # documents of each form that a search of all forms shows
SEARCH_ALL_SECONDS = 3.0  # after which a search of all forms ends, and says how many forms it left out
SHEET_ROWS, SHEET_COLUMNS = 1_048_576, 16_384  # of a sheet of an XLSX workbook, as Excel has them
MOST_SHEETS = 200  # of a workbook: each has an open file until its end; further repeats are left out, and reported
SHEET_CHARACTERS = 32_767  # of a cell of such a sheet; the rest is left out, and reported
PARQUET_ROWS = 4_000  # of a row group of a Parquet file: those of the next one are in memory
PARQUET_HELD = 1 << 25  # bytes of values, about, that all next row groups have in memory; then they are written earlier
LONGEST_CELL = 200  # characters of a text in a table; the rest is "…"
VALUES_SHOWN = 2_000  # lines of values on the page of a document, and of controls on that of a definition
LONGEST_OUTPUT = 1 << 18  # each stream of a command that is kept and read, and the last line: a thousand findings
LONGEST_OUTPUT_LINE = 1 << 16  # a line of them; a longer one counts as several
MOST_OUTPUT = 1 << 20  # read of a file with both streams of a command, or of several runs: some thousand repairs
MOST_FINDINGS_SHOWN = 200  # findings of a check on a page; the command prints all
AUDIT_BYTES_READ = 32 << 20  # audit that is read for a page, from its end; the page says where it stopped
AUDIT_LINES_SHOWN = 100  # lines of the audit on a page
ERRORS_KEPT = 50  # answers with a status from 500 that the overview shows
LARGEST_ERRORS = 1 << 16  # file of these answers, above which the older half is removed
KEY_USE_NOTED = 60.0  # between two notes of a worker about which keys were used
ITEMS_SHOWN = 100  # selected items of one value that are shown by their labels; more of them stand as they are
# A character of a value counts one, the value itself 100, and a control that is looked for in an element one.
MOST_SHOWN = 4 << 20  # counted so, in the values of a document, or in changes: some 1.5 s, and a page of 6 MB
LONGEST_VALUE = 10_000  # characters of one value on the page of a document; the rest is "…"
LARGEST_SHOWN = 1 << 20  # form data whose values are shown; larger data can be downloaded
LARGEST_XML_SHOWN = 256 << 10  # XML that is shown indented, from its beginning
XML_LINES_SHOWN = 5_000  # lines of indented XML
LONGEST_HEADING = 60  # characters of a value in the heading of a document
REPEAT_COLUMNS, REPEAT_ROWS = 8, 200  # of a repeat that is shown as a table; one with more columns is a list
REVISIONS_SHOWN = 20  # revisions on a page of a timeline: the record of each is read

# Events of changes.
MOST_EVENTS = 1_000_000  # events that an outbox keeps, delivered or not: some 500 MB, which a target that is gone fills
MOST_DEAD_EVENTS = 1_000  # events that were given up for a target, and are kept to be delivered again
EVENTS_PAGE = 1_000  # changes in one answer: some 400 KB
LONGEST_FOLLOWING = 30  # seconds for which a request waits for a change
MOST_FOLLOWERS = 2  # requests of a worker that wait at a time: each holds a thread. More are answered at once
MOST_ATTEMPTS = 10  # attempts to deliver an event, over some two days
MOST_WEBHOOKS = 20  # targets of events, each with a thread
