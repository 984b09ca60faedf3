"""Keys behind the text, which a mask hides: attention leaves them out where that changes nothing."""

import numpy as np
import pytest
from ort_sdk_cpu.attention.arguments.flash import MODULE, FlashAttention, thread_workspace_bytes
from ort_sdk_cpu.attention.arguments.operands import strided_heads
from ort_sdk_cpu.attention.flash import AttentionShape, AttentionTask
from ort_sdk_cpu.jit.task import TaskCall
from ort_sdk_cpu.platform import libraries

pytestmark = pytest.mark.skipif(not libraries.compiled_kernels().is_usable, reason=str(libraries.compiled_kernels()))
LOWEST = float(np.finfo(np.float32).min)


def random(*shape, seed=0, scale=1.0):
    return np.random.default_rng((seed, *shape)).standard_normal(shape).astype(np.float32) * np.float32(scale)


def attended(query, key, value, mask, heads):
    (batch, length, width), keys = query.shape, key.shape[1]
    shape = AttentionShape(batch, heads, length, keys, width // heads, value.shape[2] // heads, 0.25)
    task, out = AttentionTask(shape), np.empty((batch, length, value.shape[2]), np.float32)
    assert task.prepare((query, key, value), None, mask, out)
    task.call.run()
    return out


def expected(query, key, value, mask, heads):
    def split(array):
        return array.astype(np.float64).reshape(*array.shape[:2], heads, -1).transpose(0, 2, 1, 3)

    scores = split(query) @ split(key).swapaxes(2, 3) * 0.25 + mask
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    result = weights / weights.sum(-1, keepdims=True) @ split(value)
    return result.transpose(0, 2, 1, 3).reshape(*query.shape[:2], -1)


def arrays(batch, length, keys, width, value_width):
    shapes = ((batch, length, width), (batch, keys, width), (batch, keys, value_width))
    return [random(*shape, seed=seed) for seed, shape in enumerate(shapes)]


def behind(keys, *seen, number=-1e4):
    """A mask for each sample that hides keys behind the first of them."""
    return np.stack([np.where(np.arange(keys) < count, 0, number) for count in seen]).astype(np.float32)[:, None, None]


@pytest.mark.parametrize("number", [-1e4, -1e9, LOWEST, -np.inf])
@pytest.mark.parametrize(("heads", "width", "value_width"), [(4, 128, 128), (3, 60, 27), (1, 8, 80)])
def test_keys_behind_a_text(number, heads, width, value_width):
    given = arrays(3, 70, 200, width, value_width)
    mask = behind(200, 130, 200, 9, number=number)
    found = attended(*given, mask, heads)
    np.testing.assert_allclose(found, expected(*given, mask, heads), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("hidden", [1, 7, 8, 9, 40])
def test_a_mask_with_other_numbers(hidden):
    given = arrays(1, 33, 50, 64, 64)
    mask = random(1, 1, 1, 50)
    mask[..., 50 - hidden :] -= 2000
    np.testing.assert_allclose(attended(*given, mask, 2), expected(*given, mask, 2), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("scale", [1e2, 1e3, 1e5])
def test_scores_that_reach_hidden_keys(scale):
    query, key, value = arrays(1, 40, 60, 64, 64)
    given, mask = (query, key * np.float32(scale), value), behind(60, 20)
    np.testing.assert_allclose(attended(*given, mask, 2), expected(*given, mask, 2), rtol=1e-3, atol=1e-2)


def test_a_mask_that_hides_all_keys():
    given, mask = arrays(1, 16, 64, 32, 32), np.full((1, 1, 1, 64), LOWEST, np.float32)
    found = attended(*given, mask, 1)
    np.testing.assert_allclose(found, np.broadcast_to(given[2].mean(1, keepdims=True), found.shape), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("position", [1, 2])
def test_hidden_numbers_that_are_none(position):
    given = arrays(1, 16, 64, 32, 32)
    given[position][0, 60, 3] = np.nan
    assert np.isnan(attended(*given, behind(64, 40), 1)).any()


def test_no_more_keys_are_read_than_there_are():
    heads, length, keys, size = 2, 3, 5, 16
    q, k, v = (random(1, rows, heads * size, seed=seed) for seed, rows in enumerate((length, keys, keys)))
    workspace, results = np.empty(thread_workspace_bytes(size, size), np.uint8), []
    for count in (keys, 1 << 40):
        out, positions = np.empty_like(q), np.array([(0, 0, count)], np.int64)
        operands = [strided_heads(array, heads) for array in (q, k, v, out)]
        sizes = (1, heads, length, keys, size, size, 0.25)
        visible = (1, positions, -1, -1, None, 0.0)
        arguments = FlashAttention.of(operands, sizes, (workspace, workspace.nbytes), visible=visible)
        TaskCall(MODULE, "flash_attention", arguments).run()
        results.append(out)
    np.testing.assert_array_equal(*results)
