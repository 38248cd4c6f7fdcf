"""Endpoints on AWS, or on a server with its API: apply, watch, send requests, delete.

No state is kept between calls.  Names of models and configurations contain the digest of their
content, and all have a tag: they show how far an earlier call came.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from artifact_cache.waits import within
from packager.addons.deploy.sagemaker.adapters import LiveAdapters, base_of
from packager.addons.deploy.sagemaker.bodies import requests_of
from packager.addons.deploy.sagemaker.clients import INVOKE_S, Clients, explained, is_missing
from packager.addons.deploy.sagemaker.deployer import SageMakerDeployer
from packager.addons.deploy.sagemaker.differences import copies_difference, differences, update_body
from packager.addons.deploy.sagemaker.history import History
from packager.addons.deploy.sagemaker.live_scaling import LiveScaling
from packager.addons.deploy.sagemaker.refusals import NotOurs, endpoint_failed, under_way
from packager.addons.deploy.sagemaker.requests import MODEL_TAG, OWNER_TAG, Request, component_name
from packager.addons.deploy.sagemaker.route import EndpointRoute
from packager.addons.deploy.sagemaker.spec import SageMakerSpec
from packager.addons.deploy.sagemaker.states import SETTLED, STATES
from packager.core.deployment import (
    Applied,
    Change,
    ChangeKind,
    Deployment,
    DeployStatus,
)
from packager.core.errors import NotFound, PlanRejected
from packager.core.events import ignore
from packager.core.findings import errors_in
from packager.core.text import escape

Body = Mapping[str, Any]

_MOST_PAGES = 100
_END_S = 3600.0  # of what is being deleted; AWS takes minutes
_FIRST_POLL_S, _POLL_S = 0.1, 5.0  # the first answer is often there at once; AWS takes minutes


class LiveSageMaker(SageMakerDeployer):
    """Deploys through boto3."""

    def __init__(
        self,
        clients: Clients | None = None,
        *,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
        poll_s: float = _POLL_S,
        say: Callable[[str], None] = ignore,
        today: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        super().__init__()
        self._today = today
        self._moment = ""  # of the change that is under way
        self._clients = clients or Clients()
        self._sleep = sleep
        self._clock = clock
        self._poll_s = poll_s
        self._say = say

    def diff(self, deployment: Deployment, wanted: SageMakerSpec) -> tuple[Change, ...]:
        """Return what `apply` would do."""
        requests = self._checked(deployment, wanted)
        surplus = self._scaling().surplus(deployment.name, requests)
        gone = map(_gone, self._surplus_adapters(deployment.name, requests, wanted))
        return (*self._changes(requests), *(one.change for one in surplus), *gone)

    def apply(self, deployment: Deployment, wanted: SageMakerSpec) -> Applied:
        """Create or update what differs; an endpoint that failed is made again.

        Raises `Unavailable` while it is changing, `NotOurs`, and what AWS refuses.
        """
        name = deployment.name
        self._moment = self._today().isoformat(timespec="microseconds")
        done = []
        requests = self._checked(deployment, wanted)
        self._changes(requests)  # all is looked at before anything is sent
        surplus = self._scaling().surplus(name, requests)
        for request, change in self._steps(requests):
            if change.kind != "same":
                self._say(f"{change.kind} {change.resource} {change.name}")
                self._send(request, change.kind, name, keeps_scale=wanted.scales)
            done.append(change)
        for one in surplus:
            self._say(f"delete {one.change.resource} {one.change.name}")
            self._scaling().remove(name, one, scales=_scales(requests))
            done.append(one.change)
        done += self._end_adapters(self._surplus_adapters(name, requests, wanted))
        return Applied(changes=tuple(done), address=f"endpoint {name}")

    def status(self, name: str, *, wait_s: float = 0.0) -> DeployStatus:
        """Return the state of an endpoint with its component, after it settled or `wait_s`."""
        until = self._clock() + wait_s
        said = ""
        for pause_s in self._pauses():
            found = self._state(name)
            if found.said != said:
                self._say(f"{name}: {found.said}")
                said = found.said
            if found.state in SETTLED or self._clock() >= until:
                return found
            self._sleep(min(pause_s, max(until - self._clock(), 0.0)))
        raise AssertionError("pauses have no end")

    def invoke(self, name: str, body: bytes) -> bytes:
        """Send a request to an endpoint and return its answer; raise what AWS answers."""
        asked: dict[str, Any] = {
            "EndpointName": name,
            "Body": body,
            "ContentType": "application/json",
            "Accept": "application/json",
        }
        there = self._describe("Endpoint", name)
        if there is None:
            raise NotFound(f"there is no endpoint {name!r}", hint="apply it first")
        if self._component(name, there) is not None:
            asked["InferenceComponentName"] = component_name(name)
        with explained("InvokeEndpoint"):
            answer = self._clients.of("sagemaker-runtime").invoke_endpoint(**asked)
            data: bytes = within(INVOKE_S, answer["Body"].read)
        return data

    def route(self, name: str) -> EndpointRoute:
        """Return the load client's route to an endpoint."""
        there = self._describe("Endpoint", name)
        if there is None:
            raise NotFound(f"there is no endpoint {name!r}", hint="apply it first")
        component = component_name(name) if self._component(name, there) is not None else ""
        return self._clients.route(name, model=self.served_name(name), component=component)

    def served_name(self, name: str) -> str:
        """Return the name of the model that an endpoint serves now; "" if unknown."""
        there = self._describe("Endpoint", name)
        config = self._describe("EndpointConfig", str(there["EndpointConfigName"])) if there else {}
        return self._tags(str(config["EndpointConfigArn"])).get(MODEL_TAG, "") if config else ""

    def delete(self, name: str) -> tuple[Change, ...]:
        """Delete component, endpoint, configurations and models of this deployment, in order."""
        done = []
        there = self._describe("Endpoint", name)
        if there is not None:
            self._refuse_foreign("Endpoint", name, there)
            component = self._component(name, there)
            if component is not None:
                self._refuse_foreign("InferenceComponent", component_name(name), component)
            done += self._scaling().stop(name, there)
            if component is not None:
                done += self._end_adapters(self._adapters().of(name))
                done.append(self._delete("InferenceComponent", component_name(name), component))
            done.append(self._delete("Endpoint", name, there))
        for kind in ("EndpointConfig", "Model"):
            for found in self._ours(kind, name):
                self._call(f"Delete{kind}", **{f"{kind}Name": found})
                done.append(Change(kind="delete", resource=kind, name=found))
        return tuple(done)

    def roll_back(self, name: str) -> Applied:
        """Move an endpoint, its component included, to its previous state.

        An update that failed was never in service.  Raises `NotFound` where nothing was before.
        """
        there = self._describe("Endpoint", name)
        if there is None:
            raise NotFound(f"there is no endpoint {name!r}", hint="apply it first")
        self._refuse_foreign("Endpoint", name, there)
        self._refuse_busy(name, there)
        component = self._component(name, there)
        if component is not None:
            self._refuse_foreign("InferenceComponent", component_name(name), component)
            self._refuse_busy(name, component, "InferenceComponent")
        self._moment = self._today().isoformat(timespec="microseconds")
        history = self._history()
        changes = history.roll_back(name, there, component, settle=lambda: self._settle(name))
        return Applied(changes=changes, address=f"endpoint {name}")

    def _adapters(self) -> LiveAdapters:
        return LiveAdapters(self._component_names, self._describe)

    def _component_names(self, endpoint: str) -> list[str]:
        with explained("ListInferenceComponents"):
            pages = self._clients.of("sagemaker").get_paginator("list_inference_components")
            return [
                str(one["InferenceComponentName"])
                for page in pages.paginate(EndpointNameEquals=endpoint)
                for one in page["InferenceComponents"]
            ]

    def _surplus_adapters(
        self, name: str, requests: Sequence[Request], wanted: SageMakerSpec
    ) -> Mapping[str, Body]:
        return self._adapters().surplus(name, requests) if wanted.components else {}

    def _end_adapters(self, found: Mapping[str, Body]) -> Iterator[Change]:
        for name, there in found.items():
            self._refuse_foreign("InferenceComponent", name, there)
            yield self._delete("InferenceComponent", name, there)

    def _history(self) -> History:
        return History(
            describe=self._describe,
            call=self._call,
            tags=self._tags,
            owned=self._owned,
            moment=self._moment,
        )

    def _scaling(self) -> LiveScaling:
        return LiveScaling(
            clients=self._clients, describe=self._describe, call=self._call, tags=self._tags
        )

    def _delete(self, kind: str, name: str, there: Body) -> Change:
        """Delete what takes time to end, and wait for it."""
        if there[f"{kind}Status"] != "Deleting":
            self._call(f"Delete{kind}", **{f"{kind}Name": name})
        until = self._clock() + _END_S
        for pause_s in self._pauses():
            found = self._describe(kind, name)
            if found is None:
                break
            if self._clock() >= until:
                raise under_way(name, str(found[f"{kind}Status"]))
            self._sleep(pause_s)
        return Change(kind="delete", resource=kind, name=name)

    def _checked(self, deployment: Deployment, wanted: SageMakerSpec) -> Sequence[Request]:
        """Return the requests; raise `PlanRejected` where one of them cannot work."""
        rendered = self.render(deployment, wanted)
        if errors_in(rendered.findings):
            raise PlanRejected(rendered.findings)
        return requests_of(deployment, wanted)

    def _pauses(self) -> Iterator[float]:
        """Yield the seconds to wait before the next poll, without end."""
        pause_s = min(_FIRST_POLL_S, self._poll_s)
        while True:
            yield pause_s
            pause_s = min(1.5 * pause_s, self._poll_s)

    def _changes(self, requests: Sequence[Request]) -> tuple[Change, ...]:
        return tuple(change for _, change in self._steps(requests))

    def _steps(self, requests: Sequence[Request]) -> Iterator[tuple[Request, Change]]:
        scales = _scales(requests)
        for request in requests:
            if request.service != "sagemaker":
                yield request, self._scaling().change(request)
            elif request.resource in ("Model", "EndpointConfig"):
                yield request, self._fixed(request)
            else:
                yield request, self._moving(request, scales)

    def _fixed(self, request: Request) -> Change:
        """Return the change of what has its content in its name."""
        there = self._describe(request.resource, request.name)
        kind: ChangeKind = "create" if there is None else "same"
        return Change(kind=kind, resource=request.resource, name=request.name)

    def _moving(self, request: Request, scales: bool) -> Change:
        """Return the change of an endpoint or a component."""
        resource, name = request.resource, request.name
        there = self._describe(resource, name)
        if there is None:
            return Change(kind="create", resource=resource, name=name)
        self._refuse_foreign(resource, name, there)
        if there[f"{resource}Status"] == "Failed":  # AWS allows only its deletion
            return Change(kind="replace", resource=resource, name=name)
        wanted = {key: request.body[key] for key in _COMPARED[resource]}
        shown = {"EndpointConfigName": _config_of(there)} if resource == "Endpoint" else there
        found = differences(shown, wanted)
        if resource == "InferenceComponent" and not scales:
            found += copies_difference(there, request.body)
        if not found:
            return Change(kind="same", resource=resource, name=name)
        self._refuse_busy(name, there, resource)
        return Change(kind="update", resource=resource, name=name, differences=found)

    def _send(self, request: Request, kind: ChangeKind, name: str, *, keeps_scale: bool) -> None:
        if request.service != "sagemaker":
            self._settle(name)  # only what is in service can be registered
            self._scaling().send(request, name)
            return
        if request.resource == "InferenceComponent":
            self._settle(name)
        if base := base_of(request.body):
            self._settle(base, "InferenceComponent")
        if kind == "replace":
            there = self._describe(request.resource, request.name) or {}
            if request.resource == "Endpoint" and (own := self._component(name, there)):
                tuple(self._end_adapters(self._adapters().of(name)))
                self._delete("InferenceComponent", component_name(name), own)
            self._delete(request.resource, request.name, there)
        if kind == "update":
            self._history().note_before(request)
            self._call(f"Update{request.resource}", **update_body(request, keeps_scale))
        else:
            self._call(request.operation, **request.body)

    def _settle(self, name: str, kind: str = "Endpoint") -> None:
        """Wait until it is in service: the limits of its start are AWS's."""
        for pause_s in self._pauses():
            there = self._describe(kind, name) or {}
            state = STATES.get(str(there.get(f"{kind}Status")), "absent")
            if state == "ready":
                return
            if state in SETTLED:
                raise endpoint_failed(name, str(there.get("FailureReason") or ""))
            self._sleep(pause_s)

    def _state(self, name: str) -> DeployStatus:
        there = self._describe("Endpoint", name)
        if there is None:
            return DeployStatus(state="absent", said="absent")
        component = self._component(name, there)
        said = str(there["EndpointStatus"])
        if component is not None and STATES.get(said) == "ready":
            said = str(component["InferenceComponentStatus"])
        state = STATES.get(said, "failed")
        variant: Body = next(iter(there.get("ProductionVariants") or ()), {})
        images: Sequence[Body] = variant.get("DeployedImages") or ({},)
        counts = (variant.get("CurrentInstanceCount"), variant.get("DesiredInstanceCount"))
        if component is not None:
            copies = component.get("RuntimeConfig") or {}
            counts = (copies.get("CurrentCopyCount"), copies.get("DesiredCopyCount"))
        reasons = (there.get("FailureReason"), (component or {}).get("FailureReason"))
        return DeployStatus(
            state=state,
            said=said,
            image=str(images[0].get("SpecifiedImage") or ""),
            ready=counts[0],
            wanted=counts[1],
            reason="; ".join(escape(str(one)) for one in reasons if one),
            address=f"endpoint {name}",
            details={"config": _config_of(there)},
        )

    def _component(self, name: str, there: Body) -> dict[str, Any] | None:
        """Return an endpoint's component; None where its variants name models themselves."""
        config = self._describe("EndpointConfig", _config_of(there)) if there else None
        variants = (config or {}).get("ProductionVariants") or ()
        if all(one.get("ModelName") for one in variants):
            return None
        found = self._describe("InferenceComponent", component_name(name))
        # Names are those of the account: another's endpoint may have a component of this one.
        return found if found is not None and found.get("EndpointName") == name else None

    def _describe(self, kind: str, name: str) -> dict[str, Any] | None:
        """Return what AWS says of a resource; None where there is none."""
        from botocore.exceptions import ClientError

        client = self._clients.of("sagemaker")
        with explained(f"Describe{kind}"):
            try:
                found: dict[str, Any] = getattr(client, f"describe_{_snake(kind)}")(
                    **{f"{kind}Name": name}
                )
            except ClientError as error:
                if is_missing(error):
                    return None
                raise
        return found

    def _call(self, operation: str, *, service: str = "sagemaker", **body: Any) -> None:
        with explained(operation):
            getattr(self._clients.of(service), _snake(operation))(**body)

    def _refuse_busy(self, name: str, there: Body, kind: str = "Endpoint") -> None:
        said = str(there[f"{kind}Status"])
        if STATES.get(said, "failed") not in SETTLED:
            raise under_way(name, said)

    def _refuse_foreign(self, kind: str, name: str, there: Body) -> None:
        if OWNER_TAG not in self._tags(str(there[f"{kind}Arn"])):
            raise NotOurs(f"{'an' if kind[0] in 'EI' else 'a'} {kind}", name)

    def _tags(self, arn: str) -> dict[str, str]:
        with explained("ListTags"):
            answer = self._clients.of("sagemaker").list_tags(ResourceArn=arn)
        return {str(one["Key"]): str(one.get("Value", "")) for one in answer.get("Tags") or ()}

    def _ours(self, kind: str, name: str) -> list[str]:
        """Return this deployment's models or configurations, newest first."""
        return [one for one, _ in self._owned(kind, name)]

    def _owned(self, kind: str, name: str) -> list[tuple[str, dict[str, str]]]:
        """Return the same with their tags."""
        found: list[tuple[Any, str, dict[str, str]]] = []
        asked: dict[str, Any] = {"NameContains": f"{_stem(name)}-"}
        own = re.compile(rf"{re.escape(_stem(name))}-[0-9a-f]{{8}}")
        for _ in range(_MOST_PAGES):
            with explained(f"List{kind}s"):
                answer = getattr(self._clients.of("sagemaker"), f"list_{_snake(kind)}s")(**asked)
            for one in answer.get(f"{kind}s") or ():
                if own.fullmatch(str(one[f"{kind}Name"])):
                    tags = self._tags(str(one[f"{kind}Arn"]))
                    if tags.get(OWNER_TAG) == name:
                        found.append((one["CreationTime"], str(one[f"{kind}Name"]), tags))
            if not answer.get("NextToken"):
                break
            asked["NextToken"] = answer["NextToken"]
        return [(one, tags) for _, one, tags in sorted(found, key=_age, reverse=True)]


_COMPARED = {"Endpoint": ("EndpointConfigName",), "InferenceComponent": ("Specification",)}


def _gone(name: str) -> Change:
    return Change(kind="delete", resource="InferenceComponent", name=name)


def _scales(requests: Sequence[Request]) -> bool:
    return any(request.resource == "ScalableTarget" for request in requests)


def _config_of(there: Body) -> str:
    """Return the configuration that an endpoint has, or is about to have."""
    pending = (there.get("PendingDeploymentSummary") or {}).get("EndpointConfigName")
    return str(pending or there["EndpointConfigName"])


def _stem(name: str) -> str:
    """Return the beginning of names that end in a digest, as `bodies.named` makes it."""
    return name[:54].rstrip("-")


def _age(found: tuple[Any, str, Body]) -> tuple[Any, str]:
    return found[:2]


def _snake(operation: str) -> str:
    return "".join(f"_{one.lower()}" if one.isupper() else one for one in operation).lstrip("_")
