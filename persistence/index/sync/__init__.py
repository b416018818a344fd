"""Keeping an index of a file tree in step with the tree."""
