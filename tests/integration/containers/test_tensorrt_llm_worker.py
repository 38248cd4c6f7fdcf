"""The worker that builds TensorRT-LLM engines, by contract.

TensorRT-LLM cannot be installed here.  `trtllm-build`, `nvidia-smi` and the package
`tensorrt_llm` are small stand-ins, in this file alone: they take the documented arguments
and leave the documented layout.  No engine is built and no GPU is used.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.cases import Case, cases_of, read_tables
from tests.support.workers import TOOLS, run_worker
from tests.unit.containers.test_tensorrt_llm_worker import CONFIG, ENGINE, EXPECTED, other_config
from tests.unit.containers.test_tensorrt_llm_worker import built as built

cases = cases_of(__file__, "tensorrt_llm")
TABLES = read_tables(__file__, "tensorrt_llm")

HELPER = TOOLS / "common"

BUILD = """#!{python}
import json, os, pathlib, sys
words = dict(zip(sys.argv[1::2], sys.argv[2::2]))
pathlib.Path({seen!r}).write_text(json.dumps([sys.argv[1:], dict(os.environ)]))
told = json.loads(pathlib.Path({told!r}).read_text())
print("[TRT-LLM] [I] building")
if told["status"]:
    print(told["says"])
    sys.exit(told["status"])
output = pathlib.Path(words["--output_dir"])
(output / "config.json").write_text(told["config"])
for rank in range(told["ranks"]):
    weights = pathlib.Path(words["--checkpoint_dir"], f"rank{{rank}}.safetensors").stat().st_size
    (output / f"rank{{rank}}.engine").write_bytes(b"e" * (weights // told["divide"]))
"""
SMI = """#!{python}
import pathlib, sys
print(pathlib.Path({told!r}).read_text(), end="")
"""
PACKAGE = """
import json, pathlib

class Mapping:
    def __init__(self, world_size, rank, tp_size, pp_size):
        self.rank = rank

class AutoModelForCausalLM:
    @classmethod
    def from_hugging_face(cls, model, dtype, mapping):
        if not pathlib.Path(model, "config.json").exists():
            raise NotImplementedError("The given architecture is not supported in TRT-LLM yet")
        made = cls()
        made.rank = mapping.rank
        return made
    def save_checkpoint(self, output, save_config):
        if save_config:
            pathlib.Path(output, "config.json").write_text("{}")
        pathlib.Path(output, f"rank{self.rank}.safetensors").write_bytes(b"w" * 1000)

class SamplingParams:
    def __init__(self, **told):
        pass
"""
QUANTIZATION = """
import json, pathlib

def quantize_and_export(*, output_dir, calib_dataset, **told):
    texts = [json.loads(line)["text"] for line in pathlib.Path(calib_dataset, "train.jsonl").open()]
    pathlib.Path(output_dir, "config.json").write_text("{}")
    for rank in range(told["tp_size"]):
        pathlib.Path(output_dir, f"rank{rank}.safetensors").write_bytes(b"q" * 300)
    pathlib.Path(__file__).with_name("told.json").write_text(json.dumps([told, texts]))
"""
LOADING = """
import pathlib

class LLM:
    def __init__(self, model, skip_tokenizer_init):
        if pathlib.Path(__file__).with_name("refuse").exists():
            raise RuntimeError("The engine plan file is generated on an incompatible device")
    def generate(self, prompt, sampling):
        tokens = type("Output", (), {"token_ids": [7, 8, 9, 10]})
        return type("Answer", (), {"outputs": [tokens]})
"""


class Worker:
    """One run of the worker among stand-ins, with everything below one directory."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.output = root / "output"
        self.packages = root / "packages"
        package = self.packages / "tensorrt_llm"
        for place in ("output", "work", "model", "samples", "bin"):
            (root / place).mkdir()
        (package / "quantization").mkdir(parents=True)
        (package / "__init__.py").write_text(PACKAGE)
        (package / "quantization" / "__init__.py").write_text(QUANTIZATION)
        (package / "_tensorrt_engine.py").write_text(LOADING)
        (root / "samples" / "samples.jsonl").write_text(
            json.dumps({"messages": [{"role": "user", "content": "hello"}]}) + "\n"
        )
        for name in ("config.json", "tokenizer.json", "model.safetensors"):
            (root / "model" / name).write_text("{}")
        self.gpus("NVIDIA A10G, 8.6, 570.1\n" * 2)
        self.version("0.21.0")
        self.builder()
        for name, text in (("trtllm-build", BUILD), ("nvidia-smi", SMI)):
            program = root / "bin" / name
            told = root / f"{name}.told"
            seen = root / "seen.json"
            program.write_text(text.format(python=sys.executable, told=str(told), seen=str(seen)))
            program.chmod(0o755)

    def gpus(self, said: str) -> None:
        (self.root / "nvidia-smi.told").write_text(said)

    def version(self, version: str) -> None:
        info = self.packages / "tensorrt_llm-0.dist-info"
        info.mkdir(exist_ok=True)
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: tensorrt_llm\nVersion: {version}\n"
        )

    def builder(self, **told: Any) -> None:
        usual = {"status": 0, "says": "", "config": json.dumps(CONFIG), "ranks": 2, "divide": 1}
        (self.root / "trtllm-build.told").write_text(json.dumps({**usual, **told}))

    def run(self, **changes: Any) -> dict[str, Any]:
        env = {"PATH": f"{self.root / 'bin'}:/usr/bin:/bin", "FROM_THE_IMAGE": "1"}
        given = {**TABLES["parameters"], "quantize": None, "expected": EXPECTED}
        parameters = {**given, "env": env, **changes}
        inputs = {name: str(self.root / name) for name in ("model", "samples")}
        packages = f"{HELPER}:{self.packages}"
        return run_worker(
            "tensorrt-llm", self.root, parameters, inputs, gpus=2, PYTHONPATH=packages
        )

    def seen(self) -> tuple[list[str], dict[str, str]]:
        words, env = json.loads((self.root / "seen.json").read_text())
        return words, env


@pytest.fixture
def worker(tmp_path: Path) -> Worker:
    return Worker(tmp_path)


def test_an_engine_is_built_checked_and_loaded(worker: Worker) -> None:
    result = worker.run()

    assert "error" not in result, result
    assert result["files"] == [
        "config.json", "packager.json", "rank0.engine", "rank1.engine",
    ]  # fmt: skip
    assert json.loads((worker.output / "config.json").read_text()) == CONFIG
    assert result["versions"]["tensorrt_llm"] == "0.21.0"
    assert result["details"]["answer"] == "[7, 8, 9, 10]"
    manifest = json.loads((worker.output / "packager.json").read_text())
    assert manifest["for"] == {
        "gpus": ["NVIDIA A10G", "NVIDIA A10G"],
        "compute_capabilities": ["8.6", "8.6"],
    }
    assert set(manifest["files"]) == set(result["files"]) - {"packager.json"}


def test_the_builder_gets_the_plans_arguments_in_the_images_environment(worker: Worker) -> None:
    worker.run()

    words, env = worker.seen()
    assert words == [
        *("--checkpoint_dir", str(worker.root / "work" / "checkpoint")),
        *("--output_dir", str(worker.output)),
        *("--max_batch_size", "16", "--gemm_plugin", "auto"),
        *("--workers", "2", "--log_level", "info"),
    ]
    assert env["FROM_THE_IMAGE"] == "1"


def test_quantizing_gets_our_texts_and_settings(worker: Worker) -> None:
    quantize = {**TABLES["quantize"], "kv_cache_dtype": None}
    config = other_config("pretrained_config.quantization.quant_algo", "W4A16_AWQ")
    worker.builder(config=json.dumps(config))
    expected = {**EXPECTED, "pretrained_config.quantization.quant_algo": "W4A16_AWQ"}

    result = worker.run(quantize=quantize, expected=expected)

    assert "error" not in result, result
    place = worker.packages / "tensorrt_llm" / "quantization" / "told.json"
    told, texts = json.loads(place.read_text())
    assert texts == ["hello"]
    assert (told["qformat"], told["awq_block_size"], told["seed"]) == ("int4_awq", 64, 3)
    assert (told["tp_size"], told["pp_size"], told["dtype"]) == (2, 1, "bfloat16")


@cases("failures")
def test_what_goes_wrong_has_a_class_and_a_reason(worker: Worker, case: Case) -> None:
    if "builder" in case:
        worker.builder(**case["builder"])
    for dotted, value in case.get("config", {}).items():
        worker.builder(config=json.dumps(other_config(dotted, value)))
    if "gpus" in case:
        worker.gpus("".join(f"{gpu}\n" for gpu in case["gpus"]))
    if "version" in case:
        worker.version(case["version"])
    if "removed" in case:
        (worker.root / case["removed"]).unlink()
    if "touched" in case:
        (worker.root / case["touched"]).touch()

    error = worker.run()["error"]

    assert case.get("kind", error["class"]) == error["class"]
    assert [words for words in case.get("said", ()) if words not in error["message"]] == []
    assert case.get("hint", "") in error.get("hint", "")
    assert case.get("is_built", True) or not (worker.root / "seen.json").exists()


def test_a_finished_engine_is_for_its_gpus_and_whole(worker: Worker) -> None:
    worker.run()
    here = {"gpus": ["NVIDIA A10G"] * 2, "compute_capabilities": ["8.6"] * 2}
    ENGINE.check_manifest(worker.output, here)

    with pytest.raises(ENGINE.WrongEngine, match="this machine has"):
        ENGINE.check_manifest(worker.output, {**here, "compute_capabilities": ["9.0"] * 2})
    engine = worker.output / "rank1.engine"
    engine.write_bytes(b"x" + engine.read_bytes()[1:])
    with pytest.raises(ENGINE.WrongEngine, match=r"rank1\.engine is not what was built"):
        ENGINE.check_manifest(worker.output, here)
    engine.write_bytes(b"x")
    with pytest.raises(ENGINE.WrongEngine, match=r"rank1\.engine is missing or cut off"):
        ENGINE.check_manifest(worker.output, here)
