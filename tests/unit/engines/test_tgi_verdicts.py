"""What TGI's own launcher, router arguments and shards said of environments, and what we say.

`data/tgi_verdicts.jsonl` was recorded on 2026-11-22 with the launcher of each version, clap 4.5.32
as its lock file has it, the script of SageMaker's image, the router's arguments, and cli.py and
globals.py of the shards: without a GPU, a model or a kernel.  `dropped` is what started with
another value than the one in the environment, or what no file of that version names.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from packager.engines.tgi.attention import check_cache
from packager.engines.tgi.check import check_settings
from tests.support.places import DATA

RECORDED = [
    json.loads(line) for line in (DATA / "engines" / "tgi_verdicts.jsonl").read_text().splitlines()
]
IN_THE_IMAGE = {"sagemaker": {"HF_MODEL_ID": "/opt/packager/model"}, "upstream": {}}


def refused(row: Mapping[str, Any]) -> list[str]:
    by_script = row["by"] == "sagemaker"
    env = {**IN_THE_IMAGE[row["by"]], **row["env"]}
    found = (*check_settings(env, row["version"], by_script=by_script), *check_cache(env))
    return [finding.message for finding in found if finding.severity == "error"]


def case(row: Mapping[str, Any]) -> str:
    spelled = ",".join(f"{name}={value}" for name, value in row["env"].items())
    return f"{row['version']}-{row['by']}-{spelled}"


@pytest.mark.parametrize("row", RECORDED, ids=case)
def test_packager_refuses_what_tgi_refuses_or_drops_and_nothing_else(
    row: Mapping[str, Any],
) -> None:
    assert bool(refused(row)) == (row["verdict"] in {"refused", "dropped"})
