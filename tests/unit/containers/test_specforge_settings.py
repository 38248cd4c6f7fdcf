"""What the worker that trains with SpecForge tells it, held against what SpecForge takes.

`specforge.json` is SpecForge's own description, which `tests/live/test_specforge.py` compares
with the installed one.  Here nothing of it runs.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import jsonschema
import pytest

from tests.support.cases import cases
from tests.support.places import DATA
from tests.support.worker_modules import load_module

TAKES = json.loads((DATA / "containers" / "specforge.json").read_text(encoding="utf-8"))

GIVEN = json.loads((Path(__file__).parent / "corpus" / "specforge_settings.json").read_text())
ASKED: dict[str, Any] = GIVEN["asked"]
LLAMA: dict[str, Any] = GIVEN["llama"]


@pytest.fixture(scope="module")
def settings() -> ModuleType:
    return load_module("specforge", "settings.py")


@pytest.fixture(scope="module")
def texts() -> ModuleType:
    return load_module("specforge", "texts.py")


@cases("every_setting_of_a_run_is_one_that_specforge_has")
def test_every_setting_of_a_run_is_one_that_specforge_has(
    settings: ModuleType, devices: int, goes_on: bool, maps: bool
) -> None:
    plan = settings.schedule([100] * 64, max(1, devices), ASKED)

    run = settings.run_config(ASKED, plan, devices=devices, goes_on=goes_on, maps=maps)

    jsonschema.validate(run, TAKES["run"], cls=jsonschema.Draft202012Validator)
    assert run["deployment"]["trainer"]["nproc_per_node"] == max(1, devices)
    assert bool(run["model"]["draft_checkpoint_path"]) == goes_on
    assert bool(run["model"]["vocab_mapping_path"]) == maps


def test_a_setting_that_specforge_does_not_have_would_be_seen(settings: ModuleType) -> None:
    plan = settings.schedule([100], 1, ASKED)
    run = settings.run_config(ASKED, plan, devices=0, goes_on=False, maps=False)
    run["training"]["lr"] = 1.0

    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(run, TAKES["run"])


def test_its_commands_take_the_arguments(settings: ModuleType) -> None:
    resumed = _parsed(settings.train_words("checkpoints/head-step12"))
    fresh = _parsed(settings.train_words())
    export = _parsed(settings.export_words("checkpoints/head-step12", "exported"))

    assert (resumed.config, fresh.overrides) == ("run.json", [])
    assert resumed.overrides == ["training.resume_from=checkpoints/head-step12"]
    assert "resume_from" in TAKES["run"]["$defs"]["TrainingConfig"]["properties"]
    assert (export.to, export.checkpoint) == ("sglang", "checkpoints/head-step12")
    assert (export.draft_config, export.output_dir) == ("draft.json", "exported")


def _parsed(words: list[str]) -> argparse.Namespace:
    """Parse as SpecForge does."""
    parser = argparse.ArgumentParser(exit_on_error=False)
    commands = parser.add_subparsers(required=True)
    for name, arguments in TAKES["commands"].items():
        command = commands.add_parser(name)
        for one in arguments:
            positional = not one["flags"][0].startswith("-")
            given = {key: one[key] for key in ("choices", "nargs") if one.get(key)}
            if one.get("nargs") == 0:
                given["action"] = "store_true"
            if not positional:
                given["required"] = one["required"]
            command.add_argument(*one["flags"], **given)
    return parser.parse_args(words)


@cases("every_step_is_full")
def test_every_step_is_full(
    settings: ModuleType,
    rows: int,
    devices: int,
    changes: dict[str, int],
    accumulation: int,
    steps: int,
) -> None:
    plan = settings.schedule([100] * rows, devices, {**ASKED, **changes})

    assert (plan.accumulation, plan.steps) == (accumulation, steps)


def test_the_head_has_the_models_shape_and_its_own_nature(settings: ModuleType) -> None:
    draft = settings.draft_config(LLAMA, [2, 16, 29], 32000)

    assert draft["architectures"] == ["LlamaForCausalLMEagle3"]
    assert (draft["num_hidden_layers"], draft["hidden_size"]) == (1, 4096)
    assert (draft["vocab_size"], draft["draft_vocab_size"]) == (128256, 32000)
    assert (draft["hidden_act"], draft["torch_dtype"]) == ("silu", "bfloat16")
    assert draft["pad_token_id"] == 0
    assert draft["tie_word_embeddings"] is False
    assert draft["rope_parameters"] == {"rope_theta": 500000.0, "rope_type": "default"}


def test_layers_are_stated_as_both_engines_count_them(settings: ModuleType) -> None:
    draft = settings.draft_config(LLAMA, [2, 16, 29], 0)

    assert draft["eagle_aux_hidden_state_layer_ids"] == [2, 16, 29]
    assert draft["eagle_config"]["eagle_aux_hidden_state_layer_ids"] == [1, 15, 28]
    assert draft["draft_vocab_size"] == 128256


def test_where_the_models_layers_differ_the_head_is_one_that_sees_all(settings: ModuleType) -> None:
    rope = {"full_attention": {"rope_theta": 1e6}, "sliding_attention": {"rope_theta": 1e4}}

    draft = settings.draft_config({**LLAMA, "rope_parameters": rope}, [2, 16, 29], 0)

    assert draft["rope_parameters"] == {"rope_theta": 1e6}


@pytest.mark.parametrize("layers", [[], [1, 2], [1, 2, 2], [0, 1, 2], [1, 2, 4], [1, 2, 3, 3]])
def test_other_layers_than_specforge_reads_are_refused(
    settings: ModuleType, layers: list[int]
) -> None:
    with pytest.raises(Exception, match="different layers of the model") as failure:
        settings.aux_layers(layers, 4)

    assert "--trainer speculators" in failure.value.hint  # type: ignore[attr-defined]


def test_a_head_proposes_from_the_second_token_of_an_answer_on(texts: ModuleType) -> None:
    row = texts.Row([1, 2, 3, 4, 5, 6], [False, False, True, True, True, False])

    # At 1 it reads token 2, which the model said, and proposes token 3; at 2 token 4.
    assert texts.proposals(row) == [False, True, True, False, False, False]
    assert texts.positions(row) == 2


@pytest.mark.parametrize("length", [0, 1, 2, 3])
def test_short_texts_propose_nothing_or_one_token(texts: ModuleType, length: int) -> None:
    row = texts.Row([5] * length, [True] * length)

    assert len(texts.proposals(row)) == length
    assert texts.positions(row) == (1 if length == 3 else 0)


def test_the_vocabulary_is_what_answers_use_most_in_the_models_order(texts: ModuleType) -> None:
    rows = [
        texts.Row([9, 9, 9, 7, 7, 5], [False, False, False, True, True, True]),
        texts.Row([5, 5, 3], [True, True, False]),
    ]

    assert texts.choose_vocabulary(rows, 2, 10) == [5, 7]
    assert texts.choose_vocabulary(rows, 4, 10) == [0, 1, 5, 7]


def test_the_tokenizers_odd_token_is_refused(texts: ModuleType) -> None:
    with pytest.raises(Exception, match="gives token 9, the model knows 9"):
        texts.check_ids([texts.Row([1, 9], [True, True])], 9)
