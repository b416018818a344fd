"""The rules of the interface, between HTTP and the disk."""
