"""Tests of measuring drafts."""
