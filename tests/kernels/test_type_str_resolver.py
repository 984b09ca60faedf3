"""The resolver of type strings: by schemas, by entries, by files, merged; and kernels matched through it."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import ort_sdk
from ort_sdk import testing
from ort_sdk.api import Fail, InvalidArgument, KernelDef, KernelRegistry, NodeArg, NoSuchFile, find_schema, schema_versions
from ort_sdk.graph import Graph, Model, Node
from ort_sdk.kernels import KernelTypeStrResolver, RegistryLookup, resolver_of
from tests.loader.ort_files import as_bytes, convert, small_model

ROOT = Path(__file__).resolve().parents[2]
SCHEMAS = KernelTypeStrResolver.from_schemas()
ENTRIES = {"mine:Foo:2": {"T": (("input", 0), ("output", 0)), "axes": (("input", 1),)}}


def relu(since_version=14):
    return Node("Relu", ["x"], ["y"], since_version=since_version)


def test_it_is_public():
    assert ort_sdk.KernelTypeStrResolver is testing.KernelTypeStrResolver is KernelTypeStrResolver


# -- by schemas


@pytest.mark.parametrize(
    ("operator", "type_string", "arguments"),
    [
        (":Relu:14", "T", (("input", 0), ("output", 0))),
        (":Slice:13", "T", (("input", 0), ("output", 0))),
        (":Slice:13", "Tind", (("input", 1), ("input", 2), ("input", 3), ("input", 4))),
        (":Loop:16", "V", (("input", 2), ("output", 0))),
        (":Cast:13", "T1", (("input", 0),)),
        (":Cast:13", "T2", (("output", 0),)),
        (":Reshape:14", "shape", (("input", 1),)),
        (":Gemm:13", "T", (("input", 0), ("input", 1), ("input", 2), ("output", 0))),
        ("com.microsoft:MatMulNBits:1", "T1", (("input", 0), ("output", 0))),
    ],
)
def test_by_schemas(operator, type_string, arguments):
    found = SCHEMAS.resolve(operator, type_string)
    assert set(arguments) <= set(found)
    assert found == arguments or operator.startswith("com.microsoft")
    domain, op_type, version = operator.split(":")
    assert SCHEMAS.resolve(Node(op_type, [], [], domain=domain, since_version=int(version)), type_string) == found


def test_exactly_the_version_is_known():
    assert ":Relu:14" in SCHEMAS
    assert relu() in SCHEMAS
    assert ":Relu:15" not in SCHEMAS
    assert SCHEMAS.type_strings(":Relu:15") is None
    assert SCHEMAS.source(":Relu:14") == "operator schemas"
    assert SCHEMAS.source(":Relu:15") is None


def test_some_schemas():
    some = KernelTypeStrResolver.from_schemas([find_schema("Relu", 14), find_schema("Cast", 13)], "a few")
    assert some.op_ids() == (":Cast:13", ":Relu:14")
    assert str(some) == ":Cast:13  T1: input 0; T2: output 0\n:Relu:14  T: input 0, output 0"
    assert repr(some) == "KernelTypeStrResolver(a few)"
    assert KernelTypeStrResolver.from_schemas([]).op_ids() == ()


def test_all_of_the_table_is_listed():
    names = SCHEMAS.op_ids()
    assert len(names) == len(set(names)) > 500
    assert {f":Relu:{version}" for version in schema_versions("Relu")} <= set(names)
    assert all(name in SCHEMAS for name in names)


# -- by entries


def test_by_entries():
    made = KernelTypeStrResolver(ENTRIES, "my notes")
    assert made.resolve("mine:Foo:2", "axes") == (("input", 1),)
    assert made.source("mine:Foo:2") == "my notes"
    assert made.describe("mine:Foo:2") == "T: input 0, output 0; axes: input 1"


@pytest.mark.parametrize("entries", [{"mine:Foo:2": {}}, {"mine:Foo:2": {"T": ()}}])
def test_empty_entries(entries):
    with pytest.raises(
        InvalidArgument, match="the entry of given entries for op id mine:Foo:2 needs type strings with arguments"
    ):
        KernelTypeStrResolver(entries)


@pytest.mark.parametrize("name", ["Foo", "Foo:2", "mine::2", "mine:Foo:x", "mine:Foo:", "a:b:Foo:2", "mine:Foo:-1", ":Foo:²"])
def test_op_ids_that_are_none(name):
    with pytest.raises(Fail, match=r"Invalid OpIdentifier string: .*it takes 'domain:op_type:since_version'"):
        KernelTypeStrResolver({name: ENTRIES["mine:Foo:2"]})
    with pytest.raises(Fail, match="Invalid OpIdentifier string"):
        SCHEMAS.resolve(name, "T")


def test_what_is_not_there_is_named():
    with pytest.raises(Fail, match=r"Failed to find op_id: :Relu:15\. .*where Relu has :Relu:1, :Relu:6, :Relu:13, :Relu:14\."):
        SCHEMAS.resolve(relu(15), "T")
    with pytest.raises(Fail, match=r"op_id: other:Bar:1\. It was looked up in my notes, which know no operator Bar"):
        KernelTypeStrResolver(ENTRIES, "my notes").resolve("other:Bar:1", "T")
    with pytest.raises(Fail, match="looked up in an empty resolver"):
        KernelTypeStrResolver().resolve("other:Bar:1", "T")
    with pytest.raises(Fail, match=r"kernel type string 'X' of :Relu:14: operator schemas has T\. Use the name of a type const"):
        SCHEMAS.resolve(relu(), "X")


# -- merged, compared


def test_merged():
    own = KernelTypeStrResolver({":Relu:14": {"Q": (("output", 0),)}, **ENTRIES}, "file")
    both = own.merge(SCHEMAS)
    assert both.resolve(":Relu:14", "Q") == (("output", 0),), "the first one's entry counts, as a whole"
    assert both.source(":Relu:14") == "file"
    with pytest.raises(Fail, match="file has Q"):
        both.resolve(":Relu:14", "T")
    assert both.resolve(":Relu:13", "T") == SCHEMAS.resolve(":Relu:13", "T")
    assert SCHEMAS.merge(own).resolve(":Relu:14", "T") == SCHEMAS.resolve(":Relu:14", "T")
    assert "mine:Foo:2" in SCHEMAS.merge(own)
    assert "mine:Foo:2" not in SCHEMAS
    assert repr(both) == "KernelTypeStrResolver(file + operator schemas)"


def test_equal_if_they_say_the_same():
    schema = find_schema("Relu", 14)
    by_schema = KernelTypeStrResolver.from_schemas([schema])
    by_entry = KernelTypeStrResolver({":Relu:14": {"T": (("input", 0), ("output", 0))}})
    assert by_schema == by_entry
    assert by_schema != KernelTypeStrResolver({":Relu:14": {"T": (("input", 0),)}})
    assert by_schema != by_entry.merge(KernelTypeStrResolver(ENTRIES))
    assert by_entry.merge(by_schema) == by_schema
    assert KernelTypeStrResolver() == KernelTypeStrResolver({})
    assert KernelTypeStrResolver.from_schemas() == SCHEMAS
    assert by_schema.merge(SCHEMAS) == SCHEMAS
    assert by_schema != "KernelTypeStrResolver(operator schemas)"
    with pytest.raises(TypeError, match="unhashable"):
        hash(by_schema)


# -- by files


def test_by_a_file_of_onnxruntime(tmp_path):
    path = convert(as_bytes(small_model()), tmp_path / "small.ort")
    found = KernelTypeStrResolver.from_ort_format(path)
    assert found == KernelTypeStrResolver.from_ort_format(str(path)) == KernelTypeStrResolver.from_ort_format(path.read_bytes())
    assert {":MatMul:13", ":If:16", ":Relu:14", ":Add:14", ":Sub:14"} <= set(found.op_ids())
    for name in found.op_ids():
        assert {key: set(each) for key, each in found.type_strings(name).items()} == {
            key: set(each) for key, each in SCHEMAS.type_strings(name).items()
        }, name
    assert found.source(":Relu:14") == f"file '{path}'"


def test_files_that_are_none(tmp_path):
    with pytest.raises(NoSuchFile):
        KernelTypeStrResolver.from_ort_format(tmp_path / "missing.ort")
    with pytest.raises(Fail, match="ORT model verification failed"):
        KernelTypeStrResolver.from_ort_format(as_bytes(small_model()))


# -- look-up


def lookup_through(resolver, definition, node, **types):
    registry = KernelRegistry("TestExecutionProvider")
    registry.register(definition, lambda _info: abs)
    graph = Graph(values={name: NodeArg(name, type_string) for name, type_string in types.items()})
    return RegistryLookup(registry, graph, {"": 17, "mine": 9}, resolver)


def model_with(entries):
    return Model(Graph(), {}, type_strings=entries)


def test_an_operator_that_only_the_file_knows():
    node = Node("Foo", ["x", "a"], ["y"], domain="mine", since_version=2)
    resolver = resolver_of(None, model_with(ENTRIES))
    definition = KernelDef("Foo", 2, "mine", type_constraints={"T": ("tensor(float)",), "axes": ("tensor(int64)",)})
    assert lookup_through(resolver, definition, node, x="tensor(float)", a="tensor(int64)").lookup(node) is not None
    lookup = lookup_through(resolver, definition, node, x="tensor(double)", a="tensor(int64)")
    assert lookup.lookup(node) is None
    assert lookup.rejections(node) == ["version 2 matches; type constraint T allows tensor(float); input 0 'x' is tensor(double)"]


def test_versions_are_exact_for_operators_that_the_file_knows():
    node = Node("Foo", ["x", "a"], ["y"], domain="mine", since_version=2)
    resolver = resolver_of(None, model_with(ENTRIES))
    lookup = lookup_through(resolver, KernelDef("Foo", 1, "mine"), node)
    assert lookup.rejections(node) == ["registered for since_version 1, node has 2"]
    assert lookup_through(resolver, KernelDef("Foo", 1, "mine", end_version=3), node).lookup(node) is not None
    assert lookup_through(None, KernelDef("Foo", 1, "mine"), node).lookup(node) is not None, "nothing is known of the operator"


def test_a_version_newer_than_the_table():
    node = relu(99)
    resolver = resolver_of(None, model_with({":Relu:99": {"T": (("input", 0), ("output", 0))}}))
    definition = KernelDef("Relu", 14, end_version=99, type_constraints={"T": ("tensor(float)",)})
    assert lookup_through(resolver, definition, node, x="tensor(float)").lookup(node) is not None
    assert lookup_through(resolver, definition, node, x="tensor(int8)").lookup(node) is None


def test_a_type_string_that_the_file_lacks_is_no_match():
    resolver = resolver_of(None, model_with({":Relu:14": {"Q": (("input", 0),)}}))
    lookup = lookup_through(resolver, KernelDef("Relu", 14, type_constraints={"T": ("tensor(float)",)}), relu())
    assert lookup.lookup(relu()) is None
    (reason,) = lookup.rejections(relu())
    assert reason.startswith("version 14 matches; its type constraint T cannot be resolved: the model has no type string T for ")
    assert reason.endswith(":Relu:14, it has Q; operator schemas: T")


def test_a_kernel_for_several_versions_may_constrain_what_some_lack():
    """ReduceSum has the input ``axes`` from 13 on."""
    definition = KernelDef("ReduceSum", 11, end_version=13, type_constraints={"axes": ("tensor(int64)",)})
    node = Node("ReduceSum", ["x"], ["y"], since_version=11)
    assert lookup_through(None, definition, node, x="tensor(float)").lookup(node) is not None
    entries = {":ReduceSum:11": {"T": (("input", 0), ("output", 0))}}
    assert lookup_through(resolver_of(None, model_with(entries)), definition, node, x="tensor(float)").lookup(node) is not None


def test_resolved_types():
    node = Node("Cast", ["x"], ["y"], since_version=13)
    resolved = lookup_through(SCHEMAS, KernelDef("Cast", 13), node, x="tensor(float)").resolved_types(node)
    assert resolved.source == "operator schemas"
    assert resolved.arguments == {"T1": (("input", 0),), "T2": (("output", 0),)}
    assert resolved.types == {"T1": "tensor(float)", "T2": None}


# -- what passes insert

DYNAMIC = {
    "f'QLinear{group.node.op_type}'": ("QLinearAdd", "QLinearMul", "QLinearSigmoid", "QLinearLeakyRelu", "QLinearSoftmax"),
    "FUSED[node.op_type]": ("SkipLayerNormalization", "SkipSimplifiedLayerNormalization"),
}
"""Expressions that name an operator, and what they come to."""
OP_TYPE_AT = {"fuse": (1,), "new_node": (0, 1), "Node": (0,), "_replace": (1,), "_fuse": (1,)}
"""Functions that make a node → which argument may name its operator."""


def operator_names_in(expression):
    """Names that an expression may come to, as far as it is made of literals."""
    if isinstance(expression, ast.Constant) and isinstance(expression.value, str):
        return [expression.value]
    if isinstance(expression, ast.IfExp):
        return [*operator_names_in(expression.body), *operator_names_in(expression.orelse)]
    return list(DYNAMIC.get(ast.unparse(expression), ()))


def inserted_operators():
    found = set()
    for path in [*(ROOT / "ort_sdk/optimizer").rglob("*.py"), *(ROOT / "ort_sdk/partition").rglob("*.py")]:
        for call in (each for each in ast.walk(ast.parse(path.read_text())) if isinstance(each, ast.Call)):
            function = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
            for index in OP_TYPE_AT.get(function, ()):
                if index < len(call.args):
                    found.update(operator_names_in(call.args[index]))
    return found


def test_all_operators_that_passes_insert_are_known():
    inserted = inserted_operators()
    assert {"Cast", "Identity", "Gelu", "FusedConv", "FusedMatMul", "QLinearConv", "QLinearAdd", "MatMulNBits"} <= inserted
    known = {op_id.split(":")[1] for op_id in SCHEMAS.op_ids() if op_id.startswith((":", "com.microsoft:"))}
    assert inserted <= known, f"operators that a model in ORT format does not describe: {sorted(inserted - known)}"


# -- cost


def test_the_table_stays_lazy():
    """Matching parses the schemas of the operators it meets, and imports neither onnx nor protobuf."""
    code = (
        "import sys\n"
        "from ort_sdk.testing import KernelTypeStrResolver\n"
        "from ort_sdk.api import operator_schema\n"
        "KernelTypeStrResolver.from_schemas().resolve(':Relu:14', 'T')\n"
        "assert operator_schema._versions.cache_info().currsize == 1\n"
        "assert not {'onnx', 'google.protobuf', 'pytest', 'flatbuffers'} & sys.modules.keys(), sorted(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
