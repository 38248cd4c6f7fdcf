"""Tokenizers of every kind that models have, trained on the shipped sentences in a moment."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from packager.load.texts import shipped_sentences

_ENTRIES = 600


def write_tokenizer(kind: str, directory: Path) -> Path:
    """Write the tokenizer.json of a kind of `KINDS` to a directory; return its path."""
    path = directory / "tokenizer.json"
    path.write_text(_document(kind))
    return path


@cache
def _document(kind: str) -> str:
    text: str = KINDS[kind]().to_str()
    return text


def _byte_level() -> Any:
    """Return byte-level BPE, as GPT-2, Llama 3 and Qwen have it."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.train_from_iterator(
        shipped_sentences(),
        trainers.BpeTrainer(
            vocab_size=_ENTRIES,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    return made


def _word_piece() -> Any:
    """Return WordPiece, as BERT has it, whose file cuts and fills every text."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

    made = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer(lowercase=True)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.train_from_iterator(
        shipped_sentences(),
        trainers.WordPieceTrainer(
            vocab_size=_ENTRIES, special_tokens=["[UNK]", "[PAD]"], show_progress=False
        ),
    )
    made.enable_truncation(128)
    made.enable_padding(length=128)
    return made


def _unigram() -> Any:
    """Return Unigram over words that begin with a mark, as T5 and SentencePiece have it."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

    made = Tokenizer(models.Unigram())
    made.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace("  ", " ")])
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    made.train_from_iterator(
        shipped_sentences(),
        trainers.UnigramTrainer(
            vocab_size=_ENTRIES, unk_token="<unk>", special_tokens=["<unk>"], show_progress=False
        ),
    )
    return made


def _special() -> Any:
    """Return BPE without pieces before it, as Llama 2 has it, which puts tokens around a text."""
    from tokenizers import Tokenizer, models, normalizers, processors, trainers

    made = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True))
    made.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    marked = ("▁" + one.replace(" ", " ▁") for one in shipped_sentences())
    made.train_from_iterator(
        (word for one in marked for word in one.split(" ")),
        trainers.BpeTrainer(
            vocab_size=_ENTRIES, special_tokens=["<unk>", "<s>", "</s>"], show_progress=False
        ),
    )
    made.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)]
    )
    return made


KINDS: Mapping[str, Callable[[], Any]] = {
    "byte-level BPE": _byte_level,
    "WordPiece": _word_piece,
    "Unigram": _unigram,
    "BPE with special tokens": _special,
}
