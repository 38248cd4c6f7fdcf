"""The script that fits the speed model: it finds what made the points, leaves out whole groups."""

from __future__ import annotations

import importlib
import json
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from packager.estimate.performance.speed_table import parse_table
from tests.support.cases import read_tables
from tests.support.places import ROOT

BENCHMARKS = ROOT / "benchmarks"
Scripts = tuple[ModuleType, ModuleType]

MODELS = read_tables(__file__)
LLAMA_3_8B = MODELS["llama-3-8b"]
GPT_OSS_120B = MODELS["gpt-oss-120b"]
DEEPSEEK_V3 = MODELS["deepseek-v3"]


@pytest.fixture(scope="module")
def scripts() -> Iterator[Scripts]:
    """Import both scripts as they import each other, and leave no trace of it."""
    sys.path.insert(0, str(BENCHMARKS))
    try:
        yield importlib.import_module("fit_speed"), importlib.import_module("speed_data")
    finally:
        sys.path.remove(str(BENCHMARKS))


def points(speed_data: ModuleType, fit_speed: ModuleType) -> list:
    """Make points of two models from known coefficients."""
    found = []
    models = (
        ("a", LLAMA_3_8B, "fp8"),
        ("b", {**LLAMA_3_8B, "num_hidden_layers": 48}, ""),
        ("c", GPT_OSS_120B, "mxfp4"),
        ("d", DEEPSEEK_V3, "fp8"),
    )
    lengths = ((1000, 100), (1024, 1024), (8000, 500))
    for (name, config, quantized), tp in product(models, (1, 2, 4, 8)):
        setup = speed_data.Setup(
            model=speed_data.served_model(config, quantized, tp),
            accelerator=speed_data.device_of("h200_sxm"),
            tp_degree=tp,
            engine="vllm",
        )
        point = partial(speed_data.SpeedPoint, model=name, family=name, setup=setup)
        found += [
            point(input_tokens=inputs, output_tokens=outputs, batch=batch, tpot_s=1.0, ttft_s=1.0)
            for (inputs, outputs), batch in product(lengths, (1.0, 8.0, 64.0))
        ]
    made = []
    for sample in fit_speed.make_samples(found):
        tpot_s = float(np.dot(TRUTH, sample.tpot))
        made.append(replace(sample.point, tpot_s=tpot_s))
    return made


TRUTH = (1.2, 1.4, 0.9, 0.8, 6, 40e-6, 6e-6, 24e-6, 5e-6, 6e-6, 1.5, 30e-6, 1.4, 3.5, 60e-6, 1.6)


@pytest.mark.parametrize("seed", range(20))
def test_least_squares_without_negative_values_satisfy_their_conditions(
    scripts: Scripts, seed: int
) -> None:
    """Slopes are 0 where a value is free, and point below 0 where it is held there."""
    random = np.random.default_rng(seed)
    matrix, right = random.normal(size=(30, 8)), random.normal(size=30)

    found = scripts[0].nnls(matrix, right)
    slopes = matrix.T @ (right - matrix @ found)

    assert (found >= 0).all()
    assert np.allclose(slopes[found > 0], 0, atol=1e-8)
    assert (slopes[found == 0] <= 1e-8).all()


def test_points_are_predicted_by_a_fit_that_did_not_see_their_curve(scripts: Scripts) -> None:
    fit_speed, speed_data = scripts
    made = points(speed_data, fit_speed)

    for kind in ("dense", "moe"):
        samples = [each for each in fit_speed.make_samples(made) if each.point.kind == kind]
        errors = fit_speed.left_out(samples, lambda point: point.curve)

        assert len(errors) == len(samples) == 72
        assert np.median([abs(each.tpot) for each in errors]) < 0.02


def test_a_group_that_is_left_out_is_left_out_whole(
    scripts: Scripts, monkeypatch: pytest.MonkeyPatch
) -> None:
    fit_speed, speed_data = scripts
    samples = fit_speed.make_samples(points(speed_data, fit_speed))
    seen: list[set[str]] = []
    monkeypatch.setattr(
        fit_speed, "fit_kind", lambda rest: seen.append({each.point.model for each in rest}) or {}
    )
    monkeypatch.setattr(fit_speed, "missed", lambda fitted, each: (len(seen), each.point.model))

    for fold, model in fit_speed.left_out(samples, lambda point: point.model, None):
        assert model not in seen[fold - 1]
    assert len(seen) == 4


def test_the_written_table_is_the_one_that_is_read(scripts: Scripts) -> None:
    fit_speed, speed_data = scripts
    samples = fit_speed.make_samples(points(speed_data, fit_speed))

    table = parse_table(tomllib.loads(fit_speed.table_text(samples, [DEVICE])))

    cell = table.cells["vllm", "H200", "dense"]
    assert (cell.points, cell.curves, cell.most_sequences) == (72, 24, 64)
    assert cell.forms == {((4096, 32, 0), "fp8"), ((4096, 48, 0), "bf16")}
    assert cell.step[0] == pytest.approx(1.2, rel=0.2)
    assert table.memory_share == {"H200": 0.75}
    assert table.of_engine("", "moe").points == 72
    assert set(table.beyond) == {"dense", "moe"}


def on(speed_data: ModuleType, point, system: str, tpot_s: float, version: str = "0.19.0"):
    device = speed_data.device_of(system)
    setup = replace(point.setup, accelerator=device, engine_version=version)
    return replace(point, setup=setup, tpot_s=tpot_s)


def test_a_model_that_is_slower_on_the_faster_device_has_factors_of_its_own_there(
    scripts: Scripts,
) -> None:
    """Its points leave what is fitted of the device as it was."""
    fit_speed, speed_data = scripts
    made = [each for each in points(speed_data, fit_speed) if each.kind == "dense"]
    there = [
        on(speed_data, each, "h100_sxm", 1.2 * each.tpot_s) for each in made if each.model == "a"
    ]
    samples = fit_speed.make_samples(made)
    steps = len(fit_speed.STEP_TERMS)
    slow = []
    for sample in samples:
        step_s, prompt_s = (
            np.dot(TRUTH[part], sample.tpot[part]) for part in (slice(steps), slice(steps, None))
        )
        times = (1.5, 2.0) if sample.point.model == "a" else (1.0, 1.0)
        slow.append(replace(sample.point, tpot_s=float(times[0] * step_s + times[1] * prompt_s)))

    fitted = fit_speed.fit_kind(fit_speed.make_samples([*slow, *there]))

    assert set(fitted.slowed) == {("vllm", (4096, 32, 0), "fp8", "H200")}
    assert fitted.slowed[next(iter(fitted.slowed))] == pytest.approx((1.5, 2.0), rel=0.15)
    assert fitted.coefficients["vllm", "H200"][0] == pytest.approx(1.2, rel=0.2)


DEVICE = {"device": "H200", "memory_share": 0.75, "compute_share": 0.7, "source": "a test"}


@pytest.mark.parametrize(
    ("config", "quantized", "billions", "active", "kv_bytes"),
    [
        (LLAMA_3_8B, "", 7.504, 0, 131_072),
        (GPT_OSS_120B, "mxfp4", 116.2, 5.09, 73_728),
        (DEEPSEEK_V3, "fp8", 670.0, 36.5, 70_272),
    ],
    ids=["Llama-3-8B", "GPT-OSS-120B", "DeepSeek-V3"],
)
def test_a_model_is_described_by_its_configuration(
    scripts: Scripts,
    config: dict[str, object],
    quantized: str,
    billions: float,
    active: float,
    kv_bytes: int,
) -> None:
    """Published counts less one matrix of words, of which a step reads rows only."""
    model = scripts[1].served_model(config, quantized, 1)

    assert model.parameters / 1e9 == pytest.approx(billions, rel=0.005)
    assert model.active_parameters / 1e9 == pytest.approx(active, rel=0.02)
    assert model.kv_bytes_per_token == kv_bytes


def test_windows_latents_and_repeated_heads_are_read_from_configurations(scripts: Scripts) -> None:
    oss, deepseek, llama = (
        scripts[1].served_model(config, "fp8", 16)
        for config in (GPT_OSS_120B, DEEPSEEK_V3, LLAMA_3_8B)
    )

    assert (oss.window_tokens, oss.window_share) == (128, 0.5)
    assert deepseek.latent
    assert deepseek.kv_bytes_per_token == 16 * 70_272
    assert llama.kv_bytes_per_token == 2 * 131_072


COLUMNS = (
    "backend,backend_version,model_path,system,mode,isl,osl,gemm_quant_mode,batch_size,tp_size,"
    "attention_dp_size,moe_ep_size,silicon_ttft_ms,silicon_tpot_ms"
)
CONFIGS = {
    "meta-llama/Meta-Llama-3.1-8B": LLAMA_3_8B,
    "Qwen/Qwen3-32B": {**LLAMA_3_8B, "hidden_size": 5120, "num_hidden_layers": 64},
    "openai/gpt-oss-120b": GPT_OSS_120B,
    "deepseek-ai/DeepSeek-V3": {**DEEPSEEK_V3, "num_hidden_layers": 8},  # one device holds it
}


@pytest.fixture
def data(tmp_path: Path, scripts: Scripts) -> Path:
    """Write a directory as it is described, with points that known coefficients make."""
    fit_speed, speed_data = scripts
    configs = tmp_path / speed_data.CONFIGS
    configs.mkdir(parents=True)
    for name, config in CONFIGS.items():
        path = configs / f"{name.replace('/', '--')}_config.json"
        path.write_text(json.dumps(config), encoding="utf-8")
    rows = [
        f"vllm,0.19.0,{name},h200_sxm,agg,{inputs},{outputs},fp8,{batch},{tp},1,1,1000,1000"
        for name in CONFIGS
        for tp in (1, 2, 4)
        for inputs, outputs in ((1000, 100), (1024, 1024), (8000, 500))
        for batch in (1, 8, 64)
    ]
    file = tmp_path / speed_data.POINTS
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join([COLUMNS, *rows]), encoding="utf-8")
    made = []
    for row, sample in zip(
        rows, fit_speed.make_samples(speed_data.read_points(tmp_path)), strict=True
    ):
        tpot_ms = 1e3 * float(np.dot(TRUTH, sample.tpot))
        made.append(f"{row.removesuffix('1000,1000')}{5 * tpot_ms},{tpot_ms}")
    file.write_text("\n".join([COLUMNS, *made]), encoding="utf-8")
    return tmp_path


def test_points_are_of_one_server_alone(data: Path, scripts: Scripts) -> None:
    speed_data = scripts[1]
    file = data / speed_data.POINTS
    last = file.read_text(encoding="utf-8").splitlines()[-1]
    assert ",64,4,1,1," in last
    others = (
        last,  # again
        last.replace(",agg,", ",disagg,"),
        last.replace(",64,4,1,1,", ",64,4,8,8,"),  # ranks of attention
        last.replace(",64,4,1,1,", ",64,16,1,1,"),  # two machines
    )
    with file.open("a", encoding="utf-8") as lines:
        lines.write("\n" + "\n".join(others))

    found = speed_data.read_points(data)

    assert len(found) == 108
    assert found[0].setup.engine == "vllm"
    assert found[0].curve == "meta-llama/Meta-Llama-3.1-8B H200 vllm W8A8-FP8 TP 1 1000:100"


def test_points_of_more_requests_than_memory_holds_are_left_out(
    data: Path, scripts: Scripts
) -> None:
    """8 B of weights and 65,536 B a token in 8 bits: an H200 holds 237 requests of 8,250 tokens."""
    speed_data = scripts[1]
    file = data / speed_data.POINTS
    llama = "vllm,0.19.0,meta-llama/Meta-Llama-3.1-8B,h200_sxm,agg,8000,500,fp8"
    with file.open("a", encoding="utf-8") as lines:
        lines.write("".join(f"\n{llama},{batch},1,1,1,1,1" for batch in (230, 245)))

    batches = {point.batch for point in speed_data.read_points(data)}

    assert batches == {1, 8, 64, 230}


def test_ranks_of_attention_are_read_as_one_device_each_that_share_the_experts(
    data: Path, scripts: Scripts
) -> None:
    speed_data = scripts[1]
    file = data / speed_data.POINTS
    last = file.read_text(encoding="utf-8").splitlines()[-1]
    with file.open("a", encoding="utf-8") as lines:
        lines.write("\n" + last.replace(",64,4,1,1,", ",16,4,4,16,"))

    (found,) = speed_data.read_rank_points(data)

    assert (found.setup.tp_degree, found.setup.dp_degree, found.batch) == (1, 4, 64)
    assert found.setup.model.kv_bytes_per_token == 9_216


def test_speeds_over_pcie_lie_within_their_bands(scripts: Scripts) -> None:
    """Two do not: one request on 8 cards, where TGI of 2023 waited for its host at every layer."""
    found = importlib.import_module("predict").published_points()

    outside = {row["what"] for row in found if not row["held"]}
    errors = sorted(abs(row["error"]) for row in found)
    assert len(found) == 26
    assert outside <= {
        "Llama-2-7b on 8 of ml.g5.48xlarge, 1 at once",
        "Llama-2-13b on 8 of ml.g5.48xlarge, 1 at once",
    }
    assert errors[13] < 0.3
