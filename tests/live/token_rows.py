"""Prints the tokens that each worker makes of the same rows, and those of vLLM for a request.

Arguments: a directory of tokenizers, a file of rows. Run by the Python of the quantizing tool.
`/v1/completions` tokenizes with special tokens, `/v1/chat/completions` what its template wrote
without: `TokenizeParams.get_encode_kwargs` of vllm/renderers/params.py and the defaults of
`add_special_tokens` of both protocols, read in 0.32.0.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import compare
import rows
import texts
from calibration import read_rows
from dialogues import Dialogue
from transformers import AutoTokenizer

MOST = 999


def main(models: str, samples: str) -> None:
    """Print one document: by tokenizer, for each row the tokens by who made them."""
    lines = [json.loads(line) for line in Path(samples).read_text().splitlines()]
    places = sorted(Path(models).iterdir())
    found = {place.name: told(place, Path(samples), lines) for place in places}
    sys.stdout.write(json.dumps(found) + "\n")


def told(place: Path, samples: Path, lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Tokenize the rows with one tokenizer."""
    tokenizer = AutoTokenizer.from_pretrained(place)
    calibrated = read_rows(samples, tokenizer, MOST, sys.stderr.write)["input_ids"]
    found = []
    for row, ids in zip(lines, calibrated, strict=True):
        evaluated = compare._text(row, tokenizer, MOST)
        by = {
            "engine": requested(row, tokenizer),
            "calibration": ids,
            "evaluation": evaluated.ids.tolist(),
            "heads": _joined(rows.to_rows(row, tokenizer, MOST)),
            "specforge": _joined(texts.to_rows(row, tokenizer, MOST)),
            "asked": evaluated.prompt.tolist(),
            "question": Dialogue(row, tokenizer, MOST).question(),
        }
        shown = {who: tokenizer.convert_ids_to_tokens(made) for who, made in by.items()}
        found.append({"row": row, "bos": tokenizer.bos_token, **shown})
    return found


def _joined(rows: list[Any]) -> list[int]:
    return [token for row in rows[-1:] for token in row.ids]  # the last one has the whole text


def requested(row: dict[str, Any], tokenizer: Any) -> list[int]:
    """Tokenize a row as vLLM does; it refuses conversations without a template."""
    if "messages" not in row:
        return list(tokenizer(row.get("text", row.get("prompt")))["input_ids"])
    if tokenizer.chat_template is None:
        return []
    whole = tokenizer.apply_chat_template(row["messages"], tokenize=False)
    return list(tokenizer(whole, add_special_tokens=False)["input_ids"])


if __name__ == "__main__":
    main(*sys.argv[1:])
