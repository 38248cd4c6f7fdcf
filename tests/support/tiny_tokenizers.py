"""Tokenizers of every kind that models have: `data/models/tokenizers`.

The library that writes them trained each on the shipped sentences, to 600 entries or fewer.
"""

from __future__ import annotations

import json
import shutil
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


CHATML = (
    "{% for turn in messages %}<|im_start|>{{ turn.role }}\n{{ turn.content }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
INSTRUCT = (
    "{{ bos_token }}{% for turn in messages %}{% if turn.role == 'assistant' %} {{ turn.content }}"
    "{{ eos_token }}{% else %}[INST] {{ turn.content }} [/INST]{% endif %}{% endfor %}"
)
_BPE, _MARKED = "byte-level BPE", "BPE with special tokens"
_UNKNOWN = {_MARKED: "<unk>", "WordPiece": "[UNK]", "Unigram": "<unk>"}


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
        turns = {"<|im_start|>", "<|im_end|>"} if self.template == CHATML else set()
        made.add_special_tokens(sorted(around | turns | {self.eos} | {self.bos or self.eos}))
        made.post_processor = processors.TemplateProcessing(
            single=self.around, special_tokens=[(one, made.token_to_id(one)) for one in around]
        )
        made.save(str(directory / "tokenizer.json"))
        told = {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": self.bos or None,
            "eos_token": self.eos,
            "unk_token": _UNKNOWN.get(self.kind),
            "pad_token": None,
            **({"chat_template": self.template} if self.template else {}),
            **self.config,
        }
        (directory / "tokenizer_config.json").write_text(json.dumps(told))
        (directory / "config.json").write_text(json.dumps({"model_type": self.model_type}))


_LLAMA, _GEMMA = {"tokenizer_class": "LlamaTokenizer"}, {"tokenizer_class": "GemmaTokenizer"}
MODELS: Mapping[str, ModelTokenizer] = {
    "Llama 3": ModelTokenizer(_BPE, "<s> $A", INSTRUCT, "<s>"),
    "template without BOS": ModelTokenizer(_BPE, "<s> $A", CHATML, "<s>"),
    "Qwen": ModelTokenizer(
        _BPE, "$A", CHATML, "", "<|im_end|>", "qwen2", {"tokenizer_class": "Qwen2Tokenizer"}
    ),
    "GPT-2": ModelTokenizer(
        _BPE, "$A", "", "</s>", "</s>", "gpt2", {"tokenizer_class": "GPT2Tokenizer"}
    ),
    "Llama 2": ModelTokenizer(
        _MARKED, "<s> $A", INSTRUCT, "<s>", config={**_LLAMA, "add_bos_token": True}
    ),
    "Llama 2 without BOS": ModelTokenizer(
        _MARKED, "$A", INSTRUCT, "<s>", config={**_LLAMA, "add_bos_token": False}
    ),
    "BOS and EOS": ModelTokenizer(_MARKED, "<s> $A </s>", INSTRUCT, "<s>"),
    "Gemma": ModelTokenizer(_MARKED, "<bos> $A", INSTRUCT, "<bos>", "<eos>", "gemma2", _GEMMA),
    "Gemma's base": ModelTokenizer(_MARKED, "<bos> $A", "", "<bos>", "<eos>", "gemma2", _GEMMA),
    "BERT": ModelTokenizer("WordPiece", "[CLS] $A [SEP]", eos="[SEP]"),
    "T5": ModelTokenizer("Unigram", "$A </s>", CHATML),
}
