"""Draft heads and their models from rows of TOML: config.json and headers, without weights.

`head` names the maker: one of tests/support/heads.py, `medusa`, or a `model`, its `awq` packing or
`gemma4`.  It is made `of` a model's numbers (`llama` where nothing is said), `but` for some, `with`
arguments of its maker.  Then tensors are taken away (`without`), given other types and `shapes`, or
added (`more`); keys of config.json are changed (`config`), left `unsaid`, or all replaced
(`whole_config`).  `file` is the name of its weights, `left_out` what was not read of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from packager.core.image import Inline
from packager.core.model import ModelFile, ModelFiles
from tests.support import heads, mtp_models, zoo
from tests.support.headers import LLAMA_3_8B, TINY, awq_model_of, model_of

NUMBERS: Mapping[str, dict[str, Any]] = {
    "llama": LLAMA_3_8B,
    "tiny": TINY,
    "small": TINY | {"vocab_size": 128256},  # with Llama's vocabulary
    "qwen3": LLAMA_3_8B | {"architectures": ["Qwen3ForCausalLM"], "vocab_size": 151936},
    "gemma4": mtp_models.GEMMA_4,
}


def made_of(row: Mapping[str, Any]) -> ModelFiles:
    """Make the head or the model that a row describes."""
    made = _made(row)
    changed = {name: _shape(text) for name, text in row.get("shapes", {}).items()}
    if changed or "without" in row:
        made = heads.with_shapes(made, changed | dict.fromkeys(row.get("without", ())))
    if "more" in row:
        shapes = {one.name: (one.dtype, one.shape) for one in made.tensors}
        more = {name: _shape(text) for name, text in row["more"].items()}
        made = heads.files(made.config, shapes | more)
    config = row.get("whole_config", {**made.config, **row.get("config", {})})
    said = {key: value for key, value in config.items() if key not in row.get("unsaid", ())}
    files = made.files
    if "file" in row:
        files = (ModelFile(path=row["file"], role="weights", content=Inline(b"")),)
    return replace(made, config=said, files=files, left_out=row.get("left_out", {}))


def _made(row: Mapping[str, Any]) -> ModelFiles:
    numbers = NUMBERS[row.get("of", "llama")] | row.get("but", {})
    hidden, vocabulary = row.get("hidden", 4096), row.get("vocabulary", 128256)
    match row.get("head", "model"):
        case "model":
            return model_of(numbers, dtype=row.get("dtype", "BF16"))
        case "awq":
            return awq_model_of(numbers)
        case "gemma4":
            return mtp_models.gemma_4()
        case "medusa":
            return zoo.medusa(3, hidden, vocabulary, version=row.get("version", 1))
        case "medusa_of_vllm":
            return heads.medusa_of_vllm(hidden, vocabulary)
        case name:
            made: ModelFiles = getattr(heads, name)(numbers, **row.get("with", {}))
            return made


def _shape(written: list[Any]) -> tuple[str, tuple[int, ...]]:
    return written[0], tuple(written[1:])
