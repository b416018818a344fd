"""The wall clock set forward and back: a clock for the service and its commands that tests may set."""
