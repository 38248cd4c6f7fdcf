"""Tests of warming caches."""
