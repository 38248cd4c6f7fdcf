"""What a build does not need: each add-on brings its commands, services and pages, and an extra.

The nine rooms never import an add-on; they find its commands and rows by entry points.
"""
