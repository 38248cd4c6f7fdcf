"""Shipped facts about machines and containers, each row with its source and date."""
