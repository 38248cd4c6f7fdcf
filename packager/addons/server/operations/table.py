"""Every operation of the server, by service and name.

An operation's request and answer fit AWS's model; access was checked before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from packager.addons.deploy.sagemaker.shapes import answer_faults, check_model_of, read_input
from packager.addons.server.operations import (
    alarms,
    benchmarks,
    endpoint_configs,
    endpoints,
    inference_components,
    logs,
    models,
    optimization,
    recommendations,
    scaling,
    tags,
    workload_configs,
)
from packager.addons.server.protocol import ApiTarget
from packager.addons.server.sagemaker.settings import JobSettings
from packager.addons.server.services import Document, Operation, ServeServices

SERVICE = "SageMaker"
Family = Callable[[ServeServices], Mapping[str, Operation]]

FAMILIES: tuple[Family, ...] = (
    optimization.operations,
    models.operations,
    endpoint_configs.operations,
    endpoints.operations,
    inference_components.operations,
    workload_configs.operations,
    benchmarks.operations,
    recommendations.operations,
    tags.operations,
)


class OperationTable:
    """The operations of one server."""

    def __init__(self, services: ServeServices, families: Sequence[Family] = FAMILIES) -> None:
        self.settings: JobSettings = services.settings
        self._operations: dict[str, Operation] = {}
        for family in families:
            found = family(services)
            if doubled := self._operations.keys() & found.keys():
                raise ValueError(f"two operations have the name {min(doubled)}")
            self._operations.update(found)
        check_model_of(self._operations)
        others = (logs, scaling, alarms)
        self._others: dict[str, Mapping[str, Operation]] = {
            module.SERVICE: module.operations(services) for module in others
        }

    def names(self) -> tuple[str, ...]:
        """Return the operations of SageMaker, in order."""
        return tuple(sorted(self._operations))

    def find(self, target: ApiTarget) -> Operation | None:
        """Return an operation; None where the server does not have it."""
        if target.service == SERVICE:
            return self._operations.get(target.operation)
        return self._others.get(target.service, {}).get(target.operation)

    def read_input(self, target: ApiTarget, document: dict[str, Any]) -> dict[str, Any]:
        """Return a document that fits AWS's model; raises `ApiRefusal`.

        The operations of other services check their own.
        """
        return read_input(target.operation, document) if target.service == SERVICE else document

    async def call(self, name: str, body: Mapping[str, Any]) -> Document:
        """Answer one of our own callers as a client of SageMaker; raises `ApiRefusal`."""
        return await self._operations[name](read_input(name, dict(body)))

    def check_answer(self, target: ApiTarget, answer: Document) -> None:
        """Raise `ValueError` for an answer that AWS's model does not allow."""
        faults = answer_faults(target.operation, answer) if target.service == SERVICE else ()
        if faults:
            raise ValueError(f"{target.operation} answered: {'; '.join(faults)}")
