"""Who runs a step."""
