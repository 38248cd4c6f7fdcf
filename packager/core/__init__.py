"""Values: frozen, without I/O, understood by every other package."""
