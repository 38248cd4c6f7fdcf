"""SpecForge's own command, which also trains where there is no GPU.

Its loss is a Triton kernel.  Beside it stands, as its reference, the same loss in torch, which
runs anywhere; nothing else of the library needs a GPU.
"""

from __future__ import annotations

import sys


class ReferenceLoss:
    """The kernel's place: called as it is."""

    @staticmethod
    def apply(*arguments: object) -> object:
        from specforge.core.loss import _compute_loss

        return _compute_loss(*arguments)


def take_reference_loss() -> None:
    """Compute the loss without the kernel where there is no GPU to run it."""
    import specforge.algorithms.eagle3.model as eagle3
    from specforge.utils import get_device_type

    if get_device_type() == "cpu":
        eagle3.LogSoftmaxLoss = ReferenceLoss


if __name__ == "__main__":
    from specforge.cli import main

    take_reference_loss()
    sys.exit(main())
