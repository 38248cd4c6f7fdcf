"""Texts to calibrate, evaluate and train with."""
