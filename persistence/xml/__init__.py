"""XML as it streams by: the parser that everything comes in through, its limits, and the bytes of markup."""
