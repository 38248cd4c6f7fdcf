"""Operations of the API: one module a family of operations, each with a table of its own."""
