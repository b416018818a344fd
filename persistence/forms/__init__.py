"""The content of XML: definitions, form data, requests and answers; and the migration of definitions."""
