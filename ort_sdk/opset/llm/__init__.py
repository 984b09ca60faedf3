"""Operators of large language models: attention, rotary embeddings and recurrent alternatives."""
