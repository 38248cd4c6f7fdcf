"""Heads trained for tiny models of the families that are served with them, and loaded by vLLM."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest

from packager.core.training import HeadTraining
from packager.models.architectures.profile import make_profile
from packager.optimize.drafts.eagle import check_eagle, read_eagle
from packager.optimize.drafts.stitch import check_mtp_head
from packager.optimize.drafts.training_checks import check_training, completed
from tests.live.checkpoints import read_tensors
from tests.live.head_training import Training, during, read_files, shipped_samples
from tests.live.tool_programs import documents_in, printed_by, run_program
from tests.support.cases import read_tables
from tests.support.commandline import Packager
from tests.support.vllm_packages import python_3_11, unpacked_base

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("draft-heads"), pytest.mark.timeout(1800)]

HERE = Path(__file__).resolve().parent
CORPUS = read_tables(__file__, "draft_heads")
AUX = [1, 2, 4]
SHORT = {"max_tokens": 64, "max_steps": 16, "speculative_tokens": 2}


@pytest.fixture(scope="module")
def models(training_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("families")
    run_program(training_python, "tiny_families.py", str(place), tools=("draft-heads",))
    return place


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shipped_samples(tmp_path_factory.mktemp("texts") / "samples", 24, 6)


@pytest.fixture(scope="module")
def loaded(serving_base: str, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    """Return a function that has vLLM load a head, or a target's own."""
    del serving_base
    home = tmp_path_factory.mktemp("home")

    def load(*words: object) -> Any:
        printed = printed_by(
            python_3_11(), "-S", str(HERE / "head_weights.py"), ",".join(map(str, words)),
            env={"PATH": os.environ["PATH"], "HOME": str(home)}, PYTHONPATH=str(unpacked_base()),
        )  # fmt: skip
        return documents_in(printed)[-1]

    return load


@pytest.mark.parametrize(
    ("family", "method"),
    [
        ("gpt-oss", "eagle3"),
        ("qwen3-moe", "eagle3"),
        ("qwen3-next", "eagle3"),
        ("qwen3-moe", "peagle"),
    ],
)
def test_a_head_is_trained_for_a_family_and_vllm_loads_it(
    family: str,
    method: Literal["eagle3", "peagle"],
    models: Path,
    texts: Path,
    started: Callable[[str], Training],
    loaded: Callable[..., Any],
) -> None:
    """GPT-OSS is in MXFP4; Qwen3-Next adds 1 to the numbers of its norms."""
    model = read_files(models / family, is_draft=False)
    profile, _ = make_profile(model)
    asked = completed(HeadTraining(method=method, aux_layers=tuple(AUX)), profile, None)
    assert [*check_training(asked, model, profile, None)] == []
    run = started(family)

    run.finish(
        {**CORPUS["eagle3"], **SHORT, "task": method, "aux_layers": AUX},
        {"model": models / family, "samples": texts},
    )

    head = read_files(run.output, is_draft=True)
    assert [*check_eagle(method, read_eagle(head), head, model, profile)] == []
    assert run.report["loss"] < run.report["loss_before"]
    assert run.report["kept_step"] in {0, 2, 4, 6, 8, 10, 12, 14, 16}
    assert run.report["expected_length"] >= run.report["expected_length_before"]
    found = loaded(models / family, "eagle3", run.output)
    buffers = ["mask_hidden"] if method == "peagle" else []  # no parameter of the engine's class
    assert (found.get("refused"), found["unfilled"], found["unread"]) == (None, [], buffers)


def test_an_mtp_head_is_fine_tuned_and_put_back(
    models: Path,
    texts: Path,
    started: Callable[[str], Training],
    tmp_path: Path,
    packager: Packager,
    loaded: Callable[..., Any],
) -> None:
    """On the model's own answers, killed and gone on; the checkpoint differs in the head alone."""
    model = models / "qwen3-next"
    answers, run, killed = started("answers"), started("mtp"), started("killed")
    answers.finish({**CORPUS["answers"], "max_tokens": 64}, {"model": model, "samples": texts})
    inputs = {"model": model, "samples": answers.output}
    asked = {**CORPUS["eagle3"], **SHORT, "task": "mtp"}

    run.finish(asked, inputs)
    killed.run({**asked, "save_every_s": 0}, inputs, kill_at=during("training", 9))
    killed.finish({**asked, "save_every_s": 0}, inputs)

    assert run.report["expected_length"] > run.report["expected_length_before"]
    assert killed.files()["model.safetensors"] == run.files()["model.safetensors"]
    places = ("--model", model, "--head", run.output, "--output", tmp_path / "tuned")
    packager("draft", "stitch", *map(str, places), status=0)
    before, after = read_tensors(model), read_tensors(tmp_path / "tuned")
    assert before.keys() == after.keys()
    changed = {name for name in before if before[name].data != after[name].data}
    assert changed
    assert all(name.startswith("mtp.") for name in changed)
    tuned = read_files(tmp_path / "tuned", is_draft=False)
    assert [*check_mtp_head(read_files(run.output, is_draft=True), tuned)] == []
    found = loaded(tmp_path / "tuned", "mtp")
    assert (found["class"], found["unfilled"], found["unread"]) == ("Qwen3NextMTP", [], [])
