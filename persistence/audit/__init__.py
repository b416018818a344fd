"""The audit: who did what, as lines that are chained by digests, and what verifies them."""
