"""Bytes on disk: the path map, the commit, locks, sidecars and history."""
