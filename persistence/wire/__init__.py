"""HTTP to another service: what the client, providers elsewhere and publishing share."""
