"""Machines that run jobs of a warm-up plan, and what they share."""
