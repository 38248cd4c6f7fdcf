"""A model from a hub, by the command line: pinned, downloaded once, refused early."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.optimize.drafts.test_drafts_in_builds import write_head, write_target
from tests.support import heads
from tests.support.cases import cases
from tests.support.commandline import Packager
from tests.support.doubles.fake_hub import FakeHub
from tests.support.doubles.models import write_model
from tests.support.headers import TINY
from tests.support.published_hub import publish
from tests.support.quantized import arriving, save


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[FakeHub]:
    """A hub that has one small model, `acme/tiny`."""
    model = write_model(tmp_path / "upstream")
    with FakeHub() as served:
        served.add("acme/tiny", {path.name: path.read_bytes() for path in model.iterdir()})
        yield served


@pytest.fixture
def environment(hub: FakeHub, tmp_path: Path) -> dict[str, str]:
    return {"HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "hf"), "HF_HUB_DISABLE_XET": "1"}


BUILD = ("build", "--instance", "local", "--base", "scratch", "--output", "oci:out", "--quiet")


@pytest.mark.capability("sources")
def test_a_hub_model_is_pinned_to_a_commit_and_served_under_its_name(
    packager: Packager, environment: dict[str, str]
) -> None:
    done = packager(*BUILD, "--model", "acme/tiny", "--format", "json", env=environment, status=0)

    record = json.loads(done.out)
    assert record["model"]["name"] == record["served_name"] == "acme/tiny"
    assert len(record["model"]["revision"]) == 40


def test_a_plan_of_a_hub_model_fetches_no_weights(
    packager: Packager, environment: dict[str, str], hub: FakeHub, tmp_path: Path
) -> None:
    packager("plan", "--model", "acme/tiny", "--instance", "g5.xlarge", env=environment, status=0)

    assert not list(tmp_path.glob("hf/**/*.safetensors"))


def test_a_build_that_is_refused_from_headers_downloads_no_weights(
    packager: Packager, environment: dict[str, str], hub: FakeHub, tmp_path: Path
) -> None:
    model = save(arriving("awq", group_size=64), tmp_path / "awq")
    hub.add("acme/awq", {path.name: path.read_bytes() for path in model.iterdir()})

    done = packager(*BUILD, "--model", "acme/awq", env=environment, status=3)

    assert "28 packed weights are stored with scales of another shape" in done.err
    assert not list(tmp_path.glob("hf/**/*.safetensors"))


def test_a_plan_reads_the_map_of_a_head_where_it_is(
    packager: Packager, environment: dict[str, str], hub: FakeHub, tmp_path: Path
) -> None:
    target = TINY | {"num_hidden_layers": 8}
    model = write_target(tmp_path / "model")
    head = write_head(tmp_path / "head", heads.eagle3(target, draft_vocab=1024))
    files = {path.name: path.read_bytes() for path in head.iterdir()}
    weights = files["model.safetensors"]
    at = weights.index(struct.pack("<4q", 0, 0, 0, 1))  # where `d2t` begins
    files["model.safetensors"] = weights[:at] + struct.pack("<q", 2048) + weights[at + 8 :]
    hub.add("acme/head", files)
    asked = ("--draft", "eagle3:acme/head", "--instance", "g5.xlarge")

    done = packager("plan", "--model", str(model), *asked, env=environment, status=3)

    assert "maps 1 of 1024 tokens to none of the model's 2048" in done.err
    assert not list(tmp_path.glob("hf/**/*.safetensors"))


def test_a_streamed_build_reads_scales_where_they_are(
    packager: Packager, environment: dict[str, str], hub: FakeHub, tmp_path: Path
) -> None:
    scale = "model.layers.1.mlp.up_proj.scales"
    broken = {scale: struct.pack("<e", float("nan")) * (2 * 768)}
    model = save(arriving("awq"), tmp_path / "awq", broken)
    hub.add("acme/awq", {path.name: path.read_bytes() for path in model.iterdir()})

    done = packager(*BUILD, "--model", "hf://acme/awq", env=environment, status=3)

    assert f"1 scale is not finite: {scale}" in done.err
    assert not list(tmp_path.glob("hf/**/*.safetensors"))


def test_unreachable_output(
    packager: Packager, environment: dict[str, str], tmp_path: Path
) -> None:
    packager(
        *("build", "--model", "acme/tiny", "--instance", "local", "--base", "scratch"),
        *("--output", "127.0.0.1:9/tiny:1", "--quiet"),
        env=environment,
        status=69,
    )

    assert not list(tmp_path.glob("hf/**/*.safetensors"))


@cases("a_dry_run_of_a_large_model_reads_headers")
def test_a_dry_run_of_a_large_model_reads_headers(
    asked: tuple[str, ...], packager: Packager, environment: dict[str, str], hub: FakeHub
) -> None:
    name = "meta-llama/Meta-Llama-3.1-70B"
    publish(hub, name)
    run = ("build", "--model", name, "--instance", "8xH100", "--base", "scratch", "--dry-run")

    done = packager(*run, *asked, "--format", "json", env=environment)

    assert done.status == (8 if "--require-cached" in asked else 0), done.err
    assert hub.sent <= 20e6
    if not asked:
        layers = json.loads(done.out)["layers"]
        assert sum(layer["size"] for layer in layers if layer["role"] == "weights") > 141e9
