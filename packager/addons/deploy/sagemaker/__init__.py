"""Endpoints of Amazon SageMaker."""
