"""Reports of head training, as text and JSON."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from packager.core.reports.report import Lines, Pair, Pairs, Report, one_section
from packager.core.training import Trained, TrainingReport, TrainingTexts
from packager.core.units import decimal
from packager.optimize.steps.report import duration


def training_report(done: Trained, texts: TrainingTexts, model: str, output: Path) -> Report:
    """Return the figures, and the command that builds with the head."""
    report, asked = done.report, done.asked
    before, now = _shares(report.acceptance_before), _shares(report.acceptance)
    shape = (
        f"{asked.speculative_tokens} heads of {_layers(asked.layers)}"
        if asked.method == "medusa"
        else _layers(asked.layers)
    )
    rows = [
        ("head", f"{output} ({asked.method}, {shape}, {decimal(done.weight_bytes)})"),
        ("model", model),
        ("data", f"{_texts(report.texts, report.tokens)} from {texts.train.source}"),
        ("held out", _texts(report.held_out_texts, report.held_out_tokens)),
        ("steps", f"{_steps(report)} ({report.epochs:g} epochs), {_origin(done)}"),
        ("loss", f"{report.loss_before:.3f} before, {report.loss:.3f} now"),
        (
            "accepted",
            f"{before} before, {now} now",
        ),
        (
            "expected",
            f"{report.expected_length:.2f} tokens a step of the model "
            f"({report.expected_length_before:.2f} before, 1 without a draft)",
        ),
        ("next", _next(done, model, output)),
    ]
    lines = tuple(f"{label:<9} {text}" for label, text in rows)
    pairs = tuple(Pair(label, text) for label, text in rows)
    return one_section(f"Head of {model}", Lines(lines), Pairs(pairs, "page"))


def training_document(
    done: Trained, texts: TrainingTexts, model: str, output: Path
) -> dict[str, Any]:
    """Return the JSON document of a training."""
    asked = done.asked
    return {
        "model": model,
        "output": str(output),
        "draft": f"{asked.method}:{output}",
        "trainer": asked.trainer,
        "speculative_tokens": asked.speculative_tokens,
        "layers": asked.layers,
        "aux_layers": list(asked.aux_layers),
        "weight_bytes": done.weight_bytes,
        "data": texts.train.source,
        "skipped_rows": texts.train.skipped_count,
        **done.report.model_dump(),
        "steps_run": [
            {
                "key": outcome.key,
                "reused": outcome.reused,
                "seconds": outcome.result.seconds,
                "versions": dict(outcome.result.versions),
                "details": dict(outcome.result.details),
            }
            for outcome in done.outcomes
        ],
    }


def _next(done: Trained, model: str, output: Path) -> str:
    """Return the command that takes the head."""
    if done.asked.method == "mtp":
        place = shlex.quote(str(output))
        return f"packager draft stitch --model {shlex.quote(model)} --head {place} --output …"
    return f"packager build --model {shlex.quote(model)} --draft {_draft(done, output)} …"


def _draft(done: Trained, output: Path) -> str:
    place = str(output) if output.is_absolute() else f"./{output}"
    return shlex.quote(f"{done.asked.method}:{place}")


def _steps(report: TrainingReport) -> str:
    """Return the steps, and which of them the head that is kept had."""
    if report.kept_step in (None, report.steps):
        return str(report.steps)
    return f"{report.steps}, the best head after {report.kept_step}"


def _origin(done: Trained) -> str:
    if all(outcome.reused for outcome in done.outcomes):
        return f"taken from the cache ({done.outcomes[-1].key[:12]})"
    return f"in {duration(sum(outcome.result.seconds for outcome in done.outcomes))}"


def _texts(count: int, tokens: int) -> str:
    return f"{count:,} texts, {tokens:,} tokens"


def _layers(count: int) -> str:
    return "1 layer" if count == 1 else f"{count} layers"


def _shares(values: tuple[float, ...]) -> str:
    return " ".join(f"{value:.0%}" for value in values)
