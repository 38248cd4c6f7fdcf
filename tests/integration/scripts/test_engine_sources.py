"""The scripts that read TGI's and Neuron's settings from source, given small trees like theirs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.places import SCRIPTS

LAUNCHER = """
#[derive(Clone, Copy, Debug, ValueEnum, Deserialize)]
enum Quantization {
    /// Four bits.
    Awq,
    #[deprecated(
        since = "1.1.0",
        note = "Use eetq"
    )]
    BitsandbytesNf4,
    CompressedTensors,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Dtype {
    Float16,
    #[clap(name = "bfloat16")]
    BFloat16,
}

/// App Configuration
struct Args {
    #[clap(default_value = "bigscience/bloom-560m", long, env)]
    model_id: String,
    #[clap(long, env)]
    num_shard: Option<usize>,
    #[clap(long, env, value_enum)]
    quantize: Option<Quantization>,
    #[clap(long, env, value_enum)]
    dtype: Option<Dtype>,
    /// Batch sizes; "0" to disable.
    #[clap(long, env, value_delimiter = ',')]
    cuda_graphs: Option<Vec<usize>>,
    #[clap(default_value = "3000", long, short, env)]
    port: u16,
    #[clap(default_value = "1.0", long, env)]
    cuda_memory_fraction: f32,
    #[clap(long, env)]
    trust_remote_code: ATYPE,
    #[clap(long, short, action)]
    env: bool,
}

fn shard() {
    shard_args.push("--sharded".to_string());
    shard_args.push("--quantize".to_string());
    envs.push(("WORLD_SIZE".into(), world_size.into()));
    envs.push((
        "CUDA_GRAPHS".into(), graphs.into()));
    let hf = env::var("HF_HUB_ENABLE_HF_TRANSFER").unwrap_or("1".to_string());
    let port = ["--port".to_string(), args.port.to_string()];
}
"""
ROUTER = """
struct Args {
    #[clap(default_value = "3000", long, short, env)]
    port: u16,
    #[clap(default_value = "1073741824", long, env)]
    max_image_fetch_size: usize,
}
"""
GLOBALS = """
import os

RANK = int(os.environ["WORLD_SIZE"])
ATTENTION = os.environ["ATTENTION"]
_expected = {"paged", "flashinfer"}
assert ATTENTION in _expected, ATTENTION
ROOM = float(os.getenv("TGI_WIGGLE_ROOM", "0.90"))
TOKEN = os.getenv("HF_TOKEN")
if os.environ.get("ROCM_USE_SKINNY_GEMM", "True") == "True":
    SKINNY = True
"""
NEURON_CLI = """
def serve(model_id: str, revision: str | None = None, sharded: bool = False):
    if sharded:
        raise ValueError("Sharding is not supported.")
"""
SCRIPT = """#!/bin/bash
export MODEL_ID="${HF_MODEL_ID}"

if [[ -n "${SM_NUM_GPUS}" ]]; then
  export NUM_SHARD="${SM_NUM_GPUS}"
fi

text-generation-launcher --port 8080
"""
SERVE = """
class ServeCommand:
    @staticmethod
    def parse_args(parser):
        parser.add_argument("-m", "--model", type=str, required=True, help="x")
        parser.add_argument("--served_model_name", "--served-model-name", type=str, default=None)
        parser.add_argument("--task", type=str, choices=["generate", "embed"], default="generate")
        parser.add_argument("--batch_size", "--batch-size", type=int)
        parser.add_argument("--allow_non_cached_model", action="ACTION", default=False)

    def run(self):
        command = ["--model", self.args.model, "--max-num-seqs", str(batch_size)]
"""
NXDI = """
class NeuronConfig:
    def __init__(self, **kwargs):
        self.batch_size = kwargs.pop("batch_size", 1)
        self.fused_qkv = kwargs.pop("fused_qkv", False)
        self.buckets = kwargs.pop("buckets", [128])
        self.lnc = self._get_lnc(kwargs)
        self.sampling = kwargs.pop("sampling", None)
        if type(self.sampling) is dict:
            self.sampling = Sampling(**self.sampling)

    def _get_lnc(self, kwargs):
        return int(kwargs.pop("logical_nc_config"))


class MoENeuronConfig(NeuronConfig):
    def __init__(self, capacity_factor=None, **kwargs):
        super().__init__(**kwargs)


class Sampling:
    def __init__(self, **kwargs):
        self.top_k = kwargs.pop("top_k", 1)


class Unused:
    def __init__(self, **kwargs):
        self.other = kwargs.pop("other", 1)
"""


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
