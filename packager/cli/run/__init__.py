"""Models that run on this machine: `packager run`, and the containers it leaves."""
