"""What AWS's own notebooks asked, as `scripts/run-notebooks` wrote it down, asked again.

No job and no container runs here, so what needs their results is left out.  Everything else is
answered as it was in the run: taken, or refused by the same code.
"""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError, ParamValidationError

from packager.addons.server.sagemaker.jumpstart import JumpStart
from packager.addons.server.sagemaker.settings import JobSettings
from tests.support.api_server import REGION, ApiServer
from tests.support.places import DATA

FACTS: dict[str, Any] = json.loads((DATA / "sagemaker" / "notebooks.json").read_bytes())
LIST = tomllib.loads((DATA / "sagemaker" / "notebooks.toml").read_text(encoding="utf-8"))
OUTSIDE = ("s3", "sagemaker-runtime", "logs")  # not the server's, or what containers say
NEEDS_THE_RUN = (  # its containers, and ends of its jobs
    "must be InService to be measured",
    "Cannot update in-progress",
    "has not ended",
)


def _is_wait(call: dict[str, Any]) -> bool:
    """Return whether a notebook looked until something was gone."""
    return call["operation"].startswith("Describe") and "answer" in call


def _answer(server: ApiServer, call: dict[str, Any]) -> str:
    """Ask once more; return the code of a refusal, "" for none."""
    client = server.client(call["service"])
    try:
        client._make_api_call(call["operation"], call["parameters"])
    except ClientError as error:
        return f"{error.response['Error']['Code']}: {error.response['Error']['Message']}"
    except ParamValidationError as error:
        return f"ParamValidationError: {error}"
    return ""


@pytest.mark.parametrize("name", FACTS)
def test_what_a_notebook_asked_is_answered_as_in_its_run(tmp_path: Path, name: str) -> None:
    places = dict.fromkeys(LIST["jumpstart"], "s3://models/tiny/")
    settings = JobSettings(
        region=REGION,
        instance="local",
        jumpstart=JumpStart(places=places),
        datasets=tuple(LIST["datasets"].items()),
    )
    differ: list[tuple[object, ...]] = []
    waiting: set[str] = set()
    with ApiServer(tmp_path, settings=settings) as server:
        for call in FACTS[name]["asked"]:
            texts = {one for one in call["parameters"].values() if isinstance(one, str)}
            if call["service"] in OUTSIDE or texts & waiting:
                continue
            told, recorded = _answer(server, call), call.get("answer", "")
            if any(text in told for text in NEEDS_THE_RUN):
                if call["operation"].startswith("Create"):
                    kind = call["operation"].removeprefix("Create")
                    waiting.add(call["parameters"][f"{kind}Name"])
            elif told.split(":")[0] != recorded.split(":")[0] and not _is_wait(call):
                differ.append((call["cell"], call["operation"], recorded, told))

    assert differ == []
