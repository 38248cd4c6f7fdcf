"""Plan made-up models from their headers: wall time, modules loaded, peak memory.

Two models are written as sparse files: Llama-3.1-405B in 191 shards, and a
mixture of experts with 100,000 tensors.  `packager plan` runs on each in a
process of its own, with whatever is configured here left out.

The last line of stdout is one JSON object with every figure.

    python benchmarks/plan.py --rounds 5
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from judging import at_most, verdict

Shapes = dict[str, tuple[int, ...]]

TARGETS = {"wall_s": 1.0, "frameworks": 0}
FRAMEWORKS = ("torch", "transformers", "vllm", "numpy", "safetensors", "tensorflow", "jax")
TOKENIZER = {"version": "1.0", "model": {"type": "BPE", "vocab": {}, "merges": []}}

LLAMA_405B = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "torch_dtype": "bfloat16",
    "hidden_size": 16384,
    "intermediate_size": 53248,
    "num_hidden_layers": 126,
    "num_attention_heads": 128,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
}
MANY_TENSORS = {
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe",
    "torch_dtype": "bfloat16",
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "moe_intermediate_size": 768,
    "num_hidden_layers": 65,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "num_experts": 512,
    "num_experts_per_tok": 8,
    "vocab_size": 151936,
    "max_position_embeddings": 40960,
}

# Runs the command line in this interpreter, then says what the process has become.
PROBE = """
import json, resource, sys, time
started = time.perf_counter()
from packager.cli.app import main
try:
    main()
except SystemExit as end:
    status = end.code
sys.stdout.flush()
print(file=sys.stderr)
json.dump(
    {
        "status": status,
        "inside_s": time.perf_counter() - started,
        "modules": len(sys.modules),
        "frameworks": sorted(set(%r) & set(sys.modules)),
        "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    },
    sys.stderr,
)
"""


@dataclass(frozen=True)
class Figures:
    """What planning one model costs: the median of the rounds, the peak of all."""

    tensors: int
    shards: int
    wall_s: float
    best_wall_s: float
    modules: int
    frameworks: list[str]
    peak_rss_bytes: int


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="packager-bench-") as work:
        figures = {
            "llama_405b": measure(
                Path(work) / "405b", LLAMA_405B, llama_shapes(), 191, arguments.rounds
            ),
            "100000_tensors": measure(
                Path(work) / "many", MANY_TENSORS, expert_shapes(), 64, arguments.rounds
            ),
        }
    rows = [
        row
        for name, one in figures.items()
        for row in (
            at_most(f"{name} wall_s", one.wall_s, TARGETS["wall_s"]),
            at_most(f"{name} frameworks", len(one.frameworks), TARGETS["frameworks"]),
        )
    ]
    result: dict[str, object] = {name: asdict(one) for name, one in figures.items()}
    found = {"benchmark": "plan", **result, "targets": TARGETS, **verdict(rows)}
    print(json.dumps(found))
    return 0 if found["targets_met"] else 1


def measure(
    model: Path, config: Mapping[str, object], shapes: Shapes, shards: int, rounds: int
) -> Figures:
    """Write the model, plan it some times, and put the figures together."""
    write_sparse(model, config, shapes, shards)
    run(model)  # compiles what was never run here
    runs = [run(model) for _ in range(rounds)]
    figures = Figures(
        tensors=len(shapes),
        shards=shards,
        wall_s=round(statistics.median(float(one["wall_s"]) for one in runs), 3),
        best_wall_s=round(min(float(one["wall_s"]) for one in runs), 3),
        modules=max(int(one["modules"]) for one in runs),
        frameworks=sorted({name for one in runs for name in one["frameworks"]}),
        peak_rss_bytes=max(int(one["peak_rss_bytes"]) for one in runs),
    )
    print(
        f"{model.name}: {figures.tensors} tensors in {shards} shards, {figures.wall_s} s "
        f"(best {figures.best_wall_s}), {figures.modules} modules, "
        f"{figures.peak_rss_bytes / 1e6:.0f} MB",
        file=sys.stderr,
    )
    return figures


def run(model: Path) -> dict[str, object]:
    """Plan in a new process; its wall time includes the start of the interpreter."""
    command = ("plan", "--model", str(model), "--instance", "ml.p5en.48xlarge")
    environment = {**os.environ, "XDG_STATE_HOME": str(model.parent / "state")}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed packager has its bytecode
    argv = [sys.executable, "-c", PROBE % (FRAMEWORKS,), *command, "--format", "json"]
    started = time.perf_counter()
    done = subprocess.run(argv, capture_output=True, text=True, env=environment, check=False)
    wall_s = time.perf_counter() - started
    figures: dict[str, object] = json.loads(done.stderr.splitlines()[-1])
    if figures["status"] not in (0, None):
        raise SystemExit(f"planning failed:\n{done.stdout}{done.stderr}")
    json.loads(done.stdout)
    return figures | {"wall_s": wall_s}


def llama_shapes() -> Shapes:
    hidden, inner, vocabulary, kv = 16384, 53248, 128256, 1024
    shapes: Shapes = {"model.embed_tokens.weight": (vocabulary, hidden)}
    for layer in range(126):
        at = f"model.layers.{layer}"
        shapes |= {
            f"{at}.input_layernorm.weight": (hidden,),
            f"{at}.self_attn.q_proj.weight": (hidden, hidden),
            f"{at}.self_attn.k_proj.weight": (kv, hidden),
            f"{at}.self_attn.v_proj.weight": (kv, hidden),
            f"{at}.self_attn.o_proj.weight": (hidden, hidden),
            f"{at}.post_attention_layernorm.weight": (hidden,),
            f"{at}.mlp.gate_proj.weight": (inner, hidden),
            f"{at}.mlp.up_proj.weight": (inner, hidden),
            f"{at}.mlp.down_proj.weight": (hidden, inner),
        }
    return shapes | {"model.norm.weight": (hidden,), "lm_head.weight": (vocabulary, hidden)}


def expert_shapes() -> Shapes:
    hidden, inner, vocabulary = 2048, 768, 151936
    shapes: Shapes = {"model.embed_tokens.weight": (vocabulary, hidden)}
    for layer in range(65):
        at = f"model.layers.{layer}"
        shapes |= {
            f"{at}.self_attn.q_proj.weight": (4096, hidden),
            f"{at}.self_attn.k_proj.weight": (512, hidden),
            f"{at}.self_attn.v_proj.weight": (512, hidden),
            f"{at}.self_attn.o_proj.weight": (hidden, 4096),
            f"{at}.mlp.gate.weight": (512, hidden),
        }
        for expert in range(512):
            of = f"{at}.mlp.experts.{expert}"
            shapes |= {
                f"{of}.gate_proj.weight": (inner, hidden),
                f"{of}.up_proj.weight": (inner, hidden),
                f"{of}.down_proj.weight": (hidden, inner),
            }
    return shapes | {"lm_head.weight": (vocabulary, hidden)}


def write_sparse(model: Path, config: Mapping[str, object], shapes: Shapes, shards: int) -> None:
    """Write headers and holes: the files have their full sizes and take no room."""
    model.mkdir()
    (model / "config.json").write_text(json.dumps(config))
    (model / "tokenizer.json").write_text(json.dumps(TOKENIZER))
    names = list(shapes)
    weight_map: dict[str, str] = {}
    for number in range(shards):
        share = names[number * len(names) // shards : (number + 1) * len(names) // shards]
        file = f"model-{number + 1:05}-of-{shards:05}.safetensors"
        weight_map |= dict.fromkeys(share, file)
        header: dict[str, object] = {"__metadata__": {"format": "pt"}}
        end = 0
        for name in share:
            size = 2 * math.prod(shapes[name])
            header[name] = {
                "dtype": "BF16",
                "shape": shapes[name],
                "data_offsets": [end, end + size],
            }
            end += size
        text = json.dumps(header, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
        with (model / file).open("wb") as shard:
            shard.write(struct.pack("<Q", len(text)) + text)
            shard.truncate(8 + len(text) + end)
    (model / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))


if __name__ == "__main__":
    sys.exit(main())
