"""Forms in a PostgreSQL database: the storage, and the index in the same transactions."""
