"""The base's files, and where the image's own go among them."""

from __future__ import annotations

from packager.build.services import BuildServices
from packager.core.artifact import Artifacts
from packager.core.facts import Facts
from packager.core.plan import Plan
from packager.core.serving import COMPILED_DIR, DRAFT_DIR, MODEL_DIR, SERVING_DIR, ServingConfig
from packager.errors import PlanRejected
from packager.findings import errors_in
from packager.images.assemble import place_image
from packager.images.rootfs.placement import Placed, place_files
from packager.images.rootfs.reading import check_types
from packager.images.rootfs.tree import ImageFiles


class BaseFiles:
    """The files of one build's base, once they were looked at."""

    def __init__(self, services: BuildServices, *, with_layers: bool) -> None:
        self._services = services
        self._with_layers = with_layers
        self.files = ImageFiles()

    def read(self, facts: Facts, plan: Plan) -> None:
        """Look at the base; raise `PlanRejected` where no image could be put over its files.

        Where no layer is read, for a dry run or because the request says so, it counts as empty,
        and its configuration alone is checked.
        """
        base = facts.base
        if base is None or self._services.outputs == "trees":
            return
        check_types(base.layers)
        if self._with_layers:
            self._services.check_base(base)
            if base.layers and facts.request.base_files != "skip":
                self.files = self._services.read_base(base)
        own = _own(plan)
        files = [f"{directory}/" for directory in (*own, SERVING_DIR)]
        _accepted(self.files.ask(lambda tree: place_files(base, tree, files, own=own)))

    def place(
        self, facts: Facts, plan: Plan, artifacts: Artifacts, serving: ServingConfig
    ) -> Placed:
        """Return where the files of the image go; raise `PlanRejected` where one cannot."""
        base, order = facts.base, facts.request.layer_order or "base-first"
        assert base is not None
        return _accepted(
            self.files.ask(
                lambda tree: place_image(
                    base, tree, artifacts, serving, weights=plan.weights, order=order
                )
            )
        )


def _own(plan: Plan) -> list[str]:
    """Return the directories that will hold files of ours alone, as far as the plan tells."""
    is_baked = plan.weights == "baked"
    used = {
        MODEL_DIR: is_baked,
        DRAFT_DIR: is_baked and plan.draft is not None,
        COMPILED_DIR: bool(plan.compiler),
    }
    return [directory for directory, is_used in used.items() if is_used]


def _accepted(placed: Placed) -> Placed:
    if errors_in(placed.findings):
        raise PlanRejected(placed.findings)
    return placed
