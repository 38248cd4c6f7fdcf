"""Tiny checkpoints of architectures whose tensors a library renames, fuses or drops, quantized.

Runs in the environment of the tool, in one process, as importing takes seconds:
`python whole_models.py TOKENIZER PLACE CASE...`, where a case is `MODEL:METHOD`.
Each result lies in `PLACE/MODEL-METHOD`, and what the worker said in `PLACE/report.json`.
"""

from __future__ import annotations

import gc
import json
import sys
import tomllib
import traceback
from pathlib import Path
from typing import Any

TOKENIZER, PLACE = (Path(argument) for argument in sys.argv[1:3])
sys.path.append(str(Path(__file__).parents[2]))

import quantize as worker  # noqa: E402
import torch  # noqa: E402
import transformers as tf  # noqa: E402
from collected import Collected  # noqa: E402
from packager_worker import Spec, WorkerFailed  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402

from packager.estimate.sizing.quantizable import find_support  # noqa: E402

CORPUS = tomllib.loads((Path(__file__).parent / "corpus/whole_models.toml").read_text())
METHODS: dict[str, dict[str, Any]] = CORPUS["methods"]


def add_mtp_layer(tensors: dict[str, torch.Tensor]) -> dict[str, Any]:
    """Add a layer 2 to two layers, as DeepSeek-V3 has layer 61."""
    layer = {
        name.replace("layers.1.", "layers.2."): tensor.clone()
        for name, tensor in tensors.items()
        if "layers.1." in name
    }
    layer["model.layers.2.eh_proj.weight"] = torch.randn(128, 256).bfloat16()
    for norm in ("enorm", "hnorm", "shared_head.norm"):
        layer[f"model.layers.2.{norm}.weight"] = torch.ones(128).bfloat16()
    tensors.update(layer)
    return {"num_nextn_predict_layers": 1}


def add_mtp_branch(tensors: dict[str, torch.Tensor]) -> dict[str, Any]:
    """Add `mtp.*`, as Qwen3-Next has it."""
    tensors["mtp.fc.weight"] = torch.randn(128, 256).bfloat16()
    tensors["mtp.norm.weight"] = torch.ones(128).bfloat16()
    for name, tensor in list(tensors.items()):
        if name.startswith("model.layers.1."):
            tensors[name.replace("model.layers.1.", "mtp.layers.0.")] = tensor.clone()
    return {}


def add_buffers(tensors: dict[str, torch.Tensor]) -> dict[str, Any]:
    """Add what checkpoints of older libraries hold besides: masks and frequencies."""
    for layer in (0, 1):
        path = f"gpt_neox.layers.{layer}.attention"
        tensors[f"{path}.masked_bias"] = torch.tensor(-1e9)
        tensors[f"{path}.bias"] = torch.ones(1, 1, 8, 8, dtype=torch.bool)
        tensors[f"{path}.rotary_emb.inv_freq"] = torch.ones(4)
    return {}


def untie(tensors: dict[str, torch.Tensor]) -> dict[str, Any]:
    """Write a head that equals the embedding where config.json does not tie them."""
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].clone()
    return {"tie_word_embeddings": False}


def widen(tensors: dict[str, torch.Tensor]) -> dict[str, Any]:
    """Keep a norm in 32 bits, as some checkpoints do."""
    tensors["model.norm.weight"] = torch.rand(128) + 0.5
    return {}


CHANGES = {one.__name__: one for one in (add_mtp_layer, add_mtp_branch, add_buffers, untie, widen)}


def make(name: str) -> Path:
    """Write a checkpoint with random weights, once."""
    place = PLACE / "models" / name
    if place.exists():
        return place
    torch.manual_seed(1)
    row = CORPUS["models"][name]
    sizes = {**CORPUS["sizes"], "pad_token_id": None, **row["sizes"]}
    sizes.pop(row.get("without"), None)
    config = getattr(tf, f"{row['class']}Config")(**sizes)
    getattr(tf, f"{row['class']}ForCausalLM")(config).to(torch.bfloat16).save_pretrained(place)
    for file in ("tokenizer.json", "tokenizer_config.json"):
        (place / file).write_bytes((TOKENIZER / file).read_bytes())
    if "change" in row:
        tensors = load_file(place / "model.safetensors")
        added = CHANGES[row["change"]](tensors)
        save_file(tensors, place / "model.safetensors", metadata={"format": "pt"})
        config = json.loads((place / "config.json").read_text())
        (place / "config.json").write_text(json.dumps({**config, **added}))
    return place


def run(name: str, method: str) -> dict[str, Any]:
    """Quantize a model by the worker's own code; return its details, notes or failure."""
    source, into = make(name), PLACE / f"{name}-{method}"
    into.mkdir()
    samples, work = PLACE / "samples", PLACE / f"{name}-{method}.work"
    samples.mkdir(exist_ok=True)
    work.mkdir()
    words = [f"the {number} small words of a text that {number * 7} reads" for number in range(4)]
    rows = [json.dumps({"text": " ".join(words)}) for _ in range(4)]
    (samples / "samples.jsonl").write_text("\n".join(rows) + "\n")
    config = json.loads((source / "config.json").read_text())
    settings = METHODS[method]
    options = ["static", "kv"] if method == "static" else []
    support = find_support(config["architectures"][0], config, settings["method"], options)
    if support.refused and settings["method"] in ("awq", "smoothquant"):
        return {"refused": support.refused}  # other methods are the worker's to do, planned or not
    parameters = {
        "loader": support.loader, "folds": support.folds, "unfolded": [], "max_tokens": 64,
        "seed": 0, "checkpoint_format": "compressed-tensors", "shard_bytes": 1 << 30,
        "memory_bytes": 1 << 20, **settings,
        "ignore": settings.get("ignore", []),
    }  # fmt: skip
    spec = Spec(
        tool="llmcompressor", step="quantize", inputs={"model": source, "samples": samples},
        parameters=parameters, output=into, work=work, result=work / "result.json", gpus=0,
    )  # fmt: skip
    report = Collected()
    try:
        details = worker.quantize(spec, report)
        return {"details": details, "notes": report.notes}
    except WorkerFailed as error:
        return {"failed": str(error), "notes": report.notes}
    except Exception as error:
        traceback.print_exc()
        return {"raised": repr(error)[:500]}


class Damaged:
    """A checkpoint as a library could leave it: without tensors, or with others."""

    def __init__(self, read: Any, hidden: str = "", added: str = "", shape: Any = None) -> None:
        self._read, self._hidden, self._added, self._shape = read, hidden, added, shape

    @property
    def names(self) -> list[str]:
        left = [name for name in self._read.names if not self._hidden or self._hidden not in name]
        return sorted([*left, *([self._added] if self._added else [])])

    def __contains__(self, name: str) -> bool:
        return name in self.names

    def shape(self, name: str) -> Any:
        return self._shape[1] if self._shape and name == self._shape[0] else self._read.shape(name)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._read, name)


def damage(source: Any, saved: Any, names: Any, config: Any) -> dict[str, str]:
    """Restore from what a library could have left; return what was said of it."""
    up = "model.layers.0.mlp.experts.0.up_proj"
    cases = {
        "nothing": {},
        "an expert": {"hidden": f"{up}."},
        "a norm": {"hidden": "model.norm.weight"},
        "a layer": {"hidden": "model.layers.1."},
        "another shape": {"shape": ("model.norm.weight", (64,))},
        "fewer words": {"shape": (f"{up}.weight_packed", (64, 16))},
        "one more": {"added": "model.layers.0.mlp.extra.weight"},
    }
    said = {}
    for name, how in cases.items():
        try:
            restore(source, Damaged(saved, **how), names, config)  # type: ignore[arg-type]
            said[name] = ""
        except WorkerFailed as error:
            said[name] = str(error)
    return said


if __name__ == "__main__":
    torch.set_num_threads(1)
    gc.freeze()  # the libraries' objects: the worker collects garbage after every model
    restore, given = worker.restore, {}

    def keep(*arguments: Any) -> Any:
        given["last"] = arguments
        return restore(*arguments)

    worker.restore = keep
    done = {}
    for case in sys.argv[3:]:
        done[case] = run(*case.split(":"))
        if case == "mixtral:rtn" and "last" in given:
            done["damaged"] = damage(*given["last"])
    (PLACE / "report.json").write_text(json.dumps(done, indent=1))
