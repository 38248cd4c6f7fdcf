"""Runs with vLLM's interpreter, not ours: gives command lines to vLLM's own argument parser.

Each line of stdin is a list of `{"argv": [...]} | {"properties": {...}} | {"medusa": {...}} |
{"mtp": {...}} | {"speculators": {...}}`.  A line with as many results goes to the descriptor that
the first argument is:
`{"accepted": bool, "values": {option: value}, "lost": [key, ...], "message": text}`.
Properties go the way LMI sends them: djl_python/properties_manager/vllm_rb_properties.py.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from transformers import PretrainedConfig
from vllm.config import SpeculativeConfig
from vllm.engine.arg_utils import EngineArgs
from vllm.entrypoints.launchers.cli_args import make_arg_parser
from vllm.model_executor.models import ModelRegistry
from vllm.transformers_utils.configs.medusa import MedusaConfig
from vllm.transformers_utils.configs.speculators import SpeculatorsConfig
from vllm.utils.argparse_utils import FlexibleArgumentParser

TRANSLATED = {
    "tensor_parallel_degree": "tensor_parallel_size",
    "max_rolling_batch_size": "max_num_seqs",
    "max_rolling_batch_prefill_tokens": "max_num_batched_tokens",
    "quantize": "quantization",
    "dtype": "dtype",
    "trust_remote_code": "trust_remote_code",
}
DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
OF_THE_SERVER = {
    "async_mode",
    "rolling_batch",
    "entryPoint",
    "model_loading_timeout",
    "predict_timeout",
    # read by LMI's own handler of chats before 17: djl_python/properties_manager
    "enable_auto_tool_choice",
    "tool_call_parser",
    "enable_reasoning",
}


def main() -> None:
    parser = make_arg_parser(FlexibleArgumentParser())
    with os.fdopen(int(sys.argv[1]), "w") as answers:
        for line in sys.stdin:
            answers.write(json.dumps([judge(parser, item) for item in json.loads(line)]) + "\n")
            answers.flush()


def judge(parser: FlexibleArgumentParser, item: dict[str, Any]) -> dict[str, Any]:
    lost: list[str] = []
    if "medusa" in item:
        return read_medusa(item["medusa"])
    if "mtp" in item:
        return read_mtp(item["mtp"])
    if "speculators" in item:
        return read_speculators(item["speculators"])
    argv = item.get("argv")
    if argv is None:
        argv = lmi_argv(item["properties"], lost)
    errors = io.StringIO()
    try:
        with contextlib.redirect_stderr(errors):
            read = vars(parser.parse_args(argv))
    except (SystemExit, ValueError) as error:
        message = errors.getvalue()[-400:] or str(error)
        return {"accepted": False, "values": {}, "lost": lost, "message": message}
    draft = read.get("speculative_config") or {}
    lost += sorted(set(draft) - set(SpeculativeConfig.__dataclass_fields__))
    given = {word[2:].replace("-", "_") for word in argv if word.startswith("--")}
    names = {name.removeprefix("no_") if name not in read else name for name in given}
    return {
        "accepted": True,
        "values": {name: read[name] for name in sorted(names)},
        "lost": lost,
        "message": "",
    }


def read_medusa(config: dict[str, Any]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as directory:
        (Path(directory) / "config.json").write_text(json.dumps(config))
        read = MedusaConfig.from_pretrained(directory)
    names = ("hidden_size", "vocab_size", "num_heads", "num_hidden_layers", "architectures")
    return {"accepted": True, "values": {name: getattr(read, name) for name in names}}


def read_mtp(config: dict[str, Any]) -> dict[str, Any]:
    """Let vLLM make the head's configuration of a model's, as it does for `method: mtp`."""
    nested = [name for name, value in config.items() if isinstance(value, dict)]
    parts = {name: _config_of(config[name]) for name in nested if name.endswith("text_config")}
    read = SpeculativeConfig.hf_config_override(_config_of({**config, **parts}))
    names = ("model_type", "n_predict", "architectures")
    values = {name: getattr(read, name, None) for name in names}
    known = set(ModelRegistry.get_supported_archs())
    return {"accepted": set(values["architectures"] or ()) <= known, "values": values}


def _config_of(values: dict[str, Any]) -> PretrainedConfig:
    read = PretrainedConfig(architectures=values.get("architectures"))
    for name, value in values.items():
        setattr(read, name, value)
    return read


def read_speculators(config: dict[str, Any]) -> dict[str, Any]:
    """Read a head of the speculators library as vLLM does."""
    read = SpeculatorsConfig.extract_transformers_pre_trained_config(json.loads(json.dumps(config)))
    method = SpeculatorsConfig.extract_vllm_speculative_config(config)
    known = set(ModelRegistry.get_supported_archs())
    return {
        "accepted": set(read["architectures"]) <= known,
        "values": {**method, "layers": read.get("eagle_aux_hidden_state_layer_ids")},
    }


def lmi_argv(properties: dict[str, str], lost: list[str]) -> list[str]:
    argv: list[str] = []
    for key, value in properties.items():
        name = key.removeprefix("option.")
        if key == "engine" or name in OF_THE_SERVER:
            continue
        if name in TRANSLATED:
            name, value = TRANSLATED[name], DTYPES.get(value, value)
        elif name not in EngineArgs.__annotations__:
            lost.append(key)
            continue
        flag = name.replace("_", "-")
        if value in ("true", "false"):
            argv.append(f"--{flag}" if value == "true" else f"--no-{flag}")
        else:
            argv += [f"--{flag}", value]
    return argv


if __name__ == "__main__":
    main()
