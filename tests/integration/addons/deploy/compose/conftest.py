"""Tests of the front are coroutines."""

from tests.support.coroutines import pytest_pyfunc_call, runner

__all__ = ["pytest_pyfunc_call", "runner"]
