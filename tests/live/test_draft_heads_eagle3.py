"""EAGLE-3 heads trained for real for tiny-llama: they foretell, survive kills, and go on."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from packager.models.architectures.profile import make_profile
from packager.optimize.drafts.eagle import check_eagle, read_eagle
from tests.live.checkpoints import read_tensors, rename_tensors
from tests.live.head_training import (
    Training,
    check_foretells,
    check_killed_again,
    read_files,
    shipped_samples,
)
from tests.support.cases import cases_of, read_tables
from tests.support.commandline import TINY

# One process loads the libraries for all that train heads.
pytestmark = [pytest.mark.live, pytest.mark.xdist_group("draft-heads")]

Start = Callable[[str], Training]
CORPUS = read_tables(__file__, "draft_heads")
ASKED: dict[str, Any] = CORPUS["eagle3"]
LAYER: dict[str, list[int]] = CORPUS["layer"]
cases = cases_of(__file__, "draft_heads")


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    samples = shipped_samples(tmp_path_factory.mktemp("texts") / "samples", 64, 12)
    with (samples / "held-out.jsonl").open("a") as held_out:
        held_out.write('{"text": "hi"}\n')  # shorter than what is proposed
    return {"model": TINY, "samples": samples}


@pytest.fixture(scope="module")
def trained(inputs: dict[str, Path], started: Start) -> Training:
    """A head that was trained without an interruption."""
    run = started("trained")
    run.finish(ASKED, inputs)
    return run


def test_a_trained_head_foretells_held_out_texts_better_than_before(trained: Training) -> None:
    check_foretells(trained.report, "eagle3", (64, 13, 80), loss=0.6, before=1.05, after=1.15)
    assert len(trained.report["acceptance"]) == 3


def test_a_head_has_the_tensors_that_engines_load_and_fits_its_model(trained: Training) -> None:
    head, model = read_files(trained.output, is_draft=True), read_files(TINY, is_draft=False)
    profile, _ = make_profile(model)

    eagle = read_eagle(head)

    shapes = {tensor.name: [*tensor.shape] for tensor in head.tensors}
    assert shapes == {
        "embed_tokens.weight": [2048, 256],
        "fc.weight": [256, 768],
        "lm_head.weight": [2048, 256],
        "norm.weight": [256],
        **{f"layers.0.{name}": shape for name, shape in LAYER.items()},
    }
    assert {tensor.dtype for tensor in head.tensors} == {"BF16"}
    assert (eagle.layout, eagle.aux_layers) == ("speculators", (1, 2, 3))
    assert [*check_eagle("eagle3", eagle, head, model, profile)] == []
    assert str(TINY) not in (trained.output / "config.json").read_text()


def test_a_run_that_is_killed_again_and_again_gives_the_same_bytes(
    trained: Training, inputs: dict[str, Path], started: Start
) -> None:
    kills = (("reading training texts", 40), ("measuring", 3), ("training", 15))
    check_killed_again(started("killed"), trained, ASKED, inputs, kills, last=40)


def test_training_goes_on_from_a_head(
    trained: Training, inputs: dict[str, Path], started: Start
) -> None:
    """In the names of its authors, too, and with both it is the same head."""
    asked = {**ASKED, "epochs": 10**7, "max_steps": 24, "learning_rate": 1e-3}
    run, other = started("continued"), started("authors")

    run.finish(asked, {**inputs, "head": trained.output})
    other.finish(asked, {**inputs, "head": as_its_authors(trained.output, other.root / "head")})

    assert run.report["loss_before"] == pytest.approx(trained.report["loss"], rel=1e-4)
    assert run.report["acceptance_before"] == trained.report["acceptance"]
    assert run.report["loss"] < trained.report["loss"]
    assert other.report["loss_before"] == run.report["loss_before"]
    assert other.files()["model.safetensors"] == run.files()["model.safetensors"]


def test_a_head_with_a_vocabulary_of_its_own_says_which_tokens_are_in_it(
    inputs: dict[str, Path], started: Start
) -> None:
    run = started("mapped")

    run.finish({**ASKED, "max_steps": 8, "draft_vocab_size": 512, "layers": 2}, inputs)

    head, model = read_files(run.output, is_draft=True), read_files(TINY, is_draft=False)
    profile, _ = make_profile(model)
    assert [*check_eagle("eagle3", read_eagle(head), head, model, profile)] == []
    tensors = read_tensors(run.output)
    own = [index + offset for index, offset in enumerate(tensors["d2t"].values)]
    assert [token for token, known in enumerate(tensors["t2d"].values) if known] == own
    assert run.report["loss"] < run.report["loss_before"]


@cases("no_eagle3_head")
def test_what_gives_no_head_is_refused(
    inputs: dict[str, Path], started: Start, changes: dict[str, Any], said: str
) -> None:
    told = started("refused").run({**ASKED, **changes}, inputs)

    assert told["error"]["class"] == "rejected"
    assert said in told["error"]["message"]


def test_nothing_is_trained_on_answers_of_one_token(
    inputs: dict[str, Path], started: Start, tmp_path: Path
) -> None:
    held_out = (inputs["samples"] / "held-out.jsonl").read_text()
    (tmp_path / "held-out.jsonl").write_text(held_out)
    (tmp_path / "train.jsonl").write_text('{"prompt": "Is it so?", "completion": "a"}\n')

    told = started("short").run(ASKED, {**inputs, "samples": tmp_path})

    assert told["error"]["class"] == "rejected"
    assert "two answered tokens in a row" in told["error"]["message"]


def test_a_token_that_the_model_does_not_know_is_not_answered(
    inputs: dict[str, Path], started: Start, tmp_path: Path
) -> None:
    model = tmp_path / "model"
    shutil.copytree(TINY, model)
    tokenizer = json.loads((model / "tokenizer.json").read_text())
    known = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    tokenizer["added_tokens"].append({"id": 2048, "content": "<|new|>", "special": True, **known})
    (model / "tokenizer.json").write_text(json.dumps(tokenizer))
    for name in ("train", "held-out"):
        (tmp_path / f"{name}.jsonl").write_text('{"prompt": "what is <|new|>"}\n')
    asked = {"task": "answers", "answer_tokens": 8, "temperature": 0.0}

    told = started("unknown").run({**ASKED, **asked}, {"model": model, "samples": tmp_path})

    assert told["error"]["class"] == "rejected"
    assert told["error"]["message"] == "the tokenizer gives token 2048, the model knows 2048"


def as_its_authors(head: Path, place: Path) -> Path:
    """Write a head in the format in which EAGLE-3's authors publish theirs."""
    place.mkdir()
    file = shutil.copy(head / "model.safetensors", place / "model.safetensors")
    rename_tensors(file, {f"layers.0.{name}": f"midlayer.{name}" for name in LAYER})
    config = json.loads((head / "config.json").read_text())
    flat = {
        **config["transformer_layer_config"],
        "architectures": ["LlamaForCausalLMEagle3"],
        "draft_vocab_size": config["draft_vocab_size"],
        "torch_dtype": "bfloat16",
    }
    del flat["rope_parameters"]
    (place / "config.json").write_text(json.dumps(flat))
    return place
