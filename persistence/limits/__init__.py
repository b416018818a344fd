"""Bounds on the cost of one request and on caches, each with its reason. A request that exceeds one is 400 or 413.

Sizes are in bytes and times in seconds unless a name says otherwise. docs/security.md describes what the bounds promise
together, and `make test-cost` searches for requests that break the promise.
"""
