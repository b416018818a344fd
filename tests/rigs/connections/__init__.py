"""Connections that are not as they should be: smuggled requests, slow clients, a crowd of them."""
