"""Text for containers: strict templates, serialising filters, and a check of every result."""
