"""Warm-up of the artifact cache: grids, jobs, fleets."""
