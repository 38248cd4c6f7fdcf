"""What the stream writes, loaded by vLLM's own classes, kernels left out: names, parts, places.

Processors serve `fp8`, `int8` and `rtn` (`test_quantized_serving.py`); the other formats are for
GPUs, which are pretended here.  DeepSeek's and MiniMax's models are in FP8 blocks, as published.
`PACKAGER_SERVE=all` has more architectures.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.live.streamed_checkpoints import streamed
from tests.live.tool_programs import run_program
from tests.support.block_checkpoints import split_scales
from tests.support.commandline import TINY
from tests.support.vllm_packages import NEWEST, loaded_by_vllm, vllm_sites

pytestmark = [pytest.mark.live, pytest.mark.timeout(3600)]

LONG = os.environ.get("PACKAGER_SERVE") == "all"
METHODS = (
    "fp8", "fp8,block", "int8", "rtn,group=32", "rtn,group=32,asymmetric", "rtn,group=32,w8a16",
    "w4afp8", "nvfp4", "mxfp4", "mxfp8",
    r"fp8 re:.*\.mlp\..*=nvfp4",
)  # fmt: skip
BLOCKS = ("deepseek-v3", "minimax-m2")
MODELS = ("mixtral", "phi3", "qwen3-moe", "qwen3-next", "nemotron-h", "llava", "gemma3")
MADE = (*BLOCKS, *(MODELS if LONG else MODELS[:1]))
# What is served as it is; blocks, groups and kernels of 128 and 256 that these small matrices have
# no room for; parts that are all there is, or the tool's.
LEFT_OUT = {
    **dict.fromkeys(MODELS, ("fp8,block",)),
    **dict.fromkeys(("qwen3-moe", "qwen3-next"), ("fp8,block", "w4afp8")),
    "mixtral": ("fp8,block", "w4afp8", METHODS[-1]),
    "nemotron-h": ("fp8,block", "w4afp8", METHODS[-1]),
    **dict.fromkeys(BLOCKS, ("fp8", "fp8,block", "w4afp8", METHODS[-1])),
}
CASES = [
    (model, asked)
    for model in (TINY.name, *MADE)
    for asked in METHODS
    if asked not in LEFT_OUT.get(model, ())
]
# Scales of activations that are not rounded; a layer for drafting, which another class loads; the
# last layer of a tower, whose output nobody reads.
UNUSED = re.compile(
    r".*experts\.w(13|2)_input_global_scale|model\.layers\.2\..*"
    r"|vision_tower\..*(layers\.1\.|post_layernorm).*"
)

Told = Mapping[str, Any]


@pytest.fixture(scope="module")
def loaded(
    quantizing_python: Path, serving_base: str, tmp_path_factory: pytest.TempPathFactory
) -> Mapping[str, Told]:
    """Write every case, and load them all in one process."""
    del serving_base
    place = tmp_path_factory.mktemp("streamed")
    models = place / "models"
    run_program(quantizing_python, "tiny_architectures.py", str(models), "--wide", *MADE)
    sources = {TINY.name: TINY, **{name: models / name for name in MADE}}
    sources |= {name: split_scales(models / name, place / name) for name in BLOCKS}
    made: dict[str, Path] = {}
    for model, asked in CASES:
        made[f"{model} {asked}"] = written = place / f"made-{len(made)}"
        written.mkdir()
        for path, data in streamed(sources[model], asked).items():
            (written / path).write_bytes(data)
    return loaded_by_vllm(vllm_sites()[NEWEST], "cuda", made, tmp_path_factory.mktemp("home"))


@pytest.mark.parametrize(("model", "asked"), CASES)
def test_vllm_fills_every_parameter_by_what_the_stream_writes(
    loaded: Mapping[str, Told], model: str, asked: str
) -> None:
    found = loaded[f"{model} {asked}"]

    assert "refused" not in found, found["refused"]
    for what in ("unfilled", "unread"):
        assert [name for name in found[what] if not UNUSED.fullmatch(name)] == []
