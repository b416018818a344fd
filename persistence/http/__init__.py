"""HTTP: requests become service calls, and results become responses. No rules, and no files, here."""
