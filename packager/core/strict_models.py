"""Bases of documents: frozen pydantic models that refuse fields they do not know."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class StrictDocument(BaseModel):
    """A document that is kept or sent."""

    model_config = ConfigDict(defer_build=True, frozen=True, extra="forbid")


class FigureDocument(StrictDocument):
    """A document with figures, all of them finite."""

    model_config = ConfigDict(allow_inf_nan=False)
