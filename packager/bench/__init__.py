"""Benchmarks: servers under load, what they cost, how they compare, and reports of it."""
