"""BERT's tokenizer: words in lower case without accents, cut into the longest pieces the vocabulary has."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["WordPieces"]

LONGEST_WORD = 100


class WordPieces:
    """Turns sentences into the inputs of an encoder.

    Args:
        vocabulary: ``vocab.txt``, one piece a line.
        longest: tokens a sentence may have; more are cut off.
    """

    def __init__(self, vocabulary: Path, longest: int = 256) -> None:
        lines = vocabulary.read_text(encoding="utf-8").splitlines()
        self._numbers = {piece: number for number, piece in enumerate(lines)}
        self._longest = longest

    def encode(self, sentences: Sequence[str]) -> dict[str, np.ndarray[Any, Any]]:
        """``input_ids`` and ``attention_mask`` (int64 [batch, length]), padded to the longest sentence."""
        rows = [self._numbered(sentence) for sentence in sentences]
        length = max(map(len, rows))
        ids = np.full((len(rows), length), self._numbers["[PAD]"], np.int64)
        mask = np.zeros_like(ids)
        for row, numbers in enumerate(rows):
            ids[row, : len(numbers)] = numbers
            mask[row, : len(numbers)] = 1
        return {"input_ids": ids, "attention_mask": mask}

    def _numbered(self, sentence: str) -> list[int]:
        pieces = [piece for word in _words(sentence) for piece in self._pieces(word)]
        return [self._numbers[piece] for piece in ("[CLS]", *pieces[: self._longest - 2], "[SEP]")]

    def _pieces(self, word: str) -> list[str]:
        pieces: list[str] = []
        rest = word
        while rest:
            prefix = "##" if pieces else ""
            ends = (end for end in range(len(rest), 0, -1) if prefix + rest[:end] in self._numbers)
            end = next(ends, 0)
            if not end or len(word) > LONGEST_WORD:
                return ["[UNK]"]
            pieces.append(prefix + rest[:end])
            rest = rest[end:]
        return pieces


def _words(sentence: str) -> Iterator[str]:
    """Words; each sign of punctuation and each Chinese character is one of its own."""
    text = unicodedata.normalize("NFD", sentence.lower())
    spaced = "".join(f" {sign} " if _stands_alone(sign) else sign for sign in text if unicodedata.category(sign) != "Mn")
    yield from spaced.split()


def _stands_alone(sign: str) -> bool:
    is_ascii_sign = sign.isascii() and sign.isprintable() and not sign.isalnum() and not sign.isspace()
    return is_ascii_sign or unicodedata.category(sign).startswith("P") or "一" <= sign <= "鿿"
