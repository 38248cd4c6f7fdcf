"""Thin commands: parse, call one function, print."""
