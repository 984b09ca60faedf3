"""A decoder of 4 bits whose caches stay on the device: growing ones, and one buffer for past and present, against onnxruntime."""

import numpy as np
import onnxruntime
import pytest

import ort_sdk as ort

from . import networks
from .counts import counted

pytestmark = pytest.mark.opencl

LAYERS, KEY_HEADS, SIZE, WORDS = 2, 2, 16, 61
CACHES = [f"{layer}.{kind}" for layer in range(LAYERS) for kind in ("key", "value")]
ROOM = 48
"""Tokens of a buffer for past and present."""
PROMPT, TOKENS = 9, 24
TOLERANCE = 2e-4
"""Of logits, over their largest element."""


class Chat:
    """A sequence that gets longer, in one session."""

    def __init__(self, library, session, device, *, is_shared, rotates_apart):
        self._library, self._session, self._device = library, session, device
        self._is_shared, self._rotates_apart, self._past = is_shared, rotates_apart, 0
        shape = (1, KEY_HEADS, ROOM if is_shared else 0, SIZE)
        self.state = [library.OrtValue.ortvalue_from_numpy(np.zeros(shape, np.float32), *device) for _ in CACHES]

    def take(self, ids):
        """Logits of some further tokens."""
        binding, length = self._session.io_binding(), ids.shape[1]
        total = self._past + length
        binding.bind_cpu_input("input_ids", ids)
        binding.bind_cpu_input("attention_mask", np.ones((1, total), np.int64))
        if self._rotates_apart:
            binding.bind_cpu_input("position_ids", np.arange(self._past, total)[None])
        binding.bind_output("logits")
        for name, value in zip(CACHES, self.state, strict=True):
            binding.bind_ortvalue_input(f"past.{name}", value)
            if self._is_shared:
                binding.bind_ortvalue_output(f"present.{name}", value)
            else:
                binding.bind_output(f"present.{name}", *self._device)
        self._session.run_with_iobinding(binding)
        logits, *made = binding.get_outputs()
        self.state = self.state if self._is_shared else made
        self._past = total
        return logits.numpy()


@pytest.mark.parametrize("is_shared", [False, True])
@pytest.mark.parametrize("rotates_apart", [False, True])
def test_a_prompt_and_its_tokens(is_shared, rotates_apart, providers, index, context, monkeypatch):
    model = networks.decoder(layers=LAYERS, key_heads=KEY_HEADS, size=SIZE, words=WORDS, rotates_apart=rotates_apart)
    session = ort.InferenceSession(model, providers=providers)
    assert {row.op_type for row in session.placements() if row.provider != "OpenCLExecutionProvider"} <= {
        "Shape",
        "Gather",
        "Cast",
    }
    oracle = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    settings = {"is_shared": is_shared, "rotates_apart": rotates_apart}
    own, other = Chat(ort, session, ("opencl", index), **settings), Chat(onnxruntime, oracle, ("cpu", 0), **settings)
    counts, programs, known = counted(monkeypatch), context.launcher.programs, []
    for length, ids in zip(
        (PROMPT, *[1] * TOKENS), np.random.default_rng(0).integers(0, WORDS, (TOKENS + 1, PROMPT)), strict=True
    ):
        counts.reset()
        wanted = other.take(ids[None, :length])
        np.testing.assert_allclose(own.take(ids[None, :length]), wanted, rtol=0, atol=TOLERANCE * np.abs(wanted).max())
        known.append(programs.built + programs.loaded)
    assert known[-10:] == [known[-1]] * 10
    # the mask's sum; where caches grow, attention and a cache's kernel for each layer, too
    assert counts.launches <= (1 if is_shared else 1 + 2 * LAYERS)
    # the logits, which the test reads
    assert counts.downloads == 1
    for value, expected in zip(own.state, other.state, strict=True):
        np.testing.assert_allclose(value.numpy(), expected.numpy(), rtol=0, atol=1e-4)
