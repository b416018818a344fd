"""The index: a cache for searches, in SQLite. It can be deleted at any time."""
