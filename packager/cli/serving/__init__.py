"""Clients of running servers: start, send requests, read metrics."""
