"""XML as it streams by: the parser that everything comes in through, and its limits."""
