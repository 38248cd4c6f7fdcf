"""The golden cases of cases.toml, with the headers of their models and drafts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from packager.catalog.accelerators import accelerator_of
from packager.catalog.containers import find_container
from packager.catalog.instances import find_instance
from packager.cli.plugins.tables import FAMILIES
from packager.core.facts import Facts
from packager.core.instance import Instance
from packager.core.model import ModelFiles
from packager.core.plan import Plan
from packager.core.ports import ContainerFamily
from packager.core.request import BuildRequest
from packager.optimize.drafts.request import parse_draft
from packager.pipeline.planning.planner import make_plan
from packager.pipeline.planning.services import PlannerServices
from tests.golden.models import MODELS, WRITTEN
from tests.support.headers import LOCAL_CPU
from tests.support.heads import values_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One request, and what `resolve` would have found."""

    id: str
    model: ModelFiles
    instance: str | Instance
    family: str | None = None
    asked: dict[str, Any] = field(default_factory=dict)
    draft: ModelFiles | None = None

    @property
    def facts(self) -> Facts:
        found = find_instance(self.instance) if isinstance(self.instance, str) else self.instance
        version = self.asked.get("container_version")
        return Facts(
            request=BuildRequest(
                model=self.model.ref.name, instance=found.name, family=self.family, **self.asked
            ),
            model=self.model,
            instance=found,
            container=find_container(
                self.family, found.kind, version=version, instance_name=found.name
            ),
            base=None,
            packager_version="0.1.0",
            draft=self.draft,
            head_values=values_of(self.draft) if self.draft else None,
            draft_request=parse_draft(self.asked.get("draft")),
        )

    @property
    def plan(self) -> Plan:
        facts = self.facts
        return make_plan(
            facts,
            PlannerServices(
                family=family_of(facts.container.family), accelerator_of=accelerator_of
            ),
        )


def family_of(name: str) -> ContainerFamily:
    """The family of that name."""
    family: ContainerFamily = FAMILIES.find(name).make()
    return family


def _read(id: str, row: dict[str, Any]) -> Case:
    instance, heads = row["instance"], row.get("heads")
    shape = WRITTEN["shapes"][row["shape"]] if "shape" in row else {}
    return Case(
        id=id,
        model=MODELS[row["model"]],
        instance=LOCAL_CPU if instance == "local" else instance,
        family=row.get("family"),
        asked=shape | row.get("asked", {}),
        draft=MODELS[heads] if heads else None,
    )


CASES = tuple(_read(id, row) for id, row in WRITTEN["cases"].items())
