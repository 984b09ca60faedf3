"""How alike sentences are: a MiniLM encoder whose weights are read from Hugging Face's own file.

Usage: python similar_sentences.py MODEL_FOLDER SENTENCE SENTENCE...
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from bert_graph import sentence_encoder
from safetensors_loader import SafetensorsPlugin
from word_pieces import WordPieces

import ort_sdk as ort
from ort_sdk.plugins import plugin_manager

__all__ = ["make_session", "similarities"]

WEIGHTS = "model.safetensors"


def make_session(folder: Path) -> ort.InferenceSession:
    """Encoder of a model folder with ``config.json`` and ``model.safetensors``; the loader must be registered."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    options = ort.SessionOptions()
    options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(folder))
    return ort.InferenceSession(sentence_encoder(config, WEIGHTS).SerializeToString(), options)


def similarities(folder: Path, sentences: Sequence[str]) -> np.ndarray[Any, Any]:
    """Cosines between all pairs of sentences."""
    (vectors,) = make_session(folder).run(None, WordPieces(folder / "vocab.txt").encode(sentences))
    return np.asarray(vectors @ vectors.T)


def main() -> None:
    """Print how alike each sentence is to the first one."""
    folder, *sentences = sys.argv[1:]
    plugin_manager().register_plugin(SafetensorsPlugin())
    for sentence, cosine in zip(sentences, similarities(Path(folder), sentences)[0], strict=True):
        sys.stdout.write(f"{cosine:6.3f}  {sentence}\n")


if __name__ == "__main__":
    main()
