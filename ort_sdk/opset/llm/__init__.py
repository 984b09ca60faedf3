"""Operators of the llm family."""
