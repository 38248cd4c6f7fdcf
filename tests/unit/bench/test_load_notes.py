"""What a reader is told before they believe the figures of a load."""

from __future__ import annotations

from dataclasses import replace

from packager.bench.metrics import load_figures
from packager.core.bench import Limits
from tests.unit.bench.loads import answer, failure, load

GOOD = answer(at=(0.5, 10.0), input_tokens=10, output_tokens=5)


def test_sound_figures_have_no_notes() -> None:
    assert load_figures([load(GOOD)], Limits(ttft_ms=1)).notes == ()


def test_counts_more_than_ten_percent_apart() -> None:
    one = answer(
        at=(0.5, 10.0),
        input_tokens=1112,
        own_input_tokens=1000,
        output_tokens=80,
        own_output_tokens=100,
    )

    assert load_figures([load(one)]).notes == (
        "the server counts 1,112 input tokens, the tokenizer 1,000: a chat template adds its own, "
        "or the tokenizer is another model's; the server's count is used",
        "the server counts 80 output tokens, the tokenizer 100: the tokenizer is another model's; "
        "the server's count is used",
    )


def test_counts_ten_percent_apart_are_alike() -> None:
    one = answer(at=(0.5, 10.0), output_tokens=110, own_output_tokens=100)

    assert load_figures([load(one)]).notes == ()


def test_tokens_of_some_answers_that_nobody_counted() -> None:
    one = answer(at=(0.5, 10.0))

    assert load_figures([load(GOOD, one, GOOD)]).notes == (
        "the output tokens of 1 of 3 answers are unknown: tokens per second are too low, and "
        "prices too high",
    )


def test_tokens_nobody_counted() -> None:
    assert load_figures([load(answer(at=(0.5, 10.0)))]).notes == (
        "output tokens are unknown: the server sends no `usage` and there is no tokenizer to "
        "count them with",
    )


def test_answers_in_one_piece() -> None:
    whole = answer(at=(0.5,), output_tokens=5)

    assert load_figures([load(GOOD, whole)]).notes == (
        "1 of 2 streamed answers came in one piece: their inter-token latency is unknown",
    )


def test_limits_that_no_answer_can_keep() -> None:
    whole = answer(at=(), ended=10.0, text="x", output_tokens=5, is_streamed=False)

    assert load_figures([load(whole)], Limits(ttft_ms=500)).notes == (
        "no request can keep a limit on the time to its first token or on each token: answers "
        "are not streamed",
    )
    assert load_figures([load(whole)], Limits(latency_ms=500)).notes == ()


def test_answers_of_other_lengths() -> None:
    short = answer(at=(0.5, 10.0), output_tokens=5, asked_tokens=100)

    assert load_figures([load(short, GOOD)]).notes == (
        "1 of 2 answers are longer or shorter than was asked for: compare only with answers of "
        "the same lengths",
    )


def test_answers_of_a_part_of_the_time() -> None:
    assert load_figures([load(GOOD, failure(1, "deadline"), seconds=600.0)]).notes == (
        "answers came in 10.0 s of 600.0 s; tokens and requests per second are of those",
    )


def test_a_client_that_is_busy_itself() -> None:
    assert load_figures([load(GOOD, client_cpu_s=9.0)]).notes == (
        "the client used 90% of a processor: times may be its own; measure from a faster or an "
        "idle machine",
    )


def test_lengths_that_nobody_counted() -> None:
    run = replace(load(GOOD), estimated_lengths=True)

    assert load_figures([load(GOOD), run]).notes == (
        "lengths of prompts are estimates: the server does not count the tokens of a prompt; "
        "--tokenizer names who does",
    )
