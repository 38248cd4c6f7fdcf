"""The base's files, and where the image's own go among them."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from packager.core.artifact import Artifacts
from packager.core.errors import PlanRejected
from packager.core.facts import Facts
from packager.core.findings import errors_in
from packager.core.plan import Plan
from packager.core.serving import (
    ADAPTERS_DIR,
    COMPILED_DIR,
    DRAFT_DIR,
    MODEL_DIR,
    SERVING_DIR,
    ServingConfig,
)
from packager.images.assemble import place_image
from packager.images.rootfs.placement import PlacedFiles, place_files
from packager.images.rootfs.tree import FileTree, ImageFiles, PathBlocked, parts_of
from packager.images.rootfs.unpacking import check_types
from packager.pipeline.planning.option_paths import FILE_NOT_PACKAGED, PATH
from packager.pipeline.services import BuildServices


class BaseFiles:
    """The files of one build's base, read at most once."""

    def __init__(self, services: BuildServices, *, with_layers: bool) -> None:
        self._services = services
        self._with_layers = with_layers
        self.files = ImageFiles()
        self._is_read = False

    def read(self, facts: Facts, plan: Plan) -> None:
        """Read the base; raise `PlanRejected` where no image could be put over its files.

        Where no layer is read, for a dry run or because the request says so, it counts as empty,
        and its configuration alone is checked.
        """
        base = facts.base
        if base is None or self._services.outputs == "trees":
            return
        check_types(base.layers)
        if self._with_layers:
            self._services.check_base(base)
            if base.layers and plan.layers.reads_base:
                self.files, self._is_read = self._services.read_base(base), True
        files = [f"{directory}/" for directory in _directories(plan)]
        _accepted(self.files.ask(lambda tree: place_files(base, tree, files)))

    def compare_options(self, plan: Plan) -> Plan:
        """Return the plan without warnings of paths in engine options that the base has."""
        if not self._is_read:
            return plan
        found = (one for one in plan.findings if one.code == FILE_NOT_PACKAGED)
        paths = {one: str(one.data[PATH]) for one in found if PATH in one.data}
        there = {one for one, path in paths.items() if self.files.ask(partial(_has, path))}
        lacks = "the base image lacks it: mount it into the container"
        findings = (
            replace(one, hint=lacks) if one in paths else one
            for one in plan.findings
            if one not in there
        )
        return replace(plan, findings=tuple(findings))

    def place(
        self, facts: Facts, plan: Plan, artifacts: Artifacts, serving: ServingConfig
    ) -> PlacedFiles:
        """Return where the files of the image go; raise `PlanRejected` where one cannot."""
        base, order = facts.base, plan.layers.order
        assert base is not None
        return _accepted(
            self.files.ask(
                lambda tree: place_image(
                    base, tree, artifacts, serving, weights=plan.weights, order=order
                )
            )
        )


def _directories(plan: Plan) -> list[str]:
    """Return the directories that the plan will fill with our files."""
    is_baked = plan.weights == "baked"
    used = {
        MODEL_DIR: is_baked,
        DRAFT_DIR: is_baked and plan.draft is not None,
        COMPILED_DIR: bool(plan.compiler),
        ADAPTERS_DIR: plan.adapters is not None and bool(plan.adapters.adapters),
        SERVING_DIR: True,
    }
    return [directory for directory, is_used in used.items() if is_used]


def _has(path: str, tree: FileTree) -> bool:
    try:
        return tree.locate(parts_of(path)).found is not None
    except PathBlocked:
        return False


def _accepted(placed: PlacedFiles) -> PlacedFiles:
    if errors_in(placed.findings):
        raise PlanRejected(placed.findings)
    return placed
