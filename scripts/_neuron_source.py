"""What the servers for Neuron devices say of their settings in their own source, as syntax trees.

`optimum-neuron` has a command `serve` with options of its own; it hands every other option on to
vLLM, together with some that it decides itself.  NxD Inference makes its NeuronConfig of keywords
that it takes out of a dictionary one by one, warns of the rest and drops them.  TGI for Neuron is
TGI's launcher with another router and other shards: `_tgi_source` reads that.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SERVE = "optimum/commands/neuron/serve.py"
CONFIG = "src/neuronx_distributed_inference/models/config.py"
NXDI_VERSION = "src/neuronx_distributed_inference/_version.py"
TYPES = {"str": "text", "int": "int", "float": "float"}
OF_DEFAULT = {"bool": "bool", "int": "int", "float": "float", "str": "text", "list": "list"}
# MoENeuronConfig names its own as parameters; `self` and what is handed on are none.
HANDED_ON = {"self", "kwargs"}


def serve_document(source: Path) -> dict[str, Any]:
    """Return the options of optimum-neuron's `serve`, and those that it gives to vLLM itself."""
    tree = ast.parse((source / SERVE).read_text(encoding="utf-8"))
    version = _assigned(source / "optimum/neuron/version.py")
    vllm = re.search(r'"vllm == ([\d.]+)"', (source / "pyproject.toml").read_text("utf-8"))
    assert vllm, "pyproject.toml does not pin vLLM"
    options = dict(_arguments(tree))
    given = [
        one.value.removeprefix("--").replace("_", "-")
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "command"
        for one in getattr(node.value, "elts", ())
        if isinstance(one, ast.Constant) and str(one.value).startswith("--")
    ]
    if "model" not in given or "model" not in options:
        sys.exit(f"{SERVE} is not as this script knows it")
    return {
        "schema": 1,
        "engine": "optimum-neuron",
        "version": version,
        "source": f"{SERVE} of optimum-neuron {version}, whose other options go to vLLM {vllm[1]}; "
        "by scripts/engine-options",
        "fields": [],
        "draft_methods": [],
        "draft_keys": [],
        "passes_on": {"engine": "vllm", "version": vllm[1], "except": sorted(given)},
        "options": dict(sorted(options.items())),
    }


def _arguments(tree: ast.Module) -> Iterator[tuple[str, dict[str, Any]]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "parser.add_argument":
            names = [ast.literal_eval(one) for one in node.args]
            long = [one[2:].replace("_", "-") for one in names if one.startswith("--")]
            given = {one.arg: one.value for one in node.keywords}
            unknown = given.keys() - {"type", "required", "help", "default", "choices", "action"}
            if unknown:
                sys.exit(f"{names}: {sorted(str(one) for one in unknown)} is not known here")
            if "action" in given:
                assert ast.literal_eval(given["action"]) == "store_true", names
                row: dict[str, Any] = {"type": "flag"}
            else:
                row = {"type": TYPES[ast.unparse(given["type"])]}
            if "choices" in given:
                row["choices"] = ast.literal_eval(given["choices"])
            yield long[0], row


def nxdi_document(source: Path) -> dict[str, Any]:
    """Return what NxD Inference takes out of the plug-in's `override_neuron_config`."""
    tree = ast.parse((source / CONFIG).read_text(encoding="utf-8"))
    version = _assigned(source / NXDI_VERSION)
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    configs = {
        name: {"fields": fields, "closed": True}
        for name, node in classes.items()
        if (fields := dict(sorted(_popped(node, classes).items())))
    }
    of_experts = configs.pop("MoENeuronConfig")["fields"]
    mine = configs["NeuronConfig"]["fields"]
    configs["NeuronConfig"]["fields"] = dict(sorted({**of_experts, **mine}.items()))
    used = _reached("NeuronConfig", configs)
    return {
        "schema": 1,
        "engine": "nxdi",
        "version": version,
        "source": f"{CONFIG} of neuronx-distributed-inference {version}: what is taken out of "
        "the keywords; by scripts/engine-options",
        "fields": [],
        "draft_methods": [],
        "draft_keys": [],
        "configs": {
            "AdditionalConfig": {
                "fields": {"override_neuron_config": {"type": "object", "config": "NeuronConfig"}},
                "closed": True,
            },
            **{name: row for name, row in configs.items() if name in used},
        },
        "options": {"additional-config": {"type": "json", "config": "AdditionalConfig"}},
    }


def _reached(name: str, configs: dict[str, Any]) -> set[str]:
    """Return a class and those that its fields are made into, however deep; forget the others."""
    found = {name}
    for row in configs[name]["fields"].values():
        if row.get("config") in configs:
            found |= _reached(row["config"], configs)
        else:
            row.pop("config", None)
    return found


def _popped(node: ast.ClassDef, classes: dict[str, ast.ClassDef]) -> dict[str, dict[str, Any]]:
    """Find the keywords that a class takes, with the type of what each is without it."""
    found: dict[str, dict[str, Any]] = {}
    for inner in ast.walk(node):
        if isinstance(inner, ast.FunctionDef) and inner.name == "__init__":
            named = {one.arg for one in (*inner.args.args, *inner.args.kwonlyargs)}
            found |= {name: {"type": "any"} for name in sorted(named - HANDED_ON)}
        if isinstance(inner, ast.Call) and ast.unparse(inner.func) == "kwargs.pop":
            name = ast.literal_eval(inner.args[0])
            default = inner.args[1] if len(inner.args) > 1 else None
            found[name] = _row(default)
    for inner in ast.walk(node):
        if isinstance(inner, ast.Call) and ast.unparse(inner.func) in classes:
            for keyword in inner.keywords:
                name = ast.unparse(keyword.value).removeprefix("self.")
                if keyword.arg is None and name in found:
                    config = {"type": "object", "config": ast.unparse(inner.func)}
                    found[name] = {**config, "optional": True}
    return found


def _row(default: ast.expr | None) -> dict[str, Any]:
    if isinstance(default, ast.Constant) and default.value is not None:
        return {"type": OF_DEFAULT[type(default.value).__name__], "optional": True}
    if isinstance(default, ast.List):
        return {"type": "list", "optional": True}
    return {"type": "any", "optional": True}


def _assigned(path: Path) -> str:
    found = re.search(r'__version__ = "([^"]+)"', path.read_text(encoding="utf-8"))
    assert found, f"{path} has no version"
    return found[1]
