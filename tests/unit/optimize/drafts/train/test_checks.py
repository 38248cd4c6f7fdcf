"""Whether a head can be trained, and with which numbers, from headers alone."""

from __future__ import annotations

from typing import Any

from packager.core.model import ModelFiles
from packager.core.training import HeadTraining
from packager.models.architectures.profile import make_profile
from packager.optimize.drafts.training_checks import (
    check_continuing,
    check_training,
    completed,
    usual_aux_layers,
)
from tests.support.cases import cases_of
from tests.support.headers import LLAMA_3_8B, TINY, awq_model_of, model_of
from tests.support.heads import eagle3_of_speculators, medusa_of_vllm, without

cases = cases_of(__file__)


def wanted(asked: dict[str, Any]) -> HeadTraining:
    """Make a request of a row, whose lists are tuples."""
    return HeadTraining(**asked | {"aux_layers": tuple(asked.get("aux_layers", ()))})


def found(
    asked: HeadTraining, config: dict[str, Any] = TINY, head: ModelFiles | None = None
) -> list[str]:
    model = model_of(config)
    profile, _ = make_profile(model)
    complete = completed(asked, profile, head)
    errors = [*(check_continuing(asked, head) if head else ())]
    errors += check_training(complete, model, profile, head)
    return [one.message for one in errors if one.severity == "error"]


@cases("three_layers_are_read_an_early_a_middle_and_a_late_one")
def test_three_layers_are_read_an_early_a_middle_and_a_late_one(
    layers: int, aux: tuple[int, ...]
) -> None:
    assert usual_aux_layers(layers) == aux


def test_what_is_left_open_is_filled_in() -> None:
    profile, _ = make_profile(model_of(TINY))

    eagle = completed(HeadTraining(method="eagle3", max_tokens=4096), profile, None)
    medusa = completed(HeadTraining(method="medusa"), profile, None)

    assert (eagle.speculative_tokens, eagle.layers, eagle.aux_layers) == (3, 1, (1, 2, 3))
    assert eagle.max_tokens == 512, "no longer than the model reads"
    assert (medusa.speculative_tokens, medusa.layers, medusa.aux_layers) == (3, 1, ())
    assert eagle.learning_rate > 0


def test_the_whole_vocabulary_is_no_vocabulary_of_its_own() -> None:
    profile, _ = make_profile(model_of(TINY))

    assert (
        completed(
            HeadTraining(method="eagle3", draft_vocab_size=2048), profile, None
        ).draft_vocab_size
        == 0
    )


@cases("impossible")
def test_a_shape_that_cannot_be_is_refused(asked: dict[str, Any], reason: str) -> None:
    messages = found(wanted(asked))

    assert len(messages) == 1
    assert reason in messages[0]


def test_usual_requests_are_not_refused() -> None:
    assert found(HeadTraining(method="eagle3")) == []
    assert found(HeadTraining(method="medusa")) == []
    assert found(HeadTraining(method="eagle3"), LLAMA_3_8B) == []


def test_a_model_with_too_few_layers_has_no_three_to_read() -> None:
    assert "3 different layers" in found(
        HeadTraining(method="eagle3"), {**TINY, "num_hidden_layers": 2}
    )[0]  # fmt: skip


def test_a_quantized_model_teaches_nothing() -> None:
    model = awq_model_of(LLAMA_3_8B)
    profile, _ = make_profile(model)
    asked = completed(HeadTraining(method="medusa"), profile, None)

    (finding,) = check_training(asked, model, profile, None)

    assert finding.code == "training-quantized"


def test_a_head_that_is_trained_on_keeps_its_shape() -> None:
    profile, _ = make_profile(model_of(TINY))
    head = eagle3_of_speculators(TINY, draft_vocab=512, eagle_aux_hidden_state_layer_ids=[0, 1, 2])

    asked = completed(HeadTraining(method="eagle3"), profile, head)
    heads = completed(
        HeadTraining(method="medusa"), profile, medusa_of_vllm(256, 2048, heads=4, layers=2)
    )

    assert (asked.aux_layers, asked.draft_vocab_size, asked.layers) == ((0, 1, 2), 512, 1)
    assert (heads.speculative_tokens, heads.layers) == (4, 2)


@cases("another shape")
def test_a_head_that_is_trained_on_takes_no_other_shape(asked: dict[str, Any], reason: str) -> None:
    head = eagle3_of_speculators(TINY, draft_vocab=512, eagle_aux_hidden_state_layer_ids=[0, 1, 2])

    assert reason in found(wanted(asked), head=head)[0]


def test_medusa_heads_that_are_trained_on_keep_their_number() -> None:
    messages = found(
        HeadTraining(method="medusa", speculative_tokens=5), head=medusa_of_vllm(256, 2048)
    )

    assert "has 3 heads, 5 are requested" in messages[0]


def test_a_head_of_another_model_is_not_trained_on() -> None:
    other = medusa_of_vllm(512, 2048)

    assert any("shape" in message for message in found(HeadTraining(method="medusa"), head=other))


def test_a_truncated_head_is_not_trained_on() -> None:
    head = without(
        eagle3_of_speculators(TINY, draft_vocab=2048, eagle_aux_hidden_state_layer_ids=[1, 2, 3]),
        "fc.weight",
    )

    assert found(HeadTraining(method="eagle3"), head=head)


def test_a_head_with_half_a_map_is_not_trained_on() -> None:
    layers = [1, 2, 3]
    whole = eagle3_of_speculators(TINY, draft_vocab=512, eagle_aux_hidden_state_layer_ids=layers)

    (message,) = found(HeadTraining(method="eagle3"), head=without(whole, "t2d"))

    assert "lacks 't2d'" in message
    assert not found(HeadTraining(method="eagle3"), head=whole)
