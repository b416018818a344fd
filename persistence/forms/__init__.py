"""What is inside XML: definitions, their controls and metadata, holders, relevance; and their migration."""
