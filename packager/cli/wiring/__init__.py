"""The composition root: the only package that makes adapters.

Other rooms import `builds` (services of a build), `settings`, and the adapters that each other
module is named for. Adapters are imported by the functions that make them.
"""
