"""The version of packager: in labels, records, plans of warm-ups and entries of caches."""

__version__ = "0.2.0"
