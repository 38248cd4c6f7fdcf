"""Pure decisions: facts in, plan and recipe out."""
