"""Entries of the speed tables for a set-up: its cell, coefficients and model factors.

An engine without measurements is looked up as the one of `stand_in`.
"""

from __future__ import annotations

from functools import cache

from packager.core.engine_rows import engine_rows
from packager.core.versions import version_key
from packager.estimate.performance.device_coefficients import Coefficients, coefficients_between
from packager.estimate.performance.devices import figures_of
from packager.estimate.performance.published import (
    CURVES_OF,
    Correction,
    FirstToken,
    PublishedQuery,
    correction_for,
    first_token_of,
    usual_once_s,
)
from packager.estimate.performance.served import Setup, precision_of
from packager.estimate.performance.speed_table import (
    Cell,
    Form,
    Kind,
    ReversedOrder,
    measured_engines,
    speed_table,
)


@cache
def stand_in() -> str:
    """Return the engine whose measurements are taken for engines without any."""
    return next(name for name, row in engine_rows().items() if row.stands_in)


def kind_of(setup: Setup) -> Kind:
    """Return which row of coefficients a model belongs to."""
    return "moe" if setup.model.experts else "dense"


def form_of(setup: Setup) -> Form:
    """Return what a model is recognised by."""
    return (setup.model.hidden_size, setup.model.layers, setup.model.experts)


def engine_of(setup: Setup) -> str:
    """Return the engine whose measurements apply to a set-up."""
    return setup.engine if setup.engine in measured_engines() else stand_in()


def cell_of(setup: Setup) -> Cell | None:
    """Return the cell of the engine on this very device; None where it has none."""
    return speed_table().cells.get((engine_of(setup), setup.accelerator.name, kind_of(setup)))


def is_in(cell: Cell, setup: Setup) -> bool:
    """Return whether the very model was measured, in such arithmetic."""
    return (form_of(setup), precision_of(setup)) in cell.forms


def is_other_version(cell: Cell, setup: Setup) -> bool:
    """Return whether the engine's version lies outside those that a cell was measured with."""
    if setup.engine not in measured_engines() or not setup.engine_version:
        return False
    version, oldest, newest = map(version_key, (setup.engine_version, *cell.versions))
    return version is None or not (oldest and newest and oldest <= version <= newest)


def coefficients_of(setup: Setup) -> Coefficients:
    """Return the coefficients of an engine on a device, measured or between measured ones."""
    cell = cell_of(setup)
    if cell:
        return Coefficients(cell.step, cell.prompt)
    scheme, degree = setup.model.scheme, min(setup.tp_degree, 2)
    device = figures_of(setup.accelerator, scheme, degree)
    place = (engine_of(setup), kind_of(setup), setup.accelerator.name)
    return coefficients_between(*place, device, scheme, degree)


def curve_factor(setup: Setup) -> float:
    """Return the factor on times from the model's own curves; else 1."""
    return speed_table().models.get((setup.engine or stand_in(), form_of(setup)), 1.0)


def factor_of(setup: Setup) -> float:
    """Return the factor on times from the model's curves and published speeds."""
    return curve_factor(setup) * correction_of(setup).times


def correction_of(setup: Setup) -> Correction:
    """Return how published speeds correct the times of a set-up."""
    layout = (setup.tp_degree, setup.expert_parallel, setup.model.scheme)
    return correction_for(published_query(setup), setup.accelerator.name, layout)


def first_token_known(setup: Setup) -> FirstToken | None:
    """Return the time that published servers add to the work of a first token; None without any."""
    return first_token_of(published_query(setup).group)


def once_s(setup: Setup) -> float:
    """Return what a first token takes beside its work: of its class, else of others."""
    known = first_token_known(setup)
    return known.once_s if known else usual_once_s(setup.accelerator.kind, kind_of(setup))


def published_query(setup: Setup) -> PublishedQuery:
    """Return what a correction of a set-up would be for."""
    return query_for(
        setup.engine,
        kind_of(setup),
        setup.accelerator.kind,
        form_of(setup),
        latent=setup.model.latent,
    )


def query_for(engine: str, kind: Kind, vendor: str, form: Form, *, latent: bool) -> PublishedQuery:
    """Return what a correction would be for; whether the model has curves says the speed table."""
    return PublishedQuery(
        engine=engine,
        kind=kind,
        vendor=vendor,
        form=form,
        latent=latent,
        has_curves=vendor == CURVES_OF and (engine, form) in speed_table().models,
    )


def reversed_orders(setup: Setup) -> tuple[ReversedOrder, ...]:
    """Return the devices with less of everything that the very model was measured faster on."""
    key = (setup.engine, form_of(setup), precision_of(setup), setup.accelerator.name)
    return speed_table().reversed_orders.get(key, ())


def slowed_coefficients(setup: Setup) -> Coefficients:
    """Return the coefficients of a set-up, longer where the very model was measured slower."""
    known = coefficients_of(setup)
    for one in reversed_orders(setup)[:1]:  # its rows have the same factors
        return Coefficients(
            tuple(one.step * each for each in known.step),
            tuple(one.prompt * each for each in known.prompt),
        )
    return known
