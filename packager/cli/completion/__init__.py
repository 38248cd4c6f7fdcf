"""Completion of command lines in bash, zsh and fish.

A shell asks at each press of the key, so nothing of a command is imported: `index.json` has what
completion needs to know of them, made by scripts/make-reference.
"""

from __future__ import annotations

VARIABLE = "_PACKAGER_COMPLETE"  # set by the scripts of shells, to their names
