"""Import of definitions, documents and drafts from archives, folders and JSON lines."""
