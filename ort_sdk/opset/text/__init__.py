"""Operators of the text family: strings are NumPy object arrays of str."""

from . import regex_full_match, string_concat, string_normalizer, string_split, tf_idf_vectorizer

__all__ = ["regex_full_match", "string_concat", "string_normalizer", "string_split", "tf_idf_vectorizer"]
