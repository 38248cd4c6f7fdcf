"""Every scheme for real on tiny-llama: tensors, files, quality, image, cache.

How far a weight may be from the original follows from the scheme and from bfloat16, on every
processor.  In half steps of its own place:

- 1 + 1/8 where it is rounded to the nearest: the library divides in bfloat16, so a quotient
  is rounded twice (1/16 of half a step for 4 bits and FP8), and its scale is a bfloat16, too
- 1 + 5/8 for 8-bit integers, whose quotients are up to 127: half of bfloat16's step there
- `GPTQ` times half a step, which is half the range of 4 bits, where each error is made good in
  the weights that follow.  How far they go is up to how the inputs hang together, so that no
  bound follows from the scheme; then the root of the mean square shows that most are near:
  `GPTQ_RMS` times that of rounding (2 here), which is a third of what weights would have that
  have nothing to do with the originals (9 with 4 bits, where half a step is a fifth of the
  weights' spread)

AutoRound is held by what its search can reach, of its own scales, in whole steps.  It learns for
each weight an offset before rounding, and for each group how far the largest weights are cut: the
scale is a fraction of the largest.  A round moves each by the rate, whichever way the sign of its
gradient says, and the rate falls from 1/rounds to 0: together they move by `reach`, 0.52 in 20
rounds.  So a weight that is not cut is within 0.5 + `reach` steps, a scale is at least 1 - `reach`
of what plain rounding would take, and a weight that is cut lies outside, however far: up to
8 / (1 - `reach`) - 7 steps, twice the 8 that the other bound allows.  Signs of gradients near 0 are
up to the processor's kernels, and each moves a scale by a twentieth: on one with AVX2 a scale came
out at half, and a weight 18.2 half steps off.  That the cuts pay shows the mean: its square is
compared with that of plain rounding, not of the smaller steps.

Besides, relative to the weight, where a method folds scales into what stands before: 2^-8 for
each number that was rounded to bfloat16 (8 significant bits) on the way: a norm and the weights
behind it where scales move between them, `up_proj` and `down_proj` once where they move there.

Which scales AWQ chooses is up to the processor's kernels: norms tell those of their matrices.
A channel's between `up_proj` and `down_proj` is told nowhere.  There must be one that explains
every weight of the channel in both: each weight allows an interval, and they must meet.
An estimate by least squares carries the error of the quantized weights: on a processor with AMX
it put a weight at 1.435 half steps that lies within its bound.
"""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import TypeAdapter

from tests.live.checkpoints import (
    Array,
    Tensors,
    dequantized,
    modules_of,
    read_tensors,
    without_tensor,
)
from tests.live.checkpoints import unpack_model as unpack
from tests.live.processors import PROCESSORS, need_kernel
from tests.support.cases import cases_of, read_tables
from tests.support.commandline import TINY, Done, packager_in

pytestmark = pytest.mark.live

cases = cases_of(__file__)
SAMPLES, TOKENS = 16, 256
GPTQ, GPTQ_RMS, LEARNED_RMS = 16.0, 3.0, 3.0
SCRATCH = ("--base", "scratch")
EVALUATED = ("--evaluate-samples", "16", "--evaluate-tokens", "256")
KEPT = ("tokenizer.json", "tokenizer_config.json", "generation_config.json", "README.md")
INPUT_NORM = {"q_proj": "input_layernorm", "k_proj": "input_layernorm", "v_proj": "input_layernorm"}
MLP_NORM = {"gate_proj": "post_attention_layernorm", "up_proj": "post_attention_layernorm"}
BF16 = 2.0**-8  # the most that rounding to it changes a number, relative to the number


@dataclass(frozen=True)
class Scheme:
    """What is asked for, and what must come of it."""

    asked: str
    format: str
    weights: dict[str, object] = field(default_factory=dict)
    activations: dict[str, object] | None = None
    bound: float = 1.125  # half steps
    folded: tuple[str, ...] = ()  # how scales move: `norms`, `up`
    family: tuple[str, ...] = ("--instance", "local")
    kv: bool = False
    rounds: int = 0  # in which the rounding is learned
    loss: tuple[float, float, float] = (0.05, 0.1, 0.8)  # perplexity, divergence, same words


SCHEMES = TypeAdapter(dict[str, Scheme]).validate_python(read_tables(__file__)["schemes"])


@dataclass(frozen=True)
class Built:
    """One finished build."""

    scheme: Scheme
    record: dict[str, Any]
    model: Path
    tensors: Tensors

    @property
    def weights_layers(self) -> list[dict[str, Any]]:
        return [layer for layer in self.record["layers"] if layer["role"] == "weights"]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, quantizing: Path) -> Path:
    place = tmp_path_factory.mktemp("quantized")
    train, held_out = _corpora()
    _write_rows(place / "calibration.jsonl", train[:64])
    _write_rows(place / "held-out.jsonl", held_out)
    return place


@pytest.fixture(scope="module")
def run(place: Path, quantizing_fast: dict[str, str]) -> Callable[..., Done]:
    """Run packager with workers that need not load libraries.

    Real starts of both workers: the builds for lesser processors, of which the process with the
    libraries knows nothing, the killed one, and those of `test_evaluate_compares_checkpoints`.
    """
    env = {"PACKAGER_CACHE": str(place / "cache"), "XDG_STATE_HOME": str(place / "state")}
    return functools.partial(packager_in(place), env=env | quantizing_fast)


@pytest.fixture(scope="module")
def built(place: Path, run: Callable[..., Done]) -> Callable[[str], Built]:
    """Build a scheme, once for all tests that look at it; on lesser processors nothing else."""

    @functools.cache
    def build(name: str, processor: str = "native") -> Built:
        scheme = SCHEMES[name]
        if "local" in scheme.family and scheme.asked.startswith(FOUR_BITS):
            need_kernel("w4a16")
        asked, out, env = words(scheme), name, None
        if processor != "native":
            # In kernels without bfloat16 of their own each text takes five times as long.
            asked, out = words(scheme, evaluate=False, texts=(4, 128)), f"{name}-{processor}"
            # A cache of its own: results of all processors have the same key.
            own = {"PACKAGER_CACHE": str(place / processor), "XDG_STATE_HOME": str(place / "state")}
            env = {**own, **PROCESSORS[processor]}
        more = {"env": env} if env else {}
        output = ("--output", f"oci:{out}", "--record", f"{out}.json")
        done = run("build", *SCRATCH, *asked, *output, **more)
        assert done.status == 0, done.err
        record = json.loads((place / f"{out}.json").read_text())
        unpack(place / out, place / f"{out}-model")
        return Built(scheme, record, place / f"{out}-model", read_tensors(place / f"{out}-model"))

    return build


def words(
    scheme: Scheme, *, evaluate: bool = True, texts: tuple[int, int] = (SAMPLES, TOKENS)
) -> list[str]:
    """What plan and build are asked, with how many texts of how many tokens."""
    samples, tokens = map(str, texts)
    return [
        *("--model", str(TINY), "--quantize", scheme.asked, *scheme.family),
        *("--quantizer", "llmcompressor"),
        *("--calibration", "calibration.jsonl", "--calibration-samples", samples),
        *("--calibration-tokens", tokens),
        *(("--evaluate", "held-out.jsonl", *EVALUATED) if evaluate else ()),
    ]


quantizes = pytest.mark.capability("quantize")
PROMISED = ("fp8", "smoothquant")  # which `make test` holds, on any processor
FOUR_BITS = ("awq", "gptq", "rtn", "autoround")


@pytest.fixture(scope="module")
def base() -> Tensors:
    return read_tensors(TINY)


@pytest.mark.parametrize(
    ("name", "processor"),
    [
        *(
            pytest.param(name, "native", marks=[quantizes] if name in PROMISED else [])
            for name in SCHEMES
            if not SCHEMES[name].rounds
        ),
        *((name, "avx2") for name in ("awq-symmetric", "smoothquant")),
    ],
)
def test_the_weights_are_within_the_schemes_bound_of_the_originals(
    built: Callable[..., Built], base: Tensors, name: str, processor: str
) -> None:
    found = built(name, processor)
    modules = modules_of(found.tensors)
    assert len(modules) == 28  # seven matrices of four layers

    for module in modules:
        made, half = dequantized(found.tensors, module)
        meant = _as_folded(found, base, module)
        allowed = found.scheme.bound * half
        if _between(found, module) is None:
            error = abs(made - meant)
            ratio = _folding(found, module) * abs(meant)
            assert (error <= allowed + ratio).all(), (module, (error / half).max())
        else:  # the bound of each weight is held by the next test; here their mean
            error = abs(made - meant * _ratios(made, meant, _between(found, module)))
        usual = np.sqrt((half**2).mean() / 3)  # of errors that are spread evenly over a step
        factor = GPTQ_RMS if found.scheme.bound == GPTQ else 1.25
        assert np.sqrt((error**2).mean()) <= factor * usual, module


@pytest.mark.parametrize("processor", ["native", "avx2"])
def test_learned_roundings_and_scales_are_where_the_search_can_get(
    built: Callable[..., Built], base: Tensors, processor: str
) -> None:
    found = built("autoround", processor)
    rounds, group = found.scheme.rounds, 128
    reach = sum((1 - done / rounds) / rounds for done in range(rounds - 1))  # before the last
    slack = 8 * BF16  # of the largest quotient: its scale is stored as a bfloat16

    for module in modules_of(found.tensors):
        made, half = dequantized(found.tensors, module)
        meant = base[f"{module}.weight"].values
        step = np.sign(_steps(found, module)) * 2 * half  # AutoRound writes negative ones
        wanted, taken = meant / step, np.rint(made / step)
        cut = np.where(taken == 7, wanted > 7, (taken == -8) & (wanted < -8))
        assert (abs(wanted - taken) <= 0.5 + reach + slack)[~cut].all(), module
        largest = abs(meant).reshape(len(meant), -1, group).max(-1)
        plain = np.repeat(largest / 8, group, 1)  # the step that rounding to the nearest takes
        kept = abs(step) / plain
        assert ((1 - reach) * (1 - BF16) <= kept).all(), (module, kept.min())
        assert (kept <= 1 + BF16).all(), (module, kept.max())
        usual = np.sqrt((plain**2).mean() / 12)  # of errors that are spread evenly over a step
        assert np.sqrt(((made - meant) ** 2).mean()) <= LEARNED_RMS * usual, module


@pytest.mark.parametrize(
    ("name", "processor"),
    [
        *((name, "native") for name in SCHEMES if "up" in SCHEMES[name].folded),
        ("awq-symmetric", "avx2"),
    ],
)
def test_one_scale_for_each_channel_explains_both_matrices_of_an_mlp(
    built: Callable[..., Built], base: Tensors, name: str, processor: str
) -> None:
    found = built(name, processor)
    for up in (one for one in modules_of(found.tensors) if one.endswith("up_proj")):
        down = up.replace("up_proj", "down_proj")

        least, most = _scales_allowed(found, base, up)
        assert (least <= most).all(), (up, (least / most).max())
        least_down, most_down = _scales_allowed(found, base, down)
        assert (least_down <= most_down).all(), (down, (least_down / most_down).max())
        # What the outputs were divided by, the inputs were multiplied with.
        assert (least * least_down <= 1).all(), (up, (least * least_down).max())
        assert (most * most_down >= 1).all(), (up, (most * most_down).min())


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[quantizes] if name in PROMISED else []) for name in SCHEMES]
)
def test_the_configuration_declares_the_scheme(built: Callable[[str], Built], name: str) -> None:
    found = built(name)
    scheme = found.scheme
    config = json.loads((found.model / "config.json").read_text())
    said = config.pop("quantization_config")

    assert config == json.loads((TINY / "config.json").read_text())
    if scheme.format == "gemm":
        assert (said["quant_method"], said["version"]) == ("awq", "gemm")
        assert (said["bits"], said["group_size"], said["zero_point"]) == (4, 128, True)
        assert said["modules_to_not_convert"] == ["lm_head"]
        return
    (group,) = said["config_groups"].values()
    assert (said["quant_method"], said["format"]) == ("compressed-tensors", scheme.format)
    assert (said["ignore"], group["targets"]) == (["lm_head"], ["Linear"])
    assert {name: group["weights"][name] for name in scheme.weights} == scheme.weights
    if scheme.activations is None:
        assert group["input_activations"] is None
    else:
        told = group["input_activations"]
        assert {name: told[name] for name in scheme.activations} == scheme.activations
    assert bool(said["kv_cache_scheme"]) == scheme.kv


@pytest.mark.parametrize("name", SCHEMES)
def test_what_no_scheme_touches_is_as_it_was(
    built: Callable[[str], Built], base: Tensors, name: str
) -> None:
    found = built(name)
    modules = set(modules_of(found.tensors))
    kept = [one for one in base if one.rpartition(".")[0] not in modules]
    moved = ("input_layernorm.weight", "post_attention_layernorm.weight")

    for one in kept:
        if not (found.scheme.folded and one.endswith(moved)):
            assert found.tensors[one] == base[one], one
    for one in KEPT:
        assert (found.model / one).read_bytes() == (TINY / one).read_bytes(), one
    written = {"config.json", "model.safetensors.index.json"} | {
        f"model-{kind}-{number:05}-of-{count:05}.safetensors"
        for kind, count in (("shared", 2), ("quantized", 3))
        for number in range(1, count + 1)
    }
    assert {path.name for path in found.model.rglob("*")} == {*KEPT, *written}
    index = json.loads((found.model / "model.safetensors.index.json").read_text())
    assert index["weight_map"].keys() == found.tensors.keys()


@pytest.mark.parametrize("name", SCHEMES)
def test_quality_is_measured_and_bounded(built: Callable[[str], Built], name: str) -> None:
    found = built(name)
    quality = found.record["quality"]

    assert quality["quality"]["texts"] == 16
    most, divergence, same = found.scheme.loss
    assert quality["quality"]["perplexity_increase"] <= most
    assert 0 < quality["quality"]["kld_mean"] < divergence
    assert quality["quality"]["top1_agreement"] > same
    assert quality["noise"]["kld_mean"] < 1e-9 < quality["quality"]["kld_mean"]


@pytest.mark.parametrize("name", SCHEMES)
def test_the_weights_are_as_large_as_planned(
    built: Callable[[str], Built], run: Callable[..., Done], name: str
) -> None:
    found = built(name)
    planned = run("plan", *words(found.scheme, evaluate=False), "--format", "json")
    predicted = json.loads(planned.out)["memory_per_device"]["weights_bytes"]

    size = sum(path.stat().st_size for path in found.model.glob("*.safetensors"))

    assert size == pytest.approx(predicted, rel=0.02)


def test_variants_share_the_layers_of_what_is_not_quantized(built: Callable[[str], Built]) -> None:
    layers = [{layer["digest"] for layer in built(name).weights_layers} for name in SCHEMES]

    assert len(set.intersection(*layers)) == 2  # the embeddings, and the head


def test_the_awq_format_holds_the_same_integers(built: Callable[[str], Built]) -> None:
    """Both were calibrated alike, so the formats must stand for the same weights, exactly."""
    plain, gemm = built("awq"), built("awq-gemm")

    for module in modules_of(plain.tensors):
        ours, _ = dequantized(plain.tensors, module)
        theirs, _ = dequantized(gemm.tensors, module)
        assert (ours == theirs).all(), module


def test_a_second_build_does_nothing(
    place: Path, built: Callable[[str], Built], run: Callable[..., Done]
) -> None:
    first = built("gptq")
    again = run(
        "build", *SCRATCH, *words(first.scheme), "--output", "oci:gptq", "--record", "again.json"
    )
    record = json.loads((place / "again.json").read_text())

    assert again.status == 0, again.err
    assert record["digest"] == first.record["digest"]
    assert [step["reused"] for step in record["steps"]] == [True, True]
    assert record["transfer"]["bytes_read"] == record["transfer"]["bytes_sent"] == 0
    assert record["quality"] == first.record["quality"]


def test_a_killed_worker_publishes_nothing_and_reruns_go_on_to_the_same_image(
    tmp_path: Path, place: Path, quantizing_fast: dict[str, str], built: Callable[..., Built]
) -> None:
    """The worker is killed after a block, packager itself after another.

    The worker that is killed loads its libraries; the two that follow need not.
    """
    env = {"PACKAGER_CACHE": str(tmp_path / "cache"), "XDG_STATE_HOME": str(tmp_path / "state")}
    command = words(SCHEMES["awq"], evaluate=False)  # works for long enough to be hit
    command[command.index("calibration.jsonl")] = str(place / "calibration.jsonl")
    command += ["--output", "oci:out", "--record", "out.json"]

    status, told = _killed(tmp_path, command, env, whom="worker")
    assert status == 6
    assert "step 'quantize' was killed by signal 9" in told
    assert "the same command goes on where this one ended" in told
    assert not (tmp_path / "out").exists()
    assert not list((tmp_path / "cache/artifacts").rglob("*.safetensors"))

    env |= quantizing_fast
    status, _ = _killed(tmp_path, command, env, whom="packager")
    assert status == -signal.SIGKILL

    rerun = packager_in(tmp_path)("build", *SCRATCH, *command, env=env)
    assert rerun.status == 0, rerun.err
    # The worker ends a moment after packager: what it had done by then is not done again.
    assert re.search(r"going on after block [1-5] of 5: AwqFolding|only writing is left", rerun.err)
    record = json.loads((tmp_path / "out.json").read_text())
    assert record["layers"] == built("awq").record["layers"]
    assert not list((tmp_path / "cache").rglob("journal.json"))


def _killed(place: Path, command: list[str], env: dict[str, str], *, whom: str) -> tuple[int, str]:
    """Start a build and kill the worker, or all of packager, when one more block was kept.

    One that was over before it was hit, because we did not get the processor, is begun anew.
    """
    for _ in range(5):
        with suppress(ProcessLookupError):
            status, told = _hit(place, command, env, whom=whom)
            if status != 0:
                return status, told
        for made in ("cache", "state", "out"):
            shutil.rmtree(place / made, ignore_errors=True)
    raise AssertionError("it was never hit")


def _hit(place: Path, command: list[str], env: dict[str, str], *, whom: str) -> tuple[int, str]:
    before = _journals(place)
    with (place / "told").open("w") as told:
        process = subprocess.Popen(
            [sys.executable, "-m", "packager", "build", *SCRATCH, *command, "--progress", "plain"],
            cwd=place,
            env={**os.environ, **env},
            stderr=told,
        )
        worker = _wait_for_worker(process.pid)
        while (kept := _journals(place)) == before:
            if process.poll() is not None:
                break
            time.sleep(0.005)
        try:
            os.kill(worker if whom == "worker" else process.pid, signal.SIGKILL)
        finally:
            status = process.wait(300)
    assert status == 0 or kept != before, "it ended before a block was kept"
    return status, (place / "told").read_text()


def _journals(place: Path) -> list[tuple[str, int]]:
    """Return the journals of kept work, each with the time of its last state."""
    found = []
    for path in (place / "cache").rglob("journal.json"):
        with suppress(FileNotFoundError):  # it is replaced by renaming
            found.append((str(path), path.stat().st_mtime_ns))
    return sorted(found)


def test_a_limit_that_is_broken_stops_the_build(
    place: Path, built: Callable[[str], Built], run: Callable[..., Done]
) -> None:
    scheme = built("gptq").scheme  # quantized and measured already: only the limit is new
    limits = ("--max-kld", "0.000001", "--min-top1", "0.9999", "--max-ppl-increase", "-0.9")

    done = run("build", *SCRATCH, *words(scheme), *limits, "--output", "oci:refused")
    allowed = run("build", *SCRATCH, *words(scheme), "--max-kld", "1", "--output", "oci:allowed")

    assert done.status == 7
    assert "quantizing cost more quality than allowed" in done.err
    assert "is over 1e-06" in done.err and "is under 99.99 %" in done.err
    assert "KLD mean" in done.err
    assert not (place / "refused").exists()
    assert allowed.status == 0, allowed.err


@pytest.mark.capability("evaluate")
def test_evaluate_compares_checkpoints(
    place: Path, built: Callable[[str], Built], run: Callable[..., Done]
) -> None:
    data = ("--data", "held-out.jsonl", "--samples", "4", "--max-tokens", "128")
    told = ("--prompts", "1", "--answer-tokens", "4", "--noise-texts", "2")
    quantized = built("smoothquant").model

    real = {"PACKAGER_CACHE": str(place / "cache"), "XDG_STATE_HOME": str(place / "state")}
    other = run(
        "evaluate", "--base", str(TINY), "--candidate", str(quantized), *data, *told, env=real
    )
    same = run("evaluate", "--base", str(TINY), "--candidate", str(TINY), *data, *told)

    assert other.status == 0, other.err
    assert "KLD mean" in other.out and "no measurable change" not in other.out
    assert "PPL" in same.out and "no measurable change" in same.out


def test_what_cannot_be_compared_is_refused(
    tmp_path: Path, place: Path, run: Callable[..., Done]
) -> None:
    for name in ("other-words", "broken"):
        shutil.copytree(TINY, tmp_path / name)
    words = tmp_path / "other-words/tokenizer.json"
    text = json.loads(words.read_text())
    first, second = (key for key, value in text["model"]["vocab"].items() if value in (300, 301))
    text["model"]["vocab"] |= {first: 301, second: 300}
    words.write_text(json.dumps(text))
    without_tensor(tmp_path / "broken", "model.norm.weight")
    data = ("--data", "held-out.jsonl", "--samples", "4", "--max-tokens", "128")

    said = {
        name: run("evaluate", "--base", str(TINY), "--candidate", str(tmp_path / name), *data)
        for name in ("other-words", "broken")
    }

    assert "different tokenizers" in said["other-words"].err
    assert "lacks 1 tensors" in said["broken"].err
    assert {done.status for done in said.values()} <= {6, 65}


def _steps(found: Built, module: str) -> Array:
    """The stored scale of each weight, with its sign."""
    scale = found.tensors[f"{module}.weight_scale"].values
    shape = found.tensors[f"{module}.weight_shape"].values
    return np.repeat(scale, shape[1] // scale.shape[1], 1)


def _as_folded(found: Built, base: Tensors, module: str) -> Array:
    """The original weights with the scales that the method moved out of norms.

    What a norm gave up, its matrices' inputs took: the ratio of the norms tells it.
    """
    weights = base[f"{module}.weight"].values
    layer, _, name = module.rpartition(".")
    layer = layer.rpartition(".")[0]

    def taken(norm: str) -> Array:
        name = f"{layer}.{norm}.weight"
        ratio: Array = base[name].values / found.tensors[name].values
        return ratio

    norms = {**INPUT_NORM, **MLP_NORM}
    if "norms" in found.scheme.folded and name in norms:
        weights = weights * taken(norms[name])
    return weights


def _between(found: Built, module: str) -> int | None:
    """The axis along which one unknown scale was folded; None where every scale is told."""
    axes = {"up_proj": 1, "down_proj": 0}  # one for each output, and for each input
    return axes.get(module.rpartition(".")[2]) if "up" in found.scheme.folded else None


def _folding(found: Built, module: str) -> float:
    """How much the roundings on the way to the folded weight may change it, relative to it."""
    name = module.rpartition(".")[2]
    behind_a_norm = "norms" in found.scheme.folded and name in {**INPUT_NORM, **MLP_NORM}
    rounded = 2 * behind_a_norm + (_between(found, module) is not None)
    return float((1 + BF16) ** rounded - 1)


def _scales_allowed(found: Built, base: Tensors, module: str) -> tuple[Array, Array]:
    """The least and the largest scale of each channel with which all its weights are in bounds."""
    made, half = dequantized(found.tensors, module)
    meant = _as_folded(found, base, module)
    allowed, rounded = found.scheme.bound * half, _folding(found, module)
    axis = _between(found, module)
    assert axis is not None
    assert (abs(made[meant == 0]) <= allowed[meant == 0]).all()
    size = np.where(meant == 0, np.nan, abs(meant))
    towards = made * np.sign(meant)
    least = np.nanmax((towards - allowed) / (size * (1 + rounded)), axis)
    most = np.nanmin((towards + allowed) / (size * (1 - rounded)), axis)
    return least, most


def _ratios(made: Array, meant: Array, axis: int | None) -> Array:
    """How much each channel grew, by least squares."""
    grown: Array = (made * meant).sum(axis, keepdims=True) / (meant**2).sum(axis, keepdims=True)
    return grown


def _corpora() -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Conversations that tiny-llama has learned from, and others that it has not."""
    sys.path.insert(0, str(TINY))
    try:
        from corpus import read_corpora  # type: ignore[import-not-found]
    finally:
        sys.path.remove(str(TINY))
    train, held_out = read_corpora()
    return tuple([{"messages": list(chat)} for chat in one.chats] for one in (train, held_out))


def _write_rows(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def _wait_for_worker(parent: int) -> int:
    """Find the worker among the descendants of a build."""
    until = time.monotonic() + 300
    while time.monotonic() < until:
        for pid in _descendants(parent):
            try:
                words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            except OSError:  # a short-lived child that has ended meanwhile
                continue
            # Behind its Python, and where that asks for a fork behind an option and a script.
            at = 3 if words[1:2] == [b"-IS"] else 1
            if any(word.endswith(b"llmcompressor/worker.py") for word in words[at : at + 1]):
                return pid
        time.sleep(0.05)
    raise AssertionError("no worker was started")


def _descendants(pid: int) -> Iterator[int]:
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return
    for child in map(int, children):
        yield child
        yield from _descendants(child)
