"""Exit statuses of the commands that look after the tree; 1 is for what could not be done, 2 for wrong usage."""

REPAIRED = 3
"""Something was found, and all of it taken care of."""

REMAINS = 4
"""Damage remains; the lines above say what."""

EDITED = 5
"""Nothing is worse than edits by hand that nobody has adopted."""
