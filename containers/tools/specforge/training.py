"""EAGLE-3 heads, trained offline: the model is asked first, then only the head is in memory.

Parameters: `max_tokens`, `seed`, `dtype` (the model computes in it; the head is trained in bfloat16
with numbers of 32 bits behind it), `speculative_tokens` (how many tokens ahead it is trained to
propose), `layers` (1), `epochs`, `max_steps` (0: no limit), `learning_rate`, `batch_tokens`,
`aux_layers`, `draft_vocab_size` (0: the model's).

Result: the head in its authors' format, which SGLang and vLLM read, and `training.json`.
"""

from __future__ import annotations

import json
import math
import re
import shutil
import subprocess
import sys
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import whole
from features import Features, load_config
from figures import Tally, measure, number
from heads import GivenHead, mapping_of
from packager_worker import BadInput, Rejected, Report, Spec
from settings import (
    CHECKPOINTS,
    DRAFT,
    GIVEN,
    MAPPING,
    RUN,
    RUN_ID,
    TRAIN,
    Schedule,
    aux_layers,
    draft_config,
    export_words,
    run_config,
    schedule,
    train_words,
)
from texts import Row, check_ids, choose_vocabulary, load_both, positions
from transformers import AutoTokenizer

HELD_OUT, EXPORTED = "features/held-out", "exported"
STATES = ("training_state.pt", "training_state_rank0.pt")
SLOWER = "train with a smaller `--learning-rate`"
SAID_LINES = 30  # of a command that failed, in the error
STEP = re.compile(r"^step (\d+): \{.*'loss': ([^,}]+)")


def train(spec: Spec, report: Report) -> dict[str, Any]:
    """Train a head and measure it; the details are the figures."""
    asked = spec.parameters
    if asked["layers"] != 1:
        raise Rejected(
            f"SpecForge's heads have one layer, not {asked['layers']}",
            "train with `--trainer speculators`",
        )
    rows, held_out = load_both(
        spec.inputs["samples"], _tokenizer(spec.inputs["model"]), asked["max_tokens"]
    )
    shape = load_config(spec.inputs["model"])
    check_ids([*rows, *held_out], shape.vocab_size)
    given = GivenHead(spec.inputs["head"]) if "head" in spec.inputs else None
    head = _describe(asked, shape, given, rows)

    features = Features(spec.inputs["model"], spec.work, head.layers, asked["dtype"], spec.gpus)
    features.prepare(rows, TRAIN, report)
    measured_with = features.prepare(held_out, HELD_OUT, report)
    features.prepare_target(report)
    features.let_go()

    plan = schedule([len(row.ids) for row in rows], max(1, spec.gpus), asked)
    run = run_config(
        asked, plan, devices=spec.gpus, goes_on=given is not None, maps=head.tokens is not None
    )
    _write_json(Path(RUN), run)
    before = measure(held_out, measured_with, None, report)
    exported = _export(_run(plan, report), report)
    after = measure(held_out, measured_with, exported, report)
    if not math.isfinite(after.loss):
        raise Rejected("the head came to compute what is no number", SLOWER)

    for name in ("config.json", "model.safetensors"):
        shutil.copyfile(exported / name, spec.output / name)
    told = _report(asked, plan, rows, held_out, before, after)
    _write_json(spec.output / "training.json", told)
    return told


class Described(NamedTuple):
    """What the head is to be."""

    layers: list[int]  # of the model, whose input it reads
    tokens: list[int] | None  # of the model, which it proposes; None: all


def _tokenizer(place: Path) -> Any:
    try:
        return AutoTokenizer.from_pretrained(place)
    except (OSError, ValueError) as error:
        raise BadInput(f"the model's tokenizer cannot be loaded: {error}") from error


def _describe(asked: Any, shape: Any, given: GivenHead | None, rows: Sequence[Row]) -> Described:
    """Write what the head is to be, from the one that is given or from the model."""
    vocab_size: int = shape.vocab_size
    if given is None:
        layers = aux_layers(asked["aux_layers"], shape.num_hidden_layers)
        size = asked["draft_vocab_size"] or vocab_size
        tokens = choose_vocabulary(rows, size, vocab_size) if size < vocab_size else None
        draft = draft_config(shape.to_dict(), layers, size)
    else:
        given.check(shape.hidden_size, vocab_size)
        if given.aux_layers and asked["aux_layers"] and given.aux_layers != asked["aux_layers"]:
            raise Rejected(
                f"the head reads the input of layers {given.aux_layers}, not of "
                f"{asked['aux_layers']}",
                "leave the layers out: the head says them",
            )
        layers = aux_layers(given.aux_layers or asked["aux_layers"], shape.num_hidden_layers)
        tokens = given.vocabulary
        numbers = {**given.shape, "vocab_size": vocab_size}
        draft = draft_config(numbers, layers, given.draft_vocab_size)
        given.write(Path(GIVEN))
        _write_json(Path(GIVEN) / "config.json", draft)
    _write_json(Path(DRAFT), draft)
    if tokens is not None:
        whole.write(Path(MAPPING), mapping_of(tokens, vocab_size))
    return Described(layers, tokens)


def _run(plan: Schedule, report: Report) -> Path:
    """Train from the last checkpoint that is whole, if there is one; give the last of all."""
    step = _last_step()
    if step:
        report.note(f"continues at step {step}")
    if step < plan.steps:
        words = train_words(str(_checkpoint(step)) if step else "")
        _call(words, "training", report, plan.steps)
    if not _is_whole(_checkpoint(plan.steps)):
        raise RuntimeError(f"training left no checkpoint of step {plan.steps}")
    return _checkpoint(plan.steps)


def _last_step() -> int:
    """Find where to go on; remove what is beyond that and broken."""
    found = {int(path.name.rpartition("step")[2]): path for path in _checkpoints()}
    for step, path in sorted(found.items(), reverse=True):
        if _is_whole(path):
            return step
        shutil.rmtree(path)
    return 0


def _checkpoints() -> list[Path]:
    return [path for path in Path(CHECKPOINTS).glob(f"{RUN_ID}-step*") if path.is_dir()]


def _checkpoint(step: int) -> Path:
    return Path(CHECKPOINTS) / f"{RUN_ID}-step{step}"


def _is_whole(place: Path) -> bool:
    return all(whole.is_whole(place / name) for name in STATES)


def _export(checkpoint: Path, report: Report) -> Path:
    """Have SpecForge write the head as SGLang reads it."""
    shutil.rmtree(EXPORTED, ignore_errors=True)
    _call(export_words(str(checkpoint), EXPORTED), "exporting", report)
    return Path(EXPORTED)


def _call(words: Sequence[str], doing: str, report: Report, steps: int = 0) -> None:
    """Run SpecForge's command to its end; its words go to our log, the last into the error."""
    said: deque[str] = deque(maxlen=SAID_LINES)
    command = [sys.executable, str(Path(__file__).with_name("command.py")), *words]
    with (
        report.busy(doing),
        subprocess.Popen(
            command, text=True, errors="replace", stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        ) as process,
    ):  # fmt: skip
        assert process.stdout is not None
        for line in process.stdout:
            sys.stderr.write(line)
            said.append(line.rstrip())
            if match := STEP.match(line):
                loss = float(match[2])
                if not math.isfinite(loss):
                    process.kill()
                    raise Rejected(f"the loss of step {match[1]} is no number", SLOWER)
                report.progress(f"training, loss {loss:.3f}", int(match[1]), steps)
    if process.returncode:
        raise RuntimeError(f"{doing} ended with status {process.returncode}:\n" + "\n".join(said))


def _report(
    asked: Any,
    plan: Schedule,
    rows: Sequence[Row],
    held_out: Sequence[Row],
    before: Tally,
    after: Tally,
) -> dict[str, Any]:
    """Give `training.json`. No times: the same inputs give the same bytes."""
    return {
        "method": "eagle3",
        "texts": len(rows),
        "tokens": sum(map(positions, rows)),
        "held_out_texts": len(held_out),
        "held_out_tokens": sum(map(positions, held_out)),
        "epochs": asked["epochs"],
        "steps": plan.steps,
        "loss_before": number(before.loss),
        "loss": number(after.loss),
        "acceptance_before": [number(share) for share in before.acceptance],
        "acceptance": [number(share) for share in after.acceptance],
        "expected_length_before": number(before.expected_length),
        "expected_length": number(after.expected_length),
    }


def _write_json(place: Path, value: object) -> None:
    place.write_text(json.dumps(value, indent=2, sort_keys=True) + "\n", encoding="utf-8")
