"""`packager deploy kubernetes|kserve apply --smoke --bench` as it is typed, through the proxy."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.cases import read_tables
from tests.support.commandline import TINY, Packager, packager_in
from tests.support.doubles.cluster import Cluster, running_cluster
from tests.support.llm_double import Behaviour, LlmDouble

IMAGE = "r.example/team/tiny:1"
READY = {"replicas": 1, "updatedReplicas": 1, "availableReplicas": 1}
SECRET = "kube-token-of-no-meaning"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cluster")


@pytest.fixture(scope="module")
def run(place: Path) -> Packager:
    """`packager` with one state, and an image that is built once."""
    ours = packager_in(place)

    def with_state(*arguments: str, **options: Any) -> Any:
        env = {"XDG_STATE_HOME": str(place / "state"), "KUBECONFIG": str(place / "kubeconfig")}
        return ours(*arguments, env=env, **options)

    done = with_state(
        *("build", "--model", str(TINY), "--instance", "ml.c7i.4xlarge", "--base", "scratch"),
        *("--family", "vllm", "--compile", "off", "--output", "oci:tiny", "--quiet"),
    )
    assert done.status == 0, done.err
    return with_state


@pytest.fixture
def double() -> Iterator[LlmDouble]:
    with LlmDouble(Behaviour(tokens=4, model="tiny-llama")) as found:
        yield found


@pytest.fixture
def cluster(place: Path, double: LlmDouble) -> Iterator[Cluster]:
    with running_cluster() as (made, address):
        made.token, made.pod = SECRET, double.url
        (place / "kubeconfig").write_text(kubeconfig(address))
        yield made


def kubeconfig(address: str) -> str:
    clusters = [{"name": "k", "cluster": {"server": address}}]
    users = [{"name": "u", "user": {"token": SECRET}}]
    return yaml.safe_dump(
        {**read_tables(__file__)["kubeconfig"], "clusters": clusters, "users": users}
    )


def report(cluster: Cluster, kind: str = "Deployment", **status: Any) -> None:
    """Let a controller report of `tiny-llama` once somebody watches."""
    told = status or READY
    cluster.on_watch = lambda one: one.report(kind, "tiny-llama", "models", **told)


def service(name: str, port: dict[str, Any], **labels: str) -> dict[str, Any]:
    """Return a Service that a controller of KServe makes."""
    meta = {"name": name, "namespace": "models", "labels": labels}
    return {"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": {"ports": [port]}}


def apply(run: Packager, platform: str, *words: str, **how: Any) -> Any:
    common = ("oci:tiny", "--image", IMAGE, "--namespace", "models")
    return run("deploy", platform, "apply", *common, *words, **how)


@pytest.mark.extended
def test_a_deployment_is_asked_by_proxy(run: Packager, cluster: Cluster, double: LlmDouble) -> None:
    report(cluster)

    done = apply(run, "kubernetes", "--smoke", "--bench", status=0)

    assert "kubernetes://models/tiny-llama" in done.out
    asked = [one for one in cluster.requests if "/proxy/" in one]
    root = "/api/v1/namespaces/models/services/tiny-llama:http/proxy"
    assert {f"POST {root}/invocations", f"GET {root}/metrics"} <= {*asked}
    assert {one.path for one in double.records()} == {"/invocations"}
    told = json.loads(run("inspect", "oci:tiny", "--format", "json").out)
    assert told["smoke"]["deployment"] == "kubernetes tiny-llama"
    assert told["smoke"]["model"] == "tiny-llama"
    load = told["bench"]["variants"][0]["loads"][0]
    assert load["answered"] == load["requests"] > 0
    lineage = run("lineage", "oci:tiny").out
    assert "kubernetes tiny-llama" in lineage
    assert "answer of kubernetes tiny-llama" in lineage
    assert f"benchmark of {told['bench']['measured']}" in lineage
    assert SECRET not in done.out + done.err + lineage + json.dumps(told)

    words = ("--concurrency", "1", "--requests", "3", "--format", "json")
    again = run("bench", "kubernetes://models/tiny-llama", *words, status=0)
    assert json.loads(again.out)["variants"][0]["loads"][0]["answered"] == 3

    assert run("deploy", "kubernetes", "delete", "tiny-llama", "--namespace", "models").status == 0
    left = run("lineage", "tiny-llama").out.replace("answer of kubernetes tiny-llama", "")
    assert "kubernetes tiny-llama" not in left


def test_one_name_in_two_namespaces_is_two_deployments(run: Packager, cluster: Cluster) -> None:
    cluster.namespaces |= {"tests", "a", "a-b"}
    deploy = ("deploy", "kubernetes", "apply", "oci:tiny", "--image", IMAGE)
    for name, namespace in (("one", "models"), ("one", "tests"), ("b-c", "a"), ("c", "a-b")):
        assert run(*deploy, "--name", name, "--namespace", namespace).status == 0

    both = run("lineage", "oci:tiny").out
    for name in ("one in models", "one in tests", "b-c in a", "c in a-b"):
        assert f"kubernetes {name}" in both
    assert run("deploy", "kubernetes", "delete", "one", "--namespace", "models").status == 0

    left = run("lineage", "oci:tiny").out
    assert "kubernetes one in models" not in left
    assert "kubernetes one in tests" in left
    assert "kubernetes one in tests" in run("lineage", "tests/one").out


def test_names_that_differ_in_punctuation_are_told_apart(run: Packager, cluster: Cluster) -> None:
    build = ("build", "--model", str(TINY), "--instance", "local", "--base", "scratch", "--quiet")
    for name, place in (("tiny-3.1", "dot"), ("tiny-3-1", "dash")):
        run(*build, "--served-name", name, "--output", f"oci:{place}", status=0)
    deploy = ("deploy", "kubernetes", "apply", "--image", IMAGE, "--namespace", "models")

    first, again = run(*deploy, "oci:dot"), run(*deploy, "oci:dot")
    other, named = run(*deploy, "oci:dash"), run(*deploy, "oci:dash", "--name", "other")

    assert (first.status, again.status, other.status, named.status) == (0, 0, 0, 0)
    assert "was made of model" not in first.err + again.err + named.err
    told = (
        "deployment 'tiny-3-1' was made of model 'tiny-3.1', and this is 'tiny-3-1': it is updated"
    )
    assert told in other.err


def test_an_inference_service_is_asked(run: Packager, cluster: Cluster, double: LlmDouble) -> None:
    report(cluster, "InferenceService", conditions=[{"type": "Ready", "status": "True"}])
    cluster.put(service("tiny-llama-predictor", {"name": "http", "port": 80}))

    done = apply(run, "kserve", "--smoke", "--format", "json", status=0)

    assert json.loads(done.out)["smoke"]["model"] == "tiny-llama"
    assert {one.path for one in double.records()} == {"/invocations"}


def test_an_llm_inference_service_works(run: Packager, cluster: Cluster, double: LlmDouble) -> None:
    report(cluster, "LLMInferenceService", conditions=[{"type": "Ready", "status": "True"}])
    labels = read_tables(__file__)["workload"]
    port = {"name": "https", "port": 8000}
    cluster.put(service("tiny-llama-kserve-workload-svc", port, **labels))

    apply(run, "kserve", "--llm", "--smoke", "--format", "json", status=0)

    root = "/api/v1/namespaces/models/services/https:tiny-llama-kserve-workload-svc:8000/proxy"
    assert f"POST {root}/v1/chat/completions" in cluster.requests


def test_an_answer_that_is_none_fails_the_command(run: Packager, cluster: Cluster) -> None:
    cluster.pod, cluster.answer = "", b'{"said": "hello"}'
    report(cluster)

    done = apply(run, "kubernetes", "--smoke")

    assert (done.status, done.out) == (4, "")
    assert "is unusable: choices is missing" in done.err


def test_a_report_of_its_own_is_refused_before_applying(run: Packager, cluster: Cluster) -> None:
    done = apply(run, "kubernetes", "--bench", "--format", "json", status=2)

    assert "--bench prints a report of its own" in done.err
    assert cluster.objects == {}
