"""Texts of a given number of tokens."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from packager.addons.bench.load.texts import TextWriter, shipped_sentences
from packager.addons.bench.load.tokenizer import TokenCounter, open_tokenizer
from packager.core.workload import estimate_tokens
from tests.support.places import ROOT
from tests.support.tiny_tokenizers import KINDS, write_tokenizer

TINY_LLAMA = "examples/tiny-llama"
LENGTHS = (1, 2, 5, 9, 16, 50, 150, 550, 2048)


@pytest.fixture(params=[TINY_LLAMA, *KINDS])
def counter(request: pytest.FixtureRequest, tmp_path: Path) -> TokenCounter:
    """Return a tokenizer of each kind that models have."""
    kind = request.param
    return open_tokenizer(ROOT / kind if kind == TINY_LLAMA else write_tokenizer(kind, tmp_path))


@pytest.mark.parametrize("asks", [False, True], ids=["counted again", "costs added up"])
def test_texts_have_the_length_that_was_asked_for(counter: TokenCounter, asks: bool) -> None:
    writer = TextWriter(counter.count, asks=asks)

    for tokens in LENGTHS:
        for number in range(5):
            found = writer.write(tokens, "load", number)
            assert abs(counter.count(found.text) - tokens) <= max(3, 0.02 * tokens)


def test_the_stated_length_is_that_of_the_text(counter: TokenCounter) -> None:
    writer = TextWriter(counter.count)

    for tokens in LENGTHS:
        found = writer.write(tokens, "load")
        assert found.tokens == counter.count(found.text)


def test_a_server_that_counts_is_asked_57_times_however_many_texts_there_are() -> None:
    asked: list[str] = []

    def count(text: str) -> int:
        asked.append(text)
        return estimate_tokens(text)

    writer = TextWriter(count, asks=True)
    for number in range(100):
        writer.write(500, "load", number)

    assert len(asked) == 57


def test_texts_begin_differently_and_the_same_key_gives_the_same_text() -> None:
    writer = TextWriter(estimate_tokens)
    texts = [writer.write(100, "seed 0", number).text for number in range(500)]
    again = [TextWriter(estimate_tokens).write(100, "seed 0", n).text for n in range(500)]

    assert texts == again
    assert len({" ".join(text.split()[:4]) for text in texts}) == 500


def test_texts_do_not_change_with_the_machine_or_the_python() -> None:
    writer = TextWriter(estimate_tokens)
    text = "\n".join(writer.write(tokens, 7, tokens).text for tokens in (5, 50, 500))

    assert (
        hashlib.sha256(text.encode()).hexdigest()
        == "c115a97c6b3fcb669c651f8bd22f8731e0a04a56ab7b0752ee5cd209fb58cc52"
    )


def test_a_shared_text_has_no_words_in_front_and_a_question_ends_the_text() -> None:
    writer = TextWriter(estimate_tokens)
    shared = writer.write(60, "shared", tagged=False).text
    asked = writer.write(60, "asked", ending="What follows from this?").text

    words = ("the", "of", "and", "to", "in", "is", "for", "that")
    sentences = shipped_sentences()
    assert any(map(shared.startswith, sentences)) or shared.split()[0] in words
    assert asked.endswith(" What follows from this?")
    assert writer.write(3, "short", ending="What follows from this?").text.count("?") == 0


def test_a_tokenizer_that_counts_nothing_ends_all_the_same() -> None:
    assert TextWriter(lambda text: 0).write(10_000, "load").tokens == 0
