"""Shipped knowledge: instances and containers, each row with source and date."""
