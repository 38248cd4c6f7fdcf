"""The key documents of every kind of step: what identifies its result."""
