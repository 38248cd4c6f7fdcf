"""Steps: one run of one tool, here, in a container or on a cluster."""
