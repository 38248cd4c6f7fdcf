"""The page of a new job: its form, the plan for it, and the job."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from aiohttp import web
from markupsafe import Markup

from packager.addons.server.pages.commands import CommandOutput
from packager.addons.server.pages.form import (
    Wish,
    as_fields,
    build_job,
    document_of,
    faults_of,
    placed,
    quantizations,
    read_wish,
    request_of,
)
from packager.addons.server.pages.site import Site
from packager.addons.server.sagemaker.optimization import REQUEST_FILE, make_job
from packager.addons.server.sagemaker.settings import JobSettings
from packager.catalog.instances import instances
from packager.core.command_line import command_text, request_words
from packager.core.errors import PackagerError
from packager.core.reports.report import Pair
from packager.core.request import parse_request
from packager.core.text import json_text
from packager.core.units import counted, gib, usd

_EARLIER = re.compile(r"[^a-zA-Z0-9]+")
OPERATION = "CreateOptimizationJob"
_OF_MODELS = {"model", "quantize", "calibration", "draft", "draft_ref"}


@dataclass(frozen=True, slots=True)
class NewJobPages:
    """Handlers of the form."""

    site: Site

    async def form(self, request: web.Request) -> web.Response:
        """Show the form, filled from the query of its address."""
        return self._show(request, _named(read_wish(request.query)))

    async def send(self, request: web.Request) -> web.Response:
        """Show the plan, or make the job; errors are shown at their fields."""
        form = await self.site.guard.form(request)
        typed = read_wish(form)
        settings = self.site.services.settings
        wish = placed(typed, settings)
        faults = await asyncio.to_thread(faults_of, wish, settings)
        if form.get("do") == "machines":  # asks for no machine, name or place
            faults = {name: faults[name] for name in _OF_MODELS & faults.keys()}
        if faults:
            return self._show(request, typed, faults=faults)
        try:
            if form.get("do") == "create":
                return await self._create(wish)
            if form.get("do") == "page":
                return await self._plan_page(asked_request(wish, settings))
            if form.get("do") == "machines":
                asked = request_of(replace(wish, instance="local"), settings)
                return await self._plan_page({**asked, "outputs": []}, "--instance", "all")
            return self._show(request, typed, plan=await self._plan(wish))
        except PackagerError as error:
            hint = f": {error.hint}" if error.hint else ""
            return self._show(request, typed, faults={"": f"{error}{hint}"})

    async def _create(self, wish: Wish) -> web.Response:
        document = document_of(wish, self.site.services.settings)
        if document is not None:
            await self.site.call(OPERATION, document)
            return self.site.see(f"jobs/optimization/{wish.name}")
        job = await asyncio.to_thread(build_job, wish, self.site.services.settings)
        await asyncio.to_thread(self.site.services.jobs.create, job)
        self.site.services.wake()
        return self.site.see(f"jobs/command/{wish.name}")

    async def _plan(self, wish: Wish) -> dict[str, Any]:
        """Return the plan of the request, or why there is none, as the page shows it."""
        settings = self.site.services.settings
        document = document_of(wish, settings)
        request = asked_request(wish, settings)
        output = await self.site.commands.run_on_request(request, "plan", "--format", "json")
        shown = plan_values(output)
        words = request_words(parse_request(request), leave_out=("outputs",))
        shown["command"] = command_text(("packager", "plan", *words))
        words = request_words(parse_request(request))
        shown["build"] = command_text(("packager", "build", *words))
        shown["is_api"] = document is not None
        shown["document"] = Markup.escape(json_text(request if document is None else document))
        shown["trains"] = wish.draft == "train"
        return shown

    async def _plan_page(self, asked: Mapping[str, Any], *more: str) -> web.Response:
        """Return the whole page of a plan, or of all machines side by side."""
        output = await self.site.commands.run_on_request(asked, "plan", "--format", "html", *more)
        if not output.stdout.startswith(b"<!doctype"):
            raise output.failure()
        return self.site.whole(output.stdout.decode())

    def _show(
        self,
        request: web.Request,
        wish: Wish,
        *,
        faults: Mapping[str, str] | None = None,
        plan: Mapping[str, Any] | None = None,
    ) -> web.Response:
        settings = self.site.services.settings
        values = {
            "values": as_fields(wish),
            "errors": faults or {},
            "labels": LABELS,
            "plan": plan,
            "quantizations": [("", "none: the weights stay as they are"), *quantizations()],
            "instances": [one.name for one in instances()],
            "fixed_instance": settings.instance or "",
            "images": settings.images,
        }
        status = 400 if faults else 200
        return self.site.page(request, "new.html.j2", values, section="new", status=status)


def asked_request(wish: Wish, settings: JobSettings) -> dict[str, Any]:
    """Return the request of packager that the job will build; raises `ApiRefusal`."""
    document = document_of(wish, settings)
    if document is None:
        return request_of(wish, settings)
    request: dict[str, Any] = json.loads(make_job(document, settings).files[REQUEST_FILE])
    return request


LABELS = {
    "name": "Name",
    "model": "Model",
    "instance": "Instance type",
    "quantize": "Quantization",
    "calibration": "Texts to quantize with",
    "compile": "Compilation",
    "draft": "Speculative decoding",
    "draft_ref": "Your draft",
    "data": "Training data",
    "output": "Where the result goes",
    "hours": "Stop after",
}


def plan_values(output: CommandOutput) -> dict[str, Any]:
    """Return what a page shows of the output of `packager plan --format json`."""
    if output.status:
        refusal = output.refusal()
        if not refusal:
            raise output.failure()
        findings = [one for one in refusal.get("findings", ()) if isinstance(one, Mapping)]
        hint = "" if findings else refusal.get("hint", "")
        return {"fits": False, "words": refusal["message"], "hint": hint, "findings": findings}
    plan = output.document()
    container, split, shape = plan["container"], plan["split"], plan["shape"]
    facts = [
        ("Model", f"{plan['profile']['architecture']}, {plan['precision']}"),
        ("Served by", f"{container['family']} {container['version']}"),
        ("Instance", _instance_words(plan["instance"])),
        ("Spread over", _split_words(split)),
        ("Memory", _memory_words(plan)),
        (
            "Requests",
            f"{shape['max_batch']} at once, {shape['max_total_tokens']} tokens each at most",
        ),
        *((f"To do: {one['step']}", _step_words(one)) for one in plan["forecasts"]),
    ]
    return {
        "fits": True,
        "words": f"{plan['served_name']} fits on {plan['instance']['name']}",
        "hint": "",
        "facts": [Pair(name, words) for name, words in facts],
        "findings": plan["findings"],
    }


def _split_words(split: Mapping[str, Any]) -> str:
    copies = f", {split['copies']} copies" if split["copies"] > 1 else ""
    return f"{split['words']}: {counted(split['devices'], 'device')}{copies}"


def _instance_words(instance: Mapping[str, Any]) -> str:
    price = instance.get("price_usd_hour")
    devices = f"{instance['devices']} × {instance['device']}"
    return ", ".join(filter(None, (instance["name"], devices, f"{usd(price)}/h" if price else "")))


def _memory_words(plan: Mapping[str, Any]) -> str:
    memory = plan.get("memory_per_device") or {}
    needed, usable = memory.get("needed_bytes"), memory.get("usable_bytes")
    if not isinstance(needed, int) or not isinstance(usable, int):
        return ""
    return f"{gib(needed)} of {gib(usable)} usable on each device"


def _step_words(step: Mapping[str, Any]) -> str:
    seconds = step.get("seconds")
    about = f", about {max(1, round(seconds / 60))} min here" if seconds else ""
    return f"{step['tool']}, {'in the cache' if step['state'] == 'hit' else 'runs'}{about}"


def _named(wish: Wish) -> Wish:
    """Return the form's values with a name that is probably unique."""
    if wish.name:
        return wish
    model = _EARLIER.sub("-", wish.model.rstrip("/").rpartition("/")[2]).strip("-")[:40].strip("-")
    return replace(wish, name=f"{model or 'job'}-{datetime.now(UTC):%Y%m%d-%H%M%S}")
