"""Vectors and scores of images that packager built are sentence-transformers' own."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
import urllib3

from tests.live.building import build, ran
from tests.live.processors import caps
from tests.live.servers import SMALL_MODEL, served, small_model_words
from tests.support.commandline import Packager
from tests.support.pooling_models import load, write_model

pytestmark = [pytest.mark.live, pytest.mark.timeout(1500)]

ALIKE = 0.9999  # in 32 bits
MODELS = ("bert", "xlmr", "modernbert", "qwen3-embed", "gemma-embed", "bert-cross", "qwen3-judge")


def post(url: str, body: dict[str, Any]) -> Any:
    answer = urllib3.request("POST", url, json=body, retries=False, timeout=120)
    assert answer.status == 200, answer.data
    return json.loads(answer.data)


def cosine(one: list[float], other: list[float]) -> float:
    lengths = math.hypot(*one) * math.hypot(*other)
    return sum(a * b for a, b in zip(one, other, strict=True)) / lengths


@pytest.mark.parametrize("name", MODELS)
def test_a_built_image_answers_as_sentence_transformers_does(
    packager: Packager, docker_host: str, serving_base: str, tmp_path: Path, name: str
) -> None:
    model = load(name)
    image = f"packager-test:pooling-{name}"
    directory = write_model(model, tmp_path / name)
    own = {"DOCKER_HOST": docker_host}
    wide = ("--dtype", "float32")
    build(packager, f"docker:{image}", *wide, base=serving_base, model=directory, env=own)
    texts = model["texts"]
    small: dict[str, Any] = {**SMALL_MODEL, **caps()}
    with served(docker_host, image, **small) as (_, url):
        if "scores" in model:
            body = {"query": model.get("query", texts[1]), "texts": texts}
            ranks = post(f"{url}/invocations", body)
            got = {row["index"]: row["score"] for row in ranks}
            order = sorted(range(len(texts)), key=lambda at: -model["scores"][at])
            assert [row["index"] for row in ranks] == order
            assert all(abs(got[at] - model["scores"][at]) < 1e-4 for at in got)
            return
        vectors = post(f"{url}/invocations", {"inputs": texts})
        own_words = post(f"{url}/v1/embeddings", {"input": texts})["data"]
    for at, truth in enumerate(model["vectors"]):
        assert cosine(vectors[at], truth) >= ALIKE
        assert cosine(own_words[at]["embedding"], truth) >= ALIKE
        assert abs(math.hypot(*vectors[at]) - math.hypot(*truth)) < 1e-3


def test_sixteen_bits_are_the_model_s_own_vectors_but_for_their_type(
    packager: Packager, docker_host: str, serving_base: str, tmp_path: Path
) -> None:
    model, image = load("qwen3-embed"), "packager-test:pooling-half"
    directory = write_model(model, tmp_path / "model")
    own = {"DOCKER_HOST": docker_host}
    build(packager, f"docker:{image}", base=serving_base, model=directory, env=own)
    file = tmp_path / "own.json"
    file.write_text(json.dumps({"texts": model["texts"], "vectors": model["vectors"]}))
    small = [word for name, value in caps().items() for word in ("--env", f"{name}={value}")]

    words = ("smoke", image, "--reference", str(file), *small_model_words(), *small)
    told = ran(packager, *words, "--timeout", "900", "--format", "json", env=own).out
    said = json.loads(told)["answers"][-1]["text"]
    least = float(re.findall(r"cosine ([0-9.]+) at least", said)[0])
    assert 0.999 <= least < 1
