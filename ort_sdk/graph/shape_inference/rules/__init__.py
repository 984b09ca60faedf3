"""Shape rules of operators, by family."""
