"""Small models with one fusion each that onnxruntime records in files in ORT format."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper, numpy_helper

RNG = np.random.default_rng(3)
UINT8, INT8, FLOAT = TensorProto.UINT8, TensorProto.INT8, TensorProto.FLOAT
IMAGE = ("x", UINT8, (1, 3, 6, 6))
OTHER = ("z", UINT8, (1, 3, 6, 6))
FLOAT_IMAGE = ("x", FLOAT, (1, 3, 6, 6))


class ModelBuilder:
    """Adds nodes one behind the other, their constants with them."""

    def __init__(self, opset=19):
        self.nodes = []
        self.constants = []
        self.opset = opset

    def constant(self, value):
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def add(self, op_type, inputs, output="", **attributes):
        name = output or f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op_type, inputs, [name], f"n{len(self.nodes)}", **attributes))
        return name

    def split(self, value, parts, **attributes):
        names = [f"part{index}" for index in range(parts)]
        self.nodes.append(helper.make_node("Split", [value], names, "split", **attributes))
        return names

    def dequantize(self, value, scale=0.02, zero_point=128, kind=np.uint8, **attributes):
        scale, zero_point = np.asarray(scale, np.float32), np.asarray(zero_point, kind)
        return self.add("DequantizeLinear", [value, self.constant(scale), self.constant(zero_point)], **attributes)

    def quantize(self, value, output="y", scale=0.02, zero_point=128):
        parameters = [self.constant(np.float32(scale)), self.constant(np.uint8(zero_point))]
        return self.add("QuantizeLinear", [value, *parameters], output)

    def weight(self, *shape, scale=0.01):
        return self.dequantize(self.constant(RNG.integers(-100, 100, shape).astype(np.int8)), scale, 0, np.int8)

    def columns(self, shape, axis):
        """A matrix with a scale for each column."""
        numbers = self.constant(RNG.integers(-100, 100, shape).astype(np.int8))
        size = shape[axis]
        return self.dequantize(numbers, RNG.random(size) * 0.01 + 0.005, np.zeros(size), np.int8, axis=axis)

    def bias(self, size):
        return self.dequantize(self.constant(RNG.integers(-900, 900, size).astype(np.int32)), 0.02 * 0.01, 0, np.int32)

    def model(self, inputs, outputs):
        values = [helper.make_tensor_value_info(name, kind, shape) for name, kind, shape in inputs]
        results = [helper.make_tensor_value_info(name, kind, None) for name, kind in outputs]
        graph = helper.make_graph(self.nodes, "recordable", values, results, self.constants)
        imports = [helper.make_opsetid("", self.opset)]
        return helper.make_model(graph, opset_imports=imports, ir_version=10).SerializeToString()


def _conv(*, with_bias):
    builder = ModelBuilder()
    inputs = [builder.dequantize("x"), builder.weight(4, 3, 3, 3), *([builder.bias(4)] if with_bias else [])]
    builder.quantize(builder.add("Conv", inputs, pads=[1, 1, 1, 1]), scale=0.05, zero_point=120)
    return builder.model([IMAGE], [("y", UINT8)])


def _unary(op_type, *extra, **attributes):
    builder = ModelBuilder()
    inputs = [builder.dequantize("x"), *(builder.constant(value) if value is not None else "" for value in extra)]
    builder.quantize(builder.add(op_type, inputs, **attributes))
    return builder.model([IMAGE], [("y", UINT8)])


def _binary(op_type):
    builder = ModelBuilder()
    inputs = [builder.dequantize("x"), builder.dequantize("z", 0.03, 100)]
    builder.quantize(builder.add(op_type, inputs), scale=0.05, zero_point=120)
    return builder.model([IMAGE, OTHER], [("y", UINT8)])


def _where():
    builder = ModelBuilder()
    chosen = builder.add("Where", ["c", builder.dequantize("x"), builder.dequantize("z", 0.03, 100)])
    builder.quantize(chosen, scale=0.05, zero_point=120)
    return builder.model([("c", TensorProto.BOOL, IMAGE[2]), IMAGE, OTHER], [("y", UINT8)])


def _concat():
    builder = ModelBuilder()
    parts = [builder.dequantize("x"), builder.dequantize("z", 0.03, 100), builder.dequantize("x")]
    builder.quantize(builder.add("Concat", parts, axis=1), scale=0.05, zero_point=120)
    return builder.model([IMAGE, OTHER], [("y", UINT8)])


def _split():
    builder = ModelBuilder()
    for index, part in enumerate(builder.split(builder.dequantize("x"), 3, axis=1, num_outputs=3)):
        builder.quantize(part, f"y{index}")
    return builder.model([IMAGE], [(f"y{index}", UINT8) for index in range(3)])


def _argmax():
    builder = ModelBuilder()
    builder.add("Identity", [builder.add("ArgMax", [builder.dequantize("x")], axis=1)], "y")
    return builder.model([IMAGE], [("y", TensorProto.INT64)])


def _product(op_type, *, is_quantized, with_bias=False, by_column=False, **attributes):
    builder = ModelBuilder()
    shape, columns = ((5, 6), 0) if attributes.get("transB") else ((6, 5), 1)
    weight = builder.columns(shape, columns) if by_column else builder.weight(*shape)
    inputs = [builder.dequantize("x"), weight, *([builder.bias(5)] if with_bias else [])]
    output = builder.add(op_type, inputs, "" if is_quantized else "y", **attributes)
    if is_quantized:
        builder.quantize(output, scale=0.05, zero_point=120)
    return builder.model([("x", UINT8, (4, 6))], [("y", UINT8 if is_quantized else FLOAT)])


def _blockwise(op_type, *, with_bias=False):
    builder = ModelBuilder(opset=21)
    numbers = builder.constant(RNG.integers(0, 255, (32, 8)).astype(np.uint8))
    scales = RNG.random((2, 8)) * 0.01
    weight = builder.dequantize(numbers, scales, np.full((2, 8), 120), axis=0, block_size=16)
    bias = [builder.constant(RNG.random(8).astype(np.float32))] if with_bias else []
    builder.add(op_type, ["x", weight, *bias], "y")
    return builder.model([("x", FLOAT, (4, 32))], [("y", FLOAT)])


def _activation(op_type, *extra, **attributes):
    builder = ModelBuilder()
    conv = builder.add("Conv", ["x", builder.constant(RNG.normal(size=(4, 3, 3, 3)).astype(np.float32))])
    builder.add(op_type, [conv, *map(builder.constant, extra)], "y", **attributes)
    return builder.model([FLOAT_IMAGE], [("y", FLOAT)])


def _shared():
    """A dequantized value that two operators read."""
    builder = ModelBuilder()
    value = builder.dequantize("x")
    builder.quantize(builder.add("Sigmoid", [value]), "y")
    builder.quantize(builder.add("LeakyRelu", [value]), "z")
    return builder.model([IMAGE], [("y", UINT8), ("z", UINT8)])


def _in_branch():
    """A convolution with its activation in a branch."""
    builder = ModelBuilder()
    weight = builder.constant(RNG.normal(size=(4, 3, 3, 3)).astype(np.float32))
    value = helper.make_tensor_value_info("b", FLOAT, None)
    nodes = [helper.make_node("Conv", ["x", weight], ["a"], "conv"), helper.make_node("Relu", ["a"], ["b"], "relu")]
    other = [helper.make_node("Conv", ["x", weight], ["d"], "conv2"), helper.make_node("Tanh", ["d"], ["b2"], "tanh")]
    branches = {
        "then_branch": helper.make_graph(nodes, "then", [], [value]),
        "else_branch": helper.make_graph(other, "else", [], [helper.make_tensor_value_info("b2", FLOAT, None)]),
    }
    builder.add("If", ["flag"], "y", **branches)
    return builder.model([FLOAT_IMAGE, ("flag", TensorProto.BOOL, ())], [("y", FLOAT)])


MODELS = {
    "conv": _conv(with_bias=False),
    "conv_bias": _conv(with_bias=True),
    "average_pool": _unary("AveragePool", kernel_shape=[2, 2]),
    "global_average_pool": _unary("GlobalAveragePool"),
    "sigmoid": _unary("Sigmoid"),
    "leaky_relu": _unary("LeakyRelu"),
    "softmax": _unary("Softmax"),
    "max_pool": _unary("MaxPool", kernel_shape=[2, 2]),
    "reduce_max": _unary("ReduceMax", np.array([2, 3])),
    "flatten": _unary("Flatten"),
    "transpose": _unary("Transpose", perm=[0, 2, 3, 1]),
    "reshape": _unary("Reshape", np.array([3, 36])),
    "gather": _unary("Gather", np.array([0, 2]), axis=1),
    "tile": _unary("Tile", np.array([1, 2, 1, 1])),
    "resize": _unary("Resize", None, np.array([1, 1, 2, 2], np.float32)),
    "add": _binary("Add"),
    "mul": _binary("Mul"),
    "where": _where(),
    "concat": _concat(),
    "split": _split(),
    "argmax": _argmax(),
    "matmul": _product("MatMul", is_quantized=True),
    "matmul_float": _product("MatMul", is_quantized=False),
    "matmul_columns": _product("MatMul", is_quantized=True, by_column=True),
    "matmul_columns_float": _product("MatMul", is_quantized=False, by_column=True),
    "gemm_columns": _product("Gemm", is_quantized=True, by_column=True),
    "gemm_columns_transposed": _product("Gemm", is_quantized=True, by_column=True, transB=1),
    "gemm_columns_float": _product("Gemm", is_quantized=False, by_column=True, transB=1),
    "gemm": _product("Gemm", is_quantized=True),
    "gemm_bias": _product("Gemm", is_quantized=True, with_bias=True),
    "gemm_float": _product("Gemm", is_quantized=False, with_bias=True),
    "blockwise_matmul": _blockwise("MatMul"),
    "blockwise_gemm": _blockwise("Gemm", with_bias=True),
    "conv_relu": _activation("Relu"),
    "conv_clip": _activation("Clip", np.float32(0), np.float32(1)),
    "conv_leaky_relu": _activation("LeakyRelu", alpha=0.2),
    "conv_hard_sigmoid": _activation("HardSigmoid"),
    "shared": _shared(),
    "in_branch": _in_branch(),
}

FEEDS = {
    "x": RNG.integers(0, 255, IMAGE[2]).astype(np.uint8),
    "z": RNG.integers(0, 255, OTHER[2]).astype(np.uint8),
    "c": RNG.integers(0, 2, IMAGE[2]).astype(bool),
    "flag": np.array(True),
}


def feeds_of(session):
    """A value for each input of a session of onnxruntime."""
    feeds = {}
    for value in session.get_inputs():
        fed = FEEDS[value.name]
        if value.name == "x" and tuple(value.shape) != fed.shape:
            fed = np.resize(fed, value.shape)
        feeds[value.name] = (fed / np.float32(255) - np.float32(0.5)) if value.type == "tensor(float)" else fed
    return feeds
