"""Layouts over devices, asked for on the command line."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from packager.cli.app import run
from tests.support.commandline import TINY

ON_EIGHT = ["--model", str(TINY), "--instance", "ml.p5.48xlarge", "--family", "vllm"]


def test_an_image_of_several_machines(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    on_two = [*ON_EIGHT, "--nodes", "2"]
    output = f"oci:{tmp_path / 'two'}"

    assert run(["plan", *on_two]) == 0
    assert "2 nodes" in capsys.readouterr().out
    assert run(["build", *on_two, "--base", "scratch", "--output", output, "--quiet"]) == 0
    output = capsys.readouterr().out.strip()
    assert output.startswith(f"oci:{tmp_path / 'two'}:latest@sha256:")

    words = ["--image", "r.example/two:1", "--output", str(tmp_path / "manifests")]
    assert run(["deploy", "kubernetes", "render", output, *words]) == 0
    found = yaml.safe_load((tmp_path / "manifests" / "20-leader-worker-set.yaml").read_text())
    template = found["spec"]["leaderWorkerTemplate"]
    assert template["size"] == 2
    (worker,) = template["workerTemplate"]["spec"]["containers"]
    told = {one["name"]: one["value"] for one in worker["env"]}
    assert told["SM_VLLM_NNODES"] == "2"
    assert told["SM_VLLM_NODE_RANK"] == "$(LWS_WORKER_INDEX)"
    assert told["SM_VLLM_MASTER_ADDR"] == "$(LWS_LEADER_ADDRESS)"
    assert told["SM_VLLM_HEADLESS"] == "true"
    assert "command" not in worker  # the image's entry point makes words of the variables
    (leader,) = template["leaderTemplate"]["spec"]["containers"]
    assert "SM_VLLM_HEADLESS" not in {one["name"] for one in leader["env"]}

    capsys.readouterr()
    role = ["--role-arn", "arn:aws:iam::123456789012:role/serve"]
    assert run(["deploy", "sagemaker", "render", output, *role]) == 3
    assert "needs 2 machines" in capsys.readouterr().err


def test_experts_of_a_dense_model_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", *ON_EIGHT, "--ep"]) == 3
    assert "the model has no experts" in capsys.readouterr().err
