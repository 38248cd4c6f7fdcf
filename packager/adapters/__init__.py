"""Doers: the only code that touches files, networks, engines and clocks."""
