"""The session: a model ready to run, with ONNX Runtime's interface."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypeVar

from ort_sdk.api import CPU_DEVICE, Fail, MemoryUsage
from ort_sdk.api import NotImplemented as OrtNotImplemented
from ort_sdk.api.foreign_errors import is_public, ort_error, public_class
from ort_sdk.api.released_frames import release_frames
from ort_sdk.api.stopping import Stoppable
from ort_sdk.config_keys import MODEL_EXTERNAL_INITIALIZERS_FILE_FOLDER_PATH, RECORD_EP_GRAPH_ASSIGNMENT_INFO
from ort_sdk.memory import PrepackedWeightsContainer
from ort_sdk.partition import Placement
from ort_sdk.plan import Step
from ort_sdk.plugins import plugin_manager
from ort_sdk.run import ProgramRow, RunControl, StepObserver

from .calls.async_run import AsyncCallback, AsyncRuns
from .calls.bindings import Bindings
from .options.build_settings import BuildSettings, ModelOverrides
from .options.compilation import compilation_mode
from .options.model_config import apply_model_config
from .options.session_options import RunOptions, SessionOptions
from .runs_builder import RunsBuilder
from .stages.observer import SessionDescription, StageWatcher
from .stages.select_providers import choose_providers
from .stages.state import SessionState
from .values.node_arg import ModelMetadata, NodeArg
from .values.ort_device import OrtDevice, device_of
from .values.ort_value import OrtValue, OrtValueVector

if TYPE_CHECKING:
    from ort_sdk.run.profiler import Profiler

    from .calls.io_binding import IOBinding
    from .calls.runs import Runs
    from .values.ep_assignment import OrtEpAssignedSubgraph
    from .values.ep_devices import OrtEpDevice
    from .values.memory_info import OrtMemoryInfo

__all__ = ["InferenceSession"]

HIGHEST_LEVEL = 3

_T = TypeVar("_T")
_PLAIN = RunControl()


@public_class(but=("run", "run_bound", "run_with_iobinding", "io_binding"))
class InferenceSession:
    """A model loaded, placed and planned. Any number of threads may run it at once.

    Args:
        path_or_bytes: model file, or its content.
        sess_options: how to make the session; a copy is taken.
        providers: names, or (name, options) tuples, in order of preference. Names that are not installed are warned of and
            left out; one that is installed and cannot be used is an error. The CPU provider comes last by itself. None: the
            CPU provider alone, unless the options choose.
        provider_options: options of providers given as names.
        **kwargs: ``disabled_optimizers`` names passes to leave out. ``external_files`` maps locations of external data to
            paths or buffers to use instead. ``prepacked_weights_container`` keeps the weights that kernels rearrange
            for later sessions. All others are ignored.

    Raises:
        TypeError: the model is neither path nor bytes, or the options are of another class.
        OrtSdkError: whatever a stage refuses; its class and text are ONNX Runtime's.
    """

    def __init__(
        self,
        path_or_bytes: str | os.PathLike[str] | bytes,
        sess_options: SessionOptions | None = None,
        providers: Sequence[str | tuple[str, Mapping[str, Any]]] | None = None,
        provider_options: Sequence[Mapping[str, Any]] | None = None,
        **kwargs: Any,
    ) -> None:
        if not isinstance(path_or_bytes, (str, bytes, os.PathLike)):
            raise TypeError(f"Unable to load from type '{type(path_or_bytes)}'")
        if sess_options is not None and not isinstance(sess_options, SessionOptions):
            raise TypeError(f"incompatible constructor arguments: sess_options must be SessionOptions, got {sess_options!r}")
        self._source = path_or_bytes
        self._given_options = sess_options or SessionOptions()
        self._options = self._given_options.snapshot()
        self._disabled = frozenset(kwargs.get("disabled_optimizers") or ())
        self._prepacked_weights: PrepackedWeightsContainer | None = kwargs.get("prepacked_weights_container")
        for location, content in dict(kwargs.get("external_files") or {}).items():
            self._options.add_external_file(location, content)
        self._async_runs = AsyncRuns(self._options.inter_op_num_threads)
        apply_model_config(self._options, path_or_bytes, lambda: _settings(self._options, self._disabled))
        self._profiler = _profiler(self._options)
        self._build(providers, provider_options)

    def _build(self, providers: Any, provider_options: Any) -> None:
        options = self._options
        given = self._given_options
        # No reference to the session itself, which would keep it until the garbage collector comes.
        watcher = StageWatcher(options, lambda: given._is_load_cancelled, self._profiler)
        watcher.check_cancelled("start")
        chosen = choose_providers(providers, provider_options, options._providers, options._policy, options._config)
        settings = replace(
            _settings(options, self._disabled),
            prepacked_weights=self._prepacked_weights,
            prepack_sink=watcher.prepack_sink,
            shows_loaded_model=plugin_manager().plugins().observes_stages,
            fixes_defaults=not options.optimized_model_filepath and int(options.graph_optimization_level) > 0,
        )
        mode = compilation_mode(options._config)
        if self._profiler is not None or options.optimized_model_filepath:
            mode = "wait"  # what is recorded or saved is of the kernels that compute in the end
        config = options.entries_for_providers()
        builder = RunsBuilder(self._source, settings, chosen, config, watcher.names_with_defaults, mode)
        try:
            self._runs: Runs | None = builder.build(watcher, watcher.log)
        finally:
            watcher.close()
        self._described, self._assigned = watcher.description, watcher.assigned
        if self._profiler is not None:
            self._profiler.number_steps(self._runs.state.plan.steps)
            self._profiler.take_clocks([provider.execution_provider for provider in self._runs.state.providers])

    # -- running

    def run(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any], run_options: RunOptions | None = None
    ) -> list[Any]:
        """Run the model once.

        Args:
            output_names: outputs wanted, in the order wanted; None or empty for all.
            input_feed: input name → array, list, OrtValue; list of these for a sequence, dict for a map.
            run_options: log settings, and the flag that stops the run.

        Returns:
            One value per output: arrays, lists for sequences, dicts for maps, None for an absent optional. They are
            writable and share memory with nothing.

        Raises:
            InvalidArgument: a missing or unknown name, a wrong type or shape.
            Fail: the run was stopped.
            OrtSdkError: whatever a kernel raised, with its node, provider and input shapes.
        """
        runs = self._runs
        try:
            if runs is None:
                self._closed()
            if run_options is None and self._profiler is None:
                return runs.run(output_names, input_feed, _PLAIN)
            return self._run_with_options(run_options, functools.partial(runs.run, output_names, input_feed))
        except BaseException as error:
            release_frames(error)
            del self, input_feed, runs
            if is_public(error):
                raise
            raise ort_error(error) from error

    def run_bound(self, bindings: Bindings, run_options: RunOptions | None) -> list[OrtValue]:
        """Run on bound values (``IOBinding``); results go where they are wanted."""
        runs = self._runs
        try:
            if runs is None:
                self._closed()
            if run_options is None and self._profiler is None:
                return runs.run_bound(bindings, _PLAIN)
            return self._run_with_options(run_options, functools.partial(runs.run_bound, bindings))
        except BaseException as error:
            release_frames(error)
            del self, bindings, runs
            if is_public(error):
                raise
            raise ort_error(error) from error

    def _run_with_options(self, run_options: RunOptions | None, work: Callable[[RunControl], _T]) -> _T:
        if run_options is not None and not isinstance(run_options, RunOptions):
            raise TypeError(f"incompatible function arguments: run_options must be RunOptions, got {run_options!r}")
        if run_options is None:
            return self._run_controlled(None, work)
        with Stoppable(run_options._stop):
            return self._run_controlled(run_options, work)

    def _run_controlled(self, run_options: RunOptions | None, work: Callable[[RunControl], _T]) -> _T:
        profiler = self._profiler
        if profiler is None:
            return work(_PLAIN if run_options is None else RunControl(terminate=run_options, config=run_options._config))
        config = {} if run_options is None else run_options._config
        observer = _step_observer(profiler.observe_step)
        with profiler.event("model_run"), profiler.timing(observer) as timer:
            return work(RunControl(terminate=run_options, observer=timer or observer, timer=timer, config=config))

    def run_async(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        callback: AsyncCallback,
        user_data: Any,
        run_options: RunOptions | None = None,
    ) -> None:
        """Run on a thread of the session's pool and hand the results to ``callback``.

        Raises:
            InvalidArgument: an input is missing. Everything else goes to the callback.
        """
        runs = self._runs or self._closed()
        runs.check_required(list(input_feed))
        names, feeds = list(output_names or ()), dict(input_feed)
        self._async_runs.submit(functools.partial(self.run, names, feeds, run_options), callback, user_data)

    def run_with_ort_values(
        self,
        output_names: Sequence[str] | None,
        input_dict_ort_values: Mapping[str, OrtValue],
        run_options: RunOptions | None = None,
    ) -> list[OrtValue]:
        """Run on OrtValues of any device; results are OrtValues on the host.

        Raises:
            TypeError: a value that is no OrtValue.
            OrtSdkError: as ``run``.
        """
        runs = self._runs or self._closed()
        runs.check_required(list(input_dict_ort_values))
        for name, value in input_dict_ort_values.items():
            if not isinstance(value, OrtValue):
                raise TypeError(f"input '{name}' must be an OrtValue, got {type(value).__name__}; make one from an array")
        names = list(output_names or runs.selection.names)
        bindings = Bindings(input_dict_ort_values, names, [CPU_DEVICE] * len(names), is_for_one_run=True)
        return self.run_bound(bindings, run_options)

    def run_with_iobinding(self, iobinding: IOBinding, run_options: RunOptions | None = None) -> None:
        """Run on what is bound.

        Raises:
            InvalidArgument: the binding is another session's.
            Fail: "Error in execution: …", whatever went wrong.
        """
        try:
            iobinding.run_in(self, run_options)
        except BaseException as error:
            release_frames(error)
            del self, iobinding
            raise

    def run_with_ortvaluevector(
        self,
        run_options: RunOptions | None,
        feed_names: Sequence[str],
        feeds: OrtValueVector,
        fetch_names: Sequence[str],
        fetches: OrtValueVector,
        fetch_devices: Sequence[OrtDevice],
    ) -> None:
        """Run on a vector of OrtValues; results are appended to ``fetches``, each on its device."""
        given = dict(zip(feed_names, feeds, strict=True))
        devices = [device_of(device) for device in fetch_devices]
        bindings = Bindings(given, fetch_names, devices, is_for_one_run=True)
        fetches[:] = self.run_bound(bindings, run_options)

    def io_binding(self) -> IOBinding:
        """A new binding for this session."""
        from .calls.io_binding import IOBinding

        return IOBinding(self)

    # -- what it is

    @property
    def _description(self) -> SessionDescription:
        if self._described is None:
            raise Fail("the session's model was never loaded")
        return self._described

    def get_inputs(self) -> list[NodeArg]:
        """Inputs that must be fed (optional ones included)."""
        return list(self._description.inputs)

    def get_outputs(self) -> list[NodeArg]:
        """Outputs."""
        return list(self._description.outputs)

    def get_overridable_initializers(self) -> list[NodeArg]:
        """Inputs with a default, which may be fed."""
        return list(self._description.overridable_initializers)

    def get_modelmeta(self) -> ModelMetadata:
        """What the model file says of itself."""
        return self._description.metadata

    def get_session_options(self) -> SessionOptions:
        """A copy of the options the session was made with."""
        return self._options.snapshot()

    def get_providers(self) -> list[str]:
        """Names of the providers, in order of preference."""
        return [provider.name for provider in self._state.providers]

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        """Provider name → the options it was given."""
        return {provider.name: dict(provider.execution_provider.options) for provider in self._state.providers}

    def set_providers(
        self,
        providers: Sequence[str | tuple[str, Mapping[str, Any]]] | None = None,
        provider_options: Sequence[Mapping[str, Any]] | None = None,
    ) -> None:
        """Make the session anew with other providers. If that fails the session stays as it was.

        Raises:
            Fail: the session was closed.
        """
        if self._runs is None:
            self._closed()
        self._build(providers, provider_options)

    def get_input_memory_infos(self) -> list[OrtMemoryInfo]:
        """Memory in which each input is wanted."""
        from .values.memory_info import OrtMemoryInfo

        devices = {feed.name: feed.device for feed in self._state.plan.feeds}
        return [OrtMemoryInfo.of_device(devices.get(argument.name, CPU_DEVICE)) for argument in self._description.inputs]

    def get_output_memory_infos(self) -> list[OrtMemoryInfo]:
        """Memory in which each output is left."""
        from .values.memory_info import OrtMemoryInfo

        return [OrtMemoryInfo.of_device(fetch.device) for fetch in self._state.plan.fetches]

    def get_input_epdevices(self) -> list[OrtEpDevice | None]:
        """Device that reads each input; None if its provider was registered for this process only and is gone."""
        from .values.ep_devices import get_ep_devices

        wanted = {feed.name: feed.device for feed in self._state.plan.feeds}
        names = self.get_providers()
        known = [device for device in get_ep_devices() if device.ep_name in names]
        return [
            next((device for device in known if device.ort_device == wanted.get(argument.name, CPU_DEVICE)), None)
            for argument in self._description.inputs
        ]

    def get_provider_graph_assignment_info(self) -> list[OrtEpAssignedSubgraph]:
        """Which provider took which nodes.

        Raises:
            Fail: the session was not asked to record it.
        """
        if self._options._config.get(RECORD_EP_GRAPH_ASSIGNMENT_INFO) != "1":
            raise Fail(
                f"Session configuration entry '{RECORD_EP_GRAPH_ASSIGNMENT_INFO}' must be set to \"1\" to retrieve EP graph "
                "assignment information."
            )
        return list(self._assigned)

    def wait_for_compilation(self, timeout_seconds: float | None = None) -> bool:
        """Wait until no kernels of this session are being compiled in the background.

        Which are missing shows in the first run on arrays of a kind: call it after one, before anything is measured.

        Args:
            timeout_seconds: how long to wait at most; None for as long as it takes.

        Returns:
            Whether nothing is being compiled now.
        """
        return (self._runs or self._closed()).wait_for_compilation(timeout_seconds)

    def has_settled(self) -> bool:
        """Whether runs were seen often enough to have programs, and none will be made again with more of it compiled."""
        return (self._runs or self._closed()).is_settled

    # -- profiling

    def end_profiling(self) -> str:
        """Stop profiling and write the trace; returns its file name, or an empty one if nothing was profiled."""
        profiler, self._profiler = self._profiler, None
        return "" if profiler is None else profiler.write()

    def get_profiling_start_time_ns(self) -> int:
        """Nanoseconds since the epoch at which profiling began; 0 if it is off."""
        return 0 if self._profiler is None else self._profiler.start_time_ns

    # -- the rest of ONNX Runtime's interface

    def create_ortvalue_from_shape_and_type(
        self, shape: Sequence[int], element_type: Any, device_type: str, device_id: int = 0, vendor_id: int = -1
    ) -> OrtValue:
        """A tensor with undefined contents on a device of the session."""
        return OrtValue.ortvalue_from_shape_and_type(shape, element_type, device_type, device_id, vendor_id)

    def disable_fallback(self) -> None:
        """Nothing to do: a failing run is never repeated elsewhere."""

    def enable_fallback(self) -> None:
        """Nothing to do: a failing run is never repeated elsewhere."""

    def release_captured_graph(self, graph_annotation_id: int = 0) -> None:
        """Nothing to do: programs are kept in a bounded cache of their own."""

    def set_ep_dynamic_options(self, options: Mapping[str, str]) -> None:
        """Not possible: no provider has options that change after its creation.

        Raises:
            NotImplemented: there are options.
        """
        if options:
            raise OrtNotImplemented(
                f"set_ep_dynamic_options({dict(options)}): providers take their options at creation; use set_providers"
            )

    def get_tuning_results(self) -> list[Any]:
        """Empty: kernels are not tuned."""
        return []

    def set_tuning_results(self, results: Sequence[Any], *, error_on_invalid: bool = False) -> None:
        """Ignore results; they are from another machine's tuning.

        Raises:
            Fail: there are some, and the caller wants to know that they are not used.
        """
        if results and error_on_invalid:
            raise Fail("set_tuning_results: tuning results are not used")

    # -- end of life

    def placements(self) -> tuple[Placement, ...]:
        """Where each node went, and why it did not go to a provider asked before."""
        return self._state.assignment.placements

    def program_report(self) -> tuple[ProgramRow, ...]:
        """The programs made so far: signature, operators still run, bytes kept."""
        return () if self._runs is None else self._runs.program_report()

    def memory_report(self) -> tuple[MemoryUsage, ...]:
        """What the session holds on each device of its providers but the host, and the most it held: weights, arenas, values."""
        providers = () if self._runs is None else self._state.providers
        return tuple(each.execution_provider.memory_account.usage(each.name) for each in providers if not each.device.is_cpu)

    def close(self) -> None:
        """Let go of the model, and of what was given for it. Values handed out stay valid; runs under way finish."""
        if self._runs is not None:
            self._runs.close()
        self._runs = self._prepacked_weights = None
        self._source, self._options = b"", self._options._without_contents()
        self._given_options = self._options
        self._async_runs.close()

    @property
    def _state(self) -> SessionState:
        return (self._runs or self._closed()).state

    @property
    def _sess(self) -> Self:
        """Itself: clients of ONNX Runtime's inner class ask for it."""
        return self

    def _closed(self) -> NoReturn:
        raise Fail("the session was closed; make a new one to run the model")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _profiler(options: SessionOptions) -> Profiler | None:
    if not options.enable_profiling:
        return None
    from ort_sdk.run.profiler import Profiler

    return Profiler(options.profile_file_prefix)


def _settings(options: SessionOptions, disabled: frozenset[str]) -> BuildSettings:
    folder = options._config.get(MODEL_EXTERNAL_INITIALIZERS_FILE_FOLDER_PATH)
    return BuildSettings(
        config=options._config,
        optimization_level=min(int(options.graph_optimization_level), HIGHEST_LEVEL),
        disabled_optimizers=disabled,
        external_data_folder=Path(folder) if folder else None,
        external_files=options._external_files,
        external_initializers=options.replaced_external_initializers(),
        overrides=ModelOverrides(options.replaced_initializers(), options._name_overrides, options._denotation_overrides),
    )


def _step_observer(observe_step: StepObserver) -> StepObserver:
    """The profiler's observer, and the plugins that observe nodes with it."""
    plugins = plugin_manager().plugins()
    if not plugins.observes_nodes:
        return observe_step

    def observe(step: Step, start_ns: int, duration_ns: int) -> None:
        observe_step(step, start_ns, duration_ns)
        plugins.on_node_run(step.node, step.op_type, step.provider, start_ns, duration_ns)

    return observe
