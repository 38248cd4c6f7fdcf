"""`packager serve` as a process of its own, and clients of it."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import WaiterError

from tests.live.waiting import wait_until
from tests.support.commandline import Started, packager_in, start_packager

REGION = "us-east-1"
ROLE = "arn:aws:iam::000000000000:role/packager"
WAIT = {"Delay": 0.2, "MaxAttempts": 3000}
_SERVICES = ("SAGEMAKER", "SAGEMAKER_RUNTIME", "STS", "IAM", "CLOUDWATCH_LOGS")


class ApiServer:
    """A server that can be killed and started again, with its state in one directory."""

    def __init__(self, place: Path, *options: str, **environment: str) -> None:
        self._place = place
        self._options = options
        self._environment = {"XDG_STATE_HOME": str(place), **environment}
        self._process: Started | None = None
        self.url = ""

    def start(self) -> None:
        """Start it, and wait until it says where it listens."""
        self._process = start_packager(
            *("serve", "--listen", "127.0.0.1:0", "--format", "json", *self._options),
            env=self._environment,
            log=self._place / "serve.log",
        )
        lines = []
        for line in self._process.stdout:
            lines.append(line)
            if line == "}\n":
                break
        assert lines, self.log()
        self.url = json.loads("".join(lines))["url"]

    def kill(self) -> None:
        """Kill it, as a power cut does."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """End it as a user does."""
        self._end(signal.SIGTERM)

    def _end(self, how: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(60)
            self._process.close()
            self._process = None

    def log(self) -> str:
        """Return what it has said on stderr."""
        return (self._place / "serve.log").read_text(encoding="utf-8")

    def client(self, service: str) -> Any:
        """Return an unmodified client of AWS's."""
        return boto3.client(
            service,
            endpoint_url=self.url,
            region_name=REGION,
            aws_access_key_id="test",
            aws_secret_access_key="test",
            config=Config(retries={"total_max_attempts": 1}, max_pool_connections=32),
        )

    def ended(self, job: str, within_s: float = 900) -> dict[str, Any]:
        """Wait for an optimization job, which must succeed; give its description."""
        client = self.client("sagemaker")

        def look() -> dict[str, Any]:
            return dict(client.describe_optimization_job(OptimizationJobName=job))

        going = ("STARTING", "INPROGRESS")
        wait_until(lambda: look()["OptimizationJobStatus"] not in going, within_s)
        found = look()
        assert found["OptimizationJobStatus"] == "COMPLETED", self.job_log(job)[-4000:]
        return found

    def job_log(self, name: str) -> str:
        """Return what an optimization job has said."""
        group = "/aws/sagemaker/OptimizationJobs"
        events = self.client("logs").get_log_events(
            logGroupName=group, logStreamName=name, startFromHead=True
        )["events"]
        return "\n".join(event["message"] for event in events)

    def bring_up(self, name: str) -> None:
        """Deploy a model behind an endpoint of its name."""
        client = self.client("sagemaker")
        variant = {"VariantName": "all", "ModelName": name, "InstanceType": "ml.g5.xlarge"}
        client.create_endpoint_config(
            EndpointConfigName=name, ProductionVariants=[{**variant, "InitialInstanceCount": 1}]
        )
        client.create_endpoint(EndpointName=name, EndpointConfigName=name)
        try:
            client.get_waiter("endpoint_in_service").wait(EndpointName=name, WaiterConfig=WAIT)
        except WaiterError as error:
            reason = error.last_response.get("FailureReason")
            raise AssertionError(f"{reason}\n{self.endpoint_log(name)[-4000:]}") from None

    def ask(self, endpoint: str, body: Mapping[str, Any]) -> Any:
        """Ask an endpoint; return the document that it answers."""
        answer = self.client("sagemaker-runtime").invoke_endpoint(
            EndpointName=endpoint, ContentType="application/json", Body=json.dumps(body)
        )
        return json.loads(answer["Body"].read())

    def endpoint_log(self, name: str) -> str:
        """Return what the containers of an endpoint have said."""
        group = f"/aws/sagemaker/Endpoints/{name}"
        events = self.client("logs").filter_log_events(logGroupName=group)["events"]
        return "\n".join(event["message"] for event in events)

    def take_down(self, name: str) -> None:
        """Delete an endpoint, and wait until it is gone."""
        client = self.client("sagemaker")
        client.delete_endpoint(EndpointName=name)
        client.get_waiter("endpoint_deleted").wait(EndpointName=name, WaiterConfig=WAIT)

    def variables(self) -> dict[str, str]:
        """Return variables by which programs find the server."""
        own = {f"AWS_ENDPOINT_URL_{name}": self.url for name in _SERVICES}
        keys = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
        return {**own, **keys, "AWS_REGION": REGION, "AWS_DEFAULT_REGION": REGION}

    def printed_variables(self, *options: str) -> dict[str, str]:
        """Return the variables that `packager api env` prints, with keys for buckets."""
        run = packager_in(self._place)
        found = run("api", "env", "--json", *options, env=self._environment, status=0).document
        return {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", **found}


@contextmanager
def api_server(place: Path, *options: str, **environment: str) -> Iterator[ApiServer]:
    """Run a server; end it, and remove the containers of its endpoints."""
    try:
        with api_process(place, *options, **environment) as server:
            yield server
    finally:
        remove_containers()


@contextmanager
def api_process(place: Path, *options: str, **environment: str) -> Iterator[ApiServer]:
    """Run a server that deploys nothing; end it."""
    server = ApiServer(place, *options, **environment)
    try:
        server.start()
        yield server
    finally:
        server.stop()


def remove_containers() -> None:
    """Remove whatever endpoints have left in the Engine."""
    import docker

    from packager.addons.server.endpoints.containers import SERVER_LABEL

    for container in docker.from_env().containers.list(all=True, filters={"label": SERVER_LABEL}):
        container.remove(force=True)
