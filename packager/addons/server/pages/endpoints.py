"""Pages of endpoints: a list, a new one from a job's result, and a prompt's answer."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from aiohttp import web
from markupsafe import Markup

from packager.addons.server.jobs.values import BackgroundJob
from packager.addons.server.pages.guard import PageRefused
from packager.addons.server.pages.job_views import can_run, job_path, minute, record_of
from packager.addons.server.pages.logs import log_text
from packager.addons.server.pages.numbered import turn
from packager.addons.server.pages.prompts import PromptAnswer, ask
from packager.addons.server.pages.recorded import RecordedBuilds
from packager.addons.server.pages.site import ROOT, Site
from packager.addons.server.sagemaker.answers import recommended_image
from packager.core.errors import PackagerError
from packager.core.references import parse_bucket_place
from packager.core.reports.report import Pair

ROWS = 50  # of a page
NOSCRIPT_REFRESH_S = 5
VARIANT = "AllTraffic"
MOST_PROMPT = 20_000
_NAME = re.compile(r"[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}", re.ASCII)
_ODD = re.compile(r"[^a-zA-Z0-9-]+", re.ASCII)
_TONES = {"InService": "yes", "Failed": "error", "Deleting": "warning"}
_SETTLED = ("InService", "Failed")
_LABELS = {"name": "Name", "image": "Image", "data": "Model files", "environment": "Environment"}


@dataclass(frozen=True, slots=True)
class EndpointPages:
    """Handlers of the pages."""

    site: Site
    builds: RecordedBuilds

    async def list(self, request: web.Request) -> web.Response:
        """Show a page of the endpoints."""
        found: list[Mapping[str, Any]] = []
        body: dict[str, Any] = {"MaxResults": 100}
        while True:
            answer = await self.site.call("ListEndpoints", body)
            found += answer["Endpoints"]
            if not answer.get("NextToken"):
                break
            body["NextToken"] = answer["NextToken"]
        shown, links = turn(request, found, ROWS, f"{ROOT}/endpoints")
        rows = [
            {
                "name": one["EndpointName"],
                "status": one["EndpointStatus"],
                "tone": _TONES.get(one["EndpointStatus"], "run"),
                "created": _minute(one["CreationTime"]),
            }
            for one in shown
        ]
        waits = any(row["status"] not in _SETTLED for row in rows)
        values = {
            "rows": rows,
            "address": _address(request),
            "refresh_s": NOSCRIPT_REFRESH_S if waits else 0,
            **links,
        }
        return self.site.page(request, "endpoints.html.j2", values, section="endpoints")

    async def form(self, request: web.Request) -> web.Response:
        """Show the form of a new endpoint, filled from the result of a job or a build."""
        job = await self._job(request)
        digest = request.query.get("build", "")
        filled = {"name": "", "image": "", "data": "", "environment": ""}
        images: list[str] = []
        if job is not None or digest:
            record = await asyncio.to_thread(
                lambda: record_of(job) if job else self.builds.find(digest)
            )
            images = [recommended_image(record)] if record and can_run(record) else []
            name = job.name if job else _ODD.sub("-", record.served_name if record else "")
            filled |= {"name": name.strip("-")[:63], "image": images[0] if images else ""}
            if record is not None and (not record.images or record.request.weights == "mounted"):
                buckets = [one.target for one in record.trees if parse_bucket_place(one.target)]
                filled["data"] = buckets[0] if buckets else ""
        return self._show_form(request, filled, images=images, job=job)

    async def create(self, request: web.Request) -> web.Response:
        """Make a model, a configuration and an endpoint with the same name, or none of them."""
        form = await self.site.guard.form(request)
        filled = {name: form.get(name, "").strip() for name in _LABELS}
        faults = _faults(filled)
        if not faults:
            try:
                await self._make(filled)
            except PackagerError as error:
                hint = f": {error.hint}" if error.hint else ""
                faults = {"": f"{error}{hint}"}
        if faults:
            return self._show_form(request, filled, faults=faults)
        return self.site.see(f"endpoints/{filled['name']}")

    async def show(self, request: web.Request) -> web.Response:
        """Show an endpoint, and the form for a prompt."""
        return await self._show(request)

    async def ask(self, request: web.Request) -> web.Response:
        """Send a prompt to the endpoint, and show its answer."""
        form = await self.site.guard.form(request)
        prompt = form.get("prompt", "").strip()
        if not prompt or len(prompt) > MOST_PROMPT:
            wrong = f"write a prompt of 1 to {MOST_PROMPT:,} letters"
            return await self._show(request, prompt=prompt, wrong=wrong)
        name = request.match_info["name"]
        tokens = _tokens(form.get("tokens", ""))
        try:
            answer = await ask(self.site.services, name, prompt, tokens)
        except PackagerError as error:
            return await self._show(request, prompt=prompt, tokens=tokens, wrong=str(error))
        return await self._show(request, prompt=prompt, tokens=tokens, answer=answer)

    async def delete(self, request: web.Request) -> web.Response:
        """Delete the endpoint, and the configuration and the model of its name."""
        await self.site.guard.form(request)
        name = request.match_info["name"]
        described = await self.site.call("DescribeEndpoint", {"EndpointName": name})
        await self.site.call("DeleteEndpoint", {"EndpointName": name})
        if described.get("EndpointConfigName") == name:
            await self._forget(name)
        return self.site.see("endpoints")

    async def _make(self, filled: Mapping[str, str]) -> None:
        name = filled["name"]
        container: dict[str, Any] = {"Image": filled["image"]}
        if filled["data"]:
            container["ModelDataSource"] = {
                "S3DataSource": {
                    "S3Uri": filled["data"],
                    "S3DataType": "S3Prefix",
                    "CompressionType": "None",
                }
            }
        if environment := _environment(filled["environment"]):
            container["Environment"] = environment
        settings = self.site.services.settings
        role = f"arn:aws:iam::{settings.account}:role/packager"
        variant = {
            "VariantName": VARIANT,
            "ModelName": name,
            "InitialInstanceCount": 1,
            "InstanceType": "ml.g5.xlarge",  # the API wants a type; this machine is what runs it
        }
        config = {"EndpointConfigName": name, "ProductionVariants": [variant]}
        await self.site.call(
            "CreateModel",
            {"ModelName": name, "PrimaryContainer": container, "ExecutionRoleArn": role},
        )
        try:
            await self.site.call("CreateEndpointConfig", config)
            await self.site.call(
                "CreateEndpoint", {"EndpointName": name, "EndpointConfigName": name}
            )
        except PackagerError:
            await self._forget(name)
            raise

    async def _forget(self, name: str) -> None:
        """Delete the configuration and the model that were made for an endpoint."""
        for operation, member in (
            ("DeleteEndpointConfig", "EndpointConfigName"),
            ("DeleteModel", "ModelName"),
        ):
            with suppress(PackagerError):
                await self.site.call(operation, {member: name})

    async def _show(
        self,
        request: web.Request,
        *,
        prompt: str = "",
        tokens: int = 64,
        wrong: str = "",
        answer: PromptAnswer | None = None,
    ) -> web.Response:
        name = request.match_info["name"]
        found = await self.site.call("DescribeEndpoint", {"EndpointName": name})
        status = found["EndpointStatus"]
        variants = [
            Pair(variant["VariantName"], _variant_words(variant))
            for variant in found.get("ProductionVariants") or ()
        ]
        values = {
            "name": name,
            "status": status,
            "tone": _TONES.get(status, "run"),
            "waits": status not in _SETTLED,
            "failure": Markup.escape(log_text((found.get("FailureReason") or "").encode())),
            "facts": [Pair("Created", f"{_minute(found['CreationTime'])} UTC"), *variants],
            "values": {"tokens": str(tokens)},
            "prompt_text": Markup.escape(prompt),  # with its ends of lines
            "errors": {"prompt": wrong} if wrong else {},
            "answer": Markup.escape(log_text(answer.text.encode())) if answer else None,
            "told": answer.words if answer else "",
            "refresh_s": 0 if status in _SETTLED else NOSCRIPT_REFRESH_S,
            "address": _address(request),
        }
        status_code = 400 if wrong else 200
        return self.site.page(
            request, "endpoint.html.j2", values, section="endpoints", status=status_code
        )

    def _show_form(
        self,
        request: web.Request,
        filled: Mapping[str, str],
        *,
        images: Any = (),
        job: BackgroundJob | None = None,
        faults: Mapping[str, str] | None = None,
    ) -> web.Response:
        values = {
            "values": filled,
            "errors": faults or {},
            "environment_text": Markup.escape(filled["environment"]),
            "labels": _LABELS,
            "images": images,
            "job": job.name if job else "",
            "job_path": job_path(job) if job else "",
            "address": _address(request),
        }
        status = 400 if faults else 200
        return self.site.page(request, "deploy.html.j2", values, section="endpoints", status=status)

    async def _job(self, request: web.Request) -> BackgroundJob | None:
        kind, name = request.query.get("kind", ""), request.query.get("job", "")
        if not name:
            return None
        job = await asyncio.to_thread(self.site.services.jobs.get, kind, name)
        if job.status != "completed":
            raise PageRefused(f"job {name!r} is {job.status}: it has no result", status=409)
        return job


def _address(request: web.Request) -> str:
    return f"{request.scheme}://{request.host}"


def _faults(filled: Mapping[str, str]) -> dict[str, str]:
    found = {}
    if not _NAME.fullmatch(filled["name"]):
        found["name"] = "write 1 to 63 letters, digits and hyphens, none at its ends"
    if not filled["image"]:
        found["image"] = "write the name of an image"
    if filled["data"] and parse_bucket_place(filled["data"]) is None:
        found["data"] = "write s3://BUCKET/PREFIX, or nothing"
    if any("=" not in line for line in _lines(filled["environment"])):
        found["environment"] = "write NAME=VALUE in each line"
    return found


def _environment(text: str) -> dict[str, str]:
    pairs = (line.partition("=") for line in _lines(text))
    return {name.strip(): value.strip() for name, _, value in pairs}


def _lines(text: str) -> list[str]:
    return [line for line in map(str.strip, text.splitlines()) if line]


def _tokens(text: str) -> int:
    return max(1, min(4096, int(text))) if text.isascii() and text.isdigit() else 64


def _variant_words(variant: Mapping[str, Any]) -> str:
    images = [one.get("ResolvedImage") or "" for one in variant.get("DeployedImages") or ()]
    count = variant.get("CurrentInstanceCount")
    shown = [*images, f"{count} running" if count is not None else ""]
    return ", ".join(filter(None, shown))


def _minute(when: Any) -> str:
    moment = when if isinstance(when, datetime) else datetime.fromtimestamp(float(when), UTC)
    return minute(moment)
