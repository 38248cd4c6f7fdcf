"""What TGI's own source says of its settings, without building it.

The launcher, and the router that it starts, declare their options as a Rust struct for clap, each
with a variable of the environment; the shards are Python and read their environment themselves.
Each is read as text: the struct's attributes and types, the names given to `env::var`, and the
syntax tree of the shards' modules.  A type, an attribute or an enum that is not understood ends
the reading: nothing is guessed.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

LAUNCHER = "launcher/src/main.rs"
ROUTERS = ("backends/v3/src/main.rs", "router/src/main.rs")  # since 3.0; before
ENTRYPOINT = "sagemaker-entrypoint.sh"
SHARDS = "server/text_generation_server"
NEURON_ROUTERS = ("backends/v2/src/main.rs",)
NEURON_SHARDS = "backends/neuron/server/text_generation_server"
# Read by the launcher for shards that Neuron's are not.
NEURON_WITHOUT_EFFECT = (
    *("ATTENTION", "PREFIX_CACHING", "TGI_WIGGLE_ROOM", "ENABLE_PREFILL_LOGPROBS"),
    *("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"),
)
# Read through a list of names, or compared as `map_torch_dtype` of optimum-neuron 0.3.0 maps them.
NEURON_TYPES = {
    "HF_NUM_CORES": {"type": "uint64"},
    "HF_AUTO_CAST_TYPE": {"type": "word", "choices": ["bf16", "fp16", "bfloat16", "float16"]},
}

INTEGERS = {"usize": "uint64", "u64": "uint64", "u32": "uint32", "u16": "uint16"}
TYPES = {"String": "text", "bool": "bool", "f32": "float", "f64": "float", **INTEGERS}
# Attributes of clap that change neither the name nor the type of a variable.
HARMLESS = {"long", "short", "env", "value_enum", "default_value_t"}

# Read on other makers' devices alone, or where torch tunes itself for them.
OTHER_DEVICES = ("ROCM_", "XPU_", "HPU_", "PYTORCH_TUNABLEOP_", "ZE_")
# Addresses and tokens of other places; nothing that an image should hold.
NOT_SETTINGS = ("HF_TOKEN", "HF_API_TOKEN", "HUGGING_FACE_HUB_TOKEN", "AIP_", "ENV_FILEPATH")
TESTS = ("tests", "habana")


def document(source: Path, tag: str = "", *, for_neuron: bool = False) -> dict[str, Any]:
    """Return the options of TGI at a source tree, by the names of their variables.

    `tag` is the version where Cargo.toml lags behind, as that of 3.3.7 does.
    """
    launcher = _code(source / LAUNCHER)
    options = dict(declared(launcher, launcher))
    routers, shards = (NEURON_ROUTERS, NEURON_SHARDS) if for_neuron else (ROUTERS, SHARDS)
    router = next(path for path in routers if (source / path).is_file())
    code = _code(source / router)
    usage = source / "router/src/usage_stats.rs"
    enums = code + (_code(usage) if usage.is_file() else "")
    own = {name: row for name, row in declared(code, enums) if name not in options}
    for name in _given_to_router(launcher):
        own.pop(name, None)
    environment = dict(sorted(read_by_processes(source, launcher, shards).items()))
    exports, arguments = entrypoint((source / ENTRYPOINT).read_text(encoding="utf-8"))
    if for_neuron:
        unused = for_shards_alone(launcher) - environment.keys()
        for name in (*not_taken(source / shards / "cli.py", launcher), *unused):
            options.pop(name, None)
        for name in NEURON_WITHOUT_EFFECT:
            (environment if name in environment else options).pop(name, None)
        environment |= NEURON_TYPES
        exports = {ours: theirs for ours, theirs in exports.items() if ours in options}
    found = re.search(r'^version = "([^"]+)"', _workspace(source), re.MULTILINE)
    assert found, "Cargo.toml of the workspace has no version"
    version = tag or found[1].removesuffix("-dev0")
    return {
        "schema": 1,
        "engine": "neuronx-tgi" if for_neuron else "tgi",
        "version": version,
        "source": f"{LAUNCHER}, {router}, {ENTRYPOINT} and the variables that launcher, router "
        f"and shards read, of text-generation-inference {version}; by scripts/engine-options",
        "fields": [],
        "draft_methods": [] if for_neuron else ["medusa", "ngram"],
        "draft_keys": [],
        "entrypoint": {"exports": exports, "arguments": arguments},
        "options": dict(sorted({**environment, **own, **options}.items())),
    }


def declared(code: str, enums: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Read `struct Args`: for each field that has a variable, its name and row."""
    body = re.search(r"\nstruct Args \{\n(.*?)\n\}", code, re.DOTALL)
    assert body, "there is no `struct Args`"
    text = re.sub(r"\s*\n\s*", " ", body[1])
    fields = re.compile(r"#\[(?:clap|command|arg)\(((?:[^()]|\([^()]*\))*)\)\] (\w+): ([\w:<>]+),")
    found = fields.findall(text)
    if len(found) != text.count("#["):
        sys.exit(f"{text.count('#[')} attributes, and only {len(found)} fields were understood")
    for attributes, field, of_type in found:
        named = _attributes(attributes)
        if "env" in named:
            yield field.upper(), _row(field, of_type, named, enums)


def _attributes(text: str) -> dict[str, str]:
    parts = re.findall(r"""(\w+)(?: = ("[^"]*"|'[^']*'|[\w.]+))?""", text)
    return {name: value.strip("\"'") for name, value in parts}


def _row(field: str, of_type: str, attributes: dict[str, str], enums: str) -> dict[str, Any]:
    unknown = attributes.keys() - HARMLESS - {"default_value", "value_delimiter"}
    if unknown:
        sys.exit(f"{field}: attributes {sorted(unknown)} are not known to this script")
    bare = re.sub(r"^(Option|Vec)<(.+)>$", r"\2", of_type)
    is_list = bare.startswith("Vec<") or of_type.startswith("Vec<")
    bare = bare.removeprefix("Vec<").removesuffix(">").rpartition("::")[2]
    row: dict[str, Any] = (
        {"type": TYPES[bare]} if bare in TYPES else {"type": "word", "choices": _enum(bare, enums)}
    )
    if is_list and "value_delimiter" in attributes:
        row["separator"] = attributes["value_delimiter"]
    return row


def _enum(name: str, code: str) -> list[str]:
    """List what clap takes for an enum: its variants in kebab case, or the name that each has."""
    body = re.search(rf"\n(?:pub )?enum {name} \{{\n(.*?)\n\}}", code, re.DOTALL)
    if body is None:
        sys.exit(f"there is no enum {name}")
    choices: list[str] = []
    renamed = ""
    for line in re.sub(r"#\[deprecated\(.*?\)\]", "", body[1], flags=re.DOTALL).splitlines():
        line = line.strip()
        if found := re.fullmatch(r'#\[(?:clap|value)\(name = "([^"]+)"\)\]', line):
            renamed = found[1]
        elif found := re.fullmatch(r"(\w+),", line):
            choices.append(renamed or _kebab(found[1]))
            renamed = ""
        elif line:
            sys.exit(f"enum {name}: {line!r} is not understood")
    return choices


def _kebab(variant: str) -> str:
    """Return a variant as clap spells it: words start at capitals after a small letter or digit."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", variant).lower()


def read_by_processes(source: Path, launcher: str, shards: str) -> dict[str, dict[str, Any]]:
    """Find variables that are no options, and that launcher, router or shards read."""
    rust = [source / "launcher/src", source / "router/src", source / "backends/v3/src"]
    found: dict[str, dict[str, Any]] = {}
    for path in sorted(path for room in rust for path in room.rglob("*.rs")):
        for name in re.findall(r'env::var(?:_os)?\("(\w+)"\)', _code(path)):
            found[name] = {"type": "text"}
    found |= {"LOG_LEVEL": {"type": "text"}}  # its name is in a variable there
    for path in sorted((source / shards).rglob("*.py")):
        if not set(path.relative_to(source / shards).parts) & set(TESTS):
            found |= read_by_module(ast.parse(path.read_text(encoding="utf-8")))
    written = set(re.findall(r'"(\w+)"\.into\(\)', launcher)) - set(
        re.findall(r'env::var\("(\w+)"\)', launcher)
    )
    return {
        name: row
        for name, row in found.items()
        if name not in written and not name.startswith((*OTHER_DEVICES, *NOT_SETTINGS))
    }


def not_taken(cli: Path, launcher: str) -> list[str]:
    """List what the launcher passes to shards whose `serve` does not take it, so that they end.

    Neuron's take no `--sharded` either, which more than one shard gets.
    """
    text = cli.read_text(encoding="utf-8")
    (serve,) = (
        node
        for node in ast.parse(text).body
        if isinstance(node, ast.FunctionDef) and node.name == "serve"
    )
    taken = {one.arg for one in serve.args.args}
    passed = re.findall(r'shard_args\.push\("--([a-z-]+)"', launcher)
    refused = [name for name in passed if name.replace("-", "_") not in taken]
    several = ["num-shard", "sharded"] if "Sharding is not supported" in text else []
    return [name.upper().replace("-", "_") for name in (*refused, *several)]


def for_shards_alone(launcher: str) -> set[str]:
    """Return the options that the launcher hands on in the shards' environment and nowhere else."""
    handed = re.findall(r'\(\s*"([A-Z_]+)"\.into\(\)', launcher)
    to_router = {name.upper().replace("-", "_") for name in re.findall(r'"--([a-z-]+)"', launcher)}
    return {name for name in handed if handed.count(name) == 1} - to_router


def read_by_module(tree: ast.Module) -> dict[str, dict[str, Any]]:
    """Find the variables that a module reads, with the type that it turns them into.

    A module that asserts that the value is in a set of names gives the choices.
    """
    inside = {
        id(inner): call.func.id
        for call in ast.walk(tree)
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.args
        for inner in call.args[:1]
    }
    found: dict[str, dict[str, Any]] = {}
    for node in ast.walk(tree):
        name = _variable(node)
        if name:
            kind = {"int": "int", "float": "float"}.get(inside.get(id(node), ""), "text")
            if found.get(name, {}).get("type", "text") == "text":
                found[name] = {"type": kind, **(_default(node) if kind != "text" else {})}
    assigned = {
        target.id: name
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and (name := _variable(node.value))
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for one, choices in _asserted(tree):
        if one in assigned:
            found[assigned[one]] = {"type": "word", "choices": choices}
    return found


def _default(node: ast.AST) -> dict[str, str]:
    """Return what a number is where its variable is not set."""
    given = node.args[1] if isinstance(node, ast.Call) and len(node.args) > 1 else None
    return {"default": str(given.value)} if isinstance(given, ast.Constant) else {}


def _variable(node: ast.AST) -> str:
    """Return the variable of `os.getenv("X", …)`, `os.environ.get("X", …)` or `os.environ["X"]`."""
    if isinstance(node, ast.Call) and node.args:
        is_read = ast.unparse(node.func) in ("os.getenv", "os.environ.get", "getenv")
        key = node.args[0] if is_read else None
    elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
        key = node.slice if ast.unparse(node.value) == "os.environ" else None
    else:
        key = None
    return key.value if isinstance(key, ast.Constant) and isinstance(key.value, str) else ""


def _asserted(tree: ast.Module) -> Iterator[tuple[str, list[str]]]:
    """Find `assert NAME in SET`, where the set is written in the module."""
    sets = {
        target.id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Set)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in tree.body:
        test = node.test if isinstance(node, ast.Assert) else None
        if isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.In):
            left, right = test.left, test.comparators[0]
            if isinstance(left, ast.Name) and isinstance(right, ast.Name) and right.id in sets:
                yield left.id, sorted(ast.literal_eval(sets[right.id]))


def entrypoint(script: str) -> tuple[dict[str, str], dict[str, str]]:
    """Read what SageMaker's script exports to the launcher, from what, and what it passes."""
    exports = dict(re.findall(r'^\s*export (\w+)="\$\{(\w+)\}"$', script, re.MULTILINE))
    command = re.search(r"^(?:exec )?text-generation-launcher(.*)$", script, re.MULTILINE)
    assert command, "the script does not start the launcher"
    if len(exports) != script.count("export "):
        sys.exit("an export of the script was not understood")
    given = re.findall(r"--([\w-]+) (\S+)", command[1])
    return exports, {name.upper().replace("-", "_"): value for name, value in given}


def _given_to_router(launcher: str) -> list[str]:
    """List what the launcher always passes to the router: those variables do nothing."""
    return [
        name.upper().replace("-", "_") for name in re.findall(r'"--([a-z-]+)"\.to_st', launcher)
    ]


def _code(path: Path) -> str:
    """Return Rust without comments."""
    text = path.read_text(encoding="utf-8")
    return re.sub(r"(?m)^\s*//.*\n", "", text)


def _workspace(source: Path) -> str:
    text = (source / "Cargo.toml").read_text(encoding="utf-8")
    return text[text.index("[workspace.package]") :]
