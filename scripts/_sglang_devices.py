"""What SGLang refuses on devices, from the checks of its own arguments, as syntax trees.

A row is a `raise` that hangs on nothing but values of options and the compute capability.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

Test = tuple[ast.expr, bool]  # a condition, and whether it holds
Named = tuple[str, str]  # option and value

# Local names of what options say, by the options that say it, the more special one last.
MEANT = {
    "prefill_backend": ("attention-backend", "prefill-attention-backend"),
    "decode_backend": ("attention-backend", "decode-attention-backend"),
    "a2a_backend": ("moe-a2a-backend",),
    "kv_cache_dtype": ("kv-cache-dtype",),
}
PLATFORM = {"is_sm90": (9,), "is_sm100": (10,), "is_sm120": (12,), "is_blackwell": (10, 12)}
ON_CUDA = {"is_cuda": True, "is_hip": False, "is_npu": False, "is_xpu": False, "is_musa": False}
OLD_CHECK, OLD_MAJOR = re.compile(r"def (is_sm\d+_supported)\("), re.compile(r"\)\[0\] == (\d+)")
VERSION_CHECK = re.compile(r"(is_\w+_supported) = .*?majors?=\[([\d, ]+)\]", re.DOTALL)


def sglang_refusals(root: Path, devices: Sequence[float]) -> list[dict[str, Any]]:
    """Return rows of option, value and the devices that a version refuses it on."""
    base = root / "sglang" / "srt"
    files = [base / "server_args.py", *sorted((base / "arg_groups").glob("*.py"))]
    majors = _majors(base)
    found: dict[Named, set[float]] = {}
    for path in files:
        for tests in refusals(ast.parse(path.read_text("utf-8")).body, ()):
            for named, refused in _judged(tests, devices, majors):
                found.setdefault(named, set()).update(refused)
    return [
        {"option": option, "value": value, "devices": sorted(refused)}
        for (option, value), refused in sorted(found.items())
    ]


def _majors(base: Path) -> dict[str, tuple[int, ...]]:
    """Return the major numbers of compute capabilities by the name of the check."""
    paths = [base / "utils" / "common.py", base / "utils.py"]
    text = next((path.read_text("utf-8") for path in paths if path.exists()), "")
    found = {"is_blackwell_supported": (10, 12)}
    for part in re.split(r"(?m)^(?=is_\w+_supported = )", text)[1:]:
        if match := VERSION_CHECK.match(part[:400]):
            found[match[1]] = tuple(map(int, filter(None, match[2].replace(" ", "").split(","))))
    for part in re.split(r"(?m)^(?=def )", text)[1:]:
        if (match := OLD_CHECK.match(part)) and (majors := OLD_MAJOR.findall(part)):
            found[match[1]] = tuple(map(int, majors))
    return found


def refusals(body: Sequence[ast.stmt], known: tuple[Test, ...]) -> Iterator[tuple[Test, ...]]:
    """Yield what must hold where a `raise` is reached, function by function."""
    for node in body:
        if isinstance(node, ast.Raise):
            yield known
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield from refusals(node.body, ())
        elif isinstance(node, ast.If):
            yield from refusals(node.body, (*known, (node.test, True)))
            yield from refusals(node.orelse, (*known, (node.test, False)))
            if not node.orelse and isinstance(node.body[-1], ast.Return):
                known = (*known, (node.test, False))
        elif isinstance(node, ast.Assert):
            yield (*known, (node.test, False))
        elif isinstance(node, ast.With):
            yield from refusals(node.body, known)


def _judged(
    tests: Sequence[Test], devices: Sequence[float], majors: dict[str, tuple[int, ...]]
) -> Iterator[tuple[Named, set[float]]]:
    """Yield the values that one refusal names, with its devices; nothing of any other refusal."""
    refused, named = set(devices), None
    is_of_device = False
    for test in _conjuncts(tests):
        if (holds := _devices_where(test, devices, majors)) is not None:
            refused &= holds
            is_of_device = True
        elif found := _values_of(test):
            if named is not None and {value for _, value in named} != {value for _, value in found}:
                return
            named = found
        else:
            return
    if is_of_device and named and refused and refused != set(devices):
        yield from product(sorted(named), [refused])


def _conjuncts(tests: Sequence[Test]) -> Iterator[Test]:
    for test, holds in tests:
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            yield from _conjuncts([(test.operand, not holds)])
        elif isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And if holds else ast.Or):
            yield from _conjuncts([(value, holds) for value in test.values])
        else:
            yield test, holds


def _devices_where(
    test: Test, devices: Sequence[float], majors: dict[str, tuple[int, ...]]
) -> set[float] | None:
    """Return the devices where a condition holds; None where it asks for something else."""
    text = ast.unparse(test[0])
    try:
        return {one for one in devices if bool(_ask(text, one, majors)) == test[1]}
    except (NameError, AttributeError, TypeError, SyntaxError):
        return None


def _ask(text: str, device: float, majors: dict[str, tuple[int, ...]]) -> object:
    major = round(10 * device) // 10
    checks = {name: (lambda of=of: major in of) for name, of in majors.items()}
    here = {name: major in of for name, of in PLATFORM.items()} | ON_CUDA
    platform = SimpleNamespace(**here)
    called = {name: (lambda value=value: value) for name, value in ON_CUDA.items()}
    called["is_gfx95_supported"] = lambda: False
    known = {**checks, **called, "get_platform": lambda: platform, "platform": platform}
    return eval(text, {"__builtins__": {}, **known})


def _values_of(test: Test) -> set[Named]:
    """Return the options and values that a condition compares; none for another condition."""
    node, holds = test
    if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.Or) and holds:
        parts = [_values_of((value, True)) for value in node.values]
        return set().union(*parts) if all(parts) else set()
    if isinstance(node, ast.Attribute) and holds and node.attr.startswith("enable_"):
        return {(node.attr.replace("_", "-"), "true")}
    if not isinstance(node, ast.Compare) or len(node.ops) != 1:
        return set()
    left, right = node.left, node.comparators[0]
    is_equal = isinstance(node.ops[0], ast.Eq if holds else ast.NotEq)
    if is_equal and isinstance(right, ast.Constant) and isinstance(right.value, str):
        return {(option, right.value) for option in _options_of(left)}
    is_among = isinstance(node.ops[0], ast.In if holds else ast.NotIn)
    if is_among and isinstance(left, ast.Constant) and isinstance(right, ast.Tuple | ast.List):
        return {(option, str(left.value)) for one in right.elts for option in _options_of(one)}
    return set()


def _options_of(node: ast.expr) -> tuple[str, ...]:
    if isinstance(node, ast.Name):
        return MEANT.get(node.id, ())
    return (node.attr.replace("_", "-"),) if isinstance(node, ast.Attribute) else ()
