"""Kubernetes, and what runs on top of it: KServe and HyperPod."""
