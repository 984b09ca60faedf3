"""Row-major results of channels-last arrays: by the tasks for arrays of one layout, and a copy."""

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper
from ort_sdk_cpu.kernel.layouts import contiguous

RNG = np.random.default_rng(0)
HALF, TWICE = np.float32([1, 1, 0.5, 0.5]), np.float32([1, 1, 2, 2])
FACTORS = np.float32(RNG.uniform(0.5, 1.5, (2, 24)))
OPSETS = {"GroupNormalization": 21, "ReduceLogSumExp": 18}


def by_onnxruntime(op_type, inputs, attributes, outputs):
    names = ["" if value is None else f"x{index}" for index, value in enumerate(inputs)]
    given = {name: value for name, value in zip(names, inputs, strict=True) if name}
    node = helper.make_node(op_type, names, [f"y{index}" for index in range(outputs)], **attributes)
    arguments = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
        for name, value in given.items()
    ]
    types = [TensorProto.FLOAT, TensorProto.INT64][:outputs]
    results = [helper.make_tensor_value_info(f"y{index}", kind, None) for index, kind in enumerate(types)]
    graph = helper.make_graph([node], "one node", arguments, results)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSETS.get(op_type, 17))], ir_version=10)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, given)


@pytest.mark.parametrize(("op_type", "others", "attributes", "outputs"), [
    ("Resize", (None, TWICE), {"mode": "linear"}, 1),
    ("Resize", (None, HALF), {"mode": "linear"}, 1),
    ("Resize", (None, TWICE), {"mode": "nearest"}, 1),
    ("Resize", (None, HALF), {"mode": "nearest"}, 1),
    ("MaxPool", (), {"kernel_shape": [3, 2], "strides": [2, 2], "pads": [1, 0, 1, 0]}, 2),
    ("InstanceNormalization", tuple(FACTORS), {}, 1),
    ("CumSum", (np.asarray(2),), {}, 1),
    ("CumSum", (np.asarray(3),), {"reverse": 1}, 1),
    ("Softmax", (), {"axis": 3}, 1),
    ("LogSoftmax", (), {"axis": -1}, 1),
    ("LpNormalization", (), {"axis": 3}, 1),
    ("ReduceLogSumExp", (np.int64([2, 3]),), {}, 1),
    ("GroupNormalization", tuple(FACTORS), {"num_groups": 4}, 1),
])  # fmt: skip
def test_row_major_results(run_both, monkeypatch, op_type, others, attributes, outputs):
    copy, copied = contiguous.copy_elements, []

    def record(target, source):
        copied.append(target.shape)
        copy(target, source)

    monkeypatch.setattr(contiguous, "copy_elements", record)
    x = np.moveaxis(RNG.standard_normal((2, 18, 16, 24), dtype=np.float32), -1, 1)
    constants = tuple(index for index, value in enumerate((x, *others)) if index and value is not None)
    _, bound = run_both(op_type, x, *others, constants=constants, wanted=tuple(range(outputs)), **attributes)
    assert copied
    wanted = by_onnxruntime(op_type, [np.ascontiguousarray(x), *others], attributes, outputs)
    for result, expected in zip(bound, wanted, strict=True):
        np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)
