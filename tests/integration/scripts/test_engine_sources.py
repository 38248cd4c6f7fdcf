"""The scripts that read TGI's and Neuron's settings from source, given small trees like theirs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.places import SCRIPTS


def source(name: str) -> str:
    """Read a file like one of the engine's."""
    return (Path(__file__).parent / "corpus" / "sources" / f"{name}.txt").read_text("utf-8")


LAUNCHER = source("launcher.rs")
ROUTER = source("router.rs")
GLOBALS = source("globals.py")
NEURON_CLI = source("neuron_cli.py")
SCRIPT = source("start.sh")
SERVE = source("serve.py")
NXDI = source("nxdi.py")


def tree(place: Path, **changes: str) -> Path:
    files = {
        "launcher/src/main.rs": LAUNCHER.replace("ATYPE", changes.get("of_type", "bool")),
        "backends/v3/src/main.rs": ROUTER,
        "backends/v2/src/main.rs": ROUTER,
        "server/text_generation_server/globals.py": GLOBALS,
        "backends/neuron/server/text_generation_server/cli.py": NEURON_CLI,
        "sagemaker-entrypoint.sh": SCRIPT,
        "Cargo.toml": '[workspace]\n[workspace.package]\nversion = "3.9.0-dev0"\n',
        "optimum/commands/neuron/serve.py": SERVE.replace(
            "ACTION", changes.get("action", "store_true")
        ),
        "optimum/neuron/version.py": '__version__ = "0.9.1"\n',
        "pyproject.toml": 'deps = ["vllm == 0.11.0"]\n',
        "src/neuronx_distributed_inference/models/config.py": NXDI,
        "src/neuronx_distributed_inference/_version.py": '__version__ = "0.7.0"\n',
    }
    for name, text in files.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(text)
    return place


def run(of: str, place: Path, *more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(SCRIPTS / "engine-options"), of, str(place), *more],
        capture_output=True,
        text=True,
        timeout=300,
    )


def read(of: str, place: Path, *more: str) -> dict[str, Any]:
    done = run(of, tree(place), *more)
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def test_tgis_launcher_router_and_shards_are_read_without_building_them(tmp_path: Path) -> None:
    document = read("tgi", tmp_path)

    assert (document["engine"], document["version"]) == ("tgi", "3.9.0")
    assert document["entrypoint"] == {
        "exports": {"MODEL_ID": "HF_MODEL_ID", "NUM_SHARD": "SM_NUM_GPUS"},
        "arguments": {"PORT": "8080"},
    }
    assert document["options"] == {
        "ATTENTION": {"type": "word", "choices": ["flashinfer", "paged"]},
        "CUDA_GRAPHS": {"type": "uint64", "separator": ","},
        "CUDA_MEMORY_FRACTION": {"type": "float"},
        "DTYPE": {"type": "word", "choices": ["float16", "bfloat16"]},
        "HF_HUB_ENABLE_HF_TRANSFER": {"type": "text"},
        "LOG_LEVEL": {"type": "text"},
        "MAX_IMAGE_FETCH_SIZE": {"type": "uint64"},
        "MODEL_ID": {"type": "text"},
        "NUM_SHARD": {"type": "uint64"},
        "PORT": {"type": "uint16"},
        "QUANTIZE": {
            "type": "word",
            "choices": ["awq", "bitsandbytes-nf4", "compressed-tensors"],
        },
        "TGI_WIGGLE_ROOM": {"type": "float", "default": "0.90"},
        "TRUST_REMOTE_CODE": {"type": "bool"},
    }


def test_a_tag_that_cargo_lags_behind_is_the_version(tmp_path: Path) -> None:
    assert read("tgi", tmp_path, "--tag", "3.9.1")["version"] == "3.9.1"


def test_a_type_that_the_reader_does_not_know_is_not_guessed(tmp_path: Path) -> None:
    done = run("tgi", tree(tmp_path, of_type="Mystery"))

    assert (done.returncode, done.stdout) == (1, "")
    assert "there is no enum Mystery" in done.stderr


def test_what_neurons_shards_do_not_take_is_no_option_of_theirs(tmp_path: Path) -> None:
    document = read("neuronx-tgi", tmp_path)

    assert document["engine"] == "neuronx-tgi"
    assert document["entrypoint"]["exports"] == {"MODEL_ID": "HF_MODEL_ID"}
    assert not {"QUANTIZE", "NUM_SHARD", "CUDA_GRAPHS", "ATTENTION"} & document["options"].keys()
    assert {"HF_NUM_CORES", "PORT", "MODEL_ID"} <= document["options"].keys()


def test_the_options_of_optimums_serve_are_read_with_what_it_decides(tmp_path: Path) -> None:
    document = read("optimum-neuron", tmp_path)

    assert document["version"] == "0.9.1"
    assert document["passes_on"] == {
        "engine": "vllm",
        "version": "0.11.0",
        "except": ["max-num-seqs", "model"],
    }
    assert document["options"] == {
        "allow-non-cached-model": {"type": "flag"},
        "batch-size": {"type": "int"},
        "model": {"type": "text"},
        "served-model-name": {"type": "text"},
        "task": {"type": "text", "choices": ["generate", "embed"]},
    }


def test_an_action_of_serve_that_the_reader_does_not_know_ends_it(tmp_path: Path) -> None:
    assert run("optimum-neuron", tree(tmp_path, action="append")).returncode != 0


def test_what_nxd_inference_takes_of_its_keywords_is_read_by_class(tmp_path: Path) -> None:
    document = read("nxdi", tmp_path)

    assert document["configs"].keys() == {"AdditionalConfig", "NeuronConfig", "Sampling"}
    assert document["configs"]["NeuronConfig"]["fields"] == {
        "batch_size": {"type": "int", "optional": True},
        "buckets": {"type": "list", "optional": True},
        "capacity_factor": {"type": "any"},
        "fused_qkv": {"type": "bool", "optional": True},
        "logical_nc_config": {"type": "any", "optional": True},
        "sampling": {"type": "object", "config": "Sampling", "optional": True},
    }


@pytest.mark.parametrize("of", ["tgi", "neuronx-tgi", "optimum-neuron", "nxdi"])
def test_a_directory_must_be_given(of: str) -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPTS / "engine-options"), of],
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert done.returncode == 2
    assert "needs a directory" in done.stderr
