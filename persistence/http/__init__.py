"""HTTP: requests become service calls, results become responses. No rules, and no files, here."""
