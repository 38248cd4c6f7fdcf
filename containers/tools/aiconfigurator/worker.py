"""Ask aiconfigurator for the speed of one set-up at several concurrencies.

    parameters  system, backend         as aiconfigurator names GPU and engine
                tp, pp, dp, moe_tp, moe_ep
                modes                   gemm, moe, kvcache: its names of number formats
                points                  [{"concurrency": 8, "batch": 8, "isl": 622, "osl": 250}]
    input       model/config.json
    details     points                  times in seconds, or the reason why there are none
                engine_version, modes   what the figures were computed for

What aiconfigurator does not know is an answer, not a failure.  It finds its tables on the disk
and needs no network; its own version checks of the hub are off (`HF_HUB_OFFLINE`).
"""

from __future__ import annotations

import json
import logging
import re
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from packager_worker import BadInput, Report, Spec, run

MODES = {
    "gemm": "gemm_quant_mode",
    "moe": "moe_quant_mode",
    "kvcache": "kvcache_quant_mode",
}
LONGEST = 300  # characters of a reason
PATHS = re.compile(r"(?:at )?/\S+")
# beginning of what aiconfigurator says → what it means; the rest of the points would fail alike,
# except where memory decides
REASONS = (
    (re.compile(r"OOM|out of memory|does not fit"), "memory"),
    (re.compile(r"architecture \S+ is not supported|Supported architectures"), "model"),
    (re.compile(r"No database found|Failed to load perf database"), "system"),
    (re.compile(r"perf data|not available|[Uu]nsupported .*quant|Unsupported"), "data"),
)


def work(spec: Spec, report: Report) -> dict[str, Any]:
    """Estimate every point; write them as `opinion.json` and return them."""
    place = spec.inputs["model"]
    if not (place / "config.json").is_file():
        raise BadInput("the model has no config.json")
    with report.busy("loading aiconfigurator"):
        warnings.simplefilter("ignore")
        from aiconfigurator.cli.api import cli_estimate

        logging.disable(logging.CRITICAL)
    found = estimate_all(cli_estimate, str(place), spec.parameters, report)
    (spec.output / "opinion.json").write_text(json.dumps(found), encoding="utf-8")
    return found


def estimate_all(
    estimate: Callable[..., Any], model: str, asked: Mapping[str, Any], report: Report
) -> dict[str, Any]:
    """Estimate the points one after the other; one that fails for all ends them."""
    points, versions, modes = [], set(), {}
    ending = None
    for number, point in enumerate(asked["points"]):
        report.progress("estimating", number, len(asked["points"]))
        if ending is None:
            answer, engine_version, used = estimate_one(estimate, model, asked, point)
            if engine_version:
                versions.add(engine_version)
                modes = used
            if answer.get("kind") not in (None, "memory"):
                ending = {"kind": answer["kind"], "reason": answer["reason"]}
            points.append(answer)
        else:
            points.append({"concurrency": point["concurrency"], **ending})
    return {"points": points, "engine_version": ", ".join(sorted(versions)), "modes": modes}


def estimate_one(
    estimate: Callable[..., Any], model: str, asked: Mapping[str, Any], point: Mapping[str, int]
) -> tuple[dict[str, Any], str, dict[str, str]]:
    """Estimate one point; return it with the engine's version and the formats that were used."""
    modes = {MODES[name]: mode for name, mode in asked["modes"].items() if mode}
    try:
        found = estimate(
            model,
            asked["system"],
            backend_name=asked["backend"],
            isl=point["isl"],
            osl=point["osl"],
            batch_size=point["batch"],
            tp_size=asked["tp"],
            pp_size=asked["pp"],
            attention_dp_size=asked["dp"],
            moe_tp_size=asked["moe_tp"],
            moe_ep_size=asked["moe_ep"],
            **modes,
        )
        tpot_s, ttft_s = float(found.tpot) / 1e3, float(found.ttft) / 1e3
        # Its own tokens/s let one prompt in at a step, and fall when more requests run than an
        # answer has tokens: 8,851 at 256, 5,953 at 496 (Llama-3.1-8B, H100, 622 in, 250 out).
        latency_s = ttft_s + (point["osl"] - 1) * tpot_s
        answer = {
            "concurrency": point["concurrency"],
            "tpot_s": tpot_s,
            "ttft_s": ttft_s,
            "output_tokens_s": point["concurrency"] * point["osl"] / latency_s,
        }
        used = {name: str(found.raw.get(name, "")) for name in MODES}
        return answer, str(found.backend_version), used
    except Exception as error:
        kind, reason = explain(error)
        return {"concurrency": point["concurrency"], "kind": kind, "reason": reason}, "", {}


def explain(error: Exception) -> tuple[str, str]:
    """Classify an error and take what people can use of its text: no paths, no tracebacks."""
    text = str(error) or type(error).__name__
    kind = next((name for pattern, name in REASONS if pattern.search(text)), "other")
    text = " ".join(PATHS.sub("", text).split())
    return kind, text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


if __name__ == "__main__":
    run(work, packages=("aiconfigurator", "aiconfigurator-core"))
