"""Tokenizers of every kind that models have: `data/models/tokenizers`.

The library that writes them trained each on the shipped sentences, to 600 entries or fewer.
"""

from __future__ import annotations

import json
import shutil
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
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


PUBLISHED = tomllib.loads((DATA / "models/tokenizers/published.toml").read_text("utf-8"))


@dataclass(frozen=True)
class ModelTokenizer:
    """A tokenizer as published models have it: a kind, and what stands around its texts."""

    kind: str
    around: str = "$A"  # by the post-processor
    template: str = ""
    bos: str = ""
    eos: str = "</s>"
    model_type: str = "llama"
    config: Mapping[str, object] = field(default_factory=dict)

    def write(self, directory: Path) -> None:
        """Write the files that `AutoTokenizer` loads."""
        from tokenizers import Tokenizer, processors

        directory.mkdir()
        made = Tokenizer.from_file(str(write_tokenizer(self.kind, directory)))
        around = {*self.around.split()} - {"$A"}
        turns = {"<|im_start|>", "<|im_end|>"} if "<|im_start|>" in self.template else set()
        made.add_special_tokens(sorted(around | turns | {self.eos} | {self.bos or self.eos}))
        made.post_processor = processors.TemplateProcessing(
            single=self.around, special_tokens=[(one, made.token_to_id(one)) for one in around]
        )
        made.save(str(directory / "tokenizer.json"))
        told = {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": self.bos or None,
            "eos_token": self.eos,
            "unk_token": PUBLISHED["unknown"].get(self.kind),
            "pad_token": None,
            **({"chat_template": self.template} if self.template else {}),
            **self.config,
        }
        (directory / "tokenizer_config.json").write_text(json.dumps(told))
        (directory / "config.json").write_text(json.dumps({"model_type": self.model_type}))


TEMPLATES = {"": "", **PUBLISHED["templates"]}
MODELS: Mapping[str, ModelTokenizer] = {
    name: ModelTokenizer(**{**row, "template": TEMPLATES[row.get("template", "")]})
    for name, row in PUBLISHED["models"].items()
}
