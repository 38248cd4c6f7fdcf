"""`packager draft measure` of images that packager built, served by a real vLLM on processors.

A start takes half a minute and more: what other kinds of drafts do, and what a server that runs
already is asked, is in test_draft_images.py.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from packager.cli.serving.containers import find_image
from packager.engines.without_draft import Changes, without_draft
from packager.images.docker_engine import connect_engine
from tests.live.building import build, told
from tests.live.processors import cap_words
from tests.live.servers import small_model_words
from tests.support.commandline import Packager
from tests.support.places import ROOT

pytestmark = [pytest.mark.live, pytest.mark.timeout(1500)]

DRAFT = ROOT / "examples" / "tiny-llama-draft"
BUSY = (*small_model_words(), *cap_words())
FEW = ("--samples", "8", "--max-tokens", "32", "--concurrency", "1,4")


def test_a_draft_model_is_measured_against_the_same_image_without_it(
    packager: Packager, engine: str, serving_base: str
) -> None:
    name = "packager-test:measured"
    build(packager, f"docker:{name}", "--draft", str(DRAFT), base=serving_base)

    report = told(
        packager,
        *("draft", "measure", name, *FEW, *BUSY),
        *("--require-identical", "--min-acceptance-length", "1.2"),
    )

    found = report["acceptance"]
    assert found["source"] == "vllm"
    assert found["length"] == pytest.approx(
        1 + found["accepted_tokens"] / found["drafts"], abs=1e-4
    )
    assert found["draft_tokens"] == pytest.approx(5 * found["drafts"], rel=0.05)  # 5 at a time
    assert list(found["by_position"]) == sorted(found["by_position"], reverse=True)
    same = report["sameness"]
    assert same["compared"] == same["identical"] + same["ties"] == 8
    for speed in report["speeds"]:
        ours, plain = speed["speculative"], speed["plain"]
        assert (ours["failed"], plain["failed"]) == (0, 0)
        assert min(ours["output_tokens"], plain["output_tokens"]) > 0
        # What follows a tie may be of another length.
        assert same["ties"] or ours["output_tokens"] == plain["output_tokens"]
        assert speed["speedup"] > 0
    assert json.loads(Path(report["record"]).read_text())["speculation"]["acceptance"] == found


def test_a_variable_of_an_image_can_be_taken_away(
    packager: Packager, engine: str, serving_base: str
) -> None:
    """SageMaker's images have no launcher of ours: their variables make the command."""
    name = "packager-test:by-environment"
    sagemaker = ("--instance", "ml.g5.xlarge", "--family", "vllm", "--draft", "ngram")
    build(packager, f"docker:{name}", *sagemaker, base=serving_base)
    client = connect_engine()
    changes = without_draft(find_image(client, name).attrs["Config"])
    assert changes == {"SM_VLLM_SPECULATIVE_CONFIG": None}

    def variables(environment: Changes) -> set[str]:
        words = {"environment": dict(environment), "network_mode": "none", "remove": True}
        said = client.containers.run(name, entrypoint=["env"], **words).decode()
        return {line.partition("=")[0] for line in said.splitlines()}

    assert variables({}) - variables(changes) == {"SM_VLLM_SPECULATIVE_CONFIG"}
