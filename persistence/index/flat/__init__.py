"""Flat views: tables of the values of form versions, in a file that other programs read (spec search 7)."""
