"""The one Jinja2 environment: strict, with serialising filters and a re-parse check."""
