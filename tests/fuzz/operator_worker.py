"""Try mutants of operators between guard pages, in a process of its own.

``operator_worker.py --seeds FILE --first N --count N`` prints a line of JSON before and after each mutant.
``operator_worker.py --seed N`` says what one mutant is, and what came of it. With ``--models FOLDER ...`` mutants are those of
whole models.
"""

import argparse
import contextlib
import faulthandler
import json
import random
import resource
import signal
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
from ort_sdk_cpu.onednn import library as onednn

import ort_sdk
from ort_sdk.api import OrtSdkError, OutOfMemory

sys.path.append(str(Path(__file__).resolve().parent))
sys.path.append(str(Path(__file__).resolve().parents[1] / "guard_pages"))
import guard_memory
import model_seeds
import operator_seeds
from agreement import is_as_right, is_same, is_same_memory, largest_of
from operator_mutations import Subject, mutate, nodes_of
from wide_models import results_in_float64

RUNS = 5
"""The first two go step by step, the third makes a program, the others replay it."""
SECONDS = 20
"""Of computing until a mutant counts as hanging, if Python gets to notice."""
ADDRESS_BYTES = 1 << 30
"""More than the process has: what a mutant may take. More is an error that says so."""
RANDOM_OPERATORS = ("Random", "Bernoulli", "Multinomial", "Dropout", "SampleOp", "Sampling", "BifurcationDetector")


class TookTooLong(BaseException):
    """No ``Exception``: nothing on the way may take it for a kernel's."""


def _stop(_number, _frame):
    raise TookTooLong


@contextlib.contextmanager
def limits():
    """Bounds on time and address space for what is done inside."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    before = signal.signal(signal.SIGPROF, _stop)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + ADDRESS_BYTES, hard))
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def rebuild(seeds, number):
    """The mutant of a number: subject, what it was, what was done to it, and the generator that decides what else is."""
    rng = random.Random(number)
    name, data, feeds = rng.choice(seeds[rng.choice(list(seeds))])
    subject = Subject(data, feeds)
    done = mutate(subject, rng)
    return subject, name, done, rng


def session_of(subject, rng):
    options = ort_sdk.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = rng.choice((1, 1, 1, 2))
    if rng.random() < 0.25:
        options.graph_optimization_level = ort_sdk.GraphOptimizationLevel.ORT_DISABLE_ALL
    if rng.random() < 0.15:
        options.add_session_config_entry("session.disable_programs", "1")
    return ort_sdk.InferenceSession(subject.model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def outcomes(subject, rng):
    """What each run gave: a list of results, or an error."""
    session = session_of(subject, rng)
    if subject.warm_feeds is not None and rng.random() < 0.6:
        for _ in range(3):
            with contextlib.suppress(OrtSdkError):
                session.run(None, subject.warm_feeds)
    before = {name: subject.feeds[name].copy() for name in subject.arrays()}
    found = []
    for _ in range(RUNS):
        try:
            found.append(session.run(None, subject.feeds))
        except OrtSdkError as error:
            found.append(error)
    for name, kept in before.items():
        assert is_same_memory(subject.feeds[name], kept), f"feed {name} was written"
    return found


def judge(subject, found):
    """(kind, text) of runs' outcomes."""
    errors = {run: error for run, error in enumerate(found, 1) if isinstance(error, OrtSdkError)}
    if any(isinstance(error, OutOfMemory) for error in errors.values()):
        return "refused", "OutOfMemory"  # how much is left depends on the results that are kept here
    if len(errors) == len(found) and len({type(error) for error in errors.values()}) == 1:
        return "refused", f"{type(found[0]).__name__}: {found[0]}"
    if errors:
        said = [f"{run}: {type(error).__name__}: {error}"[:500] for run, error in errors.items()]
        return "differs", f"errors in runs {'; '.join(said)}"
    if any(operator in node.op_type for node in subject.model.graph.node for operator in RANDOM_OPERATORS):
        return "result", ""
    largest = largest_of(subject.feeds.values()) if subject.is_exotic else None
    for run, results in enumerate(found[1:], 2):
        if not is_same(found[0], results, largest) and not is_as_right(found[0], results, exact(subject)):
            return "differs", f"run {run}: {_text(results)}, run 1: {_text(found[0])}"
    return "result", ""


def exact(subject):
    """The subject's results in float64, see ``results_in_float64``."""
    try:
        with limits(), warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            return results_in_float64(subject.model, subject.feeds)
    except TookTooLong:
        return []


def _text(results):
    return " ".join(repr(each)[:200] + str(getattr(each, "shape", "")) for each in results)[:400]


def attempt(seeds, number):
    """Try a mutant, and say so before and after."""
    started = time.monotonic()
    subject, name, done, rng = rebuild(seeds, number)
    row = {"seed": number, "source": name, "operator": operator_seeds.operator_of(subject.model), "done": done}
    say({"begins": number} | row)
    guard_memory.tell_context(f"mutant {number}")
    kind, text = outcome(subject, rng)
    say(row | {"kind": kind, "text": text[:2000], "seconds": round(time.monotonic() - started, 2)})


def outcome(subject, rng):
    """(kind, text): "result" and "refused" may be, "differs", "warning", "error" and "hang" may not."""
    try:
        with limits(), warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            warnings.simplefilter("ignore", UserWarning)  # what Pillow says of broken images
            found = outcomes(subject, rng)
        return ("warning", str(warned[0])) if warned else judge(subject, found)
    except OrtSdkError as error:
        return "refused", f"{type(error).__name__}: {error}"
    except TookTooLong:
        return ("refused", "a Loop of many turns") if has_loop(subject) else ("hang", "")
    except Exception as error:  # noqa: BLE001 - what the caller may not be shown is what is looked for
        return "error", f"{type(error).__name__}: {error}"


def has_loop(subject):
    """Whether the model itself may ask for turns without end."""
    return any(node.op_type == "Loop" for node in nodes_of(subject.model.graph))


def say(row):
    sys.stdout.write(json.dumps(row) + "\n")
    sys.stdout.flush()


def start_guarding(side):
    folder = tempfile.mkdtemp(prefix="guard-pages-")
    guard_memory.install(side, guard_memory.build(folder))
    guard_memory.take_buffers_apart()
    (Path(folder) / "guard_memory.so").unlink()
    Path(folder).rmdir()
    faulthandler.enable()
    guard_memory.watch_faults()
    if onednn.is_available():
        onednn.library()  # some kernels are chosen where it is loaded: a mutant alone has to go the way it goes in a row


def describe(seeds, number):
    """Print all of a mutant."""
    import onnx

    subject, name, done, _ = rebuild(seeds, number)
    sys.stdout.write(f"{name} after {done}\n{onnx.printer.to_text(subject.model)}\n")
    np.set_printoptions(threshold=50)
    for feed, value in subject.feeds.items():
        shown = f"{value.dtype}{list(value.shape)}, strides {value.strides}" if isinstance(value, np.ndarray) else ""
        sys.stdout.write(f"{feed}: {shown}\n{value!r}\n")


def record(path, folders):
    """Write the seeds of folders' models, or else those of operators."""
    if folders:
        model_seeds.record(folders, path)
    else:
        operator_seeds.record(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=Path, help="the file that a `record` wrote; recorded anew if not given")
    parser.add_argument("--models", type=Path, nargs="+", help="folders of models to mutate whole, rather than operators")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=1)
    parser.add_argument("--seed", type=int, help="say all of this mutant, and try it")
    parser.add_argument("--side", choices=sorted(guard_memory.SIDES), default="back")
    options = parser.parse_args()
    if options.seeds is None:
        options.seeds = Path(tempfile.mkdtemp(prefix="seeds-")) / "seeds.pickle"
        record(options.seeds, options.models)
    seeds = operator_seeds.load(options.seeds)
    start_guarding(options.side)
    if options.seed is not None:
        describe(seeds, options.seed)
    first = options.first if options.seed is None else options.seed
    for number in range(first, first + options.count):
        attempt(seeds, number)
    made, unguarded, _ = guard_memory.counts()
    say({"arrays": made, "unguarded": unguarded})


if __name__ == "__main__":
    main()
