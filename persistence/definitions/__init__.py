"""Definitions: what rules ask of a version of a form, read once for each stored state, in one cache."""
