"""Models and drafts of the golden cases: headers only, of the sizes of the real ones."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path

from packager.core.model import ModelFiles, ModelRef
from tests.support import zoo
from tests.support.headers import (
    GEMMA_2_2B,
    LLAMA_3_8B,
    LLAMA_3_70B,
    TINY,
    awq_model_of,
    awq_packed,
    model_of,
)
from tests.support.heads import dflash_of_speculators, eagle3, peagle_of_speculators
from tests.support.mtp_models import qwen3_5, qwen3_next
from tests.support.templates import QWEN_3_THINKING

WRITTEN = tomllib.loads((Path(__file__).parent / "cases.toml").read_text(encoding="utf-8"))
CONFIGS = WRITTEN["configs"]


def _named(model: ModelFiles, name: str, **config: object) -> ModelFiles:
    ref = ModelRef(source="hub", name=name)
    return replace(model, ref=ref, config={**model.config, **config})


LLAMA_8B = model_of(LLAMA_3_8B, name="meta-llama/Meta-Llama-3-8B-Instruct")
LLAMA_70B = model_of(LLAMA_3_70B, name="meta-llama/Meta-Llama-3-70B-Instruct")
QWEN = model_of(CONFIGS["qwen-2-7b"], name="Qwen/Qwen2-7B-Instruct")
MIXTRAL = _named(zoo.mixtral(), "mistralai/Mixtral-8x7B-v0.1", torch_dtype="bfloat16")
MODELS = {
    "tiny": model_of(TINY),
    "llama-8b": LLAMA_8B,
    "llama-8b-awq": awq_model_of(LLAMA_3_8B, name="solidrust/Meta-Llama-3-8B-Instruct-AWQ"),
    "llama-70b": LLAMA_70B,
    "llama-70b-awq": awq_model_of(LLAMA_3_70B, name="casperhansen/llama-3-70b-instruct-awq"),
    "gemma": model_of(GEMMA_2_2B, name="google/gemma-2-2b-it"),
    "qwen": QWEN,
    "qwq": replace(QWEN, chat_template=QWEN_3_THINKING),
    "qwen3.5": qwen3_5(),
    "qwen3-next": qwen3_next(),
    "mixtral": MIXTRAL,
    "mixtral-awq": _named(
        awq_packed(MIXTRAL, ".w1", ".w2", ".w3"), "ybelkada/Mixtral-8x7B-Instruct-v0.1-AWQ"
    ),
    "small": model_of(CONFIGS["llama-68m"], name="org/llama-68m"),
    "eagle3": eagle3(LLAMA_3_8B, draft_vocab=32000),
    "dflash": dflash_of_speculators(LLAMA_3_8B),
    "peagle": peagle_of_speculators(LLAMA_3_8B),
    "llama-medusa": _named(zoo.medusa(3, 4096, 128256), "org/medusa"),
    "mixtral-medusa": _named(zoo.medusa(3, 4096, 32000), "org/medusa"),
}
