"""CloudWatch's metric alarms: stored, described and deleted; without metrics none goes off."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from packager.addons.deploy.sagemaker.api_refusals import ApiRefusal, ResourceNotFound
from packager.addons.deploy.sagemaker.shapes import read_input
from packager.addons.server.operations.scaling import kept, put
from packager.addons.server.services import Document, Operation, ServeServices

SERVICE = "GraniteServiceVersion20100801"
API = "cloudwatch"
ALARM = "alarm"
NOT_EVALUATED = "packager has no metrics of CloudWatch: the alarm is kept and never evaluated"
_Work = Callable[[ServeServices, Document], Document]


def no_alarm(message: str, *, hint: str = "") -> ApiRefusal:
    """Return an error: no alarm has this name."""
    return ApiRefusal(message, hint=hint, type="ResourceNotFound", http_status=404)


def operations(services: ServeServices) -> Mapping[str, Operation]:
    """Return operations by their names."""

    def of(name: str, work: _Work) -> Operation:
        async def run(body: Document) -> Document:
            return await asyncio.to_thread(work, services, read_input(name, body, API))

        return run

    works: dict[str, _Work] = {
        "PutMetricAlarm": _put,
        "DescribeAlarms": _describe,
        "DeleteAlarms": _delete,
    }
    return {name: of(name, work) for name, work in works.items()}


def _put(services: ServeServices, body: Document) -> Document:
    name = body["AlarmName"]
    settings = services.settings
    arn = f"arn:aws:cloudwatch:{settings.region}:{settings.account}:alarm:{name}"
    document = {key: value for key, value in body.items() if key != "Tags"}
    put(services, ALARM, name, document, arn=arn)
    return {}


def _describe(services: ServeServices, body: Document) -> Document:
    names, prefix = body.get("AlarmNames"), body.get("AlarmNamePrefix", "")
    state, action = body.get("StateValue"), body.get("ActionPrefix", "")
    types = body.get("AlarmTypes") or ["MetricAlarm"]
    found = [
        {
            "ActionsEnabled": True,
            "OKActions": [],
            "AlarmActions": [],
            "InsufficientDataActions": [],
            **one.document,
            "AlarmArn": one.arn,
            "AlarmConfigurationUpdatedTimestamp": one.modified,
            "StateValue": "INSUFFICIENT_DATA",
            "StateReason": NOT_EVALUATED,
            "StateUpdatedTimestamp": one.modified,
        }
        for one in kept(services, ALARM)
        if (not names or one.name in names)
        and one.name.startswith(prefix)
        and state in (None, "INSUFFICIENT_DATA")
        and any(arn.startswith(action) for arn in one.document.get("AlarmActions") or ("",))
    ]
    return {"MetricAlarms": found if "MetricAlarm" in types else [], "CompositeAlarms": []}


def _delete(services: ServeServices, body: Document) -> Document:
    known = {one.name for one in kept(services, ALARM)}
    if missing := [name for name in body["AlarmNames"] if name not in known]:
        raise no_alarm(f"Resource not found: there is no alarm {missing[0]!r}")
    for name in body["AlarmNames"]:
        try:
            services.resources.delete(ALARM, name)
        except ResourceNotFound:
            continue
    return {}
