"""The index: a cache of what a search asks, in SQLite. It can be thrown away at any time."""
