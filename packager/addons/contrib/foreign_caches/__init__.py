"""Entries of the artifact cache from what other tools have compiled.

What the tree says is taken, what follows from its form is filled in, and what
neither tells must be stated, or nothing is imported: a key with a guess in it
would one day be a wrong hit.
"""
