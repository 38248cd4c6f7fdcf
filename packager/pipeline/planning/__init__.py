"""Decisions as pure functions: profile, memory, parallelism, shape, plan, recipe."""
