"""Describers of serving containers: check a plan, render its configuration."""
