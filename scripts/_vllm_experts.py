"""Devices that vLLM's kernels of experts say to run on, from its source, as syntax trees.

Since 0.16 a class of kernels says which devices it takes, and a table of each format of weights
which classes a backend has, by the names of `--moe-backend`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

LAYERS = Path("vllm/model_executor/layers/fused_moe")
# Format of weights → the module that chooses its kernels.
FORMATS = {"": "unquantized", "fp8_w8a8": "fp8", "nvfp4": "nvfp4", "mxfp4": "mxfp4"}
SAYS = "_supports_current_device"
# Where functions are that those of the classes ask, the platform's among them.
ASKED = ("vllm/utils/deep_gemm.py", "vllm/platforms/cuda.py")
PLATFORM = "support_"  # how those of its methods begin that no class below has
OTHERS = re.compile(r"rocm|aiter|xpu|zentorch")  # libraries that an NVIDIA machine lacks


def vllm_experts(root: Path, devices: Sequence[float]) -> dict[str, dict[str, list[float]]]:
    """Return devices by format and name of a backend; {} of versions whose classes say nothing."""
    trees = [ast.parse(path.read_text("utf-8")) for path in sorted((root / LAYERS).rglob("*.py"))]
    classes = {
        node.name: node for tree in trees for node in tree.body if isinstance(node, ast.ClassDef)
    }
    if not any(_method(node) for node in classes.values()):
        return {}
    functions = dict(_functions(root))
    found = {}
    for name, module in FORMATS.items():
        path = root / LAYERS / "oracle" / f"{module}.py"
        tree = ast.parse(path.read_text("utf-8")) if path.exists() else ast.Module([], [])
        kernels = dict(_kernels(tree))
        backends = {
            word: [
                one
                for one in devices
                if any(runs_on(kernel, classes, functions, one) for kernel in kernels[member])
            ]
            for word, member in _words(tree)
            if kernels.get(member) and all(kernel in classes for kernel in kernels[member])
        }
        # What runs on no NVIDIA device is of another platform.
        if backends := {word: able for word, able in sorted(backends.items()) if able}:
            found[name] = backends
    return found


def _functions(root: Path) -> Iterator[tuple[str, ast.FunctionDef]]:
    for path in ASKED:
        if (root / path).exists():
            for node in ast.walk(ast.parse((root / path).read_text("utf-8"))):
                if isinstance(node, ast.FunctionDef):
                    yield node.name, node


def _words(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield the words of `--moe-backend`, each with the member that it is mapped to."""
    for node in tree.body:
        if not isinstance(node, ast.FunctionDef) or not node.name.startswith("map_"):
            continue
        for inner in ast.walk(node):
            if isinstance(inner, ast.Dict):
                for key, value in zip(inner.keys, inner.values, strict=True):
                    if isinstance(key, ast.Constant) and isinstance(value, ast.Attribute):
                        yield str(key.value), value.attr


def _kernels(tree: ast.Module) -> Iterator[tuple[str, list[str]]]:
    """Yield the members of the backends, each with its classes of kernels."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == "backend_to_kernel_cls":
            for inner in ast.walk(node):
                if isinstance(inner, ast.If):
                    names = _returned(inner.body)
                    yield from ((member, names) for member in _members(inner.test) if names)


def _members(test: ast.expr) -> list[str]:
    if not isinstance(test, ast.Compare) or not isinstance(test.ops[0], ast.Eq | ast.In):
        return []
    right = test.comparators[0]
    elements = right.elts if isinstance(right, ast.Tuple | ast.List | ast.Set) else [right]
    return [one.attr for one in elements if isinstance(one, ast.Attribute)]


def _returned(body: Sequence[ast.stmt]) -> list[str]:
    """Return the classes that a branch returns; none where it chooses among them."""
    if any(isinstance(node, ast.If) for node in body) or not isinstance(body[-1], ast.Return):
        return []
    value = body[-1].value
    elements = value.elts if isinstance(value, ast.List | ast.Tuple) else [value]
    return [one.id for one in elements if isinstance(one, ast.Name)]


def runs_on(
    name: str,
    classes: Mapping[str, ast.ClassDef],
    functions: Mapping[str, ast.FunctionDef],
    device: float,
) -> bool:
    """Ask the method of a class, or of the nearest base that has one; True where it cannot tell."""
    for one in _line(name, classes):
        if (stated := _method(classes[one])) is not None:
            if one == "FallbackExperts":  # both of its kernels
                both = _both(name, classes)
                return all(runs_on(each, classes, functions, device) for each in both)
            return _call(stated, functions, device)
    return True


def _line(name: str, classes: Mapping[str, ast.ClassDef]) -> Iterator[str]:
    """Yield a class and its bases, the nearest first."""
    if name in classes:
        yield name
        for base in classes[name].bases:
            yield from _line(ast.unparse(base).rpartition(".")[2], classes)


def _both(name: str, classes: Mapping[str, ast.ClassDef]) -> list[str]:
    for node in classes[name].body:
        if isinstance(node, ast.FunctionDef) and node.name == "get_clses":
            return _returned(node.body)
    return []


def _method(node: ast.ClassDef) -> ast.FunctionDef | None:
    methods = (one for one in node.body if isinstance(one, ast.FunctionDef))
    return next((one for one in methods if one.name == SAYS), None)


def _call(
    function: ast.FunctionDef, functions: Mapping[str, ast.FunctionDef], device: float
) -> bool:
    """Run a function without its imports on a pretended device."""
    body = [node for node in function.body if not isinstance(node, ast.Import | ast.ImportFrom)]
    nothing = ast.arguments([], [], None, [], [], None, [])
    plain = ast.FunctionDef(name="told", args=nothing, body=body, decorator_list=[])
    module = ast.fix_missing_locations(ast.Module([plain], []))
    used = {node.id for node in ast.walk(plain) if isinstance(node, ast.Name)}
    asked = {
        name: (lambda of=told: _call(of, functions, device)) for name, told in functions.items()
    }
    platform = Pretended(device)
    platform.__dict__ |= {name: ask for name, ask in asked.items() if name.startswith(PLATFORM)}
    known: dict[str, Any] = {name: Anything(not OTHERS.search(name)) for name in used}
    known |= {name: asked[name] for name in used & asked.keys()}
    known |= {"__builtins__": {}, "current_platform": platform, "cls": platform}
    try:
        exec(compile(module, "told", "exec"), known)
        return bool(known["told"]())
    except Exception:  # asks for something that is not pretended
        return True


class Anything:
    """Every function of a library that is there, or of one that is not."""

    def __init__(self, there: bool) -> None:
        self.there = there

    def __bool__(self) -> bool:
        return self.there

    def __getattr__(self, name: str) -> Anything:
        return self

    def __call__(self, *_: object, **__: object) -> Anything:
        return self


class Pretended:
    """The platform of one NVIDIA device."""

    def __init__(self, device: float) -> None:
        self.capability = divmod(round(10 * device), 10)

    def is_cuda(self) -> bool:
        return True

    is_cuda_alike = is_cuda

    def is_rocm(self) -> bool:
        return False

    is_cpu = is_xpu = is_tpu = is_rocm

    def has_device_capability(self, wanted: Any) -> bool:
        return self.capability >= _pair(wanted)

    def is_device_capability(self, wanted: Any) -> bool:
        return self.capability == _pair(wanted)

    def is_device_capability_family(self, wanted: int) -> bool:
        return self.capability[0] == wanted // 10


def _pair(wanted: Any) -> tuple[int, int]:
    return divmod(wanted, 10) if isinstance(wanted, int) else tuple(wanted)
