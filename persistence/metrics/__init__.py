"""The metrics of the service: what its worker processes count, together, in the format of Prometheus."""
