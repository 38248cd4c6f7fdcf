"""Reads texts and conversations from the formats in which people keep them."""
