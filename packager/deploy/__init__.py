"""Deployments: from an image to a platform's documents, and to what runs there."""
