"""The formats of form data (seed, Versioning 8; spec forms 1.2)."""

DATA_FORMATS = ("4.0.0", "4.8.0", "2019.1.0")
"""From the oldest to the newest."""
