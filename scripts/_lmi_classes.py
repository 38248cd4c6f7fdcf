"""LMI's own classes, of a checkout of djl-serving: what they read, drop, refuse and hand on.

The server (Java) turns serving.properties into a dictionary; a handler (Python) makes two classes
of it, HuggingFaceProperties and VllmRbProperties, and the second a command line for the parser
of vLLM's EngineArgs.  The classes are pydantic's and run as they are; which of their fields
anything looks at is read from the handler's syntax trees.  What Java does is written out here, for
a model that generates text, on one GPU: ModelInfo, LmiConfigRecommender, PyModel, LmiUtils.

Needs an interpreter that has the release's vLLM (any build); for LMI 13, whose class names every
key, vLLM 0.6.3.post1 is asked for choices only.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tempfile
import types
import typing
from collections.abc import Iterator, Mapping
from contextlib import redirect_stderr, redirect_stdout
from enum import Enum
from pathlib import Path
from typing import Any

ASYNC_SINCE, LMI_DIST_GONE_SINCE, CLOSED_UNTIL, TASK_SINCE = 17, 15, 13, 25
HANDLERS = {
    "async": ("lmi_vllm/vllm_async_service.py",),
    "vllm": ("huggingface.py", "rolling_batch/vllm_rolling_batch.py"),
}
OBJECTS = ("vllm_properties", "vllm_configs", "hf_configs", "configs", "config")
# The server asks for these, in PyModel, ModelInfo, LmiConfigRecommender, LmiUtils and PyProcess.
SERVER = frozenset(
    [
        "env",
        "predict_timeout",
        "model_loading_timeout",
        "entryPoint",
        "parallel_loading",
        "tensor_parallel_degree",
        "pipeline_parallel_degree",
        "handler",
        "enable_venv",
        "mpi_mode",
        "async_mode",
        "pythonExecutable",
        "model_id",
        "modelName",
        "rolling_batch",
        "max_rolling_batch_size",
        "enable_lora",
        "enable_stateful_sessions",
        "lmcache_auto_config",
        "use_passive_workers",
        "metric_dimension",
        "log_request_metric",
        "trust_remote_code",
        "revision",
    ]
)
# The server's, without `option.` before them.
SERVER_BARE = frozenset(
    (
        "engine",
        "job_queue_size",
        "batch_size",
        "max_batch_delay",
        "max_dynamic_batch_size",
        "max_idle_time",
        "minWorkers",
        "maxWorkers",
        "gpu.minWorkers",
        "gpu.maxWorkers",
        "load_on_devices",
        "required_memory_mb",
        "reserved_memory_mb",
        "gpu.reserved_memory_mb",
        "log_request_metric",
        "metric_dimension",
    )
)
# Tasks that mean what LMI does without one.
NO_TASK = frozenset({"auto", "generate", "text-generation"})
# Values that the classes are asked about where the annotation is any text.
TRIED = {
    "dtype": [
        "fp32",
        "fp16",
        "bf16",
        "auto",
        "float32",
        "float16",
        "bfloat16",
        "half",
        "float",
        "int8",
    ],
    "engine": ["Python", "MPI", "DeepSpeed"],
    "pipeline_parallel_degree": ["1", "2", "4", "8"],
    "task": [
        "auto",
        "generate",
        "text-generation",
        "text-embedding",
        "classify",
        "feature-extraction",
    ],
}
TYPES = {bool: "loose-bool", int: "int", float: "float", str: "text", dict: "json"}


class Refused(Exception):
    """The server or a class did not take the configuration."""


class Lmi:
    """One release's classes, imported once."""

    def __init__(self, djl: Path, release: int) -> None:
        setup = djl / "engines/python/setup"
        sys.path.insert(0, str(setup))
        self.release, self.package = release, setup / "djl_python"
        self.model = tempfile.mkdtemp()  # vLLM looks for the model where it is told to
        with redirect_stdout(sys.stderr):
            pretend_a_gpu()
            from djl_python.properties_manager.hf_properties import HuggingFaceProperties
            from djl_python.properties_manager.vllm_rb_properties import VllmRbProperties
            from vllm.engine.arg_utils import EngineArgs
        self.handler_class, self.engine_class = HuggingFaceProperties, VllmRbProperties
        self.arguments = EngineArgs
        closed = release <= CLOSED_UNTIL
        self.passed = frozenset() if closed else frozenset(EngineArgs.__annotations__)
        self.read = {name: read_by(self.package, files) for name, files in HANDLERS.items()}
        self.fields = dict(VllmRbProperties.model_fields)
        self.aliases = {field.alias: name for name, field in self.fields.items() if field.alias}
        self.handlers = [
            name for name, (first, *_) in HANDLERS.items() if (self.package / first).is_file()
        ]

    def start(self, properties: Mapping[str, str], *, is_async: bool) -> dict[str, Any]:
        """Return the arguments that vLLM would be started with."""
        given = {**properties, "model_dir": self.model, "model_id": self.model}
        said = io.StringIO()
        try:
            with redirect_stdout(said), redirect_stderr(said):
                self.handler_class(**dict(given))
                read = self.engine_class(**dict(given))
                if self.release <= CLOSED_UNTIL:
                    from djl_python.rolling_batch import rolling_batch_vllm_utils as of_13

                    return vars(of_13.get_engine_args_from_config(read))
                return vars(read.get_engine_args(*([is_async] if is_async else [])))
        except SystemExit as error:
            raise Refused(said.getvalue().strip().splitlines()[-1]) from error
        except Exception as error:  # pydantic's, and whatever the validators raise
            raise Refused(" ".join(str(error).split())) from error

    def takes(self, **properties: str) -> bool:
        try:
            self.start({"rolling_batch": "disable", **properties}, is_async=self.is_async)
        except Refused:
            return False
        return True

    @property
    def is_async(self) -> bool:
        return self.release >= ASYNC_SINCE

    def looks_at(self, name: str, handler: str) -> bool:
        """Whether the handler reads a property: of the class, of vLLM's, or by itself."""
        if name in self.aliases:
            return True
        if name in self.fields:
            return name in self.read[handler]
        return name in self.passed or name in self.read[handler]


def document_of(djl: Path, release: int) -> dict[str, Any]:
    lmi = Lmi(djl, release)
    choices = vllm_choices() if release <= CLOSED_UNTIL else {}
    keys: dict[str, Any] = {}
    for name, row in own_rows(lmi):
        by = [handler for handler in lmi.handlers if lmi.looks_at(name, handler)]
        if by and name not in SKIPPED:
            keys[name] = row | choices.get(name, {})
            if len(by) < len(lmi.handlers) and name not in SERVER:
                keys[name]["handler"] = by[0]
    if release < TASK_SINCE:  # no vLLM hears of it
        keys["task"] = {"type": "word", "choices": sorted(NO_TASK)}
    import vllm

    version = vllm.__version__.partition("+")[0]
    return {
        "schema": 1,
        "engine": "lmi",
        "release": str(release),
        "vllm": version,
        "source": f"djl-serving's HuggingFaceProperties and VllmRbProperties ({djl.name}), run "
        f"with the parser of vLLM {version} by scripts/engine-options",
        "hands_on": release > CLOSED_UNTIL,
        "refused": refused(lmi),
        "stays_on": stays_on(lmi),
        "defaults": defaults(lmi),
        "keys": keys,
    }


# Of the classes, but set by the server or of another handler; nobody writes them down.
SKIPPED = frozenset(
    (
        "model_dir",
        "model_id_or_path",
        "model_id",
        "handler",
        "has_custom_code",
        "preloaded_model",
        "generation_config",
        "architectures",
        "model_type",
        "decoder_start_token_id",
        "kwargs",
        "is_peft_model",
        "input_formatter",
        "disable_flash_attn",
        "stop_sequence",
        "enable_streaming",
    )
)


def own_rows(lmi: Lmi) -> Iterator[tuple[str, dict[str, Any]]]:
    """Return the fields of the class, their aliases, and the names that handlers look up."""
    for name, field in sorted(lmi.fields.items()):
        yield name, row_of(lmi, name, field.annotation)
        if field.alias:
            yield field.alias, row_of(lmi, name, field.annotation) | {"alias_of": name}
    looked = {
        name
        for handler in lmi.handlers
        for name in lmi.read[handler] - lmi.fields.keys() - lmi.passed
        if looked_up(lmi.package, HANDLERS[handler], name)
    }
    for name in sorted(looked):
        yield name, {"type": "text"}


def row_of(lmi: Lmi, name: str, annotation: Any) -> dict[str, Any]:
    if name in TRIED:
        return {"type": "word", "choices": [one for one in TRIED[name] if lmi.takes(**{name: one})]}
    inner = [one for one in typing.get_args(annotation) if one is not types.NoneType]
    if typing.get_origin(annotation) is typing.Literal:
        return {"type": "word", "choices": list(typing.get_args(annotation))}
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return {
            "type": "word",
            "choices": batches(lmi)
            if name == "rolling_batch"
            else [one.value for one in annotation],
        }
    for one in (annotation, *inner):
        if typing.get_origin(one) is Mapping:
            return {"type": "counts"}  # `image=2,video=1`
        if one in TYPES:
            return {"type": TYPES[one]}
        if typing.get_origin(one) is dict or one is typing.Dict:  # noqa: UP006
            return {"type": "json"}
    return {"type": "text"}


def batches(lmi: Lmi) -> list[str]:
    """The batches that vLLM's handler makes something of; the class takes other engines' too."""
    source = (lmi.package / "huggingface.py").read_text(encoding="utf-8")
    made = re.findall(r'rolling_batch_type == "([\w-]+)"', source)
    gone = [] if lmi.release < LMI_DIST_GONE_SINCE else ["lmi-dist"]  # the server makes it vllm
    return sorted({"auto", "disable", *made, *gone})


def refused(lmi: Lmi) -> dict[str, str]:
    """Return vLLM's names that are never taken: text is compared with the number of LMI's own."""
    found = {}
    for name, other in conflicts(lmi.package):
        if other in lmi.passed and not any(lmi.takes(**{other: one}) for one in ("1", "32", "256")):
            found[other] = name
    return found


def conflicts(package: Path) -> Iterator[tuple[str, str]]:
    path = package / "properties_manager/vllm_rb_properties.py"
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and receiver(node.func).startswith("validate_potential"):
            yield next(text(node.args[0])), next(text(node.args[1]))


def stays_on(lmi: Lmi) -> list[str]:
    """Return vLLM's switches that are on, or up to vLLM, although `false` was asked for."""
    found = []
    for name in sorted(lmi.passed - lmi.fields.keys() - lmi.aliases.keys()):
        try:
            args = lmi.start({"rolling_batch": "disable", name: "false"}, is_async=lmi.is_async)
        except Refused:
            continue
        default = getattr(lmi.arguments, name, None)
        asked_off = args.get(name) in (False, "false", "False")
        if (is_switch(lmi, name) and not asked_off) or (default is True and args.get(name) is True):
            found.append(name)
    return found


def is_switch(lmi: Lmi, name: str) -> bool:
    return "bool" in str(lmi.arguments.__annotations__.get(name, ""))


def defaults(lmi: Lmi) -> dict[str, str]:
    """Return vLLM's options that LMI sets by itself, and to what."""
    if lmi.release <= CLOSED_UNTIL:
        return {}
    bare = lmi.start({"rolling_batch": "disable"}, is_async=lmi.is_async)
    own = {"max_loras"} & bare.keys()
    return {name: str(bare[name]) for name in sorted(own)}


def vllm_choices() -> dict[str, Any]:
    """The choices of vLLM's parser, for keys that LMI gives to EngineArgs without asking it."""
    from vllm.engine.arg_utils import EngineArgs
    from vllm.utils import FlexibleArgumentParser

    found = {}
    for action in EngineArgs.add_cli_args(FlexibleArgumentParser())._actions:
        taken = [str(one) for one in action.choices or () if one is not None]
        if taken:
            name = {"quantization": "quantize"}.get(action.dest, action.dest)
            found[name] = {"type": "word", "choices": taken}
    found.pop("dtype", None)
    found.pop("device", None)
    return found


def read_by(package: Path, files: tuple[str, ...]) -> frozenset[str]:
    """Return the names that a handler's modules, and the class itself, look at."""
    names: set[str] = set()
    for path, tree in modules_of(package, files):
        within = path.parent.name == "properties_manager"
        for node in ast.walk(tree):
            names |= set(looked_at(node, within=within))
    return frozenset(names)


def looked_up(package: Path, files: tuple[str, ...], name: str) -> bool:
    """Whether a handler asks the dictionary itself for a name."""
    for path, tree in modules_of(package, files):
        if path.parent.name != "properties_manager":
            for node in ast.walk(tree):
                if not isinstance(node, ast.Attribute) and name in looked_at(node, within=False):
                    return True
    return False


def modules_of(package: Path, files: tuple[str, ...]) -> Iterator[tuple[Path, ast.Module]]:
    seen: set[Path] = set()
    waiting = [package / name for name in files]
    waiting.append(package / "properties_manager/vllm_rb_properties.py")
    while waiting:
        path = waiting.pop()
        if path in seen or not path.is_file() or not wanted(path):
            continue
        seen.add(path)
        tree = ast.parse(path.read_text(encoding="utf-8"))
        yield path, tree
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("djl_python."):
                inner = str(node.module).split(".")[1:]
                waiting.append(package.joinpath(*inner).with_suffix(".py"))


def wanted(path: Path) -> bool:
    """Whether a module is on the way of vLLM's handler: other engines' classes are not."""
    if path.parent.name == "properties_manager":
        return path.name == "vllm_rb_properties.py"
    return True


def looked_at(node: ast.AST, *, within: bool) -> Iterator[str]:
    """A field of the class, or a key of the dictionary that it is made of."""
    if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
        if receiver(node.value) in (("self",) if within else OBJECTS):
            yield node.attr
    elif isinstance(node, ast.Call) and receiver(node.func) == "get" and node.args:
        if isinstance(node.func, ast.Attribute) and receiver(node.func.value) == "properties":
            yield from text(node.args[0])
    elif isinstance(node, ast.Call) and receiver(node.func).startswith("validate_potential"):
        yield from text(node.args[0])
    elif isinstance(node, ast.Subscript) and receiver(node.value) == "properties":
        yield from text(node.slice)
    elif isinstance(node, ast.Compare) and receiver(node.comparators[0]) == "properties":
        yield from text(node.left)


def receiver(node: ast.AST) -> str:
    """Return the last name of an expression; of `kwargs.get("configs")` it is `configs`."""
    if isinstance(node, ast.Call) and receiver(node.func) == "get" and node.args:
        return next(text(node.args[0]), "")
    return getattr(node, "attr", "") or getattr(node, "id", "")


def text(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value


def pretend_a_gpu() -> None:
    """Allow vLLM's parser to be built without a device."""
    import vllm.platforms
    from vllm.platforms import interface

    if not hasattr(interface, "_Backend") and not hasattr(interface, "CpuArchEnum"):
        return  # so old that the parser does not ask

    class Pretended(interface.Platform):
        _enum = interface.PlatformEnum.CUDA
        device_name = device_type = "cuda"
        dispatch_key = "CUDA"

        @classmethod
        def get_device_capability(cls, *_: Any, **__: Any) -> None:
            return None

        def __getattr__(self, name: str) -> Any:
            return None

    vllm.platforms._current_platform = Pretended()
