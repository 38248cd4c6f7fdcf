"""A server of the API that is killed again and again while jobs run and requests are answered."""

from __future__ import annotations

import random
import threading
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from botocore.exceptions import ClientError, ConnectionError, HTTPClientError

from packager.addons.server.jobs.store import JobStore
from tests.integration.addons.server.test_server_process import address, client, serving
from tests.support.api_server import optimization_body
from tests.support.job_values import new_job, stage
from tests.support.raw_requests import post

KILLS = 10
STAGES = 8


def test_a_job_is_completed_once_however_often_its_server_is_killed(tmp_path: Path) -> None:
    chosen = random.Random(20)
    traces = tmp_path / "traces"
    traces.touch()
    store = JobStore(tmp_path / "packager" / "jobs")
    stages = tuple(
        stage(f"stage-{number}", "sleep=0.7", f"append={traces}:{number}")
        for number in range(STAGES)
    )
    store.create(
        new_job("one", kind="optimization", document=optimization_body("one"), stages=stages)
    )

    for _ in range(KILLS):
        with serving(tmp_path) as process:
            url = address(process)
            assert describe(url) in ("STARTING", "INPROGRESS", "COMPLETED")
            time.sleep(chosen.uniform(0.0, 0.6))
            process.kill()

    with serving(tmp_path) as process:
        url = address(process)
        deadline = time.monotonic() + 120
        while describe(url) != "COMPLETED":
            assert time.monotonic() < deadline
            time.sleep(0.05)
    assert traces.read_text().split() == [str(number) for number in range(STAGES)]


def test_what_a_killed_server_answered_is_there(tmp_path: Path) -> None:
    """Models are created and deleted without pause; every answer holds after the kill."""
    chosen = random.Random(21)
    expected: dict[str, bool] = {}  # name → whether it is there; unanswered ones are left out
    for round_number in range(5):
        with serving(tmp_path) as process:
            sagemaker = client(address(process))
            for name, is_there in expected.items():
                assert exists(sagemaker, name) is is_there
            killer = threading.Timer(chosen.uniform(0.3, 1.0), process.kill)
            killer.start()
            number = 0
            try:
                while True:
                    name = f"m-{round_number}-{number}"
                    expected.pop(name, None)
                    sagemaker.create_model(
                        ModelName=name, ExecutionRoleArn=ROLE, PrimaryContainer={"Image": "tiny:1"}
                    )
                    expected[name] = True
                    if number % 3 == 0:
                        del expected[name]
                        sagemaker.delete_model(ModelName=name)
                        expected[name] = False
                    number += 1
            except (ConnectionError, HTTPClientError):
                pass
            killer.join()
    assert len(expected) > 20


ROLE = "arn:aws:iam::000000000000:role/anyone"


def describe(url: str) -> str:
    asked, what = b'{"OptimizationJobName": "one"}', "SageMaker.DescribeOptimizationJob"
    return str(post(urlsplit(url).port or 0, asked, target=what).document["OptimizationJobStatus"])


def exists(sagemaker: Any, name: str) -> bool:
    try:
        sagemaker.describe_model(ModelName=name)
    except ClientError as error:
        assert "Could not find" in str(error)
        return False
    return True
