"""The client's own tokenizer, out of a file that anybody may have written."""

from __future__ import annotations

import builtins
import json
from pathlib import Path
from typing import Any

import pytest

from packager.addons.bench.load.tokenizer import (
    MAX_TOKENIZER_BYTES,
    TokenizerFailed,
    open_tokenizer,
    parse_tokenizer,
)
from packager.core.errors import ModelRefused, NotFound, UsageError
from tests.support.places import ROOT
from tests.support.tiny_tokenizers import write_tokenizer

TINY_LLAMA = ROOT / "examples/tiny-llama"


def document(**fields: Any) -> bytes:
    """Return a tokenizer.json of BPE with the letters a and b."""
    made = json.loads((Path(__file__).parent / "corpus/tokenizer.json").read_bytes())
    return json.dumps({**made, **fields}).encode()


def replacing(*contents: str, pattern: dict[str, str] | None = None) -> dict[str, Any]:
    """Return a normalizer that replaces one letter by each of the contents in turn."""
    found = pattern or {"String": "a"}
    steps = [{"type": "Replace", "pattern": found, "content": one} for one in contents]
    return {"type": "Sequence", "normalizers": steps}


def test_a_directory_and_its_file_are_the_same_tokenizer() -> None:
    words = "What does the shelve module do?"

    assert open_tokenizer(TINY_LLAMA).count(words) == 12
    assert list(open_tokenizer(TINY_LLAMA / "tokenizer.json").encode(words)) == list(
        open_tokenizer(str(TINY_LLAMA)).encode(words)
    )


def test_tokens_that_a_server_puts_around_a_text_are_not_counted(tmp_path: Path) -> None:
    counter = open_tokenizer(write_tokenizer("BPE with special tokens", tmp_path))

    assert counter.count("") == 0
    assert 1 not in counter.encode("a word")


def test_a_file_that_cuts_and_fills_every_text_does_not_do_so_here(tmp_path: Path) -> None:
    counter = open_tokenizer(write_tokenizer("WordPiece", tmp_path))

    assert counter.count("the") == 1
    assert counter.count("the " * 500) == 500


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"{", "its library says 'Cannot instantiate Tokenizer from buffer: EOF"),
        (b"[]", "its library says 'Cannot instantiate Tokenizer from buffer: invalid"),
        (b"\xff", "its library says 'Cannot instantiate Tokenizer from buffer: expected"),
        (b"[" * 100_000, "its library says 'Cannot instantiate Tokenizer from buffer: "),
        (
            document(normalizer={"type": "Precompiled", "precompiled_charsmap": "AAAA"}),
            "its library gave up with 'Precompiled",
        ),
        (document(normalizer=replacing("a" * 1001)), "it makes texts up to 1,001 times as long"),
        (document(normalizer=replacing(*["aa"] * 40)), "it makes texts up to 1,000,000,000 times"),
        (
            document(normalizer=replacing("b" * 1000, pattern={"Regex": ""})),
            "it makes texts up to 1,001 times as long",
        ),
    ],
    ids=["cut", "list", "bytes", "deep", "panic", "long", "doubling", "between letters"],
)
def test_a_file_that_cannot_be_used_is_refused(data: bytes, said: str) -> None:
    with pytest.raises(ModelRefused) as refused:
        parse_tokenizer(data, "model/tokenizer.json")

    expected = f"the tokenizer 'model/tokenizer.json' cannot be used: {said}"
    assert refused.value.message.startswith(expected)


def test_a_file_that_is_too_large_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    with path.open("wb") as file:
        file.truncate(MAX_TOKENIZER_BYTES + 1)

    with pytest.raises(ModelRefused, match=r"it has 134\.2 MB, over 134\.2 MB"):
        open_tokenizer(tmp_path)


def test_a_model_without_a_tokenizer_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        NotFound, match=r"no tokenizer at .*tokenizer\.json': No such file"
    ) as missing:
        open_tokenizer(tmp_path)

    assert "servers count tokens themselves" in missing.value.hint


def test_a_text_that_cannot_be_encoded_is_a_failure_of_the_tokenizer() -> None:
    split = {"type": "Split", "behavior": "Isolated", "invert": False}
    endless = {**split, "pattern": {"Regex": "(a+)+$"}}
    counter = parse_tokenizer(document(pre_tokenizer=endless), "x")

    assert counter.count("aab") == 3
    with pytest.raises(TokenizerFailed, match="its library gave up with 'Onig"):
        counter.count("a" * 40 + "b")


def test_half_of_a_surrogate_pair_is_a_failure_of_the_tokenizer() -> None:
    with pytest.raises(TokenizerFailed):
        parse_tokenizer(document(), "x").count("\ud800")


def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def missing(name: str, *rest: Any, **others: Any) -> Any:
        if name == "tokenizers":
            raise ImportError(name)
        return real(name, *rest, **others)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(UsageError) as refused:
        open_tokenizer(TINY_LLAMA)

    assert refused.value.hint == "pip install 'tokenizers>=0.21', or let the server count"
