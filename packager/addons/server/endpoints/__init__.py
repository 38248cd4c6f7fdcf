"""Endpoints of the server: containers of this machine that answer invocations."""
