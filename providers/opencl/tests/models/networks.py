"""The models that people run, as exporters write them, of any size and with random weights."""

import numpy as np
from onnx import TensorProto, helper, numpy_helper

FLOAT, INT64, INT32 = TensorProto.FLOAT, TensorProto.INT64, TensorProto.INT32
MICROSOFT = "com.microsoft"
BLOCK = 32
"""Elements of a block of a weight of 4 bits."""


class Writer:
    """Collects nodes and weights; each method gives the name of its result."""

    def __init__(self, opset=17, seed=0):
        self.opset, self.rng = opset, np.random.default_rng(seed)
        self.nodes, self.weights, self.inputs, self.outputs = [], {}, [], []

    def node(self, op_type, *inputs, outputs=None, domain="", **attributes):
        names = outputs or [f"{op_type}_{len(self.nodes)}"]
        self.nodes.append(helper.make_node(op_type, list(inputs), names, name=names[0], domain=domain, **attributes))
        return names[0]

    def constant(self, array, name=None):
        name = name or f"c{len(self.weights)}"
        self.weights[name] = numpy_helper.from_array(np.asarray(array), name)
        return name

    def integers(self, *numbers):
        return self.constant(np.array(numbers, np.int64))

    def number(self, value):
        return self.constant(np.float32(value))

    def weight(self, *shape, terms=None, offset=0.0):
        scale = (terms or shape[-2]) ** -0.5
        return self.constant((self.rng.standard_normal(shape) * scale + offset).astype(np.float32))

    def given(self, name, shape, element_type=FLOAT):
        self.inputs.append(helper.make_tensor_value_info(name, element_type, shape))
        return name

    def result(self, name, shape=None, element_type=FLOAT):
        self.outputs.append(helper.make_tensor_value_info(name, element_type, shape))
        return name

    def named(self, x, name, shape=None):
        """An output that is a value."""
        return self.node("Identity", x, outputs=[self.result(name, shape)])

    def bytes(self):
        graph = helper.make_graph(self.nodes, "network", self.inputs, self.outputs, list(self.weights.values()))
        opsets = [helper.make_opsetid("", self.opset), helper.make_opsetid(MICROSOFT, 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()

    def linear(self, x, rows, columns):
        return self.node("Add", self.node("MatMul", x, self.weight(rows, columns)), self.weight(columns, terms=900))

    def conv(self, x, channels, outputs, kernel=3, stride=1, group=1):
        """With a batch normalization behind it."""
        terms = channels // group * kernel * kernel
        pads = [kernel // 2] * 4
        y = self.node("Conv", x, self.weight(outputs, channels // group, kernel, kernel, terms=terms), pads=pads, group=group,
                      strides=[stride] * 2, kernel_shape=[kernel] * 2)  # fmt: skip
        ones = [self.weight(outputs, terms=100, offset=offset) for offset in (1.0, 0.0, 0.0)]
        return self.node("BatchNormalization", y, *ones, self.constant(np.full(outputs, 0.7, np.float32)))

    def relu(self, x):
        return self.node("Relu", x)

    def clip(self, x):
        return self.node("Clip", x, self.number(0), self.number(6))

    def hard_swish(self, x):
        return self.node("Mul", x, self.node("HardSigmoid", x, alpha=1 / 6, beta=0.5))


def residual(*, size=32, width=8, stages=((1, 1), (1, 2)), classes=10):
    """ResNet: bottlenecks of ``width`` channels and twice as many in each stage of (blocks, stride)."""
    net = Writer()
    x = net.relu(net.conv(net.given("x", ["n", 3, size, size]), 3, width, 7, 2))
    x = net.node("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    channels = width
    for position, (blocks, first_stride) in enumerate(stages):
        inner = width << position
        for block in range(blocks):
            stride = 1 if block else first_stride
            shortcut = x if block else net.conv(x, channels, 4 * inner, 1, stride)
            y = net.relu(net.conv(net.relu(net.conv(x, channels, inner, 1)), inner, inner, 3, stride))
            x = net.relu(net.node("Add", net.conv(y, inner, 4 * inner, 1), shortcut))
            channels = 4 * inner
    _classified(net, x, channels, classes)
    return net.bytes()


def inverted(*, size=32, stages=((1, 8, 1, 1), (6, 16, 2, 2)), first=16, last=40, classes=10):
    """MobileNetV2: stages of (expansion, channels, blocks, stride)."""
    net = Writer()
    x, channels = net.clip(net.conv(net.given("x", ["n", 3, size, size]), 3, first, 3, 2)), first
    for expansion, outputs, blocks, first_stride in stages:
        for block in range(blocks):
            inner, stride, y = channels * expansion, 1 if block else first_stride, x
            if expansion > 1:
                y = net.clip(net.conv(y, channels, inner, 1))
            y = net.conv(net.clip(net.conv(y, inner, inner, 3, stride, group=inner)), inner, outputs, 1)
            x = net.node("Add", x, y) if block else y
            channels = outputs
    x = net.clip(net.conv(x, channels, last, 1))
    _classified(net, x, last, classes)
    return net.bytes()


def _classified(net, x, channels, classes):
    pooled = net.node("Flatten", net.node("GlobalAveragePool", x))
    net.named(net.node("Gemm", pooled, net.weight(channels, classes), net.weight(classes, terms=100)), "y")


def encoder(*, layers=2, heads=4, size=16, inner=128, words=80, positions=64, quantized=False):
    """BERT; with ``quantized`` its products as a dynamic quantization to 8 bits leaves them."""
    net, width = Writer(), heads * size
    linear = _quantized_linear if quantized else Writer.linear
    ids = [net.given(name, ["batch", "sequence"], INT64) for name in ("input_ids", "attention_mask", "token_type_ids")]
    seen = net.node("Cast", net.node("Unsqueeze", ids[1], net.integers(1, 2)), to=FLOAT)
    mask = net.node("Mul", net.node("Sub", net.number(1), seen), net.number(-10000))
    length = net.node("Gather", net.node("Shape", ids[0]), net.integers(1), axis=0)
    places = net.node("Slice", net.weight(1, positions, width, terms=1), net.integers(0), length, net.integers(1))
    tables = (net.weight(words, width, terms=1), net.weight(2, width, terms=1))
    x = net.node("Add", *(net.node("Gather", table, own) for table, own in zip(tables, (ids[0], ids[2]), strict=True)))
    x = _normalized(net, net.node("Add", x, places), width)
    split, merged = net.integers(0, 0, heads, size), net.integers(0, 0, width)
    for _ in range(layers):
        query, key, value = (
            net.node("Transpose", net.node("Reshape", linear(net, x, width, width), split), perm=perm)
            for perm in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3])
        )
        scores = net.node("Div", net.node("MatMul", query, key), net.number(size**0.5))
        mixed = net.node("MatMul", net.node("Softmax", net.node("Add", scores, mask), axis=-1), value)
        attended = net.node("Reshape", net.node("Transpose", mixed, perm=[0, 2, 1, 3]), merged)
        x = _normalized(net, net.node("Add", linear(net, attended, width, width), x), width)
        y = linear(net, x, width, inner)
        error = net.node("Add", net.node("Erf", net.node("Div", y, net.number(2**0.5))), net.number(1))
        y = net.node("Mul", net.node("Mul", y, error), net.number(0.5))
        x = _normalized(net, net.node("Add", linear(net, y, inner, width), x), width)
    net.named(x, "last_hidden_state")
    return net.bytes()


def _normalized(net, x, width):
    """As exported before opset 17."""
    centred = net.node("Sub", x, net.node("ReduceMean", x, axes=[-1]))
    variance = net.node("ReduceMean", net.node("Pow", centred, net.number(2)), axes=[-1])
    deviation = net.node("Sqrt", net.node("Add", variance, net.number(1e-12)))
    scaled = net.node("Mul", net.node("Div", centred, deviation), net.weight(width, terms=100, offset=1.0))
    return net.node("Add", scaled, net.weight(width, terms=100))


def _quantized_linear(net, x, rows, columns):
    parts = [f"{kind}_{len(net.nodes)}" for kind in ("codes", "scale", "zero")]
    net.node("DynamicQuantizeLinear", x, outputs=parts)
    codes = net.constant(net.rng.integers(-127, 128, (rows, columns)).astype(np.int8))
    product = net.node("MatMulInteger", parts[0], codes, parts[2], net.constant(np.int8(0)))
    scale = net.node("Mul", parts[1], net.number(rows**-0.5 / 73))
    scaled = net.node("Mul", net.node("Cast", product, to=FLOAT), scale)
    return net.node("Add", scaled, net.weight(columns, terms=900))


def detector(*, width=8, mixed=16):
    """Finds texts in images of any size: a pyramid of features, enlarged and joined, and a map of probabilities."""
    net = Writer()
    x = net.hard_swish(net.conv(net.given("x", ["n", 3, "height", "width"]), 3, width, 3, 2))
    features, channels = [], width
    for position in range(4):
        outputs = width << min(position, 2)
        y = net.hard_swish(net.conv(x, channels, channels, 3, 2, group=channels))
        x, channels = net.hard_swish(net.conv(y, channels, outputs, 1)), outputs
        features.append(net.conv(x, channels, mixed, 1))

    def enlarged(value, factor):
        scales = net.constant(np.array([1, 1, factor, factor], np.float32))
        return net.node("Resize", value, "", scales, mode="nearest", coordinate_transformation_mode="asymmetric",
                        nearest_mode="floor")  # fmt: skip

    top = features[-1]
    levels = [top]
    for feature in reversed(features[:-1]):
        top = net.node("Add", feature, enlarged(top, 2))
        levels.append(top)
    parts = [net.conv(level, mixed, mixed // 4) for level in levels]
    joined = net.node("Concat", *(enlarged(part, 8 >> i) if i < 3 else part for i, part in enumerate(parts)), axis=1)
    y = net.relu(net.conv(joined, mixed, mixed // 4))
    for inputs, outputs in ((mixed // 4, mixed // 4), (mixed // 4, 1)):
        kernel = net.weight(inputs, outputs, 2, 2, terms=4 * inputs)
        y = net.node("ConvTranspose", y, kernel, net.weight(outputs, terms=100), strides=[2, 2], kernel_shape=[2, 2])
        y = net.relu(y) if outputs > 1 else y
    net.named(net.node("Sigmoid", y), "probability")
    return net.bytes()


def recogniser(*, width=8, hidden=16, letters=20):
    """Reads a line of text of any width: convolutions, LSTM in both directions, a distribution of letters for each column."""
    net = Writer()
    x, channels = net.given("x", ["n", 3, 32, "width"]), 3
    for position, strides in enumerate(([2, 2], [2, 2], [2, 1], [2, 1])):
        x = net.relu(net.conv(x, channels, width << position))
        x = net.node("MaxPool", x, kernel_shape=strides, strides=strides)
        channels = width << position
    x = net.node("AveragePool", x, kernel_shape=[2, 1], strides=[2, 1])
    x = net.node("Transpose", net.node("Squeeze", x, net.integers(2)), perm=[2, 0, 1])
    for inputs in (channels, 2 * hidden):
        weights = [net.weight(2, 4 * hidden, terms, terms=hidden) for terms in (inputs, hidden)]
        own = [x, *weights, net.weight(2, 8 * hidden, terms=hidden)]
        y = net.node("LSTM", *own, hidden_size=hidden, direction="bidirectional")
        x = net.node("Reshape", net.node("Transpose", y, perm=[0, 2, 1, 3]), net.integers(0, 0, 2 * hidden))
    logits = net.node("Transpose", net.linear(x, 2 * hidden, letters), perm=[1, 0, 2])
    net.named(net.node("Softmax", logits, axis=-1), "letters")
    return net.bytes()


def voice(*, samples=128, window=32, hidden=16):
    """Whether somebody speaks: a branch for each sampling rate, with a Fourier transform as a convolution and a LSTM."""
    net = Writer()
    x, state = net.given("x", [1, samples]), net.given("state", [2, 1, hidden])
    rate = net.given("sr", [], INT64)
    branches = [_voice_branch(net.rng, x, state, samples >> position, window, hidden, position) for position in range(2)]
    condition = net.node("Equal", rate, net.constant(np.int64(16000)))
    outputs = [net.result("y", [1, 1]), net.result("new_state", [2, 1, hidden])]
    net.node("If", condition, outputs=outputs, then_branch=branches[0], else_branch=branches[1])
    return net.bytes()


def _voice_branch(rng, x, state, samples, window, hidden, position):
    net, prefix = Writer(), f"branch{position}_"
    net.rng = rng
    bins = window // 2 + 1
    used = net.node("Slice", x, net.integers(0), net.integers(samples), net.integers(1))
    wave = net.node("Unsqueeze", used, net.integers(1))
    kernel = net.weight(2 * bins, 1, window, terms=window)
    transform = net.node("Conv", wave, kernel, strides=[window // 2], pads=[window // 2] * 2, kernel_shape=[window])
    halves = [
        net.node("Slice", transform, net.integers(i * bins), net.integers(i * bins + bins), net.integers(1)) for i in (0, 1)
    ]
    y = net.node("Sqrt", net.node("Add", *(net.node("Mul", half, half) for half in halves)))
    for inputs, stride in ((bins, 1), (hidden, 2)):
        kernel = net.weight(hidden, inputs, 3, terms=3 * inputs)
        y = net.relu(net.node("Conv", y, kernel, net.weight(hidden, terms=100), strides=[stride], pads=[1, 1], kernel_shape=[3]))
    sequence = net.node("Transpose", y, perm=[2, 0, 1])
    states = [net.node("Slice", state, net.integers(i), net.integers(i + 1), net.integers(0)) for i in (0, 1)]
    weights = [net.weight(1, 4 * hidden, hidden, terms=hidden) for _ in range(2)]
    made = [f"{prefix}{name}" for name in ("sequence", "h", "c")]
    net.node("LSTM", sequence, *weights, net.weight(1, 8 * hidden, terms=hidden), "", *states, outputs=made, hidden_size=hidden)
    last = net.relu(net.node("Squeeze", made[1], net.integers(0)))
    logit = net.node("Gemm", last, net.weight(1, hidden, terms=hidden), net.weight(1, terms=100), transB=1)
    net.node("Sigmoid", logit, outputs=[net.result(f"{prefix}y")])
    net.node("Concat", *made[1:], axis=0, outputs=[net.result(f"{prefix}state")])
    renamed = {name for each in net.nodes for name in each.output} | set(net.weights)
    for each in net.nodes:
        each.input[:] = [prefix + name if name in renamed and not name.startswith(prefix) else name for name in each.input]
        each.output[:] = [name if name.startswith(prefix) else prefix + name for name in each.output]
    for name, tensor in net.weights.items():
        tensor.name = prefix + name
    return helper.make_graph(net.nodes, prefix, [], net.outputs, list(net.weights.values()))


def decoder(*, layers=2, heads=4, key_heads=2, size=16, inner=96, words=61, positions=256, rotates_apart=False):
    """Phi-3 with weights of 4 bits, as onnxruntime-genai builds it; ``rotates_apart`` has nodes of RotaryEmbedding."""
    net, width = Writer(21), heads * size
    net.given("input_ids", ["batch", "sequence"], INT64)
    net.given("attention_mask", ["batch", "total"], INT64)
    one = net.integers(1)
    last = net.node("Cast", net.node("Sub", net.node("ReduceSum", "attention_mask", one, keepdims=0), one), to=INT32)
    total = net.node("Gather", net.node("Shape", "attention_mask"), net.constant(np.int64(1)), axis=0)
    lengths = [last, net.node("Cast", total, to=INT32)]
    angles = np.outer(np.arange(positions), 1 / 10000 ** (np.arange(size // 2) / size * 2))
    tables = [net.constant(turn(angles).astype(np.float32)) for turn in (np.cos, np.sin)]
    places = None
    if rotates_apart:
        places = net.given("position_ids", ["batch", "sequence"], INT64)
    skip = net.node("Gather", net.weight(words, width, terms=1), "input_ids")
    scales = [net.weight(width, terms=100, offset=1.0) for _ in range(2 * layers + 1)]
    x = net.node("SimplifiedLayerNormalization", skip, scales[0], axis=-1, epsilon=1e-5)
    for layer in range(layers):
        past = [net.given(f"past.{layer}.{kind}", ["batch", key_heads, "past", size]) for kind in ("key", "value")]
        present = [net.result(f"present.{layer}.{kind}") for kind in ("key", "value")]
        settings = {"num_heads": heads, "kv_num_heads": key_heads, "do_rotary": int(not rotates_apart)}
        if rotates_apart:
            parts = [_product(net, x, width, count * size) for count in (heads, key_heads, key_heads)]
            rotated = [
                net.node("RotaryEmbedding", part, places, *tables, domain=MICROSOFT, num_heads=count, rotary_embedding_dim=0)
                for part, count in zip(parts[:2], (heads, key_heads), strict=True)
            ]
            given = [*rotated, parts[2], *past, *lengths]
        else:
            given = [_product(net, x, width, (heads + 2 * key_heads) * size), "", "", *past, *lengths, *tables]
        attended = net.node("GroupQueryAttention", *given, outputs=[f"y{layer}", *present], domain=MICROSOFT, **settings)
        x, skip = _skipped(net, _product(net, attended, width, width), skip, scales[2 * layer + 1])
        gate, up = (_product(net, x, width, inner) for _ in range(2))
        hidden = net.node("Mul", net.node("Mul", gate, net.node("Sigmoid", gate)), up)
        x, skip = _skipped(net, _product(net, hidden, inner, width), skip, scales[2 * layer + 2])
    net.named(_product(net, x, width, words), "logits")
    return net.bytes()


def _skipped(net, x, skip, scale):
    """The normalized sum, and the sum."""
    names = [f"{kind}_{len(net.nodes)}" for kind in ("norm", "sum")]
    outputs = [names[0], "", "", names[1]]
    net.node("SkipSimplifiedLayerNormalization", x, skip, scale, outputs=outputs, domain=MICROSOFT, epsilon=1e-5)
    return names


def _product(net, x, size_k, size_n):
    """By a weight of 4 bits."""
    blocks = -(-size_k // BLOCK)
    codes = net.rng.integers(0, 256, (size_n, blocks, BLOCK // 2), np.uint8)
    scales = net.rng.uniform(0.5, 1.5, (size_n, blocks)).astype(np.float32) * np.float32(0.2 / size_k**0.5)
    sizes = {"K": size_k, "N": size_n, "bits": 4, "block_size": BLOCK}
    return net.node("MatMulNBits", x, net.constant(codes), net.constant(scales), domain=MICROSOFT, **sizes)
