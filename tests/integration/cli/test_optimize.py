"""`packager optimize`, as it is typed: jobs of the SageMaker API without a server."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from packager.addons.deploy.sagemaker.shapes import answer_faults
from packager.addons.server.jobs.store import JobStore
from packager.addons.server.resources import ResourceStore
from tests.support import sagemaker_bodies
from tests.support.buckets import server as server
from tests.support.cases import cases, read_tables
from tests.support.commandline import TINY, Packager, packager_in
from tests.support.doubles.s3 import Bucket
from tests.support.job_values import new_job, stage
from tests.support.places import ROOT
from tests.support.running_jobs import kill_all, until
from tests.support.sagemaker_bodies import (
    AWQ,
    EAGLE_BUILT_IN_DATA,
    EAGLE_OWN_DATA,
    EAGLE_OWN_HEAD,
    MODEL_WITH_HEAD,
    sharding,
)

EXAMPLES = ROOT / "examples" / "optimize"
HERE = ("--instance", "local", "--no-measure")


@pytest.fixture
def bucket(server: str) -> Bucket:
    return Bucket(server)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[JobStore]:
    store = JobStore(tmp_path / "state" / "packager" / "jobs")
    yield store
    kill_all(*store.unfinished())


@pytest.fixture
def optimize(tmp_path: Path, bucket: Bucket, store: JobStore) -> Packager:
    """Return what runs `packager optimize` in the directory `as`."""
    environment = {**bucket.environment, "XDG_STATE_HOME": str(tmp_path / "state")}
    (tmp_path / "as").mkdir()
    run = packager_in(tmp_path / "as")
    return lambda *words, status=0: run("optimize", *words, env=environment, status=status)


def _file(directory: Path, body: dict[str, Any], name: str = "job.json") -> str:
    path = directory / name
    path.write_text(json.dumps(body), encoding="utf-8")
    return str(path)


def _without_model(bucket: Bucket) -> dict[str, Any]:
    """Return a job that fails soon."""
    return {
        **AWQ,
        "ModelSource": {"S3": {"S3Uri": f"{bucket.url}/nothing/"}},
        "OutputConfig": {"S3OutputLocation": f"{bucket.url}/out/"},
    }


def test_a_dry_run_prints_commands_and_their_request(optimize: Packager, tmp_path: Path) -> None:
    job = _file(tmp_path, {**EAGLE_OWN_HEAD, "OutputConfig": EAGLE_OWN_DATA["OutputConfig"]})
    model = _file(tmp_path, MODEL_WITH_HEAD, "model.json")
    done = optimize("--cli-input-json", job, "--create-model", model, *HERE, "--dry-run")

    assert done.out == read_tables(__file__)["dry_run"]


def test_a_dry_run_for_programs(optimize: Packager, tmp_path: Path, store: JobStore) -> None:
    printed = optimize(
        *("--cli-input-json", f"file://{_file(tmp_path, AWQ)}", "--images", "oci:images"),
        *("--dry-run", "--no-measure", "--format", "json"),
    ).document

    assert printed["name"] == "modelbuilderjob-3f2a"
    assert printed["files"]["request.json"]["quantize"] == "awq"
    [stage] = printed["stages"]
    assert f"oci:{tmp_path / 'as' / 'images'}:modelbuilderjob-3f2a" in stage["arguments"]
    assert not store.root.exists()


def test_the_operator_says_how_heads_are_trained(optimize: Packager) -> None:
    document = ("--cli-input-json", json.dumps(EAGLE_BUILT_IN_DATA), "--dry-run")
    words = ("--train-option", "max-steps=20", "--train-option", "aux-layers=1,2,3")

    done = optimize(*document, *words)
    refused = optimize(*document, "--train-option", "max-steps=none", status=2)

    assert "--output {job}/head --max-steps 20 --aux-layers 1,2,3\n" in done.out
    assert "invalid --max-steps 'none'" in refused.err


def test_the_document_may_be_the_argument_itself(optimize: Packager) -> None:
    done = optimize("--cli-input-json", json.dumps(AWQ), *HERE, "--dry-run")

    assert done.out.startswith("packager build --request {job}/request.json ")


def test_an_empty_document_has_every_member(optimize: Packager) -> None:
    printed = json.loads(optimize("--generate-cli-skeleton").out)

    assert list(printed)[:3] == ["OptimizationJobName", "RoleArn", "ModelSource"]


@cases("refused", changes={})
def test_what_is_refused_is_told(
    optimize: Packager,
    words: tuple[str, ...] | None,
    document: str | None,
    changes: dict[str, Any],
    told: str,
) -> None:
    """`document` names one of `sagemaker_bodies`."""
    if document is not None:
        body = getattr(sagemaker_bodies, document) | changes
        words = ("--cli-input-json", json.dumps(body))

    done = optimize(*(words or ()), status=2)

    assert done.err.startswith(told)
    assert done.out == ""


def test_a_failed_job_is_described(optimize: Packager, bucket: Bucket, store: JobStore) -> None:
    done = optimize("--cli-input-json", json.dumps(_without_model(bucket)), *HERE, status=6)
    answer = json.loads(done.out)

    assert answer["OptimizationJobStatus"] == "FAILED"
    assert f"{bucket.url}/nothing/" in answer["FailureReason"]
    assert answer_faults("DescribeOptimizationJob", answer) == ()
    assert "build packager build --request " in done.err
    assert store.get("optimization", AWQ["OptimizationJobName"]).status == "failed"


def test_a_detached_job_runs_alone(optimize: Packager, bucket: Bucket, store: JobStore) -> None:
    done = optimize("--cli-input-json", json.dumps(_without_model(bucket)), *HERE, "--detach")

    assert json.loads(done.out) == {
        "OptimizationJobArn": "arn:aws:sagemaker:us-east-1:000000000000:optimization-job/"
        "modelbuilderjob-3f2a"
    }
    until(lambda: store.get("optimization", AWQ["OptimizationJobName"]).status == "failed")


def test_a_queued_job(tmp_path: Path, optimize: Packager, bucket: Bucket, store: JobStore) -> None:
    go_on = tmp_path / "go-on"
    store.create(new_job("long", stages=(stage("build", f"wait={go_on}"),)))
    behind = optimize("--cli-input-json", json.dumps(_without_model(bucket)), *HERE, "--detach")
    words = ("optimize", "--cli-input-json", json.dumps({**AWQ, "OptimizationJobName": "last"}))
    last = subprocess.Popen(
        [sys.executable, "-m", "packager", *words],
        env={**os.environ, **bucket.environment, "XDG_STATE_HOME": str(tmp_path / "state")},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert last.stderr is not None
    first_line = last.stderr.readline()
    store.stop("optimization", "last")

    assert behind.err == (
        "modelbuilderjob-3f2a: waits, place 1 of 1 in the queue, behind 'long'\n"
        "nobody starts it then: `packager jobs run` does\n"
    )
    assert first_line == "last: waits, place 2 of 2 in the queue, behind 'long'\n"
    assert last.wait(timeout=60) == 130
    last.stderr.close()
    go_on.touch()


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*.json")), ids=lambda file: file.stem)
def test_every_example_is_taken(optimize: Packager, file: Path) -> None:
    if file.stem.startswith("model"):
        return
    models = [str(one) for one in EXAMPLES.glob("model*.json")]
    named = [word for one in models for word in ("--create-model", one)]

    assert optimize("--cli-input-json", str(file), *named, "--dry-run").out


def test_a_job_ends_with_files_in_the_bucket_and_an_image(
    optimize: Packager, bucket: Bucket, store: JobStore, tmp_path: Path
) -> None:
    bucket.upload(TINY, "models/tiny")
    body = {
        **sharding(OPTION_TENSOR_PARALLEL_DEGREE="4", OPTION_MAX_MODEL_LEN="512"),
        "ModelSource": {"S3": {"S3Uri": f"{bucket.url}/models/tiny/"}},
        "OutputConfig": {
            "S3OutputLocation": f"{bucket.url}/out",
            "SageMakerModel": {"ModelName": "tiny-sharded"},
        },
    }
    answer = optimize(
        *("--cli-input-json", json.dumps(body), *HERE),
        *("--base", "scratch", "--images", "oci:images"),
    ).document

    assert answer["OptimizationJobStatus"] == "COMPLETED"
    assert answer_faults("DescribeOptimizationJob", answer) == ()
    recommended = answer["OptimizationOutput"]["RecommendedInferenceImage"]
    layout = tmp_path / "as" / "images"
    assert recommended.startswith(f"oci:{layout}:modelbuilderjob-3f2a@sha256:")
    index = json.loads((layout / "index.json").read_text(encoding="utf-8"))
    assert recommended.partition("@")[2] in [one["digest"] for one in index["manifests"]]
    assert {"out/config.json", "out/packager-tree.json"} <= set(bucket.names())
    resources = ResourceStore(tmp_path / "state" / "packager" / "serve" / "resources.sqlite")
    assert resources.get("model", "tiny-sharded").document == {
        "ModelName": "tiny-sharded",
        "ExecutionRoleArn": AWQ["RoleArn"],
        "PrimaryContainer": {"Image": recommended},
    }
    request = json.loads(
        (store.get("optimization", "modelbuilderjob-3f2a").folder / "request.json").read_text()
    )
    assert request["max_total_tokens"] == 512


def test_a_job_goes_on_when_its_command_is_interrupted(tmp_path: Path, store: JobStore) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # an S3 that never answers
        environment = {
            **os.environ,
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{silent.getsockname()[1]}",
            "AWS_ACCESS_KEY_ID": "x",
            "AWS_SECRET_ACCESS_KEY": "y",
            "XDG_STATE_HOME": str(tmp_path / "state"),
        }
        words = ("optimize", "--cli-input-json", json.dumps(AWQ), *HERE)
        running = subprocess.Popen(
            [sys.executable, "-m", "packager", *words],
            env=environment,
            cwd=tmp_path,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert running.stderr is not None
        until(lambda: "packager build --request" in running.stderr.readline())
        running.send_signal(signal.SIGINT)
        said = running.stderr.read()

        assert running.wait(timeout=60) == 130
        assert said.split("\n")[0] == (
            "the job goes on: `packager jobs stop modelbuilderjob-3f2a` ends it"
        )
        assert store.get("optimization", "modelbuilderjob-3f2a").status == "running"
