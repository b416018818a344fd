"""Value objects of the service: no I/O, no web framework, no XML."""
