"""The pages for administrators: in this process with Flask's client, and in a real Chromium (make test-pages)."""
