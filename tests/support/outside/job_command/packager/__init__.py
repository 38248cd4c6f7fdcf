"""Stands in for packager in stages of jobs: does what its arguments say, one after another."""
