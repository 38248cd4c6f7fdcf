"""Drafts for an engine: each module describes their files as one kind of engine reads them."""
