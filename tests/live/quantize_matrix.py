"""Quantizes many small models by many methods in one process: run in the tool environment.

    python quantize_matrix.py CASES MODELS WORK

CASES is a JSON list of `name`, `label` and `parameters` of the step, and of `keep`, where the
result and the same weights as a plain checkpoint are wanted afterwards: `quantized` and `plain`;
MODELS holds the checkpoints by name.  For each case one line of JSON: what failed, or how far the
logits of the dequantized result are from the source's, how far when the inputs of its matrices are
rounded, too, as the engine does, and which tensors were lost or changed.

The result is dequantized with NumPy (`checkpoints.py`) and loaded as a plain checkpoint:
no reader of compressed-tensors takes part.
"""

from __future__ import annotations

import functools
import gc
import importlib
import json
import os
import re
import shutil
import sys
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "containers/tools/common")]
sys.path.insert(0, str(ROOT / "containers/tools/llmcompressor"))
os.environ["TQDM_DISABLE"] = "1"

import numpy as np  # noqa: E402
import quantize as worker  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402
from collected import Collected  # noqa: E402
from deriving import Fold  # noqa: E402
from loguru import logger  # noqa: E402
from packager_worker import Spec  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402

from tests.live.checkpoints import dequantized, modules_of, read_tensors  # noqa: E402

TEXTS = (
    "def f(x):\n    return x + 1\n" * 6,
    "Return the sum of all numbers in the list, or zero. " * 5,
    "import os\nfor name in os.listdir():\n    print(name)\n" * 4,
    "class A:\n    def __init__(self, a, b=3):\n        self.a = a\n" * 5,
)
ASKED = torch.arange(5, 69)[None] * 7 % 2000
PARTS = ("weight_packed", "weight_scale", "weight_zero_point", "weight_shape", "input_scale")
PARTS += ("weight_global_scale",)
CACHE_SCALES = (".k_scale", ".v_scale")
LARGEST = {"int": 127.0, "float": 448.0}  # of 8 bits


def run(case: dict[str, Any], models: Path, work: Path) -> dict[str, Any]:
    """Quantize and compare."""
    spec = spec_of(case, models, work)
    source = spec.inputs["model"]
    voice = Collected()
    with folding(case.get("move")) as moved:
        worker.quantize(spec, voice)
    evaluated = _evaluated(source, work) if case.get("evaluate") else {}
    loader = case["parameters"]["loader"]
    compared = _compared(source, work / "out", work / "plain", loader)
    if "keep" in case:
        keep = Path(case["keep"])
        keep.mkdir(parents=True)
        shutil.copytree(work / "out", keep / "quantized")
        shutil.copytree(work / "plain", keep / "plain")
        for file in (*source.glob("tokenizer*.json"), *source.glob("processor_config.json")):
            shutil.copy(file, keep / "quantized")
            shutil.copy(file, keep / "plain")
    folds = {fold.source: fold.consumers for fold in moved}
    return evaluated | compared | {"folds": folds, "notes": voice.notes}


@contextmanager
def folding(move: dict[str, Any] | None) -> Iterator[list[Any]]:
    """Yield the folds that the worker finds; with a `move`, have it find that one in each layer."""
    derive, found = worker.derive_folds, list[Any]()

    def derived(model: Any, layers: str, *arguments: Any, **settings: Any) -> list[Any]:
        found[:] = derive(model, layers, *arguments, **settings)
        if move:
            names = dict.fromkeys(fold.layer for fold in found)
            return [stated(model, layer, move) for layer in names]
        return found

    worker.derive_folds = derived
    try:
        yield found
    finally:
        worker.derive_folds = derive


def stated(model: Any, layer: str, move: dict[str, Any]) -> Any:
    """Return a fold of a layer; `*` stands for every expert."""
    patterns = [re.escape(path).replace(r"\*", r"\d+") for path in move["into"]]
    below = (name.removeprefix(f"{layer}.") for name, _ in model.named_modules())
    into = [name for name in below if any(re.fullmatch(one, name) for one in patterns)]
    return Fold(layer, f"{layer}.{move['from']}", tuple(f"{layer}.{name}" for name in into))


def spec_of(case: dict[str, Any], models: Path, work: Path) -> Spec:
    """Empty the place to work in, and describe the run."""
    source = models / case["name"]
    shutil.rmtree(work, ignore_errors=True)
    for name in ("out", "work", "samples", "plain"):
        (work / name).mkdir(parents=True)
    rows = [json.dumps({"text": text}) + "\n" for text in TEXTS]
    (work / "samples/samples.jsonl").write_text("".join(rows), encoding="utf-8")
    inputs = {"model": source, "samples": work / "samples"}
    return Spec(
        "llmcompressor", "quantize", inputs, case["parameters"],
        work / "out", work / "work", work / "result.json", 0,
    )  # fmt: skip


def _compared(source: Path, result: Path, plain: Path, loader: str) -> dict[str, Any]:
    before, after = read_tensors(source), read_tensors(result)
    packed = set(modules_of(after))
    whole = {name: tensor for file in result.glob("*.safetensors")
             for name, tensor in load_file(file).items()}  # fmt: skip
    tensors = {
        name: tensor
        for name, tensor in whole.items()
        if not name.endswith(CACHE_SCALES)
        and (name.rpartition(".")[0] not in packed or not name.endswith((*PARTS, ".weight")))
    }
    for module in packed:
        values, _ = dequantized(after, module)
        tensors[f"{module}.weight"] = torch.from_numpy(values).float()
    shutil.copy(source / "config.json", plain)
    save_file(tensors, plain / "model.safetensors", metadata={"format": "pt"})
    source_logits, missing = _source_logits(source, loader)
    logits, lost, rounded = _logits(plain, loader, _rounding(result), packed)
    scales = [name for name in after if name.endswith(("_scale", ".scales"))]
    return {
        "difference": _apart(logits, source_logits),
        "rounded": _apart(rounded, source_logits) if rounded is not None else None,
        "unsound": sorted(name for name in scales if not np.isfinite(after[name].values).all()),
        "lost": sorted({*before} - {*tensors} | {*lost} - {*missing}),
        "added": sorted({*tensors} - {*before}),
        "packed": sorted(packed),
        "retyped": sorted(
            name
            for name, tensor in after.items()
            if name in before and name.rpartition(".")[0] not in packed
            and tensor.dtype != before[name].dtype
        ),
        "changed": sorted(
            name
            for name, tensor in after.items()
            if name in before and name.rpartition(".")[0] not in packed
            and tensor.data != before[name].data
        ),
    }  # fmt: skip


def _evaluated(source: Path, work: Path) -> dict[str, Any]:
    """Have the evaluate tool's own code compare the result with its source."""
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(source / name, work / "out" / name)
    inputs = {"base": source, "candidate": work / "out", "samples": work / "samples"}
    asked = {
        "max_tokens": 48, "dtype": "float32", "noise_texts": 0, "prompts": 0, "answer_tokens": 0,
    }  # fmt: skip
    (work / "evaluated").mkdir()
    spec = Spec(
        "evaluate", "evaluate", inputs, asked,
        work / "evaluated", work / "work", work / "result.json", 0,
    )  # fmt: skip
    # Both tools have modules of these names.
    own = {name: sys.modules.pop(name) for name in ("loading", "library")}
    sys.path.insert(0, str(ROOT / "containers/tools/evaluate"))
    try:
        figures = importlib.import_module("compare").compare(spec, Collected())
    except Exception as error:
        return {"evaluating": f"{type(error).__name__}: {error}"}
    finally:
        sys.path.pop(0)
        sys.modules.update(own)
    return {"kld": figures["quality"]["kld_mean"]}


@functools.cache
def _source_logits(place: Path, loader: str) -> tuple[torch.Tensor, list[str]]:
    """Compute them once for all methods."""
    return _logits(place, loader)[:2]


def _apart(logits: torch.Tensor, source: torch.Tensor) -> float:
    return float((logits - source).norm() / source.norm())


def _rounding(result: Path) -> dict[str, Any] | None:
    """Return how a scheme rounds inputs for each token; None where they stay, or are scaled."""
    told = json.loads((result / "config.json").read_text())["quantization_config"]
    (group,) = told.get("config_groups", {"": {}}).values()
    inputs = group.get("input_activations") or {}
    if inputs.get("num_bits") != 8 or inputs.get("strategy") != "token":
        return None
    return inputs


def _round_inputs(module: Any, values: tuple[torch.Tensor, ...], kind: str) -> tuple[Any, ...]:
    """Round a matrix's inputs, each token by its own largest."""
    (own, *others) = values
    scale = own.abs().amax(-1, keepdim=True).clamp(min=1e-12) / LARGEST[kind]
    steps = own / scale
    rounded = steps.round() if kind == "int" else steps.to(torch.float8_e4m3fn).float()
    return (rounded * scale, *others)


def _logits(
    place: Path,
    loader: str,
    rounding: Mapping[str, Any] | None = None,
    packed: Collection[str] = (),
) -> tuple[torch.Tensor, list[str], torch.Tensor | None]:
    """Compute logits, and those with rounded inputs; experts in one tensor keep theirs."""
    kinds = {
        "causal-lm": "AutoModelForCausalLM",
        "image-text-to-text": "AutoModelForImageTextToText",
        "multimodal-lm": "AutoModelForMultimodalLM",
    }
    kind = getattr(transformers, kinds[loader])
    model, told = kind.from_pretrained(place, dtype=torch.float32, output_loading_info=True)
    with torch.no_grad():
        logits = model.eval()(input_ids=ASKED).logits
        if rounding is None:
            return logits, list(told["missing_keys"]), None
        ends = {name.partition("layers.")[2] or name for name in packed}
        for name, module in model.named_modules():
            if isinstance(module, torch.nn.Linear) and (
                (name.partition("layers.")[2] or name) in ends
            ):
                module.register_forward_pre_hook(
                    functools.partial(_round_inputs, kind=rounding["type"])
                )
        return logits, list(told["missing_keys"]), model(input_ids=ASKED).logits


def main() -> None:
    """Run every case; a failure of one says nothing of the others."""
    cases, models, work = (Path(argument) for argument in sys.argv[1:4])
    logger.remove()
    transformers.logging.set_verbosity_error()
    gc.freeze()  # the libraries' objects: the worker collects garbage after every model
    for case in json.loads(cases.read_text(encoding="utf-8")):
        started = time.process_time()
        try:
            found = run(case, models, work)
        except Exception as error:
            written = sorted(path.name for path in (work / "out").iterdir())
            found = {"failed": f"{type(error).__name__}: {error}", "written": written}
        found["cpu_s"] = round(time.process_time() - started, 2)
        line = {"name": case["name"], "label": case["label"], **found}
        sys.__stdout__.write(json.dumps(line) + "\n")
        sys.__stdout__.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
