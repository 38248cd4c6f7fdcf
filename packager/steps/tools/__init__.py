"""Tools and their environments."""
