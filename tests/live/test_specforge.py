"""Heads trained by the real SpecForge, on processors, from the command line and by the worker.

The environment is large; it is used where `packager tools install specforge` made it.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import pytest

from packager.cli.wiring.settings import Settings
from packager.cli.wiring.techniques import environments_for
from packager.models.safetensors import read_header
from tests.live.head_training import Training, during, spoil
from tests.support.cases import cases_of, read_tables
from tests.support.commandline import TINY, packager_in
from tests.support.places import DATA

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("specforge")]

INTERFACE = Path(__file__).with_name("specforge_interface.py")
TAKES = DATA / "containers" / "specforge.json"
ASKED: dict[str, Any] = read_tables(__file__, "draft_heads")["specforge"]
cases = cases_of(__file__, "draft_heads")


@pytest.fixture(scope="session")
def specforge() -> Path:
    """Python of the tool's environment."""
    environments = environments_for(Settings())
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


@pytest.fixture(scope="module")
def inputs(samples: Path) -> dict[str, Path]:
    return {"model": TINY, "samples": samples}


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory, specforge: Path) -> Callable[[], Training]:
    return lambda: Training(tmp_path_factory.mktemp("run"), specforge, "specforge")


@pytest.fixture(scope="module")
def trained(started: Callable[[], Training], inputs: dict[str, Path]) -> Training:
    """A head that was trained without interruption."""
    run = started()
    run.finish(ASKED, inputs)
    return run


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


def test_it_has_the_layout_that_sglang_reads(trained: Training) -> None:
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
    started: Callable[[], Training], inputs: dict[str, Path], trained: Training
) -> None:
    run = started()
    assert run.run(ASKED, inputs, kill_at=during("asking the model", 5)) == {}
    spoil(run.work / "features/train/00000002.ckpt")
    assert run.run(ASKED, inputs, kill_at=during("training", 4)) == {}

    [note] = run.finish(ASKED, inputs)

    assert note.startswith("continues at step ")
    assert run.files() == trained.files()


def test_a_given_head_is_where_training_begins(
    started: Callable[[], Training], inputs: dict[str, Path], trained: Training
) -> None:
    run = started()

    run.finish({**ASKED, "epochs": 1}, {**inputs, "head": trained.output})

    assert run.report["loss_before"] == trained.report["loss"]
    assert run.report["acceptance_before"] == trained.report["acceptance"]
    assert run.report["loss"] < run.report["loss_before"]


@cases("no_specforge_head")
def test_what_is_refused_says_what_to_do(
    started: Callable[[], Training], inputs: dict[str, Path], changes: dict[str, Any], said: str
) -> None:
    error = started().run({**ASKED, **changes}, inputs)["error"]

    assert (error["class"], error["message"]) == ("rejected", said)
    assert "--trainer speculators" in error["hint"]
