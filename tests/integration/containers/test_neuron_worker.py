"""The worker that compiles for NeuronCores, and the launcher's part for what it compiled.

`TOOLCHAIN` is a stand-in for optimum-cli: it leaves files in the documented layout.
Neither runs on Neuron hardware here, and no graph is real.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from packager.addons.contrib.foreign_caches.neuron import find_compiler_caches
from packager.addons.contrib.foreign_caches.optimum_neuron import read_registry
from tests.support.cases import cases
from tests.support.foreign_trees import VERSION, neff
from tests.support.workers import SERVING, compile_with, load

COMPILED = load(SERVING / "neuron" / "compiled_cache.py")

TOOLCHAIN = f"""
import json, os, pathlib, sys
way, neff, traced = sys.argv[1], bytes.fromhex(sys.argv[2]), pathlib.Path(sys.argv[-1])
assert os.environ["NEURON_PLATFORM_TARGET_OVERRIDE"] == "trn1"
says = {{
    "refused": "ValueError: Model type foo is not supported by neuronx",
    "absent": "ModuleNotFoundError: No module named 'neuronxcc'",
    "killed": "[F137] neuronx-cc was forcibly killed",
    "dies": "something else",
}}
cache = pathlib.Path(os.environ["NEURON_COMPILE_CACHE_URL"]) / "neuronxcc-{VERSION}"
module = cache / ("MODULE_" + "0" * 20 + "+d41d8cd9")
module.mkdir(parents=True)
(module / "model.neff.lock").touch()
if way == "graph":
    (module / "model.log").write_text("[NCC_EVRF001] cannot be tiled")
    sys.exit(1)
if way in says:
    print(says[way], file=sys.stderr)
    sys.exit(1)
(module / "model.neff").write_bytes(neff[:-1] if way == "cut" else neff)
if way != "unfinished":
    (module / "model.done").touch()
(module / "compile_flags.json").write_text("{{" if way == "json" else "[]")
traced.mkdir()
batch = 8 if way == "batch" else 4
told = json.loads(os.environ.get("TOLD", "{{}}"))
told |= {{"batch_size": batch, "target": "trn1", "torch_dtype": "torch.bfloat16"}}
(traced / "neuron_config.json").write_text(json.dumps(told))
(traced / "config.json").write_text('{{"model_type": "llama", "bos_token_id": 1}}')
(traced / "model.pt").write_bytes(b"" if way == "empty" else b"traced")
(traced / "checkpoint/weights").mkdir(parents=True)
(traced / "checkpoint/weights/tp0_sharded_checkpoint.safetensors").write_bytes(b"weights")
(traced / "tokenizer.json").write_text("{{}}")
"""


class Worker:
    """One run of the worker, with everything below one directory."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.output = root / "output"
        for name in ("serving", "output", "work"):
            (root / name).mkdir()
        source = (SERVING / "neuron/compiled_cache.py").read_bytes()
        (root / "serving/compiled_cache.py").write_bytes(source)
        (root / "toolchain.py").write_text(TOOLCHAIN)

    def run(self, way: str = "", **changes: Any) -> dict[str, Any]:
        toolchain = [sys.executable, str(self.root / "toolchain.py"), way, neff().hex()]
        parameters = {
            "command": [*toolchain, "{traced}"],
            "serving_dir": str(self.root / "serving"),
            "versions": {"pydantic": importlib.metadata.version("pydantic")},
            "expected": {"batch_size": 4, "target": "trn1", "torch_dtype": "bfloat16"},
        }
        told = json.dumps(changes.pop("told", {}))
        parameters |= changes
        env = {"NEURON_PLATFORM_TARGET_OVERRIDE": "trn1", "TOLD": told}
        return compile_with("neuron", self.root, parameters, **env)


@pytest.fixture
def worker(tmp_path: Path) -> Worker:
    return Worker(tmp_path)


MODULE = f"neuronxcc-{VERSION}/MODULE_{'0' * 20}+d41d8cd9"


def test_graphs_and_the_traced_model_are_kept_without_weights_or_locks(worker: Worker) -> None:
    result = worker.run()

    assert "error" not in result, result
    assert result["files"] == [
        "manifest.json",
        "model/model.pt",
        "model/neuron_config.json",
        f"{MODULE}/compile_flags.json",
        f"{MODULE}/model.done",
        f"{MODULE}/model.neff",
    ]
    assert result["details"]["graphs"] == 1
    [cache] = find_compiler_caches(worker.output)  # as an import reads it
    assert (len(cache.modules), cache.left_out) == (1, ())


@cases("what_goes_wrong_has_a_class_and_a_reason", way="", changes={}, kind="", hint="")
def test_what_goes_wrong_has_a_class_and_a_reason(
    worker: Worker, way: str, changes: dict[str, Any], kind: str, said: str, hint: str
) -> None:
    error = worker.run(way, **changes)["error"]

    assert kind in ("", error["class"])
    assert said in error["message"]
    assert hint in error.get("hint", "")


def test_an_export_is_registered_so_that_it_can_be_read_as_optimum_neurons_cache(
    worker: Worker,
) -> None:
    result = worker.run(told={"neuronxcc_version": VERSION, "optimum_neuron_version": "0.4.5"})

    assert "error" not in result, result
    registry = read_registry(worker.output)
    assert registry.left_out == ()
    [entry] = registry.entries
    assert (entry.model, entry.task, entry.config) == (
        "llama",
        "text-generation",
        {"model_type": "llama"},
    )
    assert entry.neuron["batch_size"] == 4


class Start:
    """One start of a container, as the launcher's part sees it."""

    def __init__(self, root: Path, *, export: list[str]) -> None:
        self.copy = root / "copy"
        self.model = root / "weights"
        self.model.mkdir()
        (self.model / "model.safetensors").write_bytes(b"weights")
        (self.model / "config.json").write_text('{"of": "the model"}')
        self.settings = root / "neuron.json"
        self.settings.write_text(json.dumps({"model": str(self.model), "export": export}))

    def take(self, compiled: Path) -> str:
        said: str = COMPILED.take_compiled(compiled, dict(os.environ), self.copy, self.settings)
        return said


def test_a_start_copies_the_cache_and_serves_the_traced_model_beside_the_weights(
    worker: Worker, tmp_path: Path
) -> None:
    worker.run()
    start = Start(tmp_path, export=["/bin/false"])

    for _ in range(2):  # a container may be started again
        assert start.take(worker.output) == "5 files compiled ahead of time are in place"

    graph = start.copy / "cache" / MODULE / "model.neff"
    assert graph.read_bytes() == neff()
    assert os.access(graph.parent, os.W_OK)
    assert not graph.is_symlink()
    assert (start.copy / "model/model.safetensors").read_bytes() == b"weights"
    assert (start.copy / "model/config.json").read_text() == '{"of": "the model"}'


def test_the_config_of_another_model_is_not_served(worker: Worker, tmp_path: Path) -> None:
    """Artifacts of 0.1 held the first model's: its answers' end was served with every other."""
    worker.run()
    (worker.output / "manifest.json").unlink()
    (worker.output / "model/config.json").write_text('{"of": "another model"}')
    start = Start(tmp_path, export=["/bin/false"])

    start.take(worker.output)

    assert (start.copy / "model/config.json").read_text() == '{"of": "the model"}'
    assert (start.copy / "model/model.pt").is_file()


@pytest.mark.parametrize("damage", ["cut", "changed", "missing"])
def test_a_damaged_artifact_is_not_used(worker: Worker, tmp_path: Path, damage: str) -> None:
    worker.run()
    graph = worker.output / MODULE / "model.neff"
    if damage == "missing":
        graph.unlink()
    else:
        data = graph.read_bytes()
        graph.write_bytes(data[:-1] if damage == "cut" else data[:-1] + b"x")
    start = Start(tmp_path, export=[])

    assert "is not used: " in start.take(worker.output)
    assert list((start.copy / "cache").iterdir()) == []  # and can be compiled into


def test_an_imported_cache_is_exported_from_before_it_is_served(tmp_path: Path) -> None:
    """Other tools' caches have graphs and no traced model: exporting finds all of them."""
    compiled = tmp_path / "compiled"
    (compiled / MODULE).mkdir(parents=True)
    (compiled / MODULE / "model.neff").write_bytes(neff())
    start = Start(tmp_path, export=["/bin/mkdir"])

    said = start.take(compiled)

    assert said == "1 files compiled ahead of time are in place; the model was exported"
    assert (start.copy / "model").is_dir()


def test_graphs_of_another_compiler_than_the_images_are_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled = tmp_path / "compiled"
    (compiled / MODULE).mkdir(parents=True)
    (compiled / MODULE / "model.neff").write_bytes(neff())
    monkeypatch.setattr(importlib.metadata, "version", lambda _: "2.20.1")

    said = Start(tmp_path, export=[]).take(compiled)

    assert "neuronx-cc 2.21.33363.0 made it, this is 2.20.1" in said


def test_the_manifest_names_the_digest_of_each_file(worker: Worker) -> None:
    worker.run()

    files = json.loads((worker.output / "manifest.json").read_text())["files"]

    assert files["model/model.pt"]["sha256"] == hashlib.sha256(b"traced").hexdigest()
