"""What an image's server does not need, as data: see `data/slim_rules.toml`."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Set
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from packager.core.errors import UsageError
from packager.core.instance import Instance
from packager.core.share import read_shipped
from packager.core.suggestions import guessed

DATA = Path(__file__).parent / "data" / "slim_rules.toml"

Select = Literal["all", "other-gpus", "other-processors"]
# `sm_100a`, `sm90`, and `Sm100f` within a name such as fmhaSm100fKernel.
_ARCHITECTURE = re.compile(r"(?:(?<![A-Za-z])sm|Sm|SM)_?(\d{2,3})([af]?)(?![0-9])")


@dataclass(frozen=True, slots=True, kw_only=True)
class SlimRule:
    """Files of one kind that may go, and why they may."""

    name: str
    why: str
    drop: tuple[str, ...]  # globs; `**` is any number of directories
    keep: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()  # of devices; () is any
    select: Select = "all"
    needs: tuple[str, ...] = ()  # of `other-processors`: what the one needs that is kept
    by_default: bool = True
    source: str
    date: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenRules:
    """The rules of one run, for the machines that will serve."""

    rules: tuple[SlimRule, ...]
    keep: tuple[str, ...]  # that no rule takes: shipped globs and the user's
    instances: tuple[Instance, ...]
    not_applied: tuple[tuple[str, str], ...] = ()  # name and reason


def choose_rules(
    instances: Collection[Instance],
    *,
    with_rules: Collection[str] = (),
    without_rules: Collection[str] = (),
    keep: Collection[str] = (),
) -> ChosenRules:
    """Choose the rules that are safe for these machines, and those requested by name."""
    known, always = shipped_rules()
    names = [rule.name for rule in known]
    for name in (*with_rules, *without_rules):
        if name not in names:
            raise UsageError(
                f"there is no rule {name[:40]!r} for slim bases",
                hint=guessed(name, names, f"rules are {', '.join(names)}"),
            )
    kinds = {instance.kind for instance in instances}
    chosen, left = [], []
    for rule in known:
        if why_not := _why_not(rule, kinds, instances, with_rules, without_rules):
            left.append((rule.name, why_not))
        else:
            chosen.append(rule)
    return ChosenRules(
        rules=tuple(chosen),
        keep=(*always, *keep),
        instances=tuple(instances),
        not_applied=tuple(left),
    )


class Chooser:
    """Decides which rule takes a path; the first that names it."""

    def __init__(self, chosen: ChosenRules) -> None:
        self._keep = _pattern(chosen.keep)
        self._instances = chosen.instances
        self._rules = [(rule, _pattern(rule.drop), _pattern(rule.keep)) for rule in chosen.rules]

    def rule_for(self, path: str) -> SlimRule | None:
        """Return the rule that takes the file; None where it stays."""
        for rule, drop, keep in self._rules:
            if not drop.fullmatch(path) or keep.fullmatch(path):
                continue
            if self._keep.fullmatch(path):
                return None
            if self._is_for_others(rule, path):
                return rule
        return None

    def _is_for_others(self, rule: SlimRule, path: str) -> bool:
        match rule.select:
            case "all":
                return True
            case "other-gpus":
                return not any(serves_gpu(path, one) for one in self._instances)
            case "other-processors":
                return not any(_lacks(one, rule.needs) for one in self._instances)


def serves_gpu(path: str, instance: Instance) -> bool:
    """Return whether kernels under this path may run on the instance's GPUs.

    Code for a compute capability runs on later ones of the same major number; with an `a` it
    runs on that one alone.  The last name of an architecture in the path counts.
    """
    named = _ARCHITECTURE.findall(path)
    if not named or instance.compute_capability is None:
        return True
    digits, suffix = named[-1]
    major, minor = divmod(int(digits), 10)
    here_major, here_minor = divmod(round(instance.compute_capability * 10), 10)
    if suffix.lower() == "a":
        return (major, minor) == (here_major, here_minor)
    return major == here_major and minor <= here_minor


@cache
def shipped_rules() -> tuple[tuple[SlimRule, ...], tuple[str, ...]]:
    """Return the rules of the data file, and the paths that no rule takes."""
    document = read_shipped(DATA)
    return tuple(map(_rule, document["rules"])), tuple(document["keep"])


def _rule(row: dict[str, Any]) -> SlimRule:
    listed = {name: tuple(row.get(name, ())) for name in ("drop", "keep", "kinds", "needs")}
    return SlimRule(**{**row, **listed})


def _why_not(
    rule: SlimRule,
    kinds: Set[str],
    instances: Collection[Instance],
    with_rules: Collection[str],
    without_rules: Collection[str],
) -> str:
    """Return why a rule is left out; "" where it is not."""
    if rule.name in without_rules:
        return "left out on request"
    if not rule.by_default and rule.name not in with_rules:
        return f"not asked for (--with-rule {rule.name})"
    if rule.kinds and not kinds:
        return "depends on the machine (--instance)"
    if rule.kinds and kinds - set(rule.kinds):
        return f"for {' and '.join(rule.kinds)} only"
    if rule.select == "other-processors" and not all(one.isa for one in instances):
        return "the processor's instruction sets are not known"
    if rule.select == "other-gpus" and not all(one.compute_capability for one in instances):
        return "the GPU's compute capability is not known"
    return ""


def _lacks(instance: Instance, needs: Iterable[str]) -> bool:
    """Return whether the processor lacks one of the instruction sets."""
    return not set(needs) <= set(instance.isa)


def _pattern(globs: Iterable[str]) -> re.Pattern[str]:
    """Return one expression for all globs; without any, one that never matches."""
    return re.compile("|".join(map(_expression, globs)) or r"(?!)")


def _expression(glob: str) -> str:
    parts = glob.strip("/").split("/")
    made = ""
    for at, part in enumerate(parts):
        last = at == len(parts) - 1
        if part == "**":
            made += ".*" if last else "(?:[^/]+/)*"
            continue
        made += "".join({"*": "[^/]*", "?": "[^/]"}.get(sign, re.escape(sign)) for sign in part)
        made += "" if last else "/"
    return f"(?s:{made})"
