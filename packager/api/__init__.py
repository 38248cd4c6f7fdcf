"""The Python API, which a program imports from packager itself: plan, build, run, bench and others.

Each function goes the way of the command of its name, with the same services.  What is wrong raises
an error of `packager.errors`; warnings go to the logger of that name, and nothing is printed.
packager.aio awaits them.

Others import `images`, `measuring`, `serving`.
"""
