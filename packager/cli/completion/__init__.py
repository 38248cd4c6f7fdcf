"""Completion of command lines in bash, zsh and fish.

click finds out what stands at the cursor; `values` says what it can be, `shells` reads the shell's
line and quotes the answer for it.
"""

from __future__ import annotations

VARIABLE = "_PACKAGER_COMPLETE"  # set by the scripts of shells, to their names
