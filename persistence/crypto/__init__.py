"""Encryption at rest: keys, values and files in their own format, and reading the real system's (spec forms 4)."""
