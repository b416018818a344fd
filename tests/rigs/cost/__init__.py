"""A search for the request that costs most: processor time and memory of a real worker, for each megabyte of a body."""
