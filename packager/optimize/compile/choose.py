"""Choice of the compiler: the requested one, or the first that supports the plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from packager.core.facts import Facts
from packager.core.findings import Finding, errors_in
from packager.core.plan import Plan
from packager.core.ports import Compiler
from packager.core.suggestions import guessed

NOT_REQUESTED = frozenset({None, "off"})


def choose_compiler(
    requested: str | None, facts: Facts, plan: Plan, compilers: Mapping[str, Compiler]
) -> tuple[str, tuple[Finding, ...]]:
    """Return the compiler of `--compile`, "" for none; for `auto` the first without an error."""
    if requested is None or requested in NOT_REQUESTED:
        return "", ()
    if requested == "auto":
        for name, compiler in compilers.items():
            findings = tuple(compiler.check(facts, plan))
            if not errors_in(findings):
                return name, findings
        message = "nothing is compiled ahead of time: the engine compiles when it starts"
        return "", (Finding("note", "compile-none", message),)
    if requested not in compilers:
        message = f"there is no compiler {requested[:40]!r} here"
        choices = ("auto", *compilers)
        hint = f"use `--compile off`, or one of {', '.join(choices)}"
        hint = guessed(requested, (*choices, "off"), hint)
        return "", (Finding("error", "compile-unknown", message, hint),)
    named = replace(plan, compiler=requested)
    return requested, tuple(compilers[requested].check(facts, named))
