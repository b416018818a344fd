"""The pages in a real Chromium; run by make test-pages."""
