"""What scales an endpoint, as AWS keeps it: apart from the endpoint, and after its end."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from packager.addons.deploy.sagemaker.clients import Clients, explained
from packager.addons.deploy.sagemaker.differences import differences
from packager.addons.deploy.sagemaker.refusals import NotOurs
from packager.addons.deploy.sagemaker.requests import (
    OWNER_TAG,
    SCALES_TAG,
    Body,
    Request,
    component_name,
)
from packager.addons.deploy.sagemaker.scaling import OF_POLICY, SCALING, policy_arn, wake_name
from packager.core.deployment import Change, ChangeKind

_SCALED = {"variant": "DesiredInstanceCount", "inference-component": "DesiredCopyCount"}
_COMPONENT = "inference-component/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Surplus:
    """Scaling resources of an endpoint to delete."""

    change: Change
    scaled: str  # the resource: an endpoint's variant, or a component


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveScaling:
    """Targets, policies and alarms of an account, read from AWS by injected functions."""

    clients: Clients
    describe: Callable[[str, str], Mapping[str, Any] | None]  # by kind and name
    call: Callable[..., None]  # an operation with its body
    tags: Callable[[str], Mapping[str, str]]  # by ARN of SageMaker

    def change(self, request: Request) -> Change:
        """Return what putting a target, a policy or an alarm changes; raise `NotOurs`."""
        there = self._there(request)
        if there is None:
            return Change(kind="create", resource=request.resource, name=request.name)
        found = differences(there, self._whole(request))
        kind: ChangeKind = "update" if found else "same"
        return Change(kind=kind, resource=request.resource, name=request.name, differences=found)

    def send(self, request: Request, name: str) -> None:
        """Send a target, a policy or an alarm of an endpoint, with the ARN that only AWS knows."""
        body = request.body
        if request.resource == "ScalableTarget":  # first: `stop` finds it by the tag alone
            endpoint = self.describe("Endpoint", name) or {}
            tags = [{"Key": SCALES_TAG, "Value": body["ResourceId"]}]
            self.call("AddTags", ResourceArn=endpoint["EndpointArn"], Tags=tags)
        if request.resource == "MetricAlarm":
            step = self._policy(wake_name(name), f"{_COMPONENT}{component_name(name)}") or {}
            known = {policy_arn(name): str(step.get("PolicyARN", ""))}
            body = {**body, "AlarmActions": [known.get(one, one) for one in body["AlarmActions"]]}
        self.call(request.operation, service=request.service, **body)

    def surplus(self, name: str, requests: Sequence[Request]) -> list[Surplus]:
        """Return scaling resources of an earlier call that these requests no longer need.

        That is what wakes it, where it does not go to zero any more; and all, where nothing scales
        it, or something else of it is scaled.
        """
        endpoint = self.describe("Endpoint", name)
        tags = self.tags(str(endpoint["EndpointArn"])) if endpoint is not None else {}
        resource = tags.get(SCALES_TAG, "")
        if not resource:
            return []
        wanted = {one.resource: one.body for one in requests if one.service != "sagemaker"}
        found = []
        if "MetricAlarm" not in wanted:
            if self._policy(wake_name(name), resource) is not None:
                found.append(("ScalingPolicy", wake_name(name)))
            with suppress(NotOurs):  # another's alarm stays
                if self._alarm(wake_name(name)) is not None:
                    found.append(("MetricAlarm", wake_name(name)))
        target = wanted.get("ScalableTarget", {})
        if target.get("ResourceId") != resource and self._target(_place(resource)) is not None:
            found.append(("ScalableTarget", resource))
        return [
            Surplus(change=Change(kind="delete", resource=kind, name=which), scaled=resource)
            for kind, which in found
        ]

    def remove(self, name: str, surplus: Surplus, *, scales: bool) -> None:
        """Delete what is scaled with and not wanted; `scales` where something else is."""
        change, place = surplus.change, _place(surplus.scaled)
        if change.resource == "MetricAlarm":
            self.call("DeleteAlarms", service="cloudwatch", AlarmNames=[change.name])
        elif change.resource == "ScalingPolicy":
            self.call("DeleteScalingPolicy", service=SCALING, PolicyName=change.name, **place)
        else:
            self.call("DeregisterScalableTarget", service=SCALING, **place)
            if not scales:
                endpoint = self.describe("Endpoint", name) or {}
                arn = endpoint["EndpointArn"]
                self.call("DeleteTags", ResourceArn=arn, TagKeys=[SCALES_TAG])

    def stop(self, name: str, endpoint: Body) -> list[Change]:
        """Deregister what scales an endpoint, its policies with it, and delete its alarm."""
        resource = self.tags(str(endpoint["EndpointArn"])).get(SCALES_TAG, "")
        if not resource:
            return []
        wakes = self._policy(wake_name(name), resource) is not None
        client = self.clients.of(SCALING)
        with (
            explained("DeregisterScalableTarget"),
            suppress(client.exceptions.ObjectNotFoundException),
        ):
            client.deregister_scalable_target(**_place(resource))
        done = [Change(kind="delete", resource="ScalableTarget", name=resource)]
        with suppress(NotOurs):  # another's alarm stays
            if wakes and self._alarm(wake_name(name)) is not None:
                self.call("DeleteAlarms", service="cloudwatch", AlarmNames=[wake_name(name)])
                done.append(Change(kind="delete", resource="MetricAlarm", name=wake_name(name)))
        return done

    def _there(self, request: Request) -> Mapping[str, Any] | None:
        body = request.body
        if request.resource == "MetricAlarm":
            return self._alarm(request.name)
        if request.resource == "ScalingPolicy":
            return self._policy(request.name, body["ResourceId"])
        return self._target(
            {key: body[key] for key in ("ServiceNamespace", "ResourceId", "ScalableDimension")}
        )

    def _target(self, place: Mapping[str, str]) -> Mapping[str, Any] | None:
        with explained("DescribeScalableTargets"):
            found: list[Mapping[str, Any]] = self.clients.of(SCALING).describe_scalable_targets(
                ServiceNamespace=place["ServiceNamespace"],
                ResourceIds=[place["ResourceId"]],
                ScalableDimension=place["ScalableDimension"],
            )["ScalableTargets"]
        return found[0] if found else None

    def _policy(self, name: str, resource: str) -> Mapping[str, Any] | None:
        place = _place(resource)
        with explained("DescribeScalingPolicies"):
            found: list[Mapping[str, Any]] = self.clients.of(SCALING).describe_scaling_policies(
                PolicyNames=[name], **place
            )["ScalingPolicies"]
        return next((one for one in found if one["PolicyName"] == name), None)

    def _alarm(self, name: str) -> Mapping[str, Any] | None:
        """Return an alarm of ours; raise `NotOurs` if another owner has one of that name."""
        client = self.clients.of("cloudwatch")
        with explained("DescribeAlarms"):
            found = client.describe_alarms(AlarmNames=[name]).get("MetricAlarms") or []
            if not found:
                return None
            listed = client.list_tags_for_resource(ResourceARN=found[0]["AlarmArn"])
        if OWNER_TAG not in {tag["Key"] for tag in listed.get("Tags") or ()}:
            raise NotOurs("an alarm", name)
        alarm: Mapping[str, Any] = found[0]
        return alarm

    def _whole(self, request: Request) -> dict[str, Any]:
        """Return what is compared: tags are told apart, and AWS alone knows a policy's ARN."""
        body = {key: value for key, value in request.body.items() if key != "Tags"}
        if request.resource == "MetricAlarm":
            resource = f"{_COMPONENT}{body['Dimensions'][0]['Value']}"
            step = self._policy(request.name, resource) or {}
            body["AlarmActions"] = [
                str(step.get("PolicyARN", one)) if one.startswith(OF_POLICY) else one
                for one in body["AlarmActions"]
            ]
        return body


def _place(resource: str) -> dict[str, str]:
    part = "inference-component" if resource.startswith(_COMPONENT) else "variant"
    return {
        "ServiceNamespace": "sagemaker",
        "ResourceId": resource,
        "ScalableDimension": f"sagemaker:{part}:{_SCALED[part]}",
    }
