"""Processes forked from one that has imported everything, so that each starts in milliseconds."""

from __future__ import annotations

import multiprocessing

FORKED = multiprocessing.get_context("forkserver")
FORKED.set_forkserver_preload(["pytest", "tests.faults.killing", "tests.faults.cache.warm"])
