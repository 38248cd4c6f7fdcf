"""Tokenizers of every kind that models have: `data/models/tokenizers`.

The library that writes them trained each on the shipped sentences, to 600 entries or fewer.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.support.places import DATA

KINDS = {
    "byte-level BPE": "byte_level_bpe",  # as GPT-2, Llama 3 and Qwen have it
    "WordPiece": "wordpiece",  # as BERT has it, whose file cuts and fills every text
    "Unigram": "unigram",  # over words that begin with a mark, as T5 and SentencePiece have it
    # without pieces before it, as Llama 2 has it, which puts tokens around a text
    "BPE with special tokens": "bpe_with_special_tokens",
}


def write_tokenizer(kind: str, directory: Path) -> Path:
    """Write the tokenizer.json of a kind of `KINDS` to a directory; return its path."""
    stored = DATA / "models" / "tokenizers" / f"{KINDS[kind]}.json"
    return Path(shutil.copyfile(stored, directory / "tokenizer.json"))
