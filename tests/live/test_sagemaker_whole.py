"""Optimization jobs by boto3, from documents to answers of a real vLLM.

Nothing stands in for anything here but moto's buckets: the server, its jobs, compiler, trainer and
quantizer, the Docker Engine and the engine of the images are real.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.live.api_server import ROLE, WAIT, ApiServer, api_process, api_server
from tests.live.checkpoints import read_tensors
from tests.live.conftest import Compiled
from tests.live.test_endpoints import containers_of
from tests.live.waiting import wait_until
from tests.support.cases import read_tables
from tests.support.commandline import Packager
from tests.support.doubles.models import write_json, write_safetensors
from tests.support.doubles.s3 import Bucket
from tests.support.places import ROOT
from tests.support.sagemaker_bodies import compilation

pytestmark = [pytest.mark.live, pytest.mark.timeout(1500)]

EXAMPLES = ROOT / "examples" / "optimize"
IMAGES = "packager-test-whole"
CORPUS = read_tables(__file__)
CHAT, TRAINING, FEW_TEXTS = (CORPUS[name] for name in ("chat", "training", "few_texts"))
TALKS = [
    (f"What does {name} do?", f"The function {name} reads a value, checks it and returns it.")
    for name in CORPUS["talks"]["functions"]
]


def example(name: str, bucket: Bucket, **replaced: str) -> dict[str, Any]:
    """Return a document of the examples, in a bucket of its own: `models/…` is `models/tiny`."""
    text = (EXAMPLES / f"{name}.json").read_text(encoding="utf-8")
    text = re.sub(r"s3://models/(qwen3-32b|mixtral-8x7b-instruct)/", "s3://models/tiny/", text)
    for old, new in replaced.items():
        assert old in text
        text = text.replace(old, new)
    text = re.sub(r"s3://(models|datasets|results)/", rf"{bucket.url}/\1/", text)
    found: dict[str, Any] = json.loads(text)
    return found


def said(api: ApiServer, endpoint: str) -> str:
    """Ask for a chat's next turn, at once and as a stream; both must be the same."""
    whole: str = api.ask(endpoint, CHAT)["choices"][0]["message"]["content"]
    body = json.dumps({**CHAT, "stream": True})
    events = api.client("sagemaker-runtime").invoke_endpoint_with_response_stream(
        EndpointName=endpoint, ContentType="application/json", Body=body
    )["Body"]
    sent = b"".join(event["PayloadPart"]["Bytes"] for event in events).decode()
    lines = [line.removeprefix("data: ") for line in sent.splitlines() if line.startswith("data:")]
    assert lines[-1] == "[DONE]"
    pieces = [json.loads(line)["choices"] for line in lines[:-1]]
    assert len(pieces) > 3
    assert "".join(one[0]["delta"].get("content") or "" for one in pieces if one) == whole
    return whole


def delete_endpoint(api: ApiServer, name: str) -> None:
    api.take_down(name)
    client = api.client("sagemaker")
    client.delete_endpoint_config(EndpointConfigName=name)
    client.delete_model(ModelName=name)
    assert containers_of(name) == []


def test_a_compiled_model_is_deployed_asked_and_deleted(
    engine: str, serving_base: str, bucket: Bucket, compiled: Compiled, tmp_path: Path
) -> None:
    """The same model in a bucket: what the command line compiled of it is not compiled again."""
    options = (
        *("--instance", "local", "--base", serving_base, "--executor", "docker"),
        *("--images", f"docker:{IMAGES}", "--no-measure"),
    )
    environment = {"DOCKER_HOST": engine, "PACKAGER_CACHE": str(compiled.cache)}
    with api_server(tmp_path, *options, **environment, **bucket.environment) as api:
        client = api.client("sagemaker")
        client.create_optimization_job(
            **{
                **compilation(),
                "OptimizationJobName": "compiled",
                "ModelSource": {"S3": {"S3Uri": f"{bucket.url}/models/tiny/"}},
                "OutputConfig": {"S3OutputLocation": f"{bucket.url}/results/compiled/"},
            }
        )
        image = api.ended("compiled")["OptimizationOutput"]["RecommendedInferenceImage"]
        job_log = api.job_log("compiled")
        data = {
            "S3Uri": f"{bucket.url}/results/compiled/",
            "S3DataType": "S3Prefix",
            "CompressionType": "None",
        }
        container = {"Image": image, "ModelDataSource": {"S3DataSource": data}}
        client.create_model(ModelName="compiled", ExecutionRoleArn=ROLE, PrimaryContainer=container)
        api.bring_up("compiled")
        answer = said(api, "compiled")
        log = api.endpoint_log("compiled")
        delete_endpoint(api, "compiled")
        client.delete_optimization_job(OptimizationJobName="compiled")
        left = [
            *client.list_optimization_jobs()["OptimizationJobSummaries"],
            *client.list_models()["Models"],
        ]

    assert re.fullmatch(rf"{IMAGES}:compiled@sha256:[0-9a-f]{{64}}", image)
    assert "compile: taken from the cache" in job_log
    assert "files compiled ahead of time are in place" in log
    assert answer.strip()
    assert left == []


def sharegpt(asked: str, answer: str) -> dict[str, Any]:
    turns = (("human", asked), ("gpt", answer))
    return {"conversations": [{"from": who, "value": text} for who, text in turns]}


def captured(asked: str, answer: str) -> dict[str, Any]:
    """What Data Capture of an endpoint writes for an exchange, in base64."""
    request = {"messages": [{"role": "user", "content": asked}], "max_tokens": 32}
    choice = {"index": 0, "message": {"role": "assistant", "content": answer}}
    documents = {"endpointInput": request, "endpointOutput": {"choices": [choice]}}
    return {
        "captureData": {
            side: {
                "observedContentType": "application/json",
                "mode": "INPUT" if side == "endpointInput" else "OUTPUT",
                "data": base64.b64encode(json.dumps(document).encode()).decode(),
                "encoding": "BASE64",
            }
            for side, document in documents.items()
        },
        "eventMetadata": {"eventId": "0", "inferenceTime": "2026-01-01T00:00:00Z"},
        "eventVersion": "0",
    }


def put_talks(bucket: Bucket, key: str, row: Callable[[str, str], dict[str, Any]]) -> None:
    lines = [json.dumps(row(*talk)) for talk in TALKS]
    bucket.put(f"datasets/{key}", "".join(f"{line}\n" for line in lines).encode())


def test_heads_are_trained_on_the_data_of_the_announcement_and_served(
    engine: str, serving_base: str, training_fast: dict[str, str], bucket: Bucket, tmp_path: Path
) -> None:
    put_talks(bucket, "sharegpt/train.jsonl", sharegpt)
    put_talks(bucket, "captured/endpoint/all/2026/01/01/00/00-00-000.jsonl", captured)
    options = (
        *("--instance", "local", "--base", serving_base, "--images", f"docker:{IMAGES}"),
        *(word for pair in TRAINING.items() for word in ("--train-option", "{}={}".format(*pair))),
    )
    environment = {**bucket.environment, **training_fast, "DOCKER_HOST": engine}
    with api_server(tmp_path, "--no-measure", *options, **environment) as api:
        client = api.client("sagemaker")
        client.create_model(**example("model", bucket))
        for document, places in (
            ("eagle-own-data", {"/eagle/": "/own/", "/chats/": "/sharegpt/"}),
            ("eagle-built-in-data", {"/eagle/": "/built-in/"}),
        ):
            client.create_optimization_job(**example(document, bucket, **places))
            api.ended(document)

        own = {"s3://models/qwen3-eagle/": "s3://results/own/draft/"}
        client.create_model(**example("model-with-head", bucket, **own))
        places = {"/chats/": "/captured/", "/eagle/": "/captured/"}
        client.create_optimization_job(**example("eagle-own-head", bucket, **places))
        api.ended("eagle-own-head")

        api.bring_up("qwen3-32b-trained")
        answer = said(api, "qwen3-32b-trained")
        log = api.endpoint_log("qwen3-32b-trained")
        delete_endpoint(api, "qwen3-32b-trained")

    heads = {
        name: bucket.get(f"results/{name}/draft/model.safetensors")
        for name in ("own", "built-in", "captured")
    }
    assert len({*heads.values()}) == 3
    assert re.search(r"SpeculativeConfig\(method='eagle3', model='/opt/packager/draft'", log)
    assert answer.strip()


@pytest.mark.extended
@pytest.mark.timeout(6000)
def test_captured_traffic_trains_the_head_of_a_second_variant(
    engine: str, serving_base: str, training_fast: dict[str, str], bucket: Bucket, tmp_path: Path
) -> None:
    """The loop of a notebook by calls of boto3: serve, capture, train, serve beside the first."""
    put_talks(bucket, "sharegpt/train.jsonl", sharegpt)
    options = (
        *("--instance", "local", "--base", serving_base, "--images", f"docker:{IMAGES}"),
        *(word for pair in TRAINING.items() for word in ("--train-option", "{}={}".format(*pair))),
    )
    environment = {**bucket.environment, **training_fast, "DOCKER_HOST": engine}
    capture = {
        "EnableCapture": True,
        "InitialSamplingPercentage": 100,
        "DestinationS3Uri": f"{bucket.url}/captured",
        "CaptureOptions": [{"CaptureMode": "InputAndOutput"}],
        "CaptureContentTypeHeader": {"JsonContentTypes": ["application/json"]},
    }
    with api_server(tmp_path, "--no-measure", *options, **environment) as api:
        client, runtime = api.client("sagemaker"), api.client("sagemaker-runtime")

        def configure(name: str, *models: str) -> None:
            shared = {"InitialInstanceCount": 1, "InstanceType": "ml.g5.xlarge"}
            variants = [{**shared, "VariantName": one, "ModelName": one} for one in models]
            client.create_endpoint_config(
                EndpointConfigName=name, ProductionVariants=variants, DataCaptureConfig=capture
            )

        def asked(variant: str, content: str) -> str:
            turns = [{"role": "user", "content": content}]
            answer = runtime.invoke_endpoint(
                EndpointName="loop", ContentType="application/json", TargetVariant=variant,
                Body=json.dumps({"messages": turns, "max_tokens": 16, "temperature": 0}),
            )  # fmt: skip
            return str(json.loads(answer["Body"].read())["choices"][0]["message"]["content"])

        def in_service() -> None:
            client.get_waiter("endpoint_in_service").wait(EndpointName="loop", WaiterConfig=WAIT)

        client.create_model(**example("model", bucket))
        places = {"/eagle/": "/first/", "/chats/": "/sharegpt/"}
        document = example("eagle-own-data", bucket, **places)
        document["OutputConfig"]["SageMakerModel"] = {"ModelName": "first"}
        client.create_optimization_job(**document)
        api.ended("eagle-own-data")
        configure("one", "first")
        client.create_endpoint(EndpointName="loop", EndpointConfigName="one")
        in_service()
        before = [asked("first", question) for question, _ in TALKS]

        def rows() -> list[dict[str, Any]]:
            names = [one for one in bucket.names() if one.startswith("captured/loop/first/")]
            return [json.loads(line) for one in names for line in bucket.get(one).splitlines()]

        wait_until(lambda: len(rows()) == len(TALKS), 120)

        own = {"s3://models/qwen3-eagle/": "s3://results/first/draft/"}
        client.create_model(**example("model-with-head", bucket, **own))
        places = {"s3://datasets/chats/": f"{bucket.url}/captured/", "/eagle/": "/second/"}
        client.create_optimization_job(**example("eagle-own-head", bucket, **places))
        api.ended("eagle-own-head")
        configure("two", "first", "qwen3-32b-trained")
        client.update_endpoint(EndpointName="loop", EndpointConfigName="two")
        in_service()
        shown = client.describe_endpoint(EndpointName="loop")["ProductionVariants"]
        first = [asked("first", question) for question, _ in TALKS[:3]]
        second = [asked("qwen3-32b-trained", question) for question, _ in TALKS[:3]]
        api.take_down("loop")

    assert {json.loads(row["captureData"]["endpointInput"]["data"])["messages"][0]["content"]
            for row in rows()} == {question for question, _ in TALKS}  # fmt: skip
    heads = {bucket.get(f"results/{name}/draft/model.safetensors") for name in ("first", "second")}
    assert len(heads) == 2
    assert [one["VariantName"] for one in shown] == ["first", "qwen3-32b-trained"]
    assert first == before[:3]
    assert second == first  # a head changes how fast an answer comes, and no word of it


@pytest.mark.extended
@pytest.mark.timeout(6000)
def test_a_head_is_measured_beside_none_and_beside_the_one_that_it_began_from(
    engine: str,
    serving_base: str,
    training_fast: dict[str, str],
    bucket: Bucket,
    packager: Packager,
    tmp_path: Path,
) -> None:
    put_talks(bucket, "sharegpt/train.jsonl", sharegpt)
    options = (
        *("--instance", "local", "--base", serving_base, "--images", f"docker:{IMAGES}"),
        *(word for pair in TRAINING.items() for word in ("--train-option", "{}={}".format(*pair))),
    )
    options += ("--measure-data", f"{bucket.url}/datasets/sharegpt/")  # short ones
    environment = {**bucket.environment, **training_fast, "DOCKER_HOST": engine}
    own = {"s3://models/qwen3-eagle/": "s3://results/first/draft/"}
    places = {"/chats/": "/sharegpt/"}
    with api_process(tmp_path, "--no-measure", *options, **environment) as api:
        client = api.client("sagemaker")
        client.create_model(**example("model", bucket))
        client.create_model(**example("model-with-head", bucket, **own))
        document = example("eagle-own-data", bucket, **{"/eagle/": "/first/"}, **places)
        client.create_optimization_job(**document)
        api.ended("eagle-own-data")
    with api_process(tmp_path, *options, **environment) as api:
        document = example("eagle-own-head", bucket, **{"/eagle/": "/second/"}, **places)
        api.client("sagemaker").create_optimization_job(**document)
        api.ended("eagle-own-head", within_s=4800)
        log = api.job_log("eagle-own-head")

    place = "results/second/results/benchmark"
    states = ("no_eagle", "base_eagle", "trained_eagle")
    left_out = re.search(r"own step: ([0-9, ]+) at a time", log)
    skipped = left_out[1].split(", ") if left_out else []
    loads = [number for number in ("1", "2", "4", "8", "16") if number not in skipped]
    assert "16" in loads
    names = {f"{place}_{state}_conc{number}.json" for state in states for number in loads}
    found = {one for one in bucket.names() if one.startswith("results/second/results/")}
    assert found == {*names, f"{place}_report.html"}
    # What `aws s3 ls` of the notebook's own cell lists.
    top = {one.split("/")[2] for one in bucket.names() if one.startswith("results/second/")}
    assert {"draft", "results"} <= top
    files = []
    for name in sorted(names):
        found_fields = json.loads(bucket.get(name))
        assert ("spec_decode_acceptance_length" in found_fields) == ("no_eagle" not in name)
        assert {*CORPUS["vllm"]["fields"]} <= found_fields.keys()
        (tmp_path / Path(name).name).write_bytes(bucket.get(name))
        files.append(str(tmp_path / Path(name).name))
    read = packager("report", *files, "--format", "json", status=0).document["variants"]
    shown = {(one["name"].partition(" ")[0], one["loads"][0]["concurrency"]) for one in read}
    assert shown == {(state, int(number)) for state in states for number in loads}


def test_the_guide_to_medusa_and_awq_comes_out_as_it_is_written(
    quantizing_fast: dict[str, str], bucket: Bucket, tmp_path: Path
) -> None:
    heads = tmp_path / "heads"
    heads.mkdir()
    config = dict(CORPUS["medusa"])
    write_json(heads / "config.json", config)
    shapes = {"0.linear.weight": (256, 256), "0.linear.bias": (256,), "1.weight": (2048, 256)}
    write_safetensors(
        heads / "medusa_lm_head.safetensors",
        {f"{head}.{name}": ("F16", shape) for head in range(3) for name, shape in shapes.items()},
    )
    bucket.upload(heads, "models/medusa")
    body = example("medusa-awq", bucket, **CORPUS["guide"])
    [config_of_awq] = body["OptimizationConfigs"]
    config_of_awq["ModelQuantizationConfig"]["OverrideEnvironment"] |= FEW_TEXTS
    body["OutputConfig"]["SageMakerModel"] = {"ModelName": "mixtral"}
    environment = {**bucket.environment, **quantizing_fast}
    with api_process(tmp_path, "--base", "scratch", "--no-measure", **environment) as api:
        api.client("sagemaker").create_optimization_job(**body)
        job = api.ended("mixtral-medusa-awq")
        model = api.client("sagemaker").describe_model(ModelName="mixtral")["PrimaryContainer"]

    place = tmp_path / "tree"
    for name in bucket.names():
        if name.startswith("results/mixtral/"):
            path = place / name.removeprefix("results/mixtral/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(bucket.get(name))
    config["base_model_name_or_path"] = "/opt/ml/model/llm/"
    assert (place / "config.json").read_text() == json.dumps(config, indent=2)
    name = "medusa_lm_head.safetensors"
    assert (place / name).read_bytes() == (heads / name).read_bytes()
    assert {path.name for path in place.iterdir()} == {
        *("llm", "config.json", name, "packager-tree.json")
    }
    quantized = json.loads((place / "llm/config.json").read_text())["quantization_config"]
    assert (quantized["quant_method"], quantized["bits"]) == ("awq", 4)
    tensors = read_tensors(place / "llm")
    assert {"qweight", "qzeros", "scales"} <= {name.rpartition(".")[2] for name in tensors}
    image = job["OptimizationOutput"]["RecommendedInferenceImage"]
    assert "huggingface-pytorch-tgi-inference:2.7.0-tgi3.3.6-gpu" in image
    assert model["Image"] == image
    assert model["ModelDataSource"]["S3DataSource"]["S3Uri"] == f"{bucket.url}/results/mixtral/"
    assert model["Environment"] == CORPUS["environment"]
