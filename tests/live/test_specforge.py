"""Heads trained by the real SpecForge, on processors, from the command line and by the worker.

The environment is large; it is used where `packager tools install specforge` made it.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import pytest

from packager import wiring
from packager.models.safetensors import read_header
from tests.support.commandline import TINY, packager_in
from tests.support.places import ROOT

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("specforge")]

TOOL = ROOT / "containers" / "tools" / "specforge"
HELPER = ROOT / "containers" / "tools" / "common"
INTERFACE = Path(__file__).with_name("specforge_interface.py")
TAKES = ROOT / "tests" / "containers" / "specforge.json"
ASKED: dict[str, Any] = {
    "task": "eagle3", "max_tokens": 64, "seed": 0, "dtype": "float32", "speculative_tokens": 2,
    "layers": 1, "epochs": 2, "max_steps": 0, "learning_rate": 2e-3, "batch_tokens": 256,
    "aux_layers": [1, 2, 3], "draft_vocab_size": 500,
}  # fmt: skip


@pytest.fixture(scope="session")
def specforge() -> Path:
    """Python of the tool's environment."""
    environments = wiring.environments_for(wiring.Settings())
    if not environments.facts("specforge").installed:
        pytest.skip("`packager tools install specforge` installs it (5 GB)")
    return environments.place("specforge") / "bin/python"


@pytest.fixture(scope="session")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Texts such as tiny-llama learned from: Python's own help."""
    place = tmp_path_factory.mktemp("samples")
    texts = [{"text": text} for _, text in sorted(topics.items())]
    for name, some in (("train", texts[8:40]), ("held-out", texts[:8])):
        lines = "".join(json.dumps(text) + "\n" for text in some)
        (place / f"{name}.jsonl").write_text(lines)
    return place


class Worker:
    """Runs of the worker that share a work directory, as those of a step that goes on do."""

    def __init__(self, root: Path, python: Path, samples: Path) -> None:
        self.root = root
        self.output, self.work = root / "output", root / "work"
        self._python = python
        self._samples = samples

    def start(self, head: Path | None = None, **changes: Any) -> subprocess.Popen[bytes]:
        for place in (self.output, self.work):
            place.mkdir(parents=True, exist_ok=True)
        inputs = {"model": str(TINY), "samples": str(self._samples)}
        spec = {
            "protocol": 1, "tool": "specforge", "step": "train", "gpus": 0,
            "inputs": inputs | ({"head": str(head)} if head else {}),
            "parameters": ASKED | changes, "output": str(self.output), "work": str(self.work),
            "result": str(self.root / "result.json"),
        }  # fmt: skip
        (self.root / "spec.json").write_text(json.dumps(spec))
        with (self.root / "events").open("wb") as events, (self.root / "log").open("wb") as log:
            return subprocess.Popen(
                [str(self._python), str(TOOL / "worker.py"), str(self.root / "spec.json")],
                cwd=self.work, stdout=events, stderr=log, start_new_session=True,
                env={
                    "PATH": os.environ["PATH"], "HOME": str(self.root), "PYTHONPATH": str(HELPER),
                    "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1", "HF_HUB_OFFLINE": "1",
                    "PYTHONUNBUFFERED": "1",
                },
            )  # fmt: skip

    def run(self, head: Path | None = None, **changes: Any) -> dict[str, Any]:
        self.start(head, **changes).wait(500)
        result: dict[str, Any] = json.loads((self.root / "result.json").read_text())
        return result

    def events(self) -> list[dict[str, Any]]:
        whole = (self.root / "events").read_text().splitlines()
        with contextlib.suppress(ValueError):  # the last may be being written
            json.loads(whole[-1] if whole else "{}")
            return [json.loads(line) for line in whole]
        return [json.loads(line) for line in whole[:-1]]

    def made(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in self.output.iterdir()}


@pytest.fixture(scope="module")
def trained(
    tmp_path_factory: pytest.TempPathFactory, specforge: Path, samples: Path
) -> Iterator[Worker]:
    """A head that was trained without interruption."""
    worker = Worker(tmp_path_factory.mktemp("trained"), specforge, samples)
    result = worker.run()
    assert "error" not in result, result
    yield worker


def test_specforge_takes_what_the_fast_tests_say(specforge: Path) -> None:
    done = subprocess.run([str(specforge), str(INTERFACE)], capture_output=True, timeout=300)

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        name: json.loads(TAKES.read_text())[name] for name in ("commands", "run")
    }


def test_a_head_is_trained_measured_and_put_in_place(
    tmp_path: Path, specforge: Path, samples: Path
) -> None:
    words = ("--method", "eagle3", "--trainer", "specforge", "--answers", "data")
    data = ("--data", str(samples / "train.jsonl"), "--held-out", str(samples / "held-out.jsonl"))
    numbers = ("--epochs", "3", "--max-tokens", "64", "--batch-tokens", "256", "--format", "json")
    into = tmp_path / "head"

    done = packager_in(tmp_path)(
        "draft", "train", "--model", str(TINY), *words, *data, *numbers, "--output", str(into)
    )

    assert done.status == 0, done.err
    told = json.loads((into / "training.json").read_text())
    assert told["loss"] < told["loss_before"] - 1
    assert told["acceptance"][0] > told["acceptance_before"][0] + 0.05
    assert told["expected_length"] > told["expected_length_before"]
    plan = ("plan", "--model", str(TINY), "--family", "sglang", "--instance", "ml.g5.xlarge")
    planned = packager_in(tmp_path)(*plan, "--draft", f"eagle3:{into}")
    assert planned.status == 0, planned.err


def test_it_has_the_layout_that_sglang_reads(trained: Worker) -> None:
    weights = trained.output / "model.safetensors"
    with weights.open("rb") as stream:
        header = read_header(stream, weights.name)
    shapes = {one.name: (one.dtype, one.shape) for one in header}
    config = json.loads((trained.output / "config.json").read_text())

    assert shapes["fc.weight"] == ("BF16", (256, 768))
    assert shapes["midlayer.self_attn.q_proj.weight"] == ("BF16", (256, 512))
    assert shapes["lm_head.weight"] == ("BF16", (500, 256))
    assert (shapes["d2t"], shapes["t2d"]) == (("I64", (500,)), ("BOOL", (2048,)))
    assert not any("embed" in name for name in shapes), "the model's is used"
    assert config["architectures"] == ["LlamaForCausalLMEagle3"]
    assert config["eagle_aux_hidden_state_layer_ids"] == [1, 2, 3]
    assert config["eagle_config"]["eagle_aux_hidden_state_layer_ids"] == [0, 1, 2]


def test_killed_and_spoilt_it_gives_the_same_bytes(
    tmp_path: Path, specforge: Path, samples: Path, trained: Worker
) -> None:
    worker = Worker(tmp_path, specforge, samples)
    _kill_at(worker, "asking the model", 5)
    spoilt = worker.work / "features/train/00000002.ckpt"
    data = bytearray(spoilt.read_bytes())
    data[len(data) // 2] ^= 1
    spoilt.write_bytes(data)
    _kill_at(worker, "training", 4)

    result = worker.run()

    assert "error" not in result, result
    notes = [event["message"] for event in worker.events() if event["event"] == "note"]
    assert len(notes) == 1 and notes[0].startswith("continues at step ")
    assert worker.made() == trained.made()


def _kill_at(worker: Worker, doing: str, done: int) -> None:
    """Kill all of it once it is so far."""
    process = worker.start()
    deadline = time.monotonic() + 300
    while not any(
        event.get("message", "").startswith(doing) and event["done"] >= done
        for event in worker.events()
    ):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def test_a_given_head_is_where_training_begins(
    tmp_path: Path, specforge: Path, samples: Path, trained: Worker
) -> None:
    before = json.loads((trained.output / "training.json").read_text())

    result = Worker(tmp_path, specforge, samples).run(trained.output, epochs=1)

    told = result["details"]
    assert told["loss_before"] == before["loss"]
    assert told["acceptance_before"] == before["acceptance"]
    assert told["loss"] < told["loss_before"]


def test_what_is_refused_says_what_to_do(tmp_path: Path, specforge: Path, samples: Path) -> None:
    for changes, said in (
        ({"layers": 2}, "SpecForge's heads have one layer, not 2"),
        ({"task": "medusa"}, "SpecForge trains no 'medusa' heads here"),
    ):
        error = Worker(tmp_path, specforge, samples).run(**changes)["error"]
        assert (error["class"], error["message"]) == ("rejected", said)
        assert "--trainer speculators" in error["hint"]


def test_a_head_that_does_not_fit_is_refused(
    tmp_path: Path, specforge: Path, samples: Path, trained: Worker
) -> None:
    weights = trained.made()["model.safetensors"]
    config = json.loads(trained.made()["config.json"])
    for number, (changes, cut, kind, said) in enumerate(
        (
            ({"norm_before_residual": True}, 0, "rejected", "the head has norm_before_residual"),
            ({"intermediate_size": 512}, 0, "rejected", "which should be [512, 256] here"),
            ({}, 100, "bad-input", "the head cannot be read"),
        )
    ):
        head = tmp_path / f"head{number}"
        head.mkdir()
        (head / "config.json").write_text(json.dumps(config | changes))
        (head / "model.safetensors").write_bytes(weights[: len(weights) - cut])

        error = Worker(tmp_path / str(number), specforge, samples).run(head)["error"]

        assert error["class"] == kind
        assert said in error["message"]
