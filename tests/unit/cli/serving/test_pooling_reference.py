"""A server's vectors and scores are held against the model's own, by its element type."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from packager.cli.serving.pooling_reference import check_reference, precision_of, read_reference
from packager.core.errors import PackagerError
from tests.support.cases import cases_of

cases = cases_of(__file__)


@cases("answers", precision="fp32", path="")
def test_answers_differ_by_their_type_alone(
    tmp_path: Path,
    reference: dict[str, Any],
    got: list[Any],
    precision: str,
    path: str,
    said: str,
) -> None:
    file = tmp_path / "own.json"
    file.write_text(json.dumps({"texts": ["a", "b", "c"][: len(got)], **reference}))

    def ask(where: str, body: Mapping[str, Any]) -> tuple[Any, float]:
        assert body.get("input", body.get("documents")) == ["a", "b", "c"][: len(got)]
        if where == "/rerank":
            rows = [{"index": at, "relevance_score": one} for at, one in enumerate(got)]
            return {"results": rows[::-1]}, 0.1
        return {"data": [{"index": at, "embedding": one} for at, one in enumerate(got)]}, 0.1

    own = read_reference(file)
    if not said.startswith("!"):
        assert said in check_reference(ask, path or own.path, "m", own, precision)[1]
        return
    with pytest.raises(PackagerError, match=said[1:]):
        check_reference(ask, path or own.path, "m", own, precision)


@cases("files")
def test_a_file_that_is_no_reference_is_refused(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "own.json"
    file.write_text(text)

    with pytest.raises(PackagerError, match=said):
        read_reference(file)


def test_the_type_is_that_of_the_image_s_build() -> None:
    assert precision_of({"dev.packager.record": '{"precision": "bf16"}'}) == "bf16"
    assert precision_of({}) == precision_of({"dev.packager.record": "{}"}) == ""
