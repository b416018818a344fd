"""Configuration properties: dotted names with wildcards, from the configuration file and the shipped defaults."""
