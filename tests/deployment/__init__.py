"""What is around a service: the rotation of its log, its socket, its container, and its installation."""
