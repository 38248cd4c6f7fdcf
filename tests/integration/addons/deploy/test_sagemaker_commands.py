"""`packager deploy sagemaker` as it is typed: files, findings, an endpoint from end to end."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from packager.addons.deploy.sagemaker.shapes import input_faults
from tests.support.cases import cases, read_tables
from tests.support.commandline import TINY, Done, Packager, packager_in
from tests.support.deployments import ROLE
from tests.support.doubles.endpoint_containers import FakeContainers
from tests.support.hosting_server import hosting, look_often
from tests.support.llm_double import Behaviour, LlmDouble

IMAGE = "123456789012.dkr.ecr.eu-west-1.amazonaws.com/tiny:1"
COMMON = ("--role-arn", ROLE, "--image", IMAGE)
FILES = ["01-create-model.json", "02-create-endpoint-config.json", "03-create-endpoint.json"]
OPERATIONS = ("CreateModel", "CreateEndpointConfig", "CreateEndpoint")
SECRET = "wJalrXUtnFEMIK7MDENGbPxRfiCYEXAMPLEKEY"

PAIRS: dict[str, str] = read_tables(__file__)["pairs"]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("deploy")


@pytest.fixture(scope="module")
def run(place: Path) -> Packager:
    """`packager` with one state for all tests: images are built once."""
    ours = packager_in(place)

    def with_state(*arguments: str, **options: Any) -> Any:
        env = {"XDG_STATE_HOME": str(place / "state"), **(options.pop("env", None) or {})}
        return ours(*arguments, env=env, **options)

    return with_state


@pytest.fixture(scope="module")
def built(run: Packager) -> Any:
    """Return a layout of a family, built when it is first asked for."""
    made: dict[str, str] = {}

    def build(family: str) -> str:
        if family not in made:
            target = f"oci:{family}"
            common = ("--model", str(TINY), "--base", "scratch", "--compile", "off", "--quiet")
            own = ("--instance", PAIRS[family], "--family", family, "--record", f"{family}.json")
            run("build", *common, *own, "--output", target, status=0)
            made[family] = target
        return made[family]

    return build


def render(run: Packager, subject: str, *words: str) -> Done:
    return run("deploy", "sagemaker", "render", subject, *COMMON, *words)


@pytest.mark.extended
@pytest.mark.parametrize("family", PAIRS)
def test_each_family_becomes_requests_of_aws(run: Packager, built: Any, family: str) -> None:
    done = render(run, built(family), "--format", "json")

    assert done.status == 0, done.err
    files = {one["path"]: json.loads(one["text"]) for one in json.loads(done.out)["files"]}
    assert list(files) == FILES
    for path, operation in zip(FILES, OPERATIONS, strict=True):
        assert input_faults(operation, files[path]) == ()
    variant = files["02-create-endpoint-config.json"]["ProductionVariants"][0]
    assert variant["InstanceType"] == PAIRS[family]
    assert ("InferenceAmiVersion" in variant) is (family != "neuron")


def test_a_record_says_the_same_as_its_image(run: Packager, built: Any) -> None:
    image = render(run, built("vllm"))
    record = render(run, "vllm.json")

    assert (record.status, record.out) == (0, image.out)


def test_files_are_written_once_and_named_on_stdout(run: Packager, built: Any, place: Path) -> None:
    done = render(run, built("vllm"), "--output", "files")

    assert done.out.splitlines() == [f"files/{name}" for name in FILES]
    assert json.loads((place / "files" / "03-create-endpoint.json").read_text())["EndpointName"]


def test_two_pools_have_two_images(run: Packager, built: Any) -> None:
    built("sglang")
    done = render(run, built("vllm"), "--pool", "oci:sglang", "--format", "json")

    files = [json.loads(one["text"]) for one in json.loads(done.out)["files"]]
    pools = files[2]["ProductionVariants"][0]["InstancePools"]
    assert [one["InstanceType"] for one in pools] == ["ml.g5.xlarge", "ml.g6e.12xlarge"]
    assert [one["ModelNameOverride"] for one in pools] == [one["ModelName"] for one in files[:2]]


def test_an_image_is_refused_on_another_kind_of_device(run: Packager, built: Any) -> None:
    done = render(run, built("vllm"), "--instance", "ml.inf2.8xlarge")

    assert (done.status, done.out) == (3, "")
    assert "has CUDA" in done.err
    assert "has no NVIDIA GPU" in done.err


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """Return the variables by which `packager serve`, in a thread, is found."""
    look_often(monkeypatch)
    with LlmDouble(Behaviour(tokens=4)) as double:
        containers = FakeContainers(images={"tiny:1", "tiny:2"}, model=double.url)
        with hosting(tmp_path, containers) as server:
            urls = dict.fromkeys(("SAGEMAKER", "SAGEMAKER_RUNTIME"), server.url)
            found = {f"AWS_ENDPOINT_URL_{name}": url for name, url in urls.items()}
            key = {"AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": SECRET}
            yield {**found, **key, "AWS_REGION": "us-east-1"}


@pytest.mark.extended
def test_an_endpoint_to_its_end(run: Packager, built: Any, served: dict[str, str]) -> None:
    said: list[str] = []

    def sagemaker(*arguments: str) -> Any:
        done = run("deploy", "sagemaker", *arguments, env=served, status=0)
        said.append(done.out + done.err)
        return done

    subject = (built("vllm"), "--role-arn", ROLE, "--name", "tiny")
    first = sagemaker("apply", *subject, "--image", "tiny:1", "--wait", "--smoke")
    created = [("create", name.removeprefix("Create")) for name in OPERATIONS]
    assert re.findall(r"(?m)^(\w+) +(\w+) ", first.out) == [*created, ("address", "endpoint")]
    assert re.search(r"(?m)^answer   \d+\.\d\d s$", first.out)
    lineage = run("lineage", "tiny", env=served).out
    assert "sagemaker tiny" in lineage
    assert "tiny-llama" in lineage  # the image's, by its digest: its build is recorded here
    assert "answer of sagemaker tiny" in run("lineage", "oci:vllm", env=served).out
    again = sagemaker("apply", *subject, "--image", "tiny:1")
    assert re.findall(r"(?m)^same ", again.out) == ["same "] * 3
    assert "update   Endpoint tiny" in sagemaker("diff", *subject, "--image", "tiny:2").out
    sagemaker("apply", *subject, "--image", "tiny:2", "--wait")
    status = json.loads(sagemaker("status", "tiny", "--wait", "--format", "json").out)
    assert (status["state"], status["image"]) == ("ready", "tiny:2")
    assert sagemaker("invoke", "tiny", "--prompt", "Hello").out.startswith("{")
    sagemaker("rollback", "tiny")
    assert "tiny:1" in sagemaker("status", "tiny", "--wait").out
    assert len(sagemaker("delete", "tiny").out.splitlines()) == 5
    assert "sagemaker tiny" not in run("lineage", "tiny", env=served).out
    assert SECRET not in "".join(said)


def test_what_was_asked_and_measured_is_in_record_lineage_and_inspection(
    run: Packager, built: Any, served: dict[str, str], place: Path
) -> None:
    """Streams come as messages of AWS's event stream, through `packager serve`."""
    subject = (built("sglang"), "--role-arn", ROLE, "--name", "measured", "--image", "tiny:1")
    done = run("deploy", "sagemaker", "apply", *subject, "--smoke", "--bench", env=served, status=0)

    assert "sagemaker://measured" in done.out
    told = json.loads(run("inspect", "oci:sglang", "--format", "json", env=served).out)
    assert told["smoke"]["deployment"] == "sagemaker measured"
    assert told["smoke"]["instance"] == "ml.g6e.12xlarge"
    (variant,) = told["bench"]["variants"]
    load = variant["loads"][0]
    assert load["answered"] == load["requests"] > 0
    assert load["metrics"]["time_to_first_token"]["count"] == load["answered"]
    assert variant["setup"]["instance"] == "ml.g6e.12xlarge"
    words = ("--concurrency", "2", "--requests", "4", "--format", "json")
    again = run("bench", "sagemaker://measured", *words, env=served, status=0)
    (variant,) = json.loads(again.out)["variants"]
    assert (variant["name"], variant["loads"][0]["answered"]) == ("sagemaker://measured", 4)
    lineage = run("lineage", "measured", env=served).out
    assert f"benchmark of {told['bench']['measured']}" in lineage
    assert "answered   sagemaker measured on ml.g6e.12xlarge" in run("inspect", "oci:sglang").out


@cases("names")
def test_names_of_deployments_that_are_none_are_refused(
    run: Packager, served: dict[str, str], name: str, status: int, said: str
) -> None:
    done = run("bench", name, env=served)
    assert (done.status, done.out) == (status, "")
    assert said in done.err


def test_a_failed_start_is_an_error(run: Packager, built: Any, served: dict[str, str]) -> None:
    subject = (built("vllm"), "--role-arn", ROLE, "--name", "broken", "--image", "tiny:missing")
    done = run("deploy", "sagemaker", "apply", *subject, "--wait", env=served)

    assert (done.status, done.out) == (69, "")
    assert "endpoint 'broken' has failed: " in done.err
    assert "tiny:missing" in done.err


def test_a_request_that_is_not_there_is_asked_for(run: Packager) -> None:
    done = run("deploy", "sagemaker", "invoke", "tiny")

    assert (done.status, done.out) == (2, "")
    assert done.err == "error: nothing is asked, or two things\nhint: give FILE, or --prompt TEXT\n"
