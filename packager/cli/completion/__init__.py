"""Completion of command lines in bash, zsh and fish.

A shell calls this at each press of the key, so no command is imported: `index.json` describes the
commands; it is made by scripts/make-reference.
"""

from __future__ import annotations

VARIABLE = "_PACKAGER_COMPLETE"  # set by the scripts of shells, to their names
