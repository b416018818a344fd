"""The client, and clients that others make from the description of the interface."""
