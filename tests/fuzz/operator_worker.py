"""Try mutants of operators between guard pages, in a process of its own.

``operator_worker.py --seeds FILE --first N --count N`` prints a line of JSON before and after each mutant.
``operator_worker.py --seed N`` says what one mutant is, and what came of it.
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

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "guard_pages")]
import guard_memory
import operator_seeds
from operator_mutations import Subject, mutate

import ort_sdk
from ort_sdk.api import OrtSdkError

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
    rng = random.Random(number)  # noqa: S311 - no secret
    name, data, feeds = rng.choice(seeds[rng.choice(list(seeds))])
    subject = Subject(data, feeds)
    done = mutate(subject, rng)
    return subject, name, done, rng


def session_of(subject, rng):
    options = ort_sdk.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = rng.choice((1, 1, 1, 2))
    options.graph_optimization_level = rng.choice((ort_sdk.GraphOptimizationLevel.ORT_ENABLE_ALL,) * 3 + (ort_sdk.GraphOptimizationLevel.ORT_DISABLE_ALL,))
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
        assert is_same(subject.feeds[name], kept, is_exact=True), f"feed {name} was written"
    return found


def is_same(first, second, *, is_exact=False, is_exotic=False):
    """Whether two results agree as far as the way to compute them leaves open.

    Steps and programs add in different orders, and may hold sums in other types. What is looked for are values from memory that
    is none of the operator's, other shapes and other meanings of inputs: they are off by far more, and new arrays are NaN. So
    floats may differ by the square root of their type's precision, of the largest value of the array, which sums of some
    thousand terms of any sign stay far within; quantized integers by one step.
    """
    if isinstance(first, list | tuple):
        same = [is_same(a, b, is_exact=is_exact, is_exotic=is_exotic) for a, b in zip(first, second, strict=False)]
        return len(first) == len(second) and all(same)
    if not isinstance(first, np.ndarray):
        return repr(first) == repr(second) or first == second
    if first.shape != second.shape or first.dtype != second.dtype:
        return False
    if is_exact or first.dtype.kind in "OUSbM":
        return first.tobytes() == second.tobytes() if first.dtype.kind != "O" else bool((first == second).all())
    if first.dtype.kind in "iu" or "int" in first.dtype.name:
        distance = np.abs(first.astype(np.float64) - second.astype(np.float64))
        return bool((distance <= (first.dtype.itemsize == 1)).all()) or is_exotic
    return _are_floats_same(first, second, is_exotic=is_exotic)


def _are_floats_same(first, second, *, is_exotic):
    if first.dtype.kind == "c":
        parts = first.real.dtype
        return all(_are_floats_same(np.asarray(a, parts), np.asarray(b, parts), is_exotic=is_exotic) for a, b in ((first.real, second.real), (first.imag, second.imag)))
    precision = _precision(first.dtype)
    first, second = first.astype(np.float64), second.astype(np.float64)
    is_known = np.isfinite(first) & np.isfinite(second)
    if is_exotic:
        return True  # where sums overflow, and of what NaN is the maximum, is each order's own
    if not np.array_equal(np.where(is_known, 0, first), np.where(is_known, 0, second), equal_nan=True):
        return False
    a, b = first[is_known], second[is_known]
    return bool((np.abs(a - b) <= precision * np.abs(a).max(initial=0)).all())


def _precision(dtype):
    import ml_dtypes

    return float(ml_dtypes.finfo(dtype).eps) ** 0.5


def judge(subject, found):
    """(kind, text) of runs' outcomes."""
    errors = [type(each) for each in found if isinstance(each, OrtSdkError)]
    if len(errors) == len(found):
        if len(set(errors)) > 1:
            return "differs", f"errors: {[kind.__name__ for kind in errors]}: {found[0]} | {found[-1]}"
        return "refused", f"{errors[0].__name__}: {found[0]}"
    if errors:
        first = next(each for each in found if isinstance(each, OrtSdkError))
        return "differs", f"errors in runs {[i + 1 for i, each in enumerate(found) if isinstance(each, OrtSdkError)]}: {type(first).__name__}: {first}"
    if any(operator in node.op_type for node in subject.model.graph.node for operator in RANDOM_OPERATORS):
        return "result", ""
    for index, results in enumerate(found[1:], 2):
        if not is_same(found[0], results, is_exotic=subject.is_exotic):
            return "differs", f"run {index}: {_text(results)}, run 1: {_text(found[0])}"
    return "result", ""


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
    say(row | {"kind": kind, "text": text[:600], "seconds": round(time.monotonic() - started, 2)})


def outcome(subject, rng):
    """(kind, text): "result" and "refused" may be, "differs", "error" and "hang" may not."""
    try:
        with limits(), warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            found = outcomes(subject, rng)
        return judge(subject, found)
    except OrtSdkError as error:
        return "refused", f"{type(error).__name__}: {error}"
    except TookTooLong:
        return "hang", ""
    except Exception as error:  # noqa: BLE001 - what the caller may not be shown is what is looked for
        return "error", f"{type(error).__name__}: {error}"


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


def describe(seeds, number):
    """Print all of a mutant."""
    import onnx

    subject, name, done, _ = rebuild(seeds, number)
    sys.stdout.write(f"{name} after {done}\n{onnx.printer.to_text(subject.model)}\n")
    np.set_printoptions(threshold=50)
    for feed, value in subject.feeds.items():
        shown = f"{value.dtype}{list(value.shape)}, strides {value.strides}" if isinstance(value, np.ndarray) else ""
        sys.stdout.write(f"{feed}: {shown}\n{value!r}\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=Path, help="the file that operator_seeds.record wrote; recorded anew if not given")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=1)
    parser.add_argument("--seed", type=int, help="say all of this mutant, and try it")
    parser.add_argument("--side", choices=sorted(guard_memory.SIDES), default="back")
    options = parser.parse_args()
    if options.seeds is None:
        options.seeds = Path(tempfile.mkdtemp(prefix="seeds-")) / "seeds.pickle"
        operator_seeds.record(options.seeds)
    seeds = operator_seeds.by_operator(operator_seeds.load(options.seeds))
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
