"""Upkeep: checking, mending, adopting, saving and upgrading the tree, also while the service runs."""
