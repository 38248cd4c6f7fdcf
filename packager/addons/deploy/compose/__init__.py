"""Deployments by Docker Compose: servers on one machine, behind a port of its own."""
