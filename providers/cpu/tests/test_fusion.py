"""Chains of element-wise operators as one kernel: beside float64, in any shape and layout, and nothing shared with users."""

import threading

import numpy as np
import onnxruntime
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from ort_sdk_cpu.fusion.elementwise.kernel import ChainKernel
from ort_sdk_cpu.platform import libraries

import ort_sdk as ort
from ort_sdk.run import types

node = helper.make_node
needs_compiler = pytest.mark.skipif(not libraries.compiled_kernels().is_usable, reason=libraries.compiled_kernels().reason)


@pytest.fixture(autouse=True)
def compile_at_once(monkeypatch):
    """Programs are fused when they are replayed for the first time."""
    monkeypatch.setattr(types, "SECONDS_BEFORE_COMPILING", -1.0)


def _model(nodes, inputs, outputs, constants=None, opset=20):
    infos = [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for name, a in inputs.items()]
    results = [helper.make_tensor_value_info(name, kind, None) for name, kind in outputs.items()]
    initializers = [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()]
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    graph = helper.make_graph(nodes, "graph", infos, results, initializers)
    return helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()


def _session(model, *, programs=True):
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.add_session_config_entry("session.disable_programs", "0" if programs else "1")
    return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def _fused(session, feeds):
    """Results of a replay by fused kernels."""
    for _ in range(3):
        session.run(None, feeds)
    return session.run(None, feeds)


def _groups(session):
    return [group for row in session.program_report() for group in row.fused]


def _random(*shape, seed=0):
    return np.random.default_rng((seed, *shape)).standard_normal(shape).astype(np.float32)


# -- any chain, beside float64

_erf = np.vectorize(__import__("math").erf, otypes=[np.float64])
_UNARY = {
    "Abs": np.abs,
    "Ceil": np.ceil,
    "Erf": _erf,
    "Exp": np.exp,
    "Floor": np.floor,
    "Gelu": lambda x: x * (1 + _erf(x / np.sqrt(2))) / 2,
    "HardSigmoid": lambda x: np.clip(0.2 * x + 0.5, 0, 1),
    "HardSwish": lambda x: x * np.clip(x / 6 + 0.5, 0, 1),
    "LeakyRelu": lambda x: np.where(x < 0, 0.01 * x, x),
    "Neg": np.negative,
    "Relu": lambda x: np.maximum(x, 0),
    "Round": np.rint,
    "Sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "Tanh": np.tanh,
}
_BINARY = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Max": np.maximum, "Min": np.minimum, "Sum": np.add}
_COMPARE = {
    "Less": np.less,
    "LessOrEqual": np.less_equal,
    "Greater": np.greater,
    "GreaterOrEqual": np.greater_equal,
    "Equal": np.equal,
}
_STEPPED = {"Ceil", "Floor", "Round"}
"""Not continuous: a chain goes on with something that is, but behind an input only."""


@st.composite
def _chains(draw):
    """(nodes, inputs, names of outputs, float64 results)."""
    shape = tuple(draw(st.lists(st.integers(1, 7), min_size=0, max_size=4)))
    if draw(st.booleans()):
        shape = (*shape, draw(st.sampled_from([15, 16, 17, 64, 100])))
    seed = draw(st.integers(0, 1000))
    inputs = {"x": _random(*shape, seed=seed)}
    values = {"x": inputs["x"].astype(np.float64)}
    nodes = []

    def operand():
        """An earlier value of the chain, or an input that broadcasts to it."""
        full = [name for name in values if values[name].shape == shape]
        if draw(st.booleans()):
            return draw(st.sampled_from(full))
        name = f"i{len(inputs)}"
        own = [size if draw(st.booleans()) else 1 for size in shape]
        inputs[name] = _random(*own[draw(st.integers(0, len(own))) :], seed=seed + len(inputs))
        values[name] = inputs[name].astype(np.float64)
        return name

    current = "x"
    for number in range(draw(st.integers(2, 12))):
        made = f"v{number}"
        kind = draw(st.sampled_from(["unary", "binary", "where", "clip", "divide"]))
        if kind == "unary":
            op_type = draw(st.sampled_from(sorted(_UNARY)))
            source = "x" if op_type in _STEPPED else current
            nodes.append(node(op_type, [source], [made]))
            values[made] = _UNARY[op_type](values[source])
        elif kind == "binary":
            op_type, other = draw(st.sampled_from(sorted(_BINARY))), operand()
            nodes.append(node(op_type, [current, other], [made]))
            values[made] = _BINARY[op_type](values[current], values[other])
        elif kind == "where":
            op_type, other = draw(st.sampled_from(sorted(_COMPARE))), operand()
            limit = draw(st.sampled_from(sorted(inputs)))
            nodes += [node(op_type, ["x", limit], [f"c{number}"]), node("Where", [f"c{number}", current, other], [made])]
            values[made] = np.where(_COMPARE[op_type](values["x"], values[limit]), values[current], values[other])
        elif kind == "clip":
            nodes.append(node("Clip", [current, "low", "high"], [made]))
            values[made] = np.clip(values[current], -1.5, 1.25)
        else:
            nodes += [node("Exp", ["x"], [f"e{number}"]), node("Div", [current, f"e{number}"], [made])]
            values[made] = values[current] / np.exp(values["x"])
        # Bounded, so that rounding does not grow from step to step.
        nodes.append(node("Tanh", [made], [f"t{number}"]))
        values[f"t{number}"] = np.tanh(values[made])
        current = f"t{number}"
    extra = draw(st.lists(st.sampled_from(sorted(name for name in values if name[0] == "t")), max_size=3, unique=True))
    outputs = list(dict.fromkeys([current, *extra]))
    return nodes, inputs, outputs, [values[name] for name in outputs]


@needs_compiler
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(_chains())
def test_chains_compute_what_float64_does(chain):
    nodes, inputs, outputs, expected = chain
    limits = {"low": np.float32(-1.5), "high": np.float32(1.25)}
    limits = {name: np.asarray(limit) for name, limit in limits.items()}
    session = _session(_model(nodes, inputs, dict.fromkeys(outputs, TensorProto.FLOAT), limits))
    results = _fused(session, inputs)
    assert _groups(session)
    for result, reference in zip(results, expected, strict=True):
        assert result.shape == reference.shape
        np.testing.assert_allclose(result, reference, rtol=2e-5, atol=2e-5)


@needs_compiler
@pytest.mark.parametrize("count", [1, 15, 16, 17, 4095, 4096, 4097, 100_003])
def test_every_size_of_the_last_vector(count):
    x = _random(count)
    session = _session(
        _model([node("Add", ["x", "x"], ["a"]), node("Sigmoid", ["a"], ["y"])], {"x": x}, {"y": TensorProto.FLOAT})
    )
    (result,) = _fused(session, {"x": x})
    np.testing.assert_allclose(result, 1 / (1 + np.exp(-2 * x.astype(np.float64))), rtol=1e-6)
    assert _groups(session) == [("Add", "Sigmoid")]


@needs_compiler
def test_special_values_are_those_of_the_single_operators():
    x = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-42, -1e-42, 1e38, -1e38, 1, -1, 88.8, -104], np.float32)
    nodes = []
    for op_type in sorted({*_UNARY, "Sqrt", "Reciprocal"}):
        nodes += [node(op_type, ["x"], [f"{op_type}0"]), node("Add", [f"{op_type}0", "one"], [f"{op_type}1"])]
    nodes += [
        node("Max", ["x", "one"], ["Max0"]),
        node("Min", ["Max0", "x"], ["Max1"]),
        node("Clip", ["x", "", "one"], ["Clip0"]),
    ]
    nodes += [node("Abs", ["Clip0"], ["Clip1"])]
    outputs = {made: TensorProto.FLOAT for each in nodes for made in each.output if made.endswith("1")}
    model = _model(nodes, {"x": x}, outputs, {"one": np.ones(1, np.float32)})
    session = _session(model)
    plain = _session(model, programs=False).run(None, {"x": x})
    for name, result, expected in zip(outputs, _fused(session, {"x": x}), plain, strict=True):
        np.testing.assert_allclose(result, expected, rtol=3e-6, atol=1e-37, err_msg=name)


@needs_compiler
def test_bounds_that_are_attributes():
    x = np.concatenate([_random(3, 33), np.array([[np.nan, np.inf, -np.inf] * 11], np.float32)])
    nodes = [
        node("Clip", ["x"], ["a"]),
        node("Clip", ["a"], ["b"], min=-0.5),
        node("Add", ["b", "b"], ["c"]),
        node("Clip", ["c"], ["y"], max=0.75),
    ]
    model = _model(nodes, {"x": x}, {"a": TensorProto.FLOAT, "y": TensorProto.FLOAT}, opset=10)
    session = _session(model)
    for result, expected in zip(_fused(session, {"x": x}), onnxruntime.InferenceSession(model).run(None, {"x": x}), strict=True):
        np.testing.assert_array_equal(result, expected)
    assert _groups(session) == [("Clip", "Clip", "Add", "Clip")]


@needs_compiler
def test_truth_values_inside_and_outside():
    x, y, mask = _random(5, 33), _random(33, seed=1), np.arange(165).reshape(5, 33) % 3 == 0
    nodes = [
        node("Less", ["x", "y"], ["less"]),
        node("Not", ["mask"], ["other"]),
        node("And", ["less", "other"], ["both"]),
        node("Or", ["both", "mask"], ["any"]),
        node("Xor", ["any", "less"], ["odd"]),
        node("Cast", ["odd"], ["number"], to=TensorProto.FLOAT),
        node("Where", ["both", "x", "number"], ["z"]),
    ]
    feeds = {"x": x, "y": y, "mask": mask}
    session = _session(_model(nodes, feeds, {"z": TensorProto.FLOAT, "any": TensorProto.BOOL}))
    z, any_ = _fused(session, feeds)
    both = (x < y) & ~mask
    np.testing.assert_array_equal(any_, both | mask)
    np.testing.assert_array_equal(z, np.where(both, x, ((both | mask) ^ (x < y)).astype(np.float32)))
    assert [len(group) for group in _groups(session)] == [7]


@needs_compiler
@pytest.mark.parametrize("slopes", [(1,), (5, 1), (6, 5, 48)])
@pytest.mark.parametrize("in_chain", [True, False])
def test_slopes_of_values_below_zero(slopes, in_chain):
    x, slope = _random(6, 5, 48), _random(*slopes, seed=3)
    x[0, 0, :3] = np.nan, -np.inf, -0.0
    nodes = [
        node("Sin", ["x"], ["d"]),
        node("PRelu", ["d", "s"], ["p"]),
        node("Neg" if in_chain else "Sin", ["p"], ["y"]),
    ]
    session = _session(_model(nodes, {"x": x}, {"y": TensorProto.FLOAT}, {"s": slope}))
    (result,) = _fused(session, {"x": x})
    with np.errstate(invalid="ignore"):
        signed = np.sin(x.astype(np.float64))
        expected = np.where(signed < 0, signed * slope, signed)
        expected = -expected if in_chain else np.sin(expected)
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)
    assert _groups(session) == ([("PRelu", "Neg")] if in_chain else [])


@needs_compiler
@pytest.mark.parametrize(
    ("op_type", "attributes", "expected"),
    [
        ("BiasGelu", {}, lambda x: x * (1 + _erf(x / np.sqrt(2))) / 2),
        ("FastGelu", {}, lambda x: x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))) / 2),
        ("QuickGelu", {"alpha": 1.5}, lambda x: x / (1 + np.exp(-1.5 * x))),
    ],
)
def test_contrib_activations(op_type, attributes, expected):
    x, bias = _random(7, 48), _random(48, seed=3)
    has_bias = op_type != "QuickGelu"
    names = ["d", "b"] if has_bias else ["d"]
    nodes = [
        node("Add", ["x", "x"], ["d"]),
        node(op_type, names, ["g"], domain="com.microsoft", **attributes),
        node("Neg", ["g"], ["y"]),
    ]
    session = _session(_model(nodes, {"x": x}, {"y": TensorProto.FLOAT}, {"b": bias}))
    (result,) = _fused(session, {"x": x})
    np.testing.assert_allclose(result, -expected(2 * x.astype(np.float64) + bias * has_bias), rtol=2e-5, atol=2e-6)
    assert _groups(session) == [("Add", op_type, "Neg")]


@needs_compiler
@pytest.mark.parametrize(("exponent", "is_fused"), [(2.0, True), (3.0, True), (0.5, False)])
def test_powers_by_small_whole_numbers(exponent, is_fused):
    x = np.abs(_random(40))
    nodes = [node("Add", ["x", "x"], ["a"]), node("Pow", ["a", "e"], ["p"]), node("Neg", ["p"], ["y"])]
    session = _session(_model(nodes, {"x": x}, {"y": TensorProto.FLOAT}, {"e": np.asarray(exponent, np.float32)}))
    (result,) = _fused(session, {"x": x})
    np.testing.assert_allclose(result, -((2 * x.astype(np.float64)) ** exponent), rtol=1e-6)
    assert any("Pow" in group for group in _groups(session)) == is_fused


# -- what is fused, and what is not


@needs_compiler
def test_a_reader_between_two_steps_keeps_them_apart():
    """The product reads the first sum and is read by the second: no kernel can do both sums at once."""
    x, w = _random(4, 4), _random(4, 4, seed=1)
    nodes = [
        node("Add", ["x", "x"], ["a"]),
        node("MatMul", ["a", "w"], ["m"]),
        node("Add", ["a", "m"], ["b"]),
        node("Relu", ["b"], ["y"]),
    ]
    session = _session(_model(nodes, {"x": x}, {"y": TensorProto.FLOAT}, {"w": w}))
    (result,) = _fused(session, {"x": x})
    np.testing.assert_allclose(result, np.maximum(2 * x + 2 * x @ w, 0), rtol=1e-5, atol=1e-5)
    assert _groups(session) == [("Add", "Relu")]


@needs_compiler
def test_steps_with_others_between_them_are_fused():
    x, w = _random(4, 4), _random(4, 4, seed=1)
    nodes = [
        node("Sigmoid", ["x"], ["s"]),
        node("MatMul", ["x", "w"], ["m"]),
        node("Mul", ["s", "m"], ["y"]),
    ]
    session = _session(_model(nodes, {"x": x}, {"y": TensorProto.FLOAT}, {"w": w}))
    (result,) = _fused(session, {"x": x})
    np.testing.assert_allclose(result, (x @ w) / (1 + np.exp(-x)), rtol=1e-5, atol=1e-6)
    assert _groups(session) == [("Sigmoid", "Mul")]


@needs_compiler
def test_other_types_are_left_alone():
    x = np.arange(9).astype(np.uint16)
    nodes = [node("BitwiseAnd", ["x", "x"], ["a"]), node("BitwiseNot", ["a"], ["y"])]
    session = _session(_model(nodes, {"x": x}, {"y": TensorProto.UINT16}))
    np.testing.assert_array_equal(_fused(session, {"x": x})[0], ~x)
    assert not _groups(session)


@needs_compiler
def test_fused_operators_still_count_as_operators():
    x = _random(9)
    session = _session(_model([node("Add", ["x", "x"], ["a"]), node("Neg", ["a"], ["y"])], {"x": x}, {"y": TensorProto.FLOAT}))
    _fused(session, {"x": x})
    (row,) = session.program_report()
    assert (row.operators, row.bound_count, row.fused) == (("Add", "Neg"), 2, (("Add", "Neg"),))


def test_without_programs_or_compiler_results_are_the_same(monkeypatch):
    x = _random(6, 50)
    model = _model([node("Add", ["x", "x"], ["a"]), node("Tanh", ["a"], ["y"])], {"x": x}, {"y": TensorProto.FLOAT})
    plain = _session(model, programs=False)
    without = _session(model)
    absent = libraries.Library("compiled kernels", reason="not installed")
    for name in ("compiled_kernels", "numba"):
        monkeypatch.setattr(libraries, name, lambda: absent)
    for session in (plain, without):
        np.testing.assert_allclose(_fused(session, {"x": x})[0], np.tanh(2 * x), rtol=1e-6)
        assert not _groups(session)


# -- layouts, users' arrays, several runs at once


@needs_compiler
@pytest.mark.parametrize("layout", ["transposed", "sliced", "fortran", "unaligned", "reversed"])
def test_inputs_lie_in_memory_in_any_way(layout):
    like = _random(6, 40)
    x = {
        "transposed": lambda: np.ascontiguousarray(like.T).T,
        "sliced": lambda: np.repeat(like, 2, axis=1)[:, ::2],
        "fortran": lambda: np.asfortranarray(like),
        "unaligned": lambda: np.frombuffer(b"\0" + like.tobytes(), np.uint8)[1:].view(np.float32).reshape(6, 40),
        "reversed": lambda: like[::-1],
    }[layout]()
    nodes = [node("Add", ["x", "x"], ["a"]), node("Relu", ["a"], ["y"])]
    session = _session(_model(nodes, {"x": like}, {"y": TensorProto.FLOAT}))
    _fused(session, {"x": like})
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], np.maximum(2 * x, 0))
    assert len(session.program_report()) == 1


@needs_compiler
@pytest.mark.parametrize("broadcast", [(1, 8, 1, 1), (1, 1, 5, 7), (8, 5, 7), (2, 1, 1, 7), (1,), (2, 8, 5, 7)])
def test_steps_between_convolutions_keep_their_layout(broadcast):
    x, weight, other = _random(2, 8, 5, 7), _random(8, 8, 3, 3, seed=2), _random(*broadcast, seed=4)
    nodes = [
        node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
        node("Mul", ["c", "o"], ["m"]),
        node("Sigmoid", ["m"], ["s"]),
        node("Mul", ["m", "s"], ["z"]),
        node("Conv", ["z", "w"], ["y"], pads=[1, 1, 1, 1]),
    ]
    model = _model(nodes, {"x": x}, {"y": TensorProto.FLOAT, "s": TensorProto.FLOAT}, {"w": weight, "o": other})
    session = _session(model)
    for result, expected in zip(_fused(session, {"x": x}), _session(model, programs=False).run(None, {"x": x}), strict=True):
        np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-4)
    is_scalar = broadcast == (1,)
    # A convolution scales by one number itself.
    assert _groups(session) == ([("Conv", "Mul"), ("Sigmoid", "Mul")] if is_scalar else [("Mul", "Sigmoid", "Mul")])


@needs_compiler
@pytest.mark.parametrize("shape", [(1, 8, 3, 4), (2, 24, 40, 48)], ids=["small", "large"])
def test_steps_read_and_write_values_that_lie_otherwise(shape):
    x, weight, matrix = _random(*shape), _random(shape[1], shape[1], 3, 3, seed=2), _random(shape[3], shape[3], seed=3)
    nodes = [
        node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
        node("MatMul", ["c", "m"], ["p"]),
        node("Relu", ["p"], ["r"]),
        node("Add", ["c", "r"], ["y"]),
        node("Tanh", ["y"], ["t"]),
        node("Conv", ["t", "w"], ["z"], pads=[1, 1, 1, 1]),
    ]
    model = _model(nodes, {"x": x}, {"y": TensorProto.FLOAT, "z": TensorProto.FLOAT}, {"w": weight, "m": matrix})
    session = _session(model)
    for result, expected in zip(_fused(session, {"x": x}), _session(model, programs=False).run(None, {"x": x}), strict=True):
        np.testing.assert_allclose(result, expected, rtol=1e-3, atol=1e-3)


@needs_compiler
def test_results_belong_to_the_user():
    x = _random(3, 50)
    nodes = [node("Add", ["x", "x"], ["a"]), node("Tanh", ["a"], ["t"]), node("Mul", ["t", "a"], ["y"])]
    session = _session(_model(nodes, {"x": x}, {"y": TensorProto.FLOAT, "a": TensorProto.FLOAT}))
    _fused(session, {"x": x})
    first = session.run(None, {"x": x})
    kept = [result.copy() for result in first]
    session.run(None, {"x": x + 1})
    for result, copy in zip(first, kept, strict=True):
        np.testing.assert_array_equal(result, copy)
        result[...] = 7
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], kept[0])


@needs_compiler
def test_runs_at_the_same_time_do_not_mix():
    x = _random(64, 500)
    nodes = [node("Add", ["x", "x"], ["a"]), node("Tanh", ["a"], ["t"]), node("Sub", ["t", "a"], ["y"])]
    session = _session(_model(nodes, {"x": x}, {"y": TensorProto.FLOAT}))
    wrong = []

    def work(number):
        own = x + np.float32(number)
        expected = np.tanh(2 * own) - 2 * own
        results = [session.run(None, {"x": own})[0] for _ in range(30)]
        wrong.extend(number for result in results if not np.allclose(result, expected, rtol=1e-5, atol=1e-5))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@needs_compiler
def test_a_damaged_file_of_code_is_replaced(monkeypatch, tmp_path):
    from ort_sdk_cpu.fusion.elementwise import compile
    from ort_sdk_cpu.fusion.elementwise.ir import Chain, ChainStep
    from ort_sdk_cpu.jit import cache_folder, code_store
    from ort_sdk_cpu.jit.compiler import process
    from ort_sdk_cpu.kernel.element_operation import ElementOperation

    chain = Chain("ff", (ChainStep(ElementOperation("Add"), (0, 1)), ChainStep(ElementOperation("Neg"), (2,))), (3,))
    monkeypatch.setattr(cache_folder, "kernel_folders", lambda: cache_folder.KernelFolders((tmp_path,), tmp_path))
    monkeypatch.setattr(process, "can_compile_elsewhere", lambda _: False)  # another process has its own folders
    contents = []
    for _ in range(2):
        fresh = code_store._Store()
        monkeypatch.setattr(code_store, "_store", lambda fresh=fresh: fresh)
        assert compile.address_of(chain)
        assert compile.is_compiled(chain)
        (file,) = (path for path in tmp_path.iterdir() if path.name.startswith("chain"))
        contents.append(file.read_bytes())
        file.write_bytes(b"damaged")
    assert contents[0] == contents[1]


@needs_compiler
@pytest.mark.parametrize(
    ("shape", "other", "is_joinable"), [((6, 40), (6, 40), True), ((6, 40), (40,), True), ((40, 3), (3,), False)]
)
def test_a_single_small_step_is_compiled_where_it_can_be_joined(monkeypatch, shape, other, is_joinable):
    made = []
    bind = ChainKernel.bind_joinable

    def noted(self, inputs, outputs):
        made.append(bind(self, inputs, outputs))
        return made[-1]

    monkeypatch.setattr(ChainKernel, "bind_joinable", noted)
    x, added = _random(*shape), _random(*other, seed=1)
    nodes = [node("Softmax", ["x"], ["s"]), node("Add", ["s", "added"], ["a"]), node("Softmax", ["a"], ["y"])]
    session = _session(_model(nodes, {"x": x}, {"y": TensorProto.FLOAT}, {"added": added}))
    (result,) = _fused(session, {"x": x})

    def softmax(values):
        powers = np.exp(values - values.max(-1, keepdims=True))
        return powers / powers.sum(-1, keepdims=True)

    np.testing.assert_allclose(result, softmax(softmax(x.astype(np.float64)) + added), rtol=1e-5, atol=1e-6)
    assert [call is not None for call in made] == [is_joinable] * len(made)
    assert made
    assert not _groups(session)
