"""Providers: the storage, index and reports of each form, and the router that finds them."""
