"""Moving forms from one storage to another, with all revisions, while the source is being written to."""
