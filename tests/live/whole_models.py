"""Tiny checkpoints of architectures whose tensors a library renames, fuses or drops, quantized.

Runs in the environment of the tool, in one process, as importing takes seconds:
`python whole_models.py TOOLS TOKENIZER PLACE CASE...`, where a case is `MODEL:METHOD`.
Each result lies in `PLACE/MODEL-METHOD`, and what the worker said in `PLACE/report.json`.
"""

from __future__ import annotations

import gc
import json
import sys
import traceback
from pathlib import Path
from typing import Any

TOOLS, TOKENIZER, PLACE = (Path(argument) for argument in sys.argv[1:4])
sys.path[:0] = [str(TOOLS / "llmcompressor"), str(TOOLS / "common")]
sys.path.append(str(Path(__file__).parents[2]))

import quantize as worker  # noqa: E402
import torch  # noqa: E402
import transformers as tf  # noqa: E402
from packager_worker import Spec, WorkerFailed  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402

from packager.sizing.quantizable import find_support  # noqa: E402

SIZES = {
    "vocab_size": 2048,
    "hidden_size": 128,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "dtype": "bfloat16",
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": None,
}
METHODS: dict[str, dict[str, Any]] = {
    "fp8": {"method": "fp8", "activations": "dynamic", "kv_cache": None},
    "static": {"method": "fp8", "activations": "static", "kv_cache": "fp8"},
    "awq": {"method": "awq", "group_size": 32, "symmetric": False},
    "awqsym": {"method": "awq", "group_size": 64, "symmetric": True},
    "gemm": {"method": "awq", "group_size": 32, "symmetric": False, "checkpoint_format": "awq"},
    "gptq": {"method": "gptq", "group_size": 32, "symmetric": True},
    "rtn": {"method": "rtn", "group_size": 32, "symmetric": True},
    "smoothquant": {"method": "smoothquant", "smoothing_strength": 0.8, "gptq": False},
    "nvfp4": {"method": "nvfp4"},
    "disk": {"method": "rtn", "group_size": 32, "symmetric": True, "host_bytes": 100_000},
    "nothing": {"method": "fp8", "activations": "dynamic", "ignore": ["re:.*"]},
    "partly": {
        "method": "rtn",
        "group_size": 32,
        "symmetric": True,
        "ignore": ["re:.*block_sparse_moe.experts.*", "re:.*mlp.experts.*"],
    },
}
IGNORED = ["lm_head", "re:.*mlp.gate$", "re:.*block_sparse_moe.gate$", "re:.*router$",
           "re:.*mlp.shared_expert_gate$", "re:.*visual.*", "re:.*vision_tower.*"]  # fmt: skip


def mixtral() -> Any:
    """Experts that transformers fuses, under names of their own."""
    sizes = {"num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": None}
    return tf.MixtralForCausalLM(tf.MixtralConfig(**SIZES, **sizes))


def qwen3moe() -> Any:
    sizes = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64}
    return tf.Qwen3MoeForCausalLM(tf.Qwen3MoeConfig(**SIZES, **sizes, head_dim=32))


def olmoe() -> Any:
    return tf.OlmoeForCausalLM(tf.OlmoeConfig(**SIZES, num_experts=4, num_experts_per_tok=2))


def tied() -> Any:
    """A head that is the embedding."""
    return tf.Qwen2ForCausalLM(tf.Qwen2Config(**SIZES, tie_word_embeddings=True))


def neox() -> Any:
    sizes = {one: SIZES[one] for one in SIZES if one != "num_key_value_heads"}
    return tf.GPTNeoXForCausalLM(tf.GPTNeoXConfig(**sizes, use_parallel_residual=True))


def granitemoe() -> Any:
    """Experts that the source has fused already."""
    sizes = {"num_local_experts": 4, "num_experts_per_tok": 2}
    return tf.GraniteMoeForCausalLM(tf.GraniteMoeConfig(**SIZES, **sizes))


def gptoss() -> Any:
    """Fused experts with biases, gate and up alternating."""
    sizes = {"num_local_experts": 4, "num_experts_per_tok": 2, "head_dim": 32}
    return tf.GptOssForCausalLM(tf.GptOssConfig(**SIZES, **sizes))


def deepseek() -> Any:
    """Latent attention, and a layer behind the last that only drafting loads."""
    sizes = {
        "n_routed_experts": 4, "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1,
        "n_shared_experts": 1, "first_k_dense_replace": 1, "moe_intermediate_size": 64,
        "q_lora_rank": 64, "kv_lora_rank": 32, "qk_rope_head_dim": 16, "qk_nope_head_dim": 16,
        "v_head_dim": 32,
    }  # fmt: skip
    sized = {**SIZES, "num_key_value_heads": 4}
    return tf.DeepseekV3ForCausalLM(tf.DeepseekV3Config(**sized, **sizes))


def qwen3next() -> Any:
    sizes = {
        "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64,
        "shared_expert_intermediate_size": 64, "head_dim": 32, "linear_num_key_heads": 2,
        "linear_num_value_heads": 4, "linear_key_head_dim": 16, "linear_value_head_dim": 16,
        "layer_types": ["linear_attention", "full_attention"],
    }  # fmt: skip
    return tf.Qwen3NextForCausalLM(tf.Qwen3NextConfig(**SIZES, **sizes))


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


MODELS: dict[str, tuple[Any, Any]] = {
    "mixtral": (mixtral, None),
    "qwen3moe": (qwen3moe, None),
    "olmoe": (olmoe, None),
    "tied": (tied, None),
    "untied": (tied, untie),
    "wide": (mixtral, widen),
    "neox": (neox, add_buffers),
    "granitemoe": (granitemoe, None),
    "gptoss": (gptoss, None),
    "deepseek": (deepseek, add_mtp_layer),
    "qwen3next": (qwen3next, add_mtp_branch),
}


class Notes:
    """A report that keeps what it is told."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, message: str) -> None:
        self.notes.append(message)

    def progress(self, *_: Any) -> None: ...
    def alive(self) -> None: ...

    def busy(self, *_: Any) -> Any:
        import contextlib

        return contextlib.nullcontext()


def make(name: str) -> Path:
    """Write a checkpoint with random weights, once."""
    place = PLACE / "models" / name
    if place.exists():
        return place
    torch.manual_seed(1)
    model, change = MODELS[name]
    model().to(torch.bfloat16).save_pretrained(place)
    for file in ("tokenizer.json", "tokenizer_config.json"):
        (place / file).write_bytes((TOKENIZER / file).read_bytes())
    if change is not None:
        tensors = load_file(place / "model.safetensors")
        added = change(tensors)
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
        "loader": support.loader, "folds": support.folds, "max_tokens": 64,
        "seed": 0, "checkpoint_format": "compressed-tensors", "shard_bytes": 1 << 30,
        "memory_bytes": 1 << 20, **settings,
        "ignore": [*IGNORED, *settings.get("ignore", [])],
    }  # fmt: skip
    spec = Spec(
        tool="llmcompressor", step="quantize", inputs={"model": source, "samples": samples},
        parameters=parameters, output=into, work=work, result=work / "result.json", gpus=0,
    )  # fmt: skip
    report = Notes()
    try:
        details = worker.quantize(spec, report)  # type: ignore[arg-type]
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
    for case in sys.argv[4:]:
        done[case] = run(*case.split(":"))
        if case == "mixtral:rtn" and "last" in given:
            done["damaged"] = damage(*given["last"])
    (PLACE / "report.json").write_text(json.dumps(done, indent=1))
