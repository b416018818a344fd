"""Migration of form definitions between data formats (spec forms 1)."""
