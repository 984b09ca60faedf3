"""Operators of a provider's own domain, declared without a schema: registration, models, ORT format, the command line."""

import json
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import ort_sdk
from ort_sdk.api import (
    Fail,
    FormalParameter,
    InvalidGraph,
    KernelDef,
    KernelRegistrationError,
    KernelRegistry,
    NoKernelError,
    ParameterOption,
    find_schema,
)
from ort_sdk.cli import main
from ort_sdk.loader import load_model
from ort_sdk.plugins import reset_manager
from ort_sdk.testing import KernelTypeStrResolver
from tests.loader.ort_files import convert

DISTRIBUTION = Path(__file__).parent.parent / "data" / "fake_dists" / "declares"
PROVIDER = "DeclaringExecutionProvider"
DOMAIN = "my.domain"
X = np.arange(6, dtype=np.float32).reshape(2, 3)
SINGLE, OPTIONAL, VARIADIC = ParameterOption.SINGLE, ParameterOption.OPTIONAL, ParameterOption.VARIADIC


@pytest.fixture
def declaring(monkeypatch):
    """Installs the distribution of the provider."""
    monkeypatch.syspath_prepend(str(DISTRIBUTION))
    reset_manager()
    yield PROVIDER
    reset_manager()
    sys.modules.pop("fake_declares", None)


def untyped(name):
    return onnx.ValueInfoProto(name=name)


def model_of(nodes, outputs, *, version=1, kind=TensorProto.FLOAT, functions=()):
    """Nodes between ``x`` and outputs whose types the model does not tell."""
    graph = helper.make_graph(
        nodes, "declared", [helper.make_tensor_value_info("x", kind, [2, 3])], [untyped(name) for name in outputs]
    )
    imports = [helper.make_opsetid("", 17), helper.make_opsetid(DOMAIN, version), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8, functions=list(functions)).SerializeToString()


def foo(inputs=("x",), outputs=("y",), name="foo"):
    return helper.make_node("Foo", list(inputs), list(outputs), name, domain=DOMAIN)


def session_of(model, **options):
    given = ort_sdk.SessionOptions()
    for name, value in options.items():
        setattr(given, name, value)
    return ort_sdk.InferenceSession(model, given, providers=[PROVIDER])


def saved(model, target, **options):
    session_of(model, optimized_model_filepath=str(target), **options).close()
    return target


# -- registration


def registry_of(*declarations):
    registry = KernelRegistry("SomeExecutionProvider")
    for declaration in declarations:
        registry.declare_operator(**declaration)
    return registry


def declaration(**changes):
    given = {
        "op_type": "Foo",
        "since_version": 1,
        "inputs": [FormalParameter("X", "T")],
        "outputs": [FormalParameter("Y", "T")],
        "type_constraints": {"T": ["tensor(float)", "tensor(double)"]},
        "domain": DOMAIN,
    }
    return given | changes


def test_declarations_are_schemas():
    registry = registry_of(declaration(since_version=2), declaration())
    first, second = registry.declared_operators()
    assert (first.since_version, second.since_version) == (1, 2)
    assert (first.min_inputs, first.max_inputs, first.min_outputs, first.max_outputs) == (1, 1, 1, 1)
    assert registry.declare_operator(**declaration()) == first, "the same again is no contradiction"


@pytest.mark.parametrize(
    ("formals", "least", "most"),
    [
        ([], 0, 0),
        ([("A", "T", SINGLE), ("B", "T", OPTIONAL)], 1, 2),
        ([("A", "T", OPTIONAL), ("B", "T", SINGLE)], 2, 2),
        ([("A", "T", SINGLE), ("B", "T", VARIADIC)], 2, 2**31 - 1),
    ],
)
def test_number_of_arguments(formals, least, most):
    inputs = [FormalParameter(*formal) for formal in formals]
    schema = registry_of().declare_operator(**declaration(inputs=inputs))
    assert (schema.min_inputs, schema.max_inputs) == (least, most)


def test_arity_is_that_of_the_schema_table():
    """Formal parameters of ONNX's operators, declared anew, take as many arguments as ONNX says."""
    for op_type, version in (("Clip", 13), ("Concat", 13), ("Gemm", 13), ("Loop", 16), ("Split", 18), ("LSTM", 14)):
        schema = find_schema(op_type, version)
        made = registry_of().declare_operator(
            op_type, version, schema.inputs, schema.outputs, schema.type_constraints, domain="copy"
        )
        assert (made.max_inputs, made.max_outputs) == (schema.max_inputs, schema.max_outputs), op_type
        assert made.min_inputs == schema.min_inputs or op_type == "Loop", op_type  # Loop may have no carried value


WRONG = [
    ({"op_type": "a:b"}, "neither it nor its domain may contain ':'"),
    ({"op_type": ""}, "an operator needs a name"),
    ({"domain": "ai.onnx"}, "the domain ai.onnx is written ''"),
    ({"since_version": 0}, "since_version must be 1 or more, got 0"),
    ({"op_type": "Relu", "domain": ""}, r"schemas of since-versions \[1, 6, 13, 14\], which hold up to version \d+"),
    ({"inputs": [FormalParameter("X", "T"), FormalParameter("X", "T")]}, r"needs a name of its own, got \['X', 'X'\]"),
    ({"inputs": [FormalParameter("", "T")]}, "each input needs a name"),
    (
        {"inputs": [FormalParameter("X", "T", VARIADIC), FormalParameter("Z", "T")]},
        "input 'X' is variadic, which only the last input can be",
    ),
    ({"outputs": [FormalParameter("Y", "U")]}, r"output 'Y' is of 'U', which is neither one of the type constraints \(T\)"),
    ({"outputs": [FormalParameter("Y", "float")]}, r"nor a type such as 'tensor\(float\)'"),
    ({"outputs": [FormalParameter("T", "tensor(float)")]}, "output 'T' has the name of a type constraint"),
    (
        {"inputs": [FormalParameter("A", "tensor(float)")], "outputs": [FormalParameter("A", "tensor(int64)")]},
        "an input and an output named 'A' are of different types",
    ),
    ({"type_constraints": {"T": ["tensor(float)"], "U": ["tensor(float)"]}}, "no input or output is of the type constraint 'U'"),
    ({"type_constraints": {"T": []}}, "type constraint 'T' allows no type"),
    ({"type_constraints": {"T": ["float"]}}, r"type constraint 'T' allows \['float'\]"),
]


@pytest.mark.parametrize(("changes", "words"), WRONG, ids=[words[:40] for _, words in WRONG])
def test_wrong_declarations(changes, words):
    with pytest.raises(KernelRegistrationError, match=words):
        registry_of(declaration(**changes))


def test_two_declarations_of_one_version_must_agree():
    registry = registry_of(declaration())
    with pytest.raises(KernelRegistrationError, match=r"my\.domain::Foo\(1\) is declared twice, and differently"):
        registry.declare_operator(**declaration(type_constraints={"T": ["tensor(float)"]}))


def test_only_later_versions_of_onnx_operators_can_be_declared():
    registry = registry_of(declaration(op_type="Relu", since_version=99, domain=""))
    registry.register(KernelDef("Relu", 99, type_constraints={"T": ("tensor(float)",)}), lambda _info: abs)


MISDECLARED = [
    (KernelDef("Foo", 2, DOMAIN), r"no since-version in 2; it has \[1\]"),
    (
        KernelDef("Foo", 1, DOMAIN, type_constraints={"U": ("tensor(float)",)}),
        r"no type constraint 'U'; the operator has \['T'\]",
    ),
    (KernelDef("Foo", 1, DOMAIN, type_constraints={"T": ("tensor(string)",)}), r"does not allow \['tensor\(string\)'\]"),
    (KernelDef("Foo", 1, DOMAIN, type_constraints={"T": ()}), "does not allow an empty list"),
]


@pytest.mark.parametrize(("definition", "words"), MISDECLARED, ids=[words for _, words in MISDECLARED])
def test_misdeclared_kernels_are_refused(definition, words):
    with pytest.raises(KernelRegistrationError, match=words):
        registry_of(declaration()).register(definition, lambda _info: abs)


@pytest.mark.parametrize(("definition", "words"), MISDECLARED[1:], ids=[words for _, words in MISDECLARED[1:]])
def test_declarations_that_come_late_check_the_kernels_there_are(definition, words):
    registry = registry_of()
    registry.register(definition, lambda _info: abs)
    with pytest.raises(KernelRegistrationError, match=words):
        registry.declare_operator(**declaration())
    assert registry.declared_operators() == ()


# -- models


def test_types_of_outputs_are_inferred(declaring):
    session = session_of(model_of([foo(outputs=("y", "n"))], ["y", "n"]))
    assert [output.type for output in session.get_outputs()] == ["tensor(float)", "tensor(int64)"]
    y, n = session.run(None, {"x": X})
    np.testing.assert_array_equal(y, X * 2)
    assert n == X.size


def test_kernels_after_it_are_matched_by_the_inferred_type(declaring):
    session = session_of(model_of([foo(outputs=("h",)), helper.make_node("Relu", ["h"], ["y"])], ["y"]))
    np.testing.assert_array_equal(session.run(None, {"x": -X})[0], np.zeros_like(X))


@pytest.mark.parametrize(("version", "factor"), [(1, 2), (2, 2), (3, 3), (7, 3)])
def test_the_imported_version_decides(declaring, version, factor):
    session = session_of(model_of([foo()], ["y"], version=version))
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], X * factor)


def test_versions_before_the_first_are_unknown(declaring):
    with pytest.raises(InvalidGraph, match=r"No Op registered for Foo with domain_version of 0; the operator exists in later"):
        session_of(model_of([foo()], ["y"], version=0))


def test_calls_are_checked(declaring):
    with pytest.raises(InvalidGraph, match="has 0 inputs; its operator takes 1 to 2"):
        session_of(model_of([foo(inputs=())], ["y"]))
    with pytest.raises(InvalidGraph, match=r"Type 'tensor\(int64\)' of input parameter \(x\) of operator \(Foo\)"):
        session_of(model_of([foo()], ["y"], kind=TensorProto.INT64))


def test_kernels_are_rejected_by_type(declaring):
    words = r"type constraint T allows tensor\(float\); input 0 'x' is tensor\(double\)"
    with pytest.raises(NoKernelError, match=words):
        session_of(model_of([foo()], ["y"], kind=TensorProto.DOUBLE))


def test_operators_in_a_domain_of_the_table(declaring):
    model = model_of([helper.make_node("NotInTheTable", ["x"], ["y"], domain="com.microsoft")], ["y"])
    np.testing.assert_array_equal(session_of(model).run(None, {"x": X})[0], X + 1)
    with pytest.raises(InvalidGraph, match="No Op registered for NotInTheTable"):
        ort_sdk.InferenceSession(model, providers=["CPUExecutionProvider"])


def in_bodies_and_functions():
    """Foo in a function, whose call is in a branch of an If; a Total of three in the main graph."""
    function = helper.make_function(
        "local", "Twice", ["a"], ["b"], [foo(("a",), ("b",), "inner")], [helper.make_opsetid(DOMAIN, 1)]
    )
    branches = {
        f"{name}_branch": helper.make_graph(
            [helper.make_node(op_type, ["x"], ["out"], domain=domain)],
            name,
            [],
            [helper.make_tensor_value_info("out", TensorProto.FLOAT, [2, 3])],
        )
        for name, op_type, domain in (("then", "Twice", "local"), ("else", "Neg", ""))
    }
    nodes = [
        helper.make_node("ReduceMax", ["x"], ["top"], keepdims=0),
        helper.make_node("Cast", ["top"], ["flag"], to=TensorProto.BOOL),
        helper.make_node("If", ["flag"], ["h"], **branches),
        helper.make_node("Total", ["x", "h", "h"], ["y"], domain=DOMAIN),
    ]
    model = onnx.ModelProto.FromString(model_of(nodes, ["y"], functions=[function]))
    model.opset_import.append(helper.make_opsetid("local", 1))
    return model.SerializeToString()


MODELS = {
    "one": lambda: model_of([foo()], ["y"]),
    "optional": lambda: model_of([foo(("x", "x"), ("y",))], ["y"]),
    "bodies": in_bodies_and_functions,
    "known_domain": lambda: model_of([helper.make_node("NotInTheTable", ["x"], ["y"], domain="com.microsoft")], ["y"]),
}


@pytest.mark.parametrize("level", ["ORT_DISABLE_ALL", "ORT_ENABLE_ALL"])
@pytest.mark.parametrize("name", MODELS)
def test_saved_in_ort_format(declaring, name, level, tmp_path):
    options = {"graph_optimization_level": getattr(ort_sdk.GraphOptimizationLevel, level)}
    model = MODELS[name]()
    expected = session_of(model, **options).run(None, {"x": X})
    target = saved(model, tmp_path / "model.ort", **options)
    again = saved(str(target), tmp_path / "again.ort", **options)
    for path in (target, again):
        for actual, wanted in zip(session_of(path, **options).run(None, {"x": X}), expected, strict=True):
            np.testing.assert_array_equal(actual, wanted)
    used = {text for text in KernelTypeStrResolver.from_ort_format(target).op_ids() if not text.startswith(":")}
    assert used
    assert used <= {"my.domain:Foo:1", "my.domain:Total:1", "com.microsoft:NotInTheTable:1"}
    assert KernelTypeStrResolver.from_ort_format(again) == KernelTypeStrResolver.from_ort_format(target)


def test_the_saved_entry_is_the_declaration(declaring, tmp_path):
    target = saved(MODELS["bodies"](), tmp_path / "model.ort")
    import fake_declares

    declared = KernelTypeStrResolver.from_schemas(fake_declares.registry().declared_operators())
    assert declared.resolve("my.domain:Foo:1", "T") == (("input", 0), ("input", 1), ("output", 0))
    assert declared.resolve("my.domain:Foo:1", "Count") == (("output", 1),)
    found = KernelTypeStrResolver.from_ort_format(target)
    for name in ("my.domain:Foo:1", "my.domain:Total:1"):
        assert found.type_strings(name) == declared.type_strings(name)
    counts = {node.op_type: len(node.inputs) for node in load_model(target).graph.nodes}
    assert counts["Total"] == 3


def test_without_a_declaration_ort_format_is_refused(tmp_path, declaring):
    model = model_of([helper.make_node("Undeclared", ["x"], ["y"], domain=DOMAIN)], ["y"])
    from fake_declares import registry

    registry().kernel("Undeclared", 1, domain=DOMAIN)(lambda _info: lambda x: x)
    with pytest.raises(Fail, match=r"declare it in its provider with KernelRegistry\.declare_operator"):
        saved(model, tmp_path / "model.ort")


def test_a_file_of_another_declaration_is_refused_by_name(declaring, tmp_path):
    """The file says what T covers; a kernel that constrains a name which only the newer declaration has cannot be matched."""
    target = saved(model_of([foo()], ["y"]), tmp_path / "model.ort")
    content = target.read_bytes()
    assert content.count(b"\x05\x00\x00\x00Count\0") == 1
    target.write_bytes(content.replace(b"\x05\x00\x00\x00Count\0", b"\x05\x00\x00\x00Total\0"))
    words = r"its type constraint Count cannot be resolved: file '.*model\.ort' has no type string Count for my\.domain:Foo:1, "
    with pytest.raises(NoKernelError, match=words + r"it has Total, T; declaration of DeclaringExecutionProvider: T, Count"):
        session_of(str(target))


# -- the command line


def test_convert_and_explain(declaring, tmp_path, capsys):
    source, target = tmp_path / "model.onnx", tmp_path / "model.ort"
    source.write_bytes(MODELS["bodies"]())
    assert main(["convert", str(source), str(target), "--provider", "declares"]) == 0
    capsys.readouterr()
    for path, described in ((source, f"declaration of {PROVIDER}"), (target, f"file '{target}'")):
        assert main(["explain", str(path), "--provider", "declares", "--level", "none", "--json"]) == 0
        rows = json.loads(capsys.readouterr().out)["nodes"]
        (total,) = [row for row in rows if row["operator"] == "my.domain.Total-1"]
        assert total["resolved_by"] == described
        assert total["type_strings"] == {"T": {"arguments": ["input 0", "output 0"], "type": "tensor(float)"}}
        (inner,) = [row for row in rows if row["operator"] == "my.domain.Foo-1"]
        assert inner["type_strings"]["Count"] == {"arguments": ["output 1"], "type": None}
        assert main(["explain", str(path), "--provider", "declares", "--nodes"]) == 0
        text = capsys.readouterr().out
        assert "T: tensor(float)" in text
        assert "type strings described by" in text
        assert described in text


def test_commands_open_models_that_only_a_provider_knows(declaring, tmp_path, capsys):
    source = tmp_path / "model.onnx"
    source.write_bytes(MODELS["known_domain"]())
    assert main(["inspect", str(source), "--provider", "declares"]) == 0
    assert main(["explain", str(source), "--provider", "declares"]) == 0
    assert "NotInTheTable-1" in capsys.readouterr().out
    assert main(["explain", str(source)]) != 0
    assert "No Op registered for NotInTheTable" in capsys.readouterr().err


def test_other_writers_files_know_nothing_of_declarations(declaring, tmp_path):
    """A file that onnxruntime wrote runs with a provider that declares operators: its entries are the file's."""
    target = convert(
        onnx.helper.make_model(
            helper.make_graph(
                [helper.make_node("Abs", ["x"], ["y"])],
                "g",
                [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])],
                [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 3])],
            ),
            opset_imports=[helper.make_opsetid("", 17)],
            ir_version=8,
        ).SerializeToString(),
        tmp_path / "theirs.ort",
    )
    np.testing.assert_array_equal(session_of(str(target)).run(None, {"x": -X})[0], X)


def test_the_table_of_kernels_shows_declared_types(declaring, capsys):
    assert main(["kernels", "--provider", "declares"]) == 0
    page = capsys.readouterr().out
    assert "| Foo | 1 | Count: `i64`<br>T: `f32` |" in page
    assert "| Total | 1 | T: `f32 f64` |" in page
