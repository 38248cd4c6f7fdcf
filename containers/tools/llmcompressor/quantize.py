"""Quantizes a checkpoint with llm-compressor.

Inputs: `model`, and `samples` (`samples.jsonl`) where the method looks at
activations.  Parameters: those of `recipes.py`, and `ignore`, `max_tokens`,
`seed`, `loader` (`loading.py`), `folds` (`all`, or `norms` alone; absent where none move),
`unfolded` (sources of scales to leave alone, as paths below a layer), `layers` (targets with
methods and settings of their own, of which the first that matches counts; absent without them),
`checkpoint_format` (`compressed-tensors` or `awq`), `shard_bytes`, `memory_bytes`
(what the work needs with all weights in memory; where there is less, some stay on
disk), and for trying that out `host_bytes`.
"""

from __future__ import annotations

import contextlib
import json
import random
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from calibration import read_rows
from checkpoint import Reader, refuse_unsound, write_checkpoint
from compressed_tensors.utils import is_match
from deriving import Fold, derive_folds
from devices import choose_device, device_used
from folding import proven
from gemm import check_convertible, gemm_config, to_gemm
from keeping import Kept, emptied, job_of
from library import PRIVATE
from llmcompressor import oneshot
from llmcompressor.core import LifecycleCallbacks
from loading import load_model
from memory import (
    let_go,
    memory_bytes,
    reuse_freed_memory,
    reuse_small_tensors,
    weights_budget,
)
from mixing import Group, find_groups, matches, targets_of
from names import SourceNames, map_names, wished
from norms import plain_norms
from packager_worker import Rejected, Report, Spec
from packing import packing
from readers import without_empty_keys
from recipes import make_mixed, make_recipe, needs_data
from resuming import resuming
from structure import find_layers, whole_modules
from transformers import AutoConfig, AutoTokenizer
from whole import declare, grafted_note, grafted_roots, restore

EXPERTS, MATRICES = ".experts.", (".weight", "_proj")
NAMES = "names.json"  # beside the saved model: where the source's tensors are in it


def quantize(spec: Spec, report: Report) -> dict[str, Any]:
    """Quantize and lay out; the details name what was done."""
    asked = spec.parameters
    random.seed(asked["seed"])
    torch.manual_seed(asked["seed"])
    choose_device(spec.gpus, report)
    _spare_pinning()
    if asked["method"] == "awq":  # others gain nothing, and GPTQ's peak would be a tenth higher
        reuse_freed_memory()
    elif asked["method"] == "gptq" or asked.get("gptq"):
        reuse_small_tensors()
    source, saved = spec.inputs["model"], spec.work / "saved"
    config = AutoConfig.from_pretrained(source)
    if getattr(config, "quantization_config", None):
        raise Rejected("the checkpoint is already quantized")
    place = spec.work / "kept"
    with report.busy("reading kept work") if place.exists() else contextlib.nullcontext():
        kept = Kept(place, job_of(spec), report.note)
        is_saved = kept.has_saved(saved)
    if is_saved:
        report.note("an earlier run quantized the model: only writing is left")
    else:
        _quantize(spec, config, emptied(saved), kept, report)
        let_go()  # what proves folds held the model as long as they could
        kept.publish_saved(saved)
    quantization = json.loads((saved / "config.json").read_text()).get("quantization_config")
    if not quantization:
        raise Rejected(
            "nothing of the model was quantized: it has no Linear modules, or all are left out",
            "leave fewer modules out with --quantize-ignore, or use `--quantize none`",
        )
    names = SourceNames.from_json((saved / NAMES).read_text(encoding="utf-8"))
    done = _write(source, saved, spec, quantization, names, report)
    return {**done, **device_used(spec.gpus)}


def _quantize(spec: Spec, config: Any, saved: Path, kept: Kept, report: Report) -> None:
    """Run the library, going on where an earlier run ended, and save the quantized model."""
    asked, source = spec.parameters, spec.inputs["model"]
    data: dict[str, Any] = {}
    if needs_data(asked):
        tokenizer = AutoTokenizer.from_pretrained(source)
        samples = spec.inputs["samples"] / "samples.jsonl"
        rows = read_rows(samples, tokenizer, asked["max_tokens"], report.note)
        data = {
            "dataset": rows,
            "processor": tokenizer,  # texts alone, also for models that see
            "num_calibration_samples": len(rows),
            "max_seq_length": asked["max_tokens"],
            "shuffle_calibration_samples": False,
        }
        report.note(f"calibrating with {len(rows)} samples, {_count(rows)} tokens")
    host_bytes = asked.get("host_bytes") or weights_budget(asked["memory_bytes"], memory_bytes())
    if host_bytes:
        report.note(f"{host_bytes / 1e9:.1f} GB of weights are kept in memory, the rest on disk")
    with report.busy("reading the source"):
        refuse_unsound(Reader(source))
    with report.busy("loading the model"):
        model = load_model(source, asked["loader"], emptied(spec.work / "offload"), host_bytes)
        reader = Reader(source)
        names = map_names(model, reader.names, reader.get)
    _refuse_fused(names, reader, asked["ignore"])
    layers = find_layers(model)
    ignore, whole = wished(names, asked["ignore"]), whole_modules(model, layers)
    mixes = "layers" in asked
    groups = find_groups(model, names, asked, ignore=ignore, whole=whole) if mixes else []
    named = {one for group in groups for one in group.modules}
    asked = {**asked, "ignore": [*ignore, *(one for one in whole if one not in named)]}
    _check_groups(model, asked, groups)
    folds = _find_folds(model, layers, asked, data)
    with (
        _reporting(report, config) as skip,
        proven(model, folds) as proof,
        resuming(kept, report.note, skip),
        report.busy("quantizing"),
    ):
        recipe = (
            make_mixed(asked, groups, targets_of(groups, names))
            if groups
            else make_recipe(asked, proof, report.note)
        )
        oneshot(model=model, recipe=recipe, **data)
    with packing(kept, model, report.note), report.busy("packing"):
        model.save_pretrained(saved, save_compressed=True, save_original_format=False)
    (saved / NAMES).write_text(names.to_json(), encoding="utf-8")


def _write(
    source: Path,
    saved: Path,
    spec: Spec,
    quantization: dict[str, Any],
    names: SourceNames,
    report: Report,
) -> dict[str, Any]:
    asked = spec.parameters
    before = Reader(source)
    config = json.loads((source / "config.json").read_text(encoding="utf-8"))
    whole = restore(before, Reader(saved), names, config)
    convert = None
    is_gemm = asked["checkpoint_format"] == "awq"  # its list has parts of names, so fewer of them
    quantized = set(before.names) if is_gemm else whole.replaced
    quantization = without_empty_keys(declare(quantization, names, before, quantized))
    if is_gemm:
        weights = check_convertible(quantization)
        convert = partial(to_gemm, symmetric=weights["symmetric"])
        quantization = gemm_config(quantization, grafted_roots(names.unread, before))
    with report.busy("writing"):
        sizes = write_checkpoint(
            source, whole, spec.output, quantization=quantization,
            shard_bytes=asked["shard_bytes"], convert=convert,
        )  # fmt: skip
    if whole.grafted:
        report.note(grafted_note(whole.grafted))
    recipe = saved / "recipe.yaml"
    return {**sizes, "recipe": recipe.read_text(encoding="utf-8") if recipe.exists() else ""}


def _find_folds(model: Any, layers: str, asked: dict[str, Any], data: dict[str, Any]) -> list[Fold]:
    """Return where scales move; raise `Rejected` where a method that moves them finds nowhere."""
    if not asked.get("folds"):
        return []
    rows = data["dataset"]
    tokens = max((rows[at]["input_ids"] for at in range(min(8, len(rows)))), key=len)
    with plain_norms(model):
        folds = derive_folds(
            model, layers, tokens, asked["ignore"],
            norms_only=asked["folds"] == "norms", left=asked["unfolded"],
        )  # fmt: skip
    if not folds:
        raise Rejected(
            "no module of the model feeds a matrix that scales could move into",
            "use a method that moves no scales, such as `--quantize gptq` or `fp8`",
        )
    return folds


def _refuse_fused(names: SourceNames, reader: Reader, ignore: list[str]) -> None:
    """Refuse experts that the library leaves in one tensor: they would silently stay whole."""
    for name in (*names.converted, *names.own):
        in_one = name in names.converted or len(reader.shape(name)) == 3
        if EXPERTS not in name or not name.endswith(MATRICES) or not in_one:
            continue
        module = name.removesuffix(".weight")
        if not any(matches(entry, module) for entry in ignore):
            raise Rejected(
                f"the library does not take the experts of this model apart ({name})",
                "leave them out: `--quantize-ignore 're:.*experts.*'`",
            )


def _check_groups(model: Any, asked: dict[str, Any], groups: list[Group]) -> None:
    """Groups that do not divide the inputs would fail after all the calibration."""
    settings = {name: group.settings for group in groups for name in group.modules}
    for name, module in model.named_modules():
        if not isinstance(module, torch.nn.Linear) or is_match(name, module, asked["ignore"]):
            continue
        own = settings.get(name, asked)
        group = own.get("group_size") if own["method"] in ("awq", "gptq", "rtn") else None
        if group and module.in_features % group:
            raise Rejected(
                f"{name} has {module.in_features} inputs, which groups of {group} do not divide",
                "choose another group size, or name the module in the ignore list",
            )


def _spare_pinning() -> None:
    """Without an accelerator AWQ fails in pinning memory (llm-compressor 0.13 to 0.14.0.1)."""
    if not torch.accelerator.is_available():
        name = "IntermediatesCache.pin_memory"
        PRIVATE.replace("llmcompressor.pipelines.cache", name, lambda *_, **__: None)


@contextlib.contextmanager
def _reporting(report: Report, config: Any) -> Iterator[Callable[[int], None]]:
    """Report each finished block: llm-compressor works through them in order.

    Yields what is to be told of blocks that an earlier run finished.
    """
    total = getattr(config.get_text_config(), "num_hidden_layers", 0) + 1
    ended = LifecycleCallbacks.sequential_epoch_end
    done = 0

    def tell(modules: list[Any], **settings: Any) -> Any:
        nonlocal done
        result = ended(modules, **settings)
        done += 1
        report.progress("quantizing", min(done, total), total)
        return result

    def skip(blocks: int) -> None:
        nonlocal done
        done += blocks
        report.progress("quantizing", min(done, total), total)

    module, name = "llmcompressor.core.session_functions", "LifecycleCallbacks.sequential_epoch_end"
    with PRIVATE.replaced(module, name, staticmethod(tell)):
        yield skip


def _count(rows: Any) -> int:
    return sum(len(row["input_ids"]) for row in rows)
