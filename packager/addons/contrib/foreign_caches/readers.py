"""Readers of other tools' directories of compiled graphs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from packager.addons.contrib.foreign_caches.compiled import Compiled
from packager.addons.contrib.foreign_caches.documents import document_of
from packager.addons.contrib.foreign_caches.neo_import import models_of_neo
from packager.addons.contrib.foreign_caches.optimum_neuron_import import models_of_registry
from packager.core.trees import Stated, Tree, TreeArtifact

_GRAPHS = "neuronxcc-…/MODULE_… with model.neff and model.done"


class OptimumNeuronReader:
    """Reads optimum-neuron's cache, whose registry names the models."""

    name = "optimum-neuron"
    holds = _GRAPHS

    def read(self, root: Path, stated: Stated) -> Tree:
        """Find the graphs of each model that the registry names."""
        return _tree(*models_of_registry(root, stated), stated)


class NeoReader:
    """Reads what SageMaker Neo has compiled."""

    name = "neo"
    holds = _GRAPHS

    def read(self, root: Path, stated: Stated) -> Tree:
        """Find the graphs of each output of a compilation."""
        return _tree(*models_of_neo(root, stated), stated)


def _tree(found: Sequence[Compiled], left_out: Sequence[tuple[str, str]], stated: Stated) -> Tree:
    return Tree(
        artifacts=tuple(
            TreeArtifact(
                model=one.model,
                document=document_of(one, stated),
                files=tuple(file for module in one.modules for file in module.files),
                toolchain={"neuronx-cc": one.compiler},
            )
            for one in found
        ),
        left_out=tuple(left_out),
    )
