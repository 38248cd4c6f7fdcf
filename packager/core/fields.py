"""Spelling of a field outside of Python, where its name and type do not tell."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandOption:
    """Spelling of a field on the command line; stands in the field's `Annotated` type."""

    flag: str = ""  # such as `--output` of the field `outputs`; "": the field's name
    earlier: str = ""  # the flag of the version before, which is taken and not shown
    metavar: str = ""  # such as `MS`; "": `N` for a whole number, else the name's last word

    def flag_of(self, name: str) -> str:
        """Return the option of the field `name`."""
        return self.flag or f"--{name.replace('_', '-')}"
