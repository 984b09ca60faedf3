"""Making sessions, and what they say of themselves, in onnxruntime and here."""

import gc
import weakref
from pathlib import Path

import numpy as np
import pytest
from onnx import helper

import ort_sdk
from ort_sdk.testing.strict.provider import STRICT_PROVIDER, StrictProvider
from tests.session import models

X = np.array([[1, 2], [3, 4]], np.float32)
CPU = "CPUExecutionProvider"


def errors(ort):
    return ort.capi.onnxruntime_pybind11_state


def test_sources(ort, session, tmp_path):
    path = tmp_path / "model.onnx"
    path.write_bytes(models.identity())
    for source in (str(path), path, path.read_bytes()):
        np.testing.assert_array_equal(session(source).run(None, {"x": X})[0], X)


def test_positional_arguments(ort):
    made = ort.InferenceSession(models.identity(), ort.SessionOptions(), [CPU], [{"use_arena": "0"}])
    assert made.get_providers() == [CPU]


@pytest.mark.parametrize("source", [bytearray(b"x"), 3, None, ["a"]])
def test_sources_that_are_none(session, source):
    with pytest.raises(TypeError, match="Unable to load from type"):
        session(source)


def test_options_of_another_class(session):
    with pytest.raises((TypeError, AttributeError)):
        session(models.identity(), 3)


def test_missing_file(ort, session):
    with pytest.raises(errors(ort).NoSuchFile, match="3 : NO_SUCHFILE"):
        session("/nope/model.onnx")


def test_no_model(ort, session, tmp_path):
    with pytest.raises(errors(ort).InvalidArgument, match=r"No graph was found in the protobuf."):
        session(b"")
    with pytest.raises(errors(ort).InvalidProtobuf):
        session(b"this is no model at all")


def test_unknown_operator(ort, session):
    made = models.model([helper.make_node("Foo", ["x"], ["y"])], [models.value("x")], [models.value("y")])
    with pytest.raises(errors(ort).InvalidGraph, match="No Op registered for Foo"):
        session(made.SerializeToString())


def test_node_args(session):
    made = session(models.affine())
    (x,) = made.get_inputs()
    assert (x.name, x.type, x.shape) == ("x", "tensor(float)", ["b", 2])
    assert str(x) == "NodeArg(name='x', type='tensor(float)', shape=['b', 2])"
    assert [value.name for value in made.get_outputs()] == ["y", "z"]
    assert [(value.name, value.shape) for value in made.get_overridable_initializers()] == [("c", [3])]


def test_node_args_that_are_no_tensors(session):
    (x,) = session(models.sequence_identity()).get_inputs()
    assert (x.type, x.shape) == ("seq(tensor(float))", [])
    (x,) = session(models.map_vectorizer()).get_inputs()
    assert x.type == "map(string,tensor(float))"
    (x,) = session(models.optional_identity()).get_inputs()
    assert x.type == "optional(tensor(float))"


def test_metadata(session):
    made = models.model(
        [helper.make_node("Relu", ["x"], ["y"])],
        [models.value("x")],
        [models.value("y")],
        graph_name="name",
        producer_name="producer",
        domain="domain",
        model_version=7,
        doc_string="description",
    )
    made.graph.doc_string = "of the graph"
    made.metadata_props.add(key="k", value="v")
    meta = session(made.SerializeToString()).get_modelmeta()
    assert (meta.graph_name, meta.producer_name, meta.domain, meta.version) == ("name", "producer", "domain", 7)
    assert (meta.description, meta.graph_description, meta.custom_metadata_map) == ("description", "of the graph", {"k": "v"})
    assert session(models.identity()).get_modelmeta().version == 2**63 - 1


def test_devices_of_inputs(session):
    made = session(models.identity())
    assert [info.name for info in (*made.get_input_memory_infos(), *made.get_output_memory_infos())] == ["Cpu", "Cpu"]
    assert [device.ep_name for device in made.get_input_epdevices()] == [CPU]


def test_the_rest_of_the_interface(session):
    made = session(models.identity())
    made.disable_fallback()
    made.enable_fallback()
    assert made.end_profiling() == ""
    assert made.get_tuning_results() == []
    made.set_tuning_results([])
    made.release_captured_graph(1)
    assert made.create_ortvalue_from_shape_and_type([2, 3], np.float32, "cpu").shape() == [2, 3]


# -- providers


def test_unknown_provider_warns_and_is_left_out(ort):
    with pytest.warns(UserWarning, match=r"Specified provider 'Foo' is not in available provider names.Available"):
        made = ort.InferenceSession(models.identity(), providers=["Foo", CPU])
    assert made.get_providers() == [CPU]
    assert CPU in ort.get_available_providers()


def test_duplicate_provider_warns(ort):
    with pytest.warns(UserWarning, match=r"Duplicate provider 'CPUExecutionProvider' encountered, ignoring."):
        ort.InferenceSession(models.identity(), providers=[CPU, (CPU, {})])


def test_cpu_named_and_forbidden(ort, session):
    options = ort.SessionOptions()
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    with pytest.raises(errors(ort).InvalidArgument, match="Conflicting session configuration: explicitly added the CPU EP"):
        session(models.identity(), options)


def test_providers_of_options(ort):
    options = ort.SessionOptions()
    assert not options.has_providers()
    options.add_provider(CPU, {})
    assert options.has_providers()
    assert ort.InferenceSession(models.identity(), options).get_providers() == [CPU]
    with pytest.warns(UserWarning, match="SessionOptions has already been configured with providers"):
        ort.InferenceSession(models.identity(), options, providers=[CPU])


def test_devices_choose_providers(ort):
    devices = [device for device in ort.get_ep_devices() if device.ep_name == CPU]
    assert devices[0].device.type == ort.OrtHardwareDeviceType.CPU
    assert devices[0].memory_info(ort.OrtDeviceMemoryType.DEFAULT) is None
    with pytest.raises(RuntimeError, match=r"ep_device does not use DEFAULT memory of a non-CPU device."):
        devices[0].create_sync_stream()
    options = ort.SessionOptions()
    with pytest.raises(errors(ort).InvalidArgument):
        options.add_provider_for_devices([], {})
    options.add_provider_for_devices(devices, {})
    assert options.has_providers()
    assert ort.InferenceSession(models.identity(), options).get_providers() == [CPU]


def test_policies(ort):
    options = ort.SessionOptions()
    options.set_provider_selection_policy(ort.OrtExecutionProviderDevicePolicy.PREFER_CPU)
    assert ort.InferenceSession(models.identity(), options).get_providers()[-1] == CPU
    asked = []

    def choose(devices, model_metadata, runtime_metadata, max_selections):
        asked.append(max_selections)
        return [device for device in devices if device.ep_name == CPU]

    options = ort.SessionOptions()
    options.set_provider_selection_policy_delegate(choose)
    assert ort.InferenceSession(models.identity(), options).get_providers() == [CPU]
    assert asked[0] > 0


def test_delegate_that_raises(ort):
    def choose(*_):
        raise ValueError("no idea")

    options = ort.SessionOptions()
    options.set_provider_selection_policy_delegate(choose)
    with pytest.raises(errors(ort).Fail, match="no idea"):
        ort.InferenceSession(models.identity(), options)


def test_set_providers(session):
    made = session(models.identity())
    made.set_providers([CPU], [{}])
    np.testing.assert_array_equal(made.run(None, {"x": X})[0], X)


class TestOursAreLoud:
    """Where onnxruntime prints something and goes on with the CPU."""

    @pytest.mark.parametrize(
        ("providers", "options", "text"),
        [
            ([CPU], [{}, {}], "same length"),
            ([CPU], [], "same length"),
            ([1], None, "must be either strings or"),
            ([(CPU, 3)], None, "must be either strings or"),
            (3, None, "should be a sequence"),
            ([(CPU, {})], [{}], "Only string values"),
            ([CPU], [3], "must be dicts"),
        ],
    )
    def test_malformed_providers(self, providers, options, text):
        with pytest.raises(ValueError, match=text):
            ort_sdk.InferenceSession(models.identity(), providers=providers, provider_options=options)

    def test_one_name_is_taken_as_such(self):
        assert ort_sdk.InferenceSession(models.identity(), providers=CPU).get_providers() == [CPU]

    def test_named_provider_that_cannot_start(self):
        from ort_sdk.api import ProviderUnavailableError
        from ort_sdk.plugins import plugin_manager

        class Broken(StrictProvider):
            def __init__(self):
                super().__init__()
                self.name = "BrokenExecutionProvider"

            def get_supported_devices(self):
                raise RuntimeError("the driver is missing")

            get_supported_devices.ort_sdk_impl = StrictProvider.get_supported_devices.ort_sdk_impl

        plugin_manager().register(Broken())
        try:
            with pytest.raises(ProviderUnavailableError, match="the driver is missing"):
                ort_sdk.InferenceSession(models.identity(), providers=["BrokenExecutionProvider", CPU])
        finally:
            plugin_manager().unregister("BrokenExecutionProvider")


@pytest.fixture
def strict():
    from ort_sdk.plugins import plugin_manager

    handle = plugin_manager().register(StrictProvider())
    yield handle
    plugin_manager().unregister(STRICT_PROVIDER)


def test_in_process_provider_must_be_named(strict):
    assert STRICT_PROVIDER not in ort_sdk.InferenceSession(models.identity()).get_providers()
    made = ort_sdk.InferenceSession(models.identity(), providers=[(STRICT_PROVIDER, {"device_id": 0})])
    assert made.get_providers() == [STRICT_PROVIDER, CPU]
    assert made.get_provider_options()[STRICT_PROVIDER]["device_id"] == "0"
    assert made.get_provider_options()[CPU] == {}
    np.testing.assert_array_equal(made.run(None, {"x": X})[0], X)
    assert [device.ep_name for device in made.get_input_epdevices()] == [STRICT_PROVIDER]


def test_nodes_on_the_cpu_though_forbidden(strict):
    options = ort_sdk.SessionOptions()
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    ort_sdk.InferenceSession(models.affine(), options, providers=[STRICT_PROVIDER])
    with pytest.raises(ort_sdk.capi.onnxruntime_pybind11_state.Fail, match="assigned to the default CPU EP, but fallback"):
        ort_sdk.InferenceSession(models.map_vectorizer(), options, providers=[STRICT_PROVIDER])


def test_module_functions(ort, capsys):
    assert ort.get_device() in {"CPU", "GPU", "CPU-GPU"}
    assert ort.get_all_providers()[-1] == CPU
    assert ort.get_version_string() == ort.__version__
    assert ort.get_build_info().startswith("ORT Build Info")
    assert not ort.has_collective_ops()
    ort.enable_telemetry_events()
    ort.disable_telemetry_events()
    ort.set_seed(3)
    ort.set_default_logger_verbosity(0)
    for function in (ort.set_default_logger_verbosity, ort.set_global_thread_pool_sizes):
        with pytest.raises(TypeError):
            function("a")
    with pytest.raises((RuntimeError, ValueError), match="Invalid logging severity"):
        ort.set_default_logger_severity(7)
    with pytest.raises((errors(ort).Fail, errors(ort).NotImplemented)):
        ort.register_execution_provider_library("a", "/nope.so")
    with pytest.raises(errors(ort).Fail, match="a was not registered"):
        ort.unregister_execution_provider_library("a")


def test_import_is_cheap():
    import subprocess
    import sys

    code = "import sys, ort_sdk; print([m for m in ('onnx', 'ml_dtypes', 'rich', 'numpy', 'google') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2])
    assert done.stdout.strip() == "[]"


def test_every_public_name_of_onnxruntime_is_here():
    import onnxruntime

    own = {"OrtEpContextData", "OrtEpContextDataBuffer", "contextlib", "cuda_version", "import_capi_exception"}
    own |= {"onnxruntime_validation", "package_name", "version"}
    missing = {name for name in dir(onnxruntime) if not name.startswith("_") and not hasattr(ort_sdk, name)}
    assert missing <= own
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        _ = ort_sdk.nonsense


def test_log_of_a_session(caplog, monkeypatch):
    options = ort_sdk.SessionOptions()
    options.logid, options.log_severity_level = "mine", 0
    with caplog.at_level("DEBUG", "ort_sdk"):
        ort_sdk.InferenceSession(models.affine(), options, providers=[CPU])
    assert any(record.getMessage().startswith("[mine] stage load") for record in caplog.records)


def test_session_ends_with_its_last_reference():
    made = ort_sdk.InferenceSession(models.affine(), providers=[CPU])
    for _ in range(3):
        made.run(None, {"x": X})
    gone = weakref.ref(made)
    gc.disable()
    try:
        del made
        assert gone() is None
    finally:
        gc.enable()


def test_warnings_point_at_the_caller():
    with pytest.warns(UserWarning, match="Foo") as warned:
        ort_sdk.InferenceSession(models.identity(), providers=["Foo"])
    assert warned[0].filename == __file__


def test_closing_lets_go_of_the_weights():
    content = models.affine()
    made = ort_sdk.InferenceSession(content, providers=[CPU])
    (result,) = made.run(["y"], {"x": X})
    plan = weakref.ref(made._runs)
    made.close()
    assert plan() is None
    assert made.get_inputs()[0].name == "x"
    assert result.shape == (2, 3)
    for ask in (made.get_providers, made.get_output_memory_infos):
        with pytest.raises(RuntimeError, match="the session was closed"):
            ask()


def test_failing_set_providers_changes_nothing():
    made = ort_sdk.InferenceSession(models.identity(), providers=[CPU])
    with pytest.raises(ValueError, match="must be either"):
        made.set_providers([3])
    assert made.get_providers() == [CPU]
    np.testing.assert_array_equal(made.run(None, {"x": X})[0], X)
