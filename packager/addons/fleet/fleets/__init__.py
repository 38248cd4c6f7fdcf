"""Fleets that run warm-up jobs."""
