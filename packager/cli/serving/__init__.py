"""Clients of running servers: start, ask, read metrics."""
