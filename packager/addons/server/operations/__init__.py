"""Operations of the API: one module per family, each with a table."""
