"""Describers of steps: quantizers, compilers, drafts."""
