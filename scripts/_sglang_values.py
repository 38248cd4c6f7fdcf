"""What SGLang looks up behind its parser, and the JSON that it reads, out of its own source.

`scripts/engine-options sglang` adds these to the options.  The source is read and not run: as a
syntax tree, so that no kernel and no GPU is needed.  A name that a version of SGLang no longer
has gives nothing; `scripts/sglang-verdicts` shows what the engine itself says to a value.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# `logging` knows more names, but srt/entrypoints/http_server.py hands it to uvicorn's LOG_LEVELS.
LOG_LEVELS = ("critical", "error", "warning", "info", "debug")
# Their types are not checked when the server starts, or a wrong one is silently ignored
# (srt/model_loader/loader.py); those of other keys are not known.
LOADER_TYPES = {
    "num_threads": "int",
    "enable_gds": "bool",
    "distributed": "bool",
    "concurrency": "int",
    "memory_limit": "int",
    "pattern": "text",
}
# JSON objects that SGLang hands on as they are.
OPEN_OBJECTS = (
    "default-chat-template-kwargs",
    "extra-metric-labels",
    "json-model-override-args",
    "radix-eviction-policy-config",
    "unified-cache-external-linker-config",
)
MODALITIES = ("image", "video", "audio")  # server_args.py, or arg_groups/serving_hook.py
TYPES = {"int": "int", "float": "float", "bool": "bool", "str": "text"}
PHASE_TYPES = {"bs": "list", "backend": "text", "tc_compiler": "text"}  # others are numbers


def add_values(srt: Path, options: dict[str, Any]) -> dict[str, Any]:
    """Add what SGLang looks up to rows of `options`; return the classes that rows name."""
    for name, values in named_values(srt):
        if name in options and values and values != ["auto"]:
            options[name]["values"] = values
            if name in ("chat-template", "completion-template"):
                options[name]["files"] = True
        elif name in options:
            print(f"no names for {name}: has its module moved?", file=sys.stderr)
    for name in ("quantization", "speculative-draft-model-quantization"):
        choices = options.get(name, {}).get("choices", [])
        known = [one for one in choices if one in {*quantizations(srt), "unquant"}]
        if known and known != choices:
            options[name]["values"] = known
    configs: dict[str, Any] = {}
    for name, config, found in json_configs(srt):
        if name in options and found:  # text to the parser of many versions
            options[name] |= {"type": "json", "config": config}
            configs |= found
        elif name in options:
            options[name]["type"] = "json"
            print(f"no class for {name}: has its module moved?", file=sys.stderr)
    return configs


def named_values(srt: Path) -> Iterator[tuple[str, list[str]]]:
    """Walk through the options of any text, with the names that SGLang looks up."""
    yield "log-level", list(LOG_LEVELS)
    yield "log-level-http", [*LOG_LEVELS, "trace"]
    algorithms = members(srt / "eplb/eplb_algorithms/__init__.py", "EplbAlgorithm")
    yield "eplb-algorithm", ["auto", *algorithms]
    yield "model-impl", list(members(srt / "configs/model_config.py", "ModelImpl").values())
    yield "modelopt-quant", keys_of(srt / "layers/modelopt_utils.py", "QUANT_CFG_CHOICES")
    yield "offload-mode", offload_modes(srt)
    yield "torchao-config", torchao_configs(srt)
    yield "dllm-algorithm", diffusion_algorithms(srt)
    yield "speculative-draft-attention-backend", draft_backends(srt)
    parser = srt / "parser"
    yield "chat-template", registered(parser / "conversation.py", "Conversation")
    completions = registered(parser / "code_completion_parser.py", "CompletionTemplate")
    yield "completion-template", completions


def json_configs(srt: Path) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Walk through the options of JSON, with the class that SGLang makes of them."""
    for name in OPEN_OBJECTS:
        yield name, "Object", {"Object": {"fields": {}, "closed": False}}
    image = {one: {"type": "int", "optional": True} for one in MODALITIES}
    yield "limit-mm-data-per-request", "Limits", {"Limits": {"fields": image}}
    processed = {one: {"type": "object"} for one in MODALITIES}
    yield "mm-process-config", "Modalities", {"Modalities": {"fields": processed}}
    yield "kv-events-config", "KVEventsConfig", kv_events(srt)
    yield "cuda-graph-config", "CudaGraphConfig", cuda_graphs(srt)
    yield "model-loader-extra-config", "LoaderConfig", loader_keys(srt)
    yield "preferred-sampling-params", "SamplingParams", sampling_params(srt)


def kv_events(srt: Path) -> dict[str, Any]:
    tree = parse(srt / "disaggregation/kv_events.py")
    made = class_of(tree, "KVEventsConfig")
    if made is None:
        return {}
    fields = {name: field_of(hint) for name, hint in annotations(made)}
    factory = class_of(tree, "EventPublisherFactory")
    if factory is not None:
        fields["publisher"]["choices"] = list(keys_in(factory, "_registry"))
    return {"KVEventsConfig": {"fields": fields}}  # pydantic passes over others: dropped


def cuda_graphs(srt: Path) -> dict[str, Any]:
    tree = parse(srt / "model_executor/cuda_graph_config.py")
    words = constants(tree)
    keys = by_phase(tree, "ALLOWED_KEYS_PER_PHASE", words)
    backends = by_phase(tree, "ALLOWED_BACKENDS_PER_PHASE", words)
    configs: dict[str, Any] = {}
    for phase, names in keys.items():
        fields: dict[str, Any] = {}
        for name in names:
            of_type = PHASE_TYPES.get(name, "int")
            fields[name] = {"type": of_type}
            if name == "backend":
                fields[name]["choices"] = backends[phase]
            elif of_type != "text":
                fields[name]["optional"] = True
        configs[f"PhaseConfig[{phase}]"] = {"fields": fields}
    phases = {phase: {"type": "object", "config": f"PhaseConfig[{phase}]"} for phase in keys}
    return configs | {"CudaGraphConfig": {"fields": phases}} if phases else {}


def loader_keys(srt: Path) -> dict[str, Any]:
    """Collect what any loader takes; which of them takes what, rules say."""
    found: set[str] = set()
    for node in ast.walk(parse(srt / "model_loader/loader.py")):
        if isinstance(node, ast.Assign) and target(node) == "allowed_keys":
            found |= set(texts(node.value))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            of = ast.unparse(node.func.value)
            if (of, node.func.attr) in {
                ("allowed_keys", "add"), ("extra", "pop"), ("extra_config", "pop"),
            }:  # fmt: skip
                found |= set(texts(node.args[0]))
        elif isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.NotIn):
            within = ast.unparse(node.comparators[0])
            found |= set(texts(node.left)) if within.endswith("loader_extra_config") else set()
    fields = {name: {"type": LOADER_TYPES.get(name, "any")} for name in sorted(found)}
    return {"LoaderConfig": {"fields": fields}} if fields else {}


def sampling_params(srt: Path) -> dict[str, Any]:
    """Read what each request is made of: another key would fail them all."""
    made = class_of(parse(srt / "sampling/sampling_params.py"), "SamplingParams")
    if made is None:
        return {}
    names = [name for name, _ in annotations(made)]
    for node in made.body:
        if isinstance(node, ast.FunctionDef) and node.name == "__init__":
            names += [one.arg for one in node.args.args[1:]]
    return {"SamplingParams": {"fields": {name: {"type": "any"} for name in names}}}


def quantizations(srt: Path) -> set[str]:
    """Collect the methods that a CUDA device has."""
    methods: set[str] = set()
    for node in parse(srt / "layers/quantization/__init__.py").body:
        if isinstance(node, ast.AnnAssign) and target(node) == "BASE_QUANTIZATION_METHODS":
            methods |= set(dict_keys(node.value))
        elif isinstance(node, ast.If) and "is_cuda()" in ast.unparse(node.test):
            for inner in node.body:
                if isinstance(inner, ast.Expr) and isinstance(inner.value, ast.Call):
                    methods |= set(dict_keys(inner.value.args[0]))
    return methods


def offload_modes(srt: Path) -> list[str]:
    for node in ast.walk(parse(srt / "utils/offloader.py")):
        if isinstance(node, ast.Subscript) and ast.unparse(node.slice) == "mode":
            return list(dict_keys(node.value))
    return []


def torchao_configs(srt: Path) -> list[str]:
    """List the forms that `apply_torchao_config_to_model` tells apart, where they can be listed."""
    tests = [
        one
        for node in ast.walk(parse(srt / "layers/torchao_utils.py"))
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In)
        for one in texts(node.left)
    ]
    sizes = ("32", "64", "128", "256")
    forms = {
        "int4wo": [f"int4wo-{size}" for size in sizes],
        "fp8dq": ["fp8dq-per_row", "fp8dq-per_tensor"],
    }
    if "gemlite" in tests:
        return []  # of any widths and sizes
    return [form for one in tests if one != "proj" for form in forms.get(one, [one])]


def diffusion_algorithms(srt: Path) -> list[str]:
    """List the classes that modules of dllm/algorithm export as `Algorithm`."""
    return [
        ast.unparse(node.value)
        for path in sorted((srt / "dllm/algorithm").glob("*.py"))
        for node in parse(path).body
        if isinstance(node, ast.Assign) and target(node) == "Algorithm"
    ]


def draft_backends(srt: Path) -> list[str]:
    """List the attention that drafts can be written with, while they propose and afterwards."""
    maps = [
        list(dict_keys(node.value))
        for node in ast.walk(parse(srt / "speculative/draft_utils.py"))
        if isinstance(node, ast.Assign) and target(node) == "backend_map"
    ]
    return [one for one in maps[0] if all(one in other for other in maps)] if maps else []


def registered(path: Path, of: str) -> list[str]:
    """List the names of the templates that a module registers."""
    return sorted(
        text
        for node in ast.walk(parse(path))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == of
        for keyword in node.keywords
        if keyword.arg == "name"
        for text in texts(keyword.value)
    )


def parse(path: Path) -> ast.Module:
    """Parse a module; one that this version does not have is empty."""
    if not path.is_file():
        return ast.Module(body=[], type_ignores=[])
    return ast.parse(path.read_text(encoding="utf-8"))


def class_of(tree: ast.AST, name: str) -> ast.ClassDef | None:
    found = (n for n in ast.walk(tree) if isinstance(n, ast.ClassDef) and n.name == name)
    return next(found, None)


def members(path: Path, name: str) -> dict[str, str]:
    """Return the members of an enumeration, with their values where those are text."""
    made = class_of(parse(path), name)
    return {
        target(node): next(texts(node.value), "")
        for node in (made.body if made is not None else ())
        if isinstance(node, ast.Assign)
    }


def annotations(made: ast.ClassDef) -> Iterator[tuple[str, ast.expr]]:
    for node in made.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id, node.annotation


def field_of(hint: ast.expr) -> dict[str, Any]:
    """Describe a field of `int`, `Optional[str]`, `Literal["a", "b"]`, …"""
    text = ast.unparse(hint)
    if isinstance(hint, ast.Subscript) and ast.unparse(hint.value) == "Optional":
        return field_of(hint.slice) | {"optional": True}
    if isinstance(hint, ast.Subscript) and ast.unparse(hint.value) == "Literal":
        return {"type": "text", "choices": list(texts(hint.slice))}
    return {"type": TYPES.get(text, "any")}


def keys_of(path: Path, name: str) -> list[str]:
    return list(keys_in(parse(path), name))


def keys_in(tree: ast.AST, name: str) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign | ast.AnnAssign) and target(node) == name:
            yield from dict_keys(node.value)


def dict_keys(node: ast.AST | None) -> Iterator[str]:
    for key in node.keys if isinstance(node, ast.Dict) else ():
        if key is not None:
            yield from texts(key)


def constants(tree: ast.Module) -> dict[str, str]:
    """Return the text that classes of constants hold: `Backend.FULL`."""
    return {
        f"{made.name}.{target(node)}": text
        for made in tree.body
        if isinstance(made, ast.ClassDef)
        for node in made.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for text in texts(node.value)
    }


def by_phase(tree: ast.Module, name: str, words: dict[str, str]) -> dict[str, list[str]]:
    """Read a dictionary of tuples whose keys and items are constants of classes, or text."""
    found: dict[str, list[str]] = {}
    for node in tree.body:
        if (
            isinstance(node, ast.Assign)
            and target(node) == name
            and isinstance(node.value, ast.Dict)
        ):
            for key, value in zip(node.value.keys, node.value.values, strict=True):
                assert key is not None and isinstance(value, ast.Tuple)
                found[words[ast.unparse(key)]] = [
                    words.get(ast.unparse(one)) or next(texts(one)) for one in value.elts
                ]
    return found


def target(node: ast.Assign | ast.AnnAssign) -> str:
    return ast.unparse(node.targets[0] if isinstance(node, ast.Assign) else node.target)


def texts(node: ast.AST) -> Iterator[str]:
    for inner in ast.walk(node):
        if isinstance(inner, ast.Constant) and isinstance(inner.value, str):
            yield inner.value
