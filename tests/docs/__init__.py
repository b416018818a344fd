"""The documentation agrees with the code, and its examples work."""
