"""Medusa heads trained for real for tiny-llama, on its own answers: they foretell, and survive."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from packager.models.architectures.profile import make_profile
from packager.optimize.drafts.medusa import check_medusa, read_medusa
from tests.live.checkpoints import rename_tensors, without_tensor
from tests.live.head_training import (
    Training,
    check_foretells,
    check_killed_again,
    during,
    read_files,
    shipped_samples,
    spoil,
)
from tests.live.tool_programs import told_by
from tests.support.cases import cases_of, read_tables
from tests.support.commandline import TINY

# One process loads the libraries for all that train heads.
pytestmark = [pytest.mark.live, pytest.mark.xdist_group("draft-heads")]

CORPUS = read_tables(__file__, "draft_heads")
ANSWERS: dict[str, Any] = CORPUS["answers"]
ASKED: dict[str, Any] = CORPUS["medusa"]
cases = cases_of(__file__, "draft_heads")
Start = Callable[[str], Training]


def told(python: Path, program: str) -> Any:
    """Run a program among the modules of `draft-heads`; give what it printed."""
    start = "import json\nimport torch\ntorch.manual_seed(0)\n"
    return told_by(python, start + program, "draft-heads", "llmcompressor")


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    place = tmp_path_factory.mktemp("texts")
    return {"model": TINY, "samples": shipped_samples(place / "samples", 128, 24)}


@pytest.fixture(scope="module")
def answered(inputs: dict[str, Path], started: Start) -> Training:
    """The model's answers, given without an interruption."""
    run = started("answered")
    run.finish(ANSWERS, inputs)
    return run


@pytest.fixture(scope="module")
def own(inputs: dict[str, Path], answered: Training) -> dict[str, Path]:
    """What heads are trained on."""
    return {**inputs, "samples": answered.output}


@pytest.fixture(scope="module")
def trained(own: dict[str, Path], started: Start) -> Training:
    """Heads that were trained without an interruption."""
    run = started("trained")
    run.finish(ASKED, own)
    return run


def rows(place: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in place.read_text().splitlines()]


def answers(place: Path) -> list[str]:
    return [
        turn["content"]
        for row in rows(place)
        for turn in row["messages"]
        if turn["role"] == "assistant"
    ]


def test_the_model_answers_what_the_samples_ask(
    inputs: dict[str, Path], answered: Training, training_python: Path
) -> None:
    for name in ("train.jsonl", "held-out.jsonl"):
        asked, given = rows(inputs["samples"] / name), rows(answered.output / name)
        assert len(given) == len(asked)
        assert [row["messages"][0] for row in given] == [row["messages"][0] for row in asked]
        assert answers(answered.output / name) != answers(inputs["samples"] / name)

    question = rows(answered.output / "train.jsonl")[0]["messages"][:1]
    alone = told(training_python, ALONE.format(model=str(TINY), messages=question))

    assert answers(answered.output / "train.jsonl")[0] == alone


ALONE = """
from transformers import AutoModelForCausalLM, AutoTokenizer
words = AutoTokenizer.from_pretrained({model!r})
model = AutoModelForCausalLM.from_pretrained({model!r}, dtype=torch.float32)
asked = words.apply_chat_template({messages!r}, tokenize=False, add_generation_prompt=True)
ids = words(asked, add_special_tokens=False, return_tensors="pt")
made = model.generate(**ids, max_new_tokens=48, do_sample=False)[0, ids.input_ids.shape[1] :]
print(json.dumps(words.decode([one for one in made.tolist() if one != 2])))
"""


def test_sampled_answers_that_were_interrupted_are_the_same(
    inputs: dict[str, Path], started: Start
) -> None:
    asked = {**ANSWERS, "temperature": 0.8, "answer_tokens": 16}
    run, whole = started("interrupted"), started("sampled")

    assert run.run(asked, inputs, kill_at=during("answering", 128)) == {}
    spoil(run.work / "answers.jsonl", at=-5)
    notes = run.finish(asked, inputs)
    whole.finish(asked, inputs)

    assert [note.partition(" after ")[0] for note in notes] == ["continues"]
    assert run.files() == whole.files()


def test_sampled_answers_differ_by_seed_and_not_by_company(
    tmp_path: Path, inputs: dict[str, Path], started: Start
) -> None:
    few = {**inputs, "samples": shipped_samples(tmp_path / "few", 6, 2)}
    asked = {**ANSWERS, "temperature": 1.0, "answer_tokens": 16}
    among, alone, other = started("among"), started("alone"), started("other")

    among.finish(asked, inputs)
    alone.finish(asked, few)
    other.finish({**asked, "seed": 1}, few)

    all_of_them = {row["messages"][0]["content"]: row for row in everything(among)}
    assert everything(alone) == [
        all_of_them[row["messages"][0]["content"]] for row in everything(alone)
    ]
    assert everything(other) != everything(alone)


def everything(run: Training) -> list[dict[str, Any]]:
    return [row for name in run.files() for row in rows(run.output / name)]


def test_what_cannot_be_answered_is_left_out_and_counted(
    tmp_path: Path, inputs: dict[str, Path], started: Start
) -> None:
    place = tmp_path / "samples"
    shutil.copytree(inputs["samples"], place)
    short, long = "What is os?", "What is os? " * 100
    asked = [
        [("user", long)],
        [("user", short), ("assistant", "?"), ("user", long), ("assistant", "?")],
        [("user", short), ("assistant", "?"), ("user", short)],
    ]
    made = [{"messages": [{"role": r, "content": c} for r, c in turns]} for turns in asked]
    made += [{"prompt": "import os\n", "completion": "?"}, {"text": "import sys\n"}]
    (place / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in made))
    run = started("odd")

    result = run.run(ANSWERS, {"model": TINY, "samples": place})

    assert "error" not in result, result
    counted = result["details"]
    assert (counted["dropped"], counted["shortened"], counted["texts"]) == (1, 1, 1)
    one, two, prompt, text = rows(run.output / "train.jsonl")
    assert [turn["role"] for turn in one["messages"]] == ["user", "assistant"]
    assert [turn["role"] for turn in two["messages"]] == ["user", "assistant"] * 2
    assert prompt["prompt"] == "import os\n" and prompt["completion"] != "?"
    assert text == {"text": "import sys\n"}


@pytest.mark.capability("draft")
def test_trained_heads_foretell_held_out_texts_better_than_before(trained: Training) -> None:
    check_foretells(trained.report, "medusa", (128, 24, 50), loss=0.7, before=1.1, after=1.25)


def test_heads_have_the_tensors_that_engines_load_and_fit_their_model(trained: Training) -> None:
    head, model = read_files(trained.output, is_draft=True), read_files(TINY, is_draft=False)
    profile, _ = make_profile(model)

    heads = read_medusa(head)

    assert [*check_medusa(heads, head, model, profile, 3)] == []
    assert (heads.layout, heads.heads, heads.head_layers) == ("blocks", 3, 1)
    assert heads.biased and heads.vocab_size == 2048
    assert {(tensor.name, tensor.dtype, tensor.shape) for tensor in head.tensors} == {
        (name.format(one), "BF16", shape)
        for one in range(3)
        for name, shape in (
            ("blocks.{}.layers.0.weight", (256, 256)),
            ("blocks.{}.layers.0.bias", (256,)),
            ("lm_heads.{}.weight", (2048, 256)),
        )
    }
    config = json.loads((trained.output / "config.json").read_text())
    assert "architectures" not in config and config["medusa_fc_bias"] is True


def test_the_figures_are_those_that_an_engine_would_see(
    own: dict[str, Path], trained: Training, training_python: Path
) -> None:
    """Reckoned plainly from the files alone, answer by answer."""
    places = {"model": str(TINY), "head": str(trained.output), "samples": str(own["samples"])}

    found = told(training_python, PLAINLY.format(**places))

    assert found == pytest.approx(trained.report["acceptance"], abs=2e-3)


PLAINLY = """
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer
words = AutoTokenizer.from_pretrained({model!r})
model = AutoModelForCausalLM.from_pretrained({model!r}, dtype=torch.float32)
head = {{name: one.float() for name, one in load_file({head!r} + "/model.safetensors").items()}}
hits, places = [0, 0, 0], 0
for line in open({samples!r} + "/held-out.jsonl"):
    (question, answer) = json.loads(line)["messages"]
    asked = words.apply_chat_template([question], tokenize=False, add_generation_prompt=True)
    ids = words(asked, add_special_tokens=False)["input_ids"]
    start = len(ids)
    ids = (ids + words(answer["content"] + "</s>", add_special_tokens=False)["input_ids"])[:256]
    with torch.no_grad():
        told = model(torch.tensor([ids]), output_hidden_states=True)
    states, choices = told.hidden_states[-1][0], told.logits[0].argmax(-1).tolist()
    for at in range(start - 1, len(ids) - 4):
        places += 1
        for number in range(3):
            bias = head[f"blocks.{{number}}.layers.0.bias"]
            inner = head[f"blocks.{{number}}.layers.0.weight"] @ states[at] + bias
            seen = states[at] + torch.nn.functional.silu(inner)
            said = int((head[f"lm_heads.{{number}}.weight"] @ seen).argmax())
            if said != choices[at + number + 1]:
                break
            hits[number] += 1
print(json.dumps([one / places for one in hits]))
"""


def test_a_training_that_is_killed_again_and_again_gives_the_same_bytes(
    trained: Training, own: dict[str, Path], started: Start
) -> None:
    kills = (("reading training texts", 100), ("training", 12))
    check_killed_again(started("killed"), trained, ASKED, own, kills, last=36)


def test_a_spoilt_checkpoint_is_not_gone_on_from(
    trained: Training, own: dict[str, Path], started: Start
) -> None:
    run = started("spoilt")
    asked = {**ASKED, "save_every_s": 0}

    assert run.run(asked, own, kill_at=during("training", 12)) == {}
    for state in run.work.glob("checkpoints/*.pt"):
        spoil(state)

    assert run.finish(asked, own) == []
    assert run.files() == trained.files()


def test_training_goes_on_from_heads(
    trained: Training, own: dict[str, Path], started: Start
) -> None:
    """In the names of their authors, too, and with both they are the same heads."""
    asked = {**ASKED, "max_steps": 30, "learning_rate": 1e-3}
    run, other = started("continued"), started("authors")

    run.finish(asked, {**own, "head": trained.output})
    other.finish(asked, {**own, "head": as_their_authors(trained.output, other.root / "in")})

    assert run.report["loss_before"] == trained.report["loss"]
    assert run.report["acceptance_before"] == trained.report["acceptance"]
    assert run.report["expected_length"] > trained.report["expected_length"]
    assert other.files() == run.files()


def test_heads_that_are_asked_for_besides_are_new(
    trained: Training, own: dict[str, Path], started: Start
) -> None:
    run = started("more")

    asked = {**ASKED, "max_steps": 1, "speculative_tokens": 4}
    notes = run.finish(asked, {**own, "head": trained.output})

    assert notes == ["3 heads are given, 4 are trained"]
    assert run.report["acceptance_before"][3] < run.report["acceptance_before"][2]


@cases("no_medusa_heads")
def test_what_cannot_be_trained_is_refused(
    changes: dict[str, Any], said: str, own: dict[str, Path], started: Start
) -> None:
    result = started("refused").run({**ASKED, **changes}, own)

    assert result["error"]["class"] == "rejected"
    assert said in result["error"]["message"]


def test_a_model_that_lacks_a_tensor_is_refused(
    tmp_path: Path, inputs: dict[str, Path], started: Start
) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(TINY, broken)
    without_tensor(broken, "model.norm.weight")

    result = started("broken").run(ANSWERS, {**inputs, "model": broken})

    assert result["error"]["class"] == "bad-input"
    assert "the model lacks 1 tensors, such as 'model.norm.weight'" in result["error"]["message"]


def test_heads_that_do_not_fit_are_refused(
    trained: Training, own: dict[str, Path], started: Start
) -> None:
    given = started("given").root / "in"
    lacking = as_their_authors(trained.output, given, leave_out="blocks.1.layers.0.weight")
    result = started("lacking").run(ASKED, {**own, "head": lacking})
    layers = started("layers").run({**ASKED, "layers": 2}, {**own, "head": trained.output})

    assert result["error"]["class"] == "bad-input"
    assert "lack 1 tensors, such as 'blocks.1.layers.0.weight'" in result["error"]["message"]
    assert layers["error"]["class"] == "rejected"
    assert "have 1 layers each; 2 are asked for" in layers["error"]["message"]


def as_their_authors(head: Path, place: Path, leave_out: str = "none") -> Path:
    """Write heads in the format in which Medusa's authors publish theirs."""
    place.mkdir()
    file = shutil.copy(head / "model.safetensors", place / "medusa_lm_head.safetensors")
    names = {f"lm_heads.{one}.weight": f"{one}.1.weight" for one in range(3)} | {
        f"blocks.{one}.layers.0.{part}": f"{one}.0.linear.{part}"
        for one in range(3)
        for part in ("weight", "bias")
    }
    rename_tensors(file, {**names, leave_out: ""})
    (place / "config.json").write_text(json.dumps({"medusa_num_heads": 3, "medusa_num_layers": 1}))
    return place
