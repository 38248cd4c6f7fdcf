"""Look-ups of one run in the catalog: shipped rows, the user's own, and this machine."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from packager.catalog.accelerators import accelerator_of
from packager.catalog.compatibility import rules
from packager.catalog.containers import containers, find_container
from packager.catalog.instances import find_instance, instances
from packager.catalog.models import drafts_of
from packager.catalog.prices import at_price, priced
from packager.cli.wiring.settings import Settings, user_rows
from packager.core.catalog import Accelerator
from packager.core.facts import ContainerFacts
from packager.core.instance import LOCAL, Instance
from packager.core.model import ModelFiles
from packager.core.user_catalog import UserCatalog
from packager.estimate.performance.job import Market
from packager.optimize.drafts.published import KnownChoice, choose_known


class CatalogRows:
    """The catalog with the user's own rows, which are read when the first is needed."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    @cached_property
    def own(self) -> UserCatalog:
        """The user's own rows."""
        return user_rows(self._settings)

    @cached_property
    def this_machine(self) -> Instance:
        """The instance `local`."""
        return self._find(LOCAL)

    def find_instance(self, name: str) -> Instance:
        """Return an instance type with its price: the user's, else that of its region."""
        return at_price(self._priced(self._find(name)), self._settings.usd_per_hour)

    def instances(self) -> tuple[Instance, ...]:
        """Return every instance type with its price in the region."""
        return tuple(map(self._priced, instances(self.own.instances)))

    def accelerator_of(self, instance: Instance) -> Accelerator:
        """Return the row of an instance's devices."""
        return accelerator_of(instance, self.own.accelerators)

    def market(self) -> Market:
        """Return where steps run, to price them."""
        return Market(here=self.this_machine, accelerator_of=self.accelerator_of)

    def find_container(
        self, family: str | None, version: str | None, region: str | None, instance: Instance
    ) -> ContainerFacts:
        """Return the container that a request means, for an instance."""
        return find_container(
            family, instance.kind, version, region, instance.name, self.own.containers
        )

    def containers(self) -> tuple[ContainerFacts, ...]:
        """Return every container."""
        return containers(self.own.containers)

    def known_draft(
        self,
        model: ModelFiles,
        instance: Instance,
        container: ContainerFacts,
        tried: Mapping[str, str],
    ) -> KnownChoice:
        """Return the draft that `--draft auto` means, without those that failed."""
        known = drafts_of(model.ref.published_name, self.own.models)
        return choose_known(known, model, instance, container, rules(), tried)

    def _find(self, name: str) -> Instance:
        if name == LOCAL:
            from packager.catalog.machine import describe_machine

            return describe_machine()
        return find_instance(name, self.own.instances)

    def _priced(self, instance: Instance) -> Instance:
        return priced(instance, self._settings.region, self.own.prices)
