"""Training a draft head: checks, steps, the head that comes of it."""
