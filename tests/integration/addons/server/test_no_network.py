"""AWS's clients where there is no network but loopback: nothing tries to leave."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import need
from tests.live.test_sagemaker_api import python_of
from tests.support.places import DATA, ROOT

PROGRAM = Path(__file__).with_name("first_cells.py")
FACTS = DATA / "sagemaker" / "notebooks.json"
ROLE = "arn:aws:iam::000000000000:role/packager"
MODEL = "meta-tiny"
OPTIONS = ("--instance", "local", "--jumpstart", f"{MODEL}=s3://models/tiny/")
DATA_OF_MODEL = f"s3://jumpstart-cache-prod-us-east-1/packager/{MODEL}/"
BUCKET = "sagemaker-us-east-1-000000000000"
LMI = "763104351884.dkr.ecr.us-east-1.amazonaws.com/djl-inference:0.29.0-lmi11.0.0-cu124"
CALLER = "arn:aws:sts::000000000000:assumed-role/packager/session"
TOLD = {
    "boto3": {"identity": CALLER},
    "v2": {"data": DATA_OF_MODEL, "role": ROLE, "caller": ROLE, "bucket": BUCKET, "image": LMI},
    "v3": {"role": ROLE, "account": "000000000000", "bucket": BUCKET},
}


def unshared() -> list[str]:
    """Return the words that give a command a network of its own; [] where that is refused."""
    words = ["unshare", "--net", "--"]
    done = subprocess.run([*words, "true"], capture_output=True)
    return words if done.returncode == 0 else []


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("client", "notebooks"),
    [
        pytest.param("boto3", ("components-three-models",), id="boto3"),
        pytest.param("v2", ("lab5-optimize-model",), id="SDK 2"),
        pytest.param("v3", ("sdk3-optimize",), id="SDK 3", marks=pytest.mark.extended),
    ],
)
def test_nothing_tries_to_leave_a_machine_without_a_network(
    tmp_path: Path, client: str, notebooks: tuple[str, ...]
) -> None:
    need("strace")
    python = sys.executable if client == "boto3" else python_of(client)
    module = (
        sys.executable,
        "-m",
        "tests.integration.addons.server.loopback_only",
        tmp_path,
        json.dumps(OPTIONS),
    )
    words = (*unshared(), *module, python, "-P", PROGRAM, client, FACTS, MODEL, *notebooks)

    done = subprocess.run(list(map(str, words)), cwd=ROOT, capture_output=True, text=True)

    assert done.returncode == 0, done.stderr[-4000:]
    told, left = [json.loads(line) for line in done.stdout.splitlines()[-2:]]
    assert left == []
    assert told == {**TOLD[client], "differ": []}
