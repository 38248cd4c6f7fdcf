"""Rows that a user adds to the catalog, as its functions take them for `extra`."""

from __future__ import annotations

from dataclasses import dataclass

from packager.core.catalog import Accelerator, CatalogModel, Price
from packager.core.facts import ContainerFacts
from packager.core.instance import Instance
from packager.core.registry import RegistryTraits


@dataclass(frozen=True, slots=True, kw_only=True)
class UserCatalog:
    """The user's own machines, models, images, prices, registries.

    They win over shipped rows by name.
    """

    instances: tuple[Instance, ...] = ()
    accelerators: tuple[Accelerator, ...] = ()
    models: tuple[CatalogModel, ...] = ()
    containers: tuple[ContainerFacts, ...] = ()
    prices: tuple[Price, ...] = ()
    registries: tuple[RegistryTraits, ...] = ()
