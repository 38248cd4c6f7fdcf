"""Models are calibrated, measured and trained with the tokens that an engine makes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.live.tool_programs import documents_in, run_program
from tests.support.cases import cases_of, read_tables
from tests.support.tiny_tokenizers import MODELS

cases = cases_of(__file__)

pytestmark = [pytest.mark.live, pytest.mark.capability("quantize")]

WORKERS = ("calibration", "evaluation", "heads", "specforge")
TOOLS = ("evaluate", "llmcompressor", "draft-heads", "specforge")
AROUND = {"<s>", "<bos>", "[CLS]", "</s>", "<eos>", "[SEP]"}
Rows = list[dict[str, Any]]


@pytest.fixture(scope="module")
def told(quantizing_python: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Rows]:
    """Tokens of each row by each worker, with each tokenizer; one process makes them all."""
    place = tmp_path_factory.mktemp("tokens")
    models, samples = place / "models", place / "samples.jsonl"
    models.mkdir()
    for name, model in MODELS.items():
        model.write(models / name)
    rows = read_tables(__file__)["rows"]
    samples.write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = (str(models), str(samples))
    (found,) = documents_in(run_program(quantizing_python, "token_rows.py", *words, tools=TOOLS))
    return found


@cases("tokenizers")
def test_every_worker_makes_the_tokens_that_an_engine_makes_of_a_request(
    name: str, text: str, end: str, chat: str, told: dict[str, Rows]
) -> None:
    for found in told[name]:
        row, bos, engine = found["row"], found["bos"], found["engine"]
        is_chat = "messages" in row
        begins_with_bos = bos is not None and row.get("text", "").startswith(bos)
        if begins_with_bos and engine[:2] == [bos, bos]:
            engine = engine[1:]  # an engine doubles it
        made = found["calibration"]

        assert {who: found[who] for who in WORKERS} == dict.fromkeys(WORKERS, made)
        assert made[: len(engine)] == engine
        assert len(made) == len(engine) or not engine or "completion" in row
        if not begins_with_bos:
            assert (made[0] if made[0] in AROUND else "") == (chat if is_chat else text)
        if "text" in row:
            assert (made[-1] if made[-1] in AROUND else "") == end


@cases("tokenizers")
def test_a_question_to_the_model_is_what_stands_before_its_answer(
    name: str, text: str, end: str, chat: str, told: dict[str, Rows]
) -> None:
    for found in told[name]:
        row = found["row"]
        if "completion" in row:
            assert found["question"] == found["asked"] == found["engine"]
        elif "messages" in row:
            question, whole = found["question"], found["calibration"]
            known = min(len(question), len(whole)) if found["engine"] else 1
            assert question[:known] == whole[:known]
        else:
            assert found["question"] == (found["engine"] if "prompt" in row else [])
