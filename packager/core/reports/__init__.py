"""Values to text and JSON for people and programs."""
