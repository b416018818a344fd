"""The SQLite engine: the only place that knows the tables of an index file and the SQL that searches them."""
