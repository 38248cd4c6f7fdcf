"""Operations of workload configurations, benchmark jobs and recommendation jobs, on real stores."""

from __future__ import annotations

import asyncio
import io
import json
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from packager.addons.deploy.sagemaker import api_refusals as refusals
from packager.addons.deploy.sagemaker.api_refusals import (
    ResourceInUse,
    ResourceNotFound,
    ValidationRefused,
)
from packager.addons.deploy.sagemaker.shapes import answer_faults, read_input
from packager.addons.server.endpoints.deployments import COMPONENT, ENDPOINT
from packager.addons.server.endpoints.lifecycle import Endpoints
from packager.addons.server.endpoints.traffic import Pool, TrafficServer
from packager.addons.server.jobs.errors import JobExists, JobMissing
from packager.addons.server.jobs.folders import result_file
from packager.addons.server.jobs.store import JobStore
from packager.addons.server.jobs.values import BackgroundJob
from packager.addons.server.operations import benchmarks, models, recommendations, workload_configs
from packager.addons.server.resources import ResourceStore
from packager.addons.server.sagemaker.settings import JobSettings
from packager.addons.server.services import Operation, ServeServices
from tests.support.ai_jobs import SYNTHETIC, benchmark_body, recommendation_body, workload_body
from tests.support.buckets import bucket as bucket
from tests.support.buckets import server as server
from tests.support.cases import cases
from tests.support.doubles.s3 import Bucket
from tests.support.known import known
from tests.support.llm_double import Behaviour, LlmDouble
from tests.support.running_jobs import run_to_end
from tests.unit.addons.server.sagemaker.test_recommendations import DRAFTED

ARN = "arn:aws:sagemaker:us-east-1:000000000000"
ADDRESS = "http://127.0.0.1:49153"
TYPES = {"InstanceTypes": ["ml.g5.xlarge", "ml.g6.xlarge"]}
NAMED = {"SortBy": "Name", "SortOrder": "Ascending", "MaxResults": 1}


class Running:
    """Endpoints whose containers answer at known addresses."""

    def __init__(self) -> None:
        self.found: dict[tuple[str, str], dict[str, Pool]] = {}

    def pools(self, kind: str, name: str) -> Mapping[str, Pool]:
        return self.found.get((kind, name), {})

    def add(self, kind: str, name: str, *urls: str) -> None:
        self.found[kind, name] = {
            f"variant-{number}": Pool(1.0, [TrafficServer("c", url, "v")])
            for number, url in enumerate(urls)
        }


class Api:
    """Asks operations as the server does: bodies and answers fit AWS's model."""

    def __init__(self, root: Path) -> None:
        self.jobs = JobStore(root / "jobs")
        self.running = Running()
        self.resources = ResourceStore(root / "resources.db")
        services = ServeServices(
            jobs=self.jobs,
            state=root,
            settings=JobSettings(),
            resources=self.resources,
            endpoints=cast(Endpoints, self.running),
        )
        self.operations: dict[str, Operation] = {
            **workload_configs.operations(services),
            **benchmarks.operations(services),
            **recommendations.operations(services),
            **models.operations(services),
        }

    def ask(self, operation: str, body: dict[str, Any] | None = None, **more: Any) -> Any:
        found = self.operations[operation]
        asked = read_input(operation, {**(body or {}), **more})

        async def answer() -> Any:
            return await found(asked)

        answered = asyncio.run(answer())
        assert answer_faults(operation, answered) == ()
        return answered

    def add_endpoint(self, name: str, *urls: str, status: str = "InService") -> None:
        self.resources.create(ENDPOINT, name, {}, arn=f"{ARN}:endpoint/{name}", status=status)
        self.running.add(ENDPOINT, name, *urls)

    def tune(self, *results: str) -> None:
        """Let the tunes of the job that is queued end with these results."""
        job = known(self.jobs.claim(1))
        self.jobs.begin(job.id)
        for number, result in enumerate(results, 1):
            result_file(job.folder, number, "tune").write_text(result)
            self.jobs.complete_stage(job.id, number)

    def run(self) -> tuple[BackgroundJob, Any]:
        """Run the benchmark to its end; return it, and what is described."""
        done = run_to_end(self.jobs, self.jobs.get("benchmark", "bench-1"))
        return done, self.ask("DescribeAIBenchmarkJob", AIBenchmarkJobName="bench-1")


@pytest.fixture
def api(tmp_path: Path) -> Api:
    return Api(tmp_path)


@pytest.fixture
def ready(api: Api) -> Api:
    """With the workload `chat` and the endpoint `tiny`."""
    api.ask("CreateAIWorkloadConfig", workload_body())
    api.add_endpoint("tiny", ADDRESS)
    return api


def test_a_workload_is_kept_listed_and_deleted(api: Api) -> None:
    tags = [{"Key": "team", "Value": "a"}]
    made = api.ask("CreateAIWorkloadConfig", workload_body(), Tags=tags)
    api.ask("CreateAIWorkloadConfig", workload_body(name="other"))

    described = api.ask("DescribeAIWorkloadConfig", AIWorkloadConfigName="chat")
    listed = api.ask("ListAIWorkloadConfigs", NAMED)
    rest = api.ask("ListAIWorkloadConfigs", NAMED, NextToken=listed["NextToken"])
    api.ask("DeleteAIWorkloadConfig", AIWorkloadConfigName="chat")

    assert made == {"AIWorkloadConfigArn": f"{ARN}:ai-workload-config/chat"}
    assert described["AIWorkloadConfigs"] == workload_body()["AIWorkloadConfigs"]
    assert described["Tags"] == tags
    found = listed["AIWorkloadConfigs"] + rest["AIWorkloadConfigs"]
    assert [one["AIWorkloadConfigName"] for one in found] == ["chat", "other"]
    with pytest.raises(ResourceNotFound):
        api.ask("DescribeAIWorkloadConfig", AIWorkloadConfigName="chat")


def test_a_workload_that_is_there_or_cannot_be_sent_is_refused(api: Api) -> None:
    api.ask("CreateAIWorkloadConfig", workload_body())

    with pytest.raises(ResourceInUse):
        api.ask("CreateAIWorkloadConfig", workload_body())
    with pytest.raises(ValidationRefused, match="it has no benchmark"):
        api.ask("CreateAIWorkloadConfig", workload_body({"parameters": {}}, name="bad"))


def test_a_benchmark_is_queued_described_listed_stopped_and_deleted(ready: Api) -> None:
    made = ready.ask("CreateAIBenchmarkJob", benchmark_body())
    queued = ready.ask("DescribeAIBenchmarkJob", AIBenchmarkJobName="bench-1")
    listed = ready.ask("ListAIBenchmarkJobs", StatusEquals="InProgress", NameContains="bench")
    none = ready.ask("ListAIBenchmarkJobs", StatusEquals="Completed")
    stopped = ready.ask("StopAIBenchmarkJob", AIBenchmarkJobName="bench-1")
    ended = ready.ask("DescribeAIBenchmarkJob", AIBenchmarkJobName="bench-1")
    deleted = ready.ask("DeleteAIBenchmarkJob", AIBenchmarkJobName="bench-1")

    arn = {"AIBenchmarkJobArn": f"{ARN}:ai-benchmark-job/bench-1"}
    assert made == stopped == deleted == arn
    assert queued["AIBenchmarkJobStatus"] == "InProgress"
    assert [one["AIBenchmarkJobName"] for one in listed["AIBenchmarkJobs"]] == ["bench-1"]
    assert none == {"AIBenchmarkJobs": []}
    assert ended["AIBenchmarkJobStatus"] == "Stopped"
    with pytest.raises(JobMissing):
        ready.ask("DescribeAIBenchmarkJob", AIBenchmarkJobName="bench-1")


def test_a_benchmark_measures_the_container_of_the_endpoint(ready: Api) -> None:
    arn = f"{ARN}:ai-workload-config/chat"

    ready.ask("CreateAIBenchmarkJob", benchmark_body(AIWorkloadConfigIdentifier=arn))

    job = ready.jobs.get("benchmark", "bench-1")
    assert job.asked.stages[0].arguments[:2] == ("bench", "http://127.0.0.1:49153")
    assert (job.folder / "workload.json").exists()


def test_a_component_is_measured_at_its_own_container(api: Api) -> None:
    api.ask("CreateAIWorkloadConfig", workload_body())
    api.add_endpoint("tiny")
    component = {"endpoint": "tiny"}
    arn = f"{ARN}:inference-component/copy"
    api.resources.create(COMPONENT, "copy", component, arn=arn, status="InService")
    api.running.add(COMPONENT, "copy", "http://127.0.0.1:49154")
    endpoint = {"Identifier": "tiny", "InferenceComponents": [{"Identifier": "copy"}]}

    api.ask("CreateAIBenchmarkJob", benchmark_body(BenchmarkTarget={"Endpoint": endpoint}))

    job = api.jobs.get("benchmark", "bench-1")
    assert job.asked.stages[0].arguments[1] == "http://127.0.0.1:49154"


@cases("unmeasured")
def test_an_unusable_endpoint_fails(ready: Api, endpoint: str, error: str, message: str) -> None:
    ready.add_endpoint("young", status="Creating")
    ready.add_endpoint("two", "http://127.0.0.1:1", "http://127.0.0.1:2")
    target = {"Endpoint": {"Identifier": endpoint}}

    with pytest.raises(getattr(refusals, error), match=message):
        ready.ask("CreateAIBenchmarkJob", benchmark_body(BenchmarkTarget=target))

    assert ready.ask("ListAIBenchmarkJobs") == {"AIBenchmarkJobs": []}


def test_a_name_is_used_once_and_a_workload_of_a_job_stays(ready: Api) -> None:
    ready.ask("CreateAIWorkloadConfig", workload_body(name="other"))
    ready.ask("CreateAIBenchmarkJob", benchmark_body())

    with pytest.raises(JobExists):
        ready.ask("CreateAIBenchmarkJob", benchmark_body())
    with pytest.raises(ResourceInUse, match="that of the benchmark job 'bench-1'"):
        ready.ask("DeleteAIWorkloadConfig", AIWorkloadConfigName="chat")
    ready.ask("DeleteAIWorkloadConfig", AIWorkloadConfigName="other")
    ready.ask("StopAIBenchmarkJob", AIBenchmarkJobName="bench-1")
    ready.ask("DeleteAIWorkloadConfig", AIWorkloadConfigName="chat")


def test_a_job_without_its_workload_is_refused(api: Api) -> None:
    with pytest.raises(ResourceNotFound, match="could not find ai-workload-config 'chat'"):
        api.ask("CreateAIRecommendationJob", recommendation_body())


def test_a_recommendation_is_queued_and_recommends_what_its_tune_found(ready: Api) -> None:
    made = ready.ask("CreateAIRecommendationJob", recommendation_body(ComputeSpec=TYPES))
    before = ready.ask("DescribeAIRecommendationJob", AIRecommendationJobName="rec-1")
    ready.tune(DRAFTED.model_dump_json())
    after = ready.ask("DescribeAIRecommendationJob", AIRecommendationJobName="rec-1")
    listed = ready.ask("ListAIRecommendationJobs")

    assert made == {"AIRecommendationJobArn": f"{ARN}:ai-recommendation-job/rec-1"}
    assert "Recommendations" not in before
    (found,) = after["Recommendations"]
    assert found["DeploymentConfiguration"]["InstanceType"] == "ml.g5.xlarge"
    assert [one["AIRecommendationJobName"] for one in listed["AIRecommendationJobs"]] == ["rec-1"]


def test_a_recommendation_is_deployed_by_its_model_package(ready: Api) -> None:
    ready.ask("CreateAIRecommendationJob", recommendation_body(ComputeSpec=TYPES))
    ready.tune(*[DRAFTED.model_dump_json()] * 2)
    answer = ready.ask("DescribeAIRecommendationJob", AIRecommendationJobName="rec-1")
    arn = answer["Recommendations"][1]["ModelDetails"]["ModelPackageArn"]

    package = ready.ask("DescribeModelPackage", ModelPackageName=arn)
    container = {"ModelPackageName": arn, "InferenceSpecificationName": "recommendation-2"}
    ready.ask("CreateModel", ModelName="best", PrimaryContainer=container)

    assert arn == f"{ARN}:model-package/rec-1/2"
    assert (package["ModelPackageArn"], package["ModelApprovalStatus"]) == (arn, "Approved")
    image = "packager-tune:best@sha256:01"
    assert package["InferenceSpecification"]["Containers"] == [{"Image": image}]
    assert ready.resources.get("model", "best").document["PrimaryContainer"] == {"Image": image}
    for missing in ("rec-1/3", "rec-2/1", f"{ARN}:model-package/rec-1/0"):
        with pytest.raises(ValidationRefused, match="does not exist"):
            ready.ask("DescribeModelPackage", ModelPackageName=missing)


def test_a_result_that_cannot_be_read_recommends_nothing(ready: Api) -> None:
    ready.ask("CreateAIRecommendationJob", recommendation_body())
    ready.tune('{"a": 1}')

    answer = ready.ask("DescribeAIRecommendationJob", AIRecommendationJobName="rec-1")

    assert "Recommendations" not in answer


def spec_of(**parameters: Any) -> dict[str, Any]:
    plain = {"concurrency": 2, "request_count": 6, "output_tokens_mean": 4, "streaming": True}
    return {**SYNTHETIC, "parameters": {**plain, **parameters}}


@pytest.mark.extended
def test_a_benchmark_leaves_an_archive_at_the_described_place(api: Api, bucket: Bucket) -> None:
    spec = spec_of(tokenizer="org/tiny", prompt_input_tokens_mean=40)
    api.ask("CreateAIWorkloadConfig", workload_body(spec))
    place = {"S3OutputLocation": f"{bucket.url}/benchmarks"}

    with LlmDouble(Behaviour(ttft_s=0.01, itl_s=0.001)) as server:
        api.add_endpoint("tiny", server.url)
        api.ask("CreateAIBenchmarkJob", benchmark_body(OutputConfig=place))
        done, answer = api.run()
        paths = {record.path for record in server.records() if record.body.get("max_tokens") == 4}

    assert done.status == "completed", (done.failure, done.log.read_text())
    assert paths == {"/invocations"}
    assert answer["AIBenchmarkJobStatus"] == "Completed"
    assert answer["OutputConfig"]["S3OutputLocation"] == f"{bucket.url}/benchmarks/bench-1/"
    packed = bucket.get("benchmarks/bench-1/output/output.tar.gz")
    with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
        names = [f"profile_export{end}" for end in (".jsonl", "_aiperf.csv", "_aiperf.json")]
        assert sorted(tar.getnames()) == names


def test_requests_of_a_bucket_are_sent_as_they_are(api: Api, bucket: Bucket) -> None:
    rows = [{"messages": [{"role": "user", "content": f"Question {n}?"}]} for n in range(3)]
    bucket.put("data/chats.jsonl", "".join(json.dumps(row) + "\n" for row in rows).encode())
    spec = spec_of(custom_dataset_type="openai-chat")
    data = (f"{bucket.url}/data/",)
    api.ask("CreateAIWorkloadConfig", workload_body(spec, channels=data))
    place = {"S3OutputLocation": f"{bucket.url}/benchmarks/"}

    with LlmDouble(Behaviour(ttft_s=0.01, itl_s=0.001)) as server:
        api.add_endpoint("tiny", server.url)
        api.ask("CreateAIBenchmarkJob", benchmark_body(OutputConfig=place))
        done, _ = api.run()
        bodies = [one.body for one in server.records() if one.body.get("max_tokens") == 4]

    assert done.status == "completed", (done.failure, done.log.read_text())
    asked = {one["messages"][-1]["content"] for one in bodies}
    assert asked == {"Question 0?", "Question 1?", "Question 2?"}


def test_a_benchmark_of_a_lost_server_fails_with_its_reason(api: Api, bucket: Bucket) -> None:
    api.ask("CreateAIWorkloadConfig", workload_body(spec_of()))
    api.add_endpoint("tiny", "http://127.0.0.1:9")
    place = {"S3OutputLocation": f"{bucket.url}/benchmarks"}
    api.ask("CreateAIBenchmarkJob", benchmark_body(OutputConfig=place))

    _, answer = api.run()

    assert answer["AIBenchmarkJobStatus"] == "Failed"
    assert "'http://127.0.0.1:9' cannot be measured" in answer["FailureReason"]
