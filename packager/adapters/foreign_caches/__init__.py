"""Caches that other tools keep, read without believing them."""
