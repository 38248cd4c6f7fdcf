"""What a version of vLLM says of command lines: its parser, its checks, its configuration.

    PYTHON scripts/_vllm_verdicts.py [--capability 9.0] [--memory-gib 80] < requests > verdicts

PYTHON has one version of vLLM on its path: a build of any kind, or an unpacked sdist over an
environment with its dependencies.  A request is a JSON line with `argv`, what follows `vllm serve`
without the launcher's own words, `--model DIR` among it, where DIR has a config.json; other keys
are handed through.  A verdict adds `verdict` (`accepted`, `refused`, or `undecided` where the
machine lacks what the engine looks for), `stage` and `reason`; `dropped` names what was taken and
has no effect.

Stages, in the order of a start: `parser`, `serve` (checks of the parsed arguments), `config`
(`EngineArgs.create_engine_config`), `start` (what the server looks up next: parsers of tool calls
and of reasoning, the executor's class, the loader of weights, the connector of KV transfer),
`layers` (what building the model asks first: the type on the device, heads over devices, the
attention backend).  The device is pretended, so `accepted` promises nothing of kernels or memory.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import importlib.util
import io
import itertools
import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any

LONGEST = 300  # characters of a reason
# What is missing here and not on the pretended machine: kernels, files, an allocator.
UNDECIDED = re.compile(
    r"failed to be inspected|backend tokenizer|tokens in the tokenizer|cumem allocator is not|"
    r"appear to have a file named|\[ImportError\]|No module named|"
    r"not compiled with CUDA"
)
PARSERS = (
    "vllm.entrypoints.common.cli_args",
    "vllm.entrypoints.launchers.cli_args",
    "vllm.entrypoints.openai.cli_args",
)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--capability", default="9.0", help="of the device: 7.5, 8.0, 9.0, …")
    parser.add_argument("--memory-gib", type=int, default=80)
    arguments = parser.parse_args()
    major, minor = arguments.capability.split(".")
    engine = Engine((int(major), int(minor)), arguments.memory_gib << 30)
    for line in sys.stdin:
        request = json.loads(line)
        print(json.dumps(request | engine.verdict(request["argv"])), flush=True)
    return 0


class Engine:
    """One version of vLLM, imported with a pretended device."""

    def __init__(self, capability: tuple[int, int], memory_bytes: int) -> None:
        import _pretended_cuda
        import _stand_ins

        _pretended_cuda.install(capability, memory_bytes)
        if importlib.util.find_spec("torchvision") is None:  # models that see import it
            sys.meta_path.append(_stand_ins.Finder(("torchvision",)))
        import vllm
        from vllm.model_executor.models import registry

        _pretended_cuda.count_devices()
        registry._run_in_subprocess = lambda inspect: inspect()  # there, no device is pretended
        self.version = vllm.__version__.partition("+")[0]
        self.cli = next(filter(None, map(found_module, PARSERS)))

    def verdict(self, argv: Sequence[str]) -> dict[str, Any]:
        """Run one command line through the stages; say where it ends, and why."""
        given, dropped = list(argv), []
        for stage, step in (
            ("parser", self.parse),
            ("serve", self.check_served),
            ("config", self.configure),
            ("start", self.look_up),
            ("layers", self.build),
        ):
            said = io.StringIO()
            try:
                with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
                    argv = step(argv)  # each stage hands its result to the next
            except (Exception, SystemExit) as error:
                return self._of("refused", stage, reason_of(error, said.getvalue()))
            if stage == "parser":
                dropped = dropped_by_parser(given, argv)
            elif stage == "config":
                dropped += dropped_by_configuration(given, argv)
        return self._of("accepted", "layers", "") | ({"dropped": dropped} if dropped else {})

    def parse(self, argv: Sequence[str]) -> Any:
        try:
            from vllm.utils.argparse_utils import FlexibleArgumentParser
        except ImportError:
            from vllm.utils import FlexibleArgumentParser  # before 0.12
        parser = self.cli.make_arg_parser(FlexibleArgumentParser())
        if argv and not argv[0].startswith("-"):
            argv = ["--model", *argv]  # `vllm serve MODEL`
        return parser.parse_args(list(argv))

    def check_served(self, parsed: Any) -> Any:
        self.cli.validate_parsed_serve_args(parsed)
        for name in (self.cli.__name__, "vllm.entrypoints.openai.api_server"):
            module = found_module(name)
            if hasattr(module, "validate_api_server_args"):
                load_plugins(parsed)
                module.validate_api_server_args(parsed)
                break
        return parsed

    def configure(self, parsed: Any) -> Any:
        from vllm.engine.arg_utils import AsyncEngineArgs

        return AsyncEngineArgs.from_cli_args(parsed).create_engine_config()

    def look_up(self, config: Any) -> Any:
        from vllm.model_executor.model_loader import get_model_loader
        from vllm.v1.executor.abstract import Executor

        with contextlib.suppress(ImportError):  # Ray is not needed to know its name
            Executor.get_class(config)
        with contextlib.suppress(ImportError):
            get_model_loader(config.load_config)
        check_quantization(config)
        reasoning = config.structured_outputs_config.reasoning_parser
        if reasoning:
            from vllm.reasoning import ReasoningParserManager

            ReasoningParserManager.get_reasoning_parser(reasoning)
        check_tokenizer_mode(config.model_config)
        if config.kv_transfer_config is not None and config.kv_transfer_config.kv_connector:
            from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory

            with contextlib.suppress(ImportError):
                KVConnectorFactory.get_connector_class(config.kv_transfer_config)
        return config

    def build(self, config: Any) -> Any:
        """Ask what the model's layers ask before they have weights."""
        import _pretended_cuda
        from vllm.config import set_current_vllm_config
        from vllm.platforms import current_platform
        from vllm.v1.attention.selector import get_attn_backend

        model, degree = config.model_config, config.parallel_config.tensor_parallel_size
        if model.runner_type != "generate" or config.cache_config is None:
            return config
        current_platform.check_if_supports_dtype(model.dtype)
        if not getattr(model.hf_text_config, "num_attention_heads", 0):
            return config  # states alone
        if not model.use_mla:
            split_heads(model, degree)
        text = model.hf_text_config
        with _pretended_cuda.kernel_packages(), set_current_vllm_config(config):
            backend = get_attn_backend(
                head_size=model.get_head_size(),
                dtype=model.dtype,
                kv_cache_dtype=config.cache_config.cache_dtype,
                use_mla=model.use_mla,
                use_sparse=model.use_mla and hasattr(text, "index_topk"),
                has_sink=text.model_type == "gpt_oss",
            )
            if backend.get_name() == "TRITON_ATTN":  # its layers look at the cache's type
                heads, cached = 1, config.cache_config.cache_dtype
                size = model.get_head_size()
                backend.get_impl_cls()(heads, size, 1.0, heads, None, None, cached)
        return config

    def _of(self, verdict: str, stage: str, reason: str) -> dict[str, Any]:
        verdict = "undecided" if UNDECIDED.search(reason) else verdict
        return {"engine": "vllm", "version": self.version, "verdict": verdict} | (
            {} if verdict == "accepted" else {"stage": stage, "reason": reason[:LONGEST]}
        )


def split_heads(model: Any, degree: int) -> None:
    """Build the layer of queries, keys and values as one of so many devices does."""
    import torch
    from vllm.model_executor import parameter
    from vllm.model_executor.layers import linear

    for module in (linear, parameter):
        module.get_tensor_model_parallel_world_size = lambda: degree
        module.get_tensor_model_parallel_rank = lambda: 0
    with torch.device("meta"):
        linear.QKVParallelLinear(
            model.get_hidden_size(),
            model.get_head_size(),
            model.model_arch_config.total_num_attention_heads
            if hasattr(model, "model_arch_config")
            else model.hf_text_config.num_attention_heads,
            model.get_total_num_kv_heads(),
        )


def dropped_by_parser(argv: Sequence[str], parsed: Any) -> list[str]:
    """Return words that the parser misreads, and keys that a class ignores."""
    lost = [f"{parsed.model_tag!r} is no option"] if getattr(parsed, "model_tag", None) else []
    if argv and not argv[0].startswith("-"):
        lost = []  # `vllm serve MODEL`
    if parsed.tool_call_parser and not parsed.enable_auto_tool_choice:
        lost.append("--tool-call-parser")  # the server asks for the switch first
    for flag, value in itertools.pairwise(argv):
        given = read_object(value) if flag.startswith("--") else {}
        taken = getattr(parsed, flag.removeprefix("--").replace("-", "_"), None)
        lost += [f"{flag}.{key}" for key in lost_keys(given, taken)]
    return lost


def dropped_by_configuration(argv: Sequence[str], config: Any) -> list[str]:
    """Return keys of the speculative configuration that its class ignores."""
    for flag, value in itertools.pairwise(argv):
        if flag == "--speculative-config":
            given = read_object(value)
            return [f"{flag}.{key}" for key in lost_keys(given, config.speculative_config)]
    return []


def lost_keys(given: Mapping[str, Any], taken: Any) -> list[str]:
    if not dataclasses.is_dataclass(taken):
        return []  # a dictionary is handed on as it is
    names = {one.name for one in dataclasses.fields(taken)}
    return [key for key in given if key not in names]


def read_object(text: str) -> dict[str, Any]:
    try:
        read = json.loads(text)
    except ValueError:
        return {}
    return read if isinstance(read, dict) else {}


def check_quantization(config: Any) -> None:
    """Look for the method's own configuration, as loading does before it reads weights."""
    if config.model_config.quantization is None or config.quant_config is not None:
        return
    from vllm.model_executor.model_loader.weight_utils import get_quant_config

    get_quant_config(config.model_config, config.load_config)


def check_tokenizer_mode(model_config: Any) -> None:
    """Look the mode up as the first use of the tokenizer does."""
    mode = model_config.tokenizer_mode
    if mode in ("auto", "hf", "slow"):
        return
    registry = found_module("vllm.tokenizers.registry")
    if registry is not None and hasattr(registry, "TokenizerRegistry"):
        with contextlib.suppress(ImportError):
            registry.TokenizerRegistry.load_tokenizer_cls(mode)


def load_plugins(parsed: Any) -> None:
    """Import the plug-ins that a server does before it checks its parsers."""
    for name, where, manager in (
        ("tool_parser_plugin", "vllm.tool_parsers", "ToolParserManager"),
        ("tool_parser_plugin", "vllm.entrypoints.openai.tool_parsers", "ToolParserManager"),
        ("reasoning_parser_plugin", "vllm.reasoning", "ReasoningParserManager"),
    ):
        plugin, module = getattr(parsed, name, None), found_module(where)
        if plugin and module is not None:
            importer = getattr(module, manager)
            getattr(importer, "import_" + name.removesuffix("_plugin"))(plugin)


def found_module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        return None


def reason_of(error: BaseException, said: str) -> str:
    """Return an error's own words in one line."""
    if isinstance(error, SystemExit):
        text = said.rpartition("error: ")[2].strip()
    else:
        text = f"{type(error).__name__}: {error}"
    return " ".join(text.split())


if __name__ == "__main__":
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "CRITICAL")
    sys.exit(main())
