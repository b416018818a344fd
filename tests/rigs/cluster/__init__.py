"""A database cluster and two instances of the service, killed and cut off again and again, and what is left of it."""
