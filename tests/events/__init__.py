"""Events of changes: feed, webhooks, and what kills leave."""
