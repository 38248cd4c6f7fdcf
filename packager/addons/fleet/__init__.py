"""Artifact caches filled ahead of time: here, on Ray, by jobs of Kubernetes.

Others import `cluster`, `kubernetes`.
"""
