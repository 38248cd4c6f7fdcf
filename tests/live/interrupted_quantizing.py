"""Ends quantizing at chosen points and runs it again, all in one process of the tool.

    python interrupted_quantizing.py TINY WORK_DIR CASES.json

`CASES.json` is a list of cases; each line of stdout is one JSON object about one of them.
An end is an exception that no handler of ours or of the library catches: what is on the
disk then is what a kill would leave.  The tests beside kill processes for real, too.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import hashlib
import json
import os
import shutil
import sys
import time
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TextIO

import checkpoint
import intermediates
import keeping
import quantize as program
import resuming
import torch
import transformers
from collected import Collected
from compressed_tensors.compressors.model_compressors import model_compressor
from llmcompressor.core import LifecycleCallbacks, reset_session
from llmcompressor.pipelines.cache import IntermediatesCache
from packager_worker import Spec

LAYERS = 10
TEXTS = ("one two three", "four five", "six seven eight nine ten", "eleven")
COMMON = {
    "loader": "causal-lm", "ignore": ["lm_head", "re:.*mlp.gate$"], "max_tokens": 24, "seed": 0,
    "checkpoint_format": "compressed-tensors", "shard_bytes": 200_000, "memory_bytes": 1,
}  # fmt: skip
CORPUS = tomllib.loads((Path(__file__).parent / "corpus/interrupted.toml").read_text())
HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16}
SIZES = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": LAYERS} | HEADS


class Killed(BaseException):
    """The end of a process."""


def main(tiny: Path, root: Path, cases: list[dict[str, Any]], told_to: TextIO) -> None:
    resuming.PATIENCE_S = 0.0
    keeping.asdict = without_copies
    os.fsync = lambda _: None  # no power goes off here
    gc.freeze()  # the libraries' objects: the worker collects garbage after every model
    for place in ("models", "samples", "whole"):
        (root / place).mkdir()
    rows = [json.dumps({"text": text}) for text in TEXTS]
    (root / "samples/samples.jsonl").write_text("\n".join(rows) + "\n")
    told_to.write(json.dumps(activations_there_and_back(root / "activations")) + "\n")
    whole: dict[tuple[str, str], dict[str, Any]] = {}
    for number, case in enumerate(cases):
        model, method = case["model"], case["method"]
        source = root / "models" / model
        if not source.exists():
            write_model(tiny, source, CORPUS["models"][model])
        if (model, method) not in whole:
            place = root / "whole" / f"{model}-{method}"
            whole[model, method] = run(root, source, case, place)
        work = root / f"case-{number}"
        ended = [run(root, source, case, work, kill) for kill in case["kills"]]
        for harm in case.get("harms", ()):
            HARMS[harm](work)
        again = run(root, source, case, work)
        expected = whole[model, method]
        told = {
            **case,
            "ended": [one["ended"] for one in ended],
            "last_words": [one["notes"][-1:] for one in ended],
            "blocks": expected["blocks"],
            "blocks_before": [one["blocks"] for one in ended],
            "blocks_again": again["blocks"],
            "same": again["files"] == expected["files"],
            "files": len(again["files"]),
            "notes": again["notes"],
            "modules": [expected["modules"], *(one["modules"] for one in ended), again["modules"]],
            "steps": again["steps"],
            "seconds": round(time.process_time(), 1),
            "left": sorted(path.name for path in (work / "work").rglob("*")),
        }
        told_to.write(json.dumps(told) + "\n")
        told_to.flush()
        shutil.rmtree(work)


def without_copies(progress: keeping.Progress) -> dict[str, Any]:
    """Return what `asdict` does; thousands of numbers of random states are not copied."""
    return {**vars(progress), "stages": [vars(stage) for stage in progress.stages]}


def run(
    root: Path, source: Path, case: dict[str, Any], work: Path, kill: list[Any] | None = None
) -> dict[str, Any]:
    """Quantize with what is in `work`; return the digests of the files, and what was done."""
    output = work / "output"
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir(parents=True)
    (work / "work").mkdir(exist_ok=True)
    parameters = {**COMMON, **CORPUS["methods"][case["method"]], "folds": case["folds"]}
    parameters["unfolded"] = []
    spec = Spec(
        tool="llmcompressor", step="quantize", output=output, work=work / "work",
        inputs={"model": source, "samples": root / "samples"},
        parameters=parameters, result=work / "result.json", gpus=0,
    )  # fmt: skip
    voice, ended = Collected(), False
    with counted_blocks() as blocks, counted_modules() as modules, killing(kill):
        try:
            program.quantize(spec, voice)
        except Killed:
            ended = True
        except OSError as error:
            ended, voice.notes = True, [str(error)]
    reset_session()
    files = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in output.iterdir()}
    return {
        "ended": ended, "files": files, "blocks": len(blocks),
        "modules": len(modules),
        "notes": voice.notes, "steps": voice.steps,
    }  # fmt: skip


def activations_there_and_back(place: Path) -> dict[str, Any]:
    """Write odd values between blocks, change some, and read them again."""
    kept = keeping.Kept(place, "job", print)
    numbers = torch.arange(24, dtype=torch.float32).to(torch.bfloat16).reshape(2, 3, 4)
    values: dict[str, Any] = {
        "expanded": numbers[:, :1].expand(2, 5, 4),
        "kind": torch.bfloat16,
        "positions": (numbers[0], [numbers[1] > 3, {"none": None, "scale": 0.1}]),
        "shared": [numbers, numbers],
        "transposed": numbers.transpose(1, 2),
    }
    cache = IntermediatesCache.empty(2, torch.device("cpu"))
    for batch in range(2):
        cache.update(batch, values)
    writer = intermediates.Activations(kept)
    kept.progress.activations = first = writer.write(cache)
    again = writer.write(cache)
    numbers += 1  # in place
    kept.progress.activations = second = writer.write(cache)
    kept.publish()
    cpu = torch.device("cpu")
    read = intermediates.read_activations(keeping.Kept(place, "job", print), cpu, cpu)
    found = [read.fetch(batch) for batch in range(2)]
    flat = [torch.utils._pytree.tree_flatten(one) for one in (values, *found)]
    try:
        cache.update(0, {"odd": slice(3)})
        writer.write(cache)
        refused = ""
    except intermediates.CannotKeep as error:
        refused = str(error)
    return {
        "name": "activations",
        "trees": all(tree == flat[0][1] for _, tree in flat),
        "equal": all(
            torch.equal(one, other) and one.stride() == other.stride()
            if isinstance(one, torch.Tensor)
            else one == other
            for leaves, _ in flat[1:]
            for one, other in zip(flat[0][0], leaves, strict=True)
        ),
        "shared": found[0]["shared"][0] is found[0]["shared"][1],
        "unchanged": again == first,
        "rewritten": sorted(name for name in first if first[name] != second[name]),
        "refused": refused,
    }


def write_model(tiny: Path, place: Path, row: dict[str, Any]) -> None:
    torch.manual_seed(7)
    config = getattr(transformers, row["config"])(
        **SIZES, vocab_size=2048, max_position_embeddings=64, **row.get("settings", {})
    )
    model = transformers.AutoModelForCausalLM.from_config(config).to(torch.bfloat16)
    for module in model.modules():  # as trained ones are: norms that are not all one
        if module.__class__.__name__.endswith("RMSNorm"):
            module.weight.data.add_(torch.randn_like(module.weight) * 0.1)
    model.save_pretrained(place)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(tiny / name, place / name)


@contextlib.contextmanager
def counted_blocks() -> Iterator[list[int]]:
    """Count the blocks that the library finishes; whole models at once do not count."""
    blocks: list[int] = []
    ended = LifecycleCallbacks.sequential_epoch_end

    def count(modules: list[Any], **settings: Any) -> Any:
        result = ended(modules, **settings)
        if not any(isinstance(module, transformers.PreTrainedModel) for module in modules):
            blocks.append(len(modules))
        return result

    LifecycleCallbacks.sequential_epoch_end = staticmethod(count)
    try:
        yield blocks
    finally:
        LifecycleCallbacks.sequential_epoch_end = ended


@contextlib.contextmanager
def counted_modules() -> Iterator[list[Any]]:
    """Count the modules that the library packs."""
    pack, modules = model_compressor.compress_module, []

    def count(module: Any, format: Any = None) -> None:
        pack(module, format)
        modules.append(module)

    model_compressor.compress_module = count
    try:
        yield modules
    finally:
        model_compressor.compress_module = pack


@contextlib.contextmanager
def killing(point: list[Any] | None) -> Iterator[None]:
    """End the process, so to speak, at the n-th call of a function, before it or after it."""
    if point is None:
        yield
        return
    where, when, left = point
    holder, name = POINTS[where]
    before = vars(holder)[name]
    unbound = isinstance(before, (staticmethod, classmethod))
    call: Callable[..., Any] = getattr(holder, name) if unbound else before
    count = 0

    def ending(*arguments: Any, **settings: Any) -> Any:
        nonlocal count
        count += 1
        if count == left and when == "before":
            raise Killed
        if count == left and when in ENDS:
            return half(call(*arguments, **settings), ENDS[when])
        result = call(*arguments, **settings)
        if count == left:
            raise Killed
        return result

    setattr(holder, name, staticmethod(ending) if unbound else ending)
    try:
        yield
    finally:
        setattr(holder, name, before)


def half(pieces: Iterator[Any], end: BaseException) -> Iterator[Any]:
    """Yield a piece and a half of what is written."""
    yield next(pieces)
    more = bytes(next(pieces))
    yield more[: len(more) // 2]
    raise end


ENDS = {"within": Killed(), "full": OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))}
POINTS = {
    "loading": (program, "load_model"),
    "quantizing": (program, "oneshot"),
    "block": (LifecycleCallbacks, "sequential_epoch_end"),
    "file": (keeping, "_serialized"),
    "renaming": (keeping, "finish"),
    "publishing": (keeping.Kept, "publish"),
    "packing": (transformers.PreTrainedModel, "save_pretrained"),
    "module": (model_compressor, "compress_module"),
    "rounding": (LifecycleCallbacks, "event"),
    "saved": (keeping.Kept, "publish_saved"),
    "shard": (checkpoint, "write_tensors"),
}


def _largest(work: Path) -> Path:
    return max((work / "work/kept").glob("*.safetensors"), key=lambda path: path.stat().st_size)


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def _another_block(work: Path) -> None:
    """Flip a bit that leaves the journal JSON: it tells of another number of blocks."""
    path = work / "work/kept/journal.json"
    data = path.read_bytes()
    path.write_bytes(data.replace(b'"done": 5', b'"done": 4'))
    assert path.read_bytes() != data


def _journal_with(work: Path, **other: Any) -> None:
    """Write another journal, whole in itself."""
    path = work / "work/kept/journal.json"
    told = json.loads(path.read_bytes().partition(b"\n")[2])
    body = json.dumps({**told, **other}).encode()
    path.write_bytes(hashlib.sha256(body).hexdigest().encode() + b"\n" + body)


HARMS: dict[str, Callable[[Path], None]] = {
    "flipped": lambda work: _flip(_largest(work)),
    "cut": lambda work: _largest(work).write_bytes(b""),
    "gone": lambda work: _largest(work).unlink(),
    "journal": _another_block,
    "foreign": lambda work: _journal_with(work, job="0" * 64),
    "older": lambda work: _journal_with(work, blocks=3),
    "saved": lambda work: _flip(next((work / "work/saved").glob("*.safetensors"))),
}

if __name__ == "__main__":
    with os.fdopen(os.dup(1), "w") as lines:
        os.dup2(2, 1)  # libraries print
        tiny, root, listed = (Path(argument) for argument in sys.argv[1:])
        main(tiny, root, json.loads(listed.read_text()), lines)
