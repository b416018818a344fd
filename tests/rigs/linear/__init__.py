"""Linearizability: concurrent requests to one document, workers killed meanwhile, judged by a register checker."""
