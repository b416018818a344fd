"""What is inside XML: well-formedness and relevance."""
