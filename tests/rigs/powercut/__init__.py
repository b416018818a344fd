"""Power cuts for real: the service on a file system in a disk image, and pictures of that disk at chosen moments."""
