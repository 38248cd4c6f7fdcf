"""Local files: opened once, written whole or not at all."""
