"""Servers measured under load and from cold starts; candidates compared and chosen."""
