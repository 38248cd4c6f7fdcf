"""Files of a model that are a tokenizer."""

from __future__ import annotations

TEKKEN = "tekken.json"  # Mistral's own
# Any of these is a tokenizer that an engine reads without code of the model's own.
TOKENIZERS = (
    frozenset({"tokenizer.json"}),
    frozenset({"tokenizer.model"}),
    frozenset({TEKKEN}),
    frozenset({"vocab.json", "merges.txt", "tokenizer_config.json"}),
)
