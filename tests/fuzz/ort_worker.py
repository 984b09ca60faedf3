"""Try mutants of files in ORT format in a process of its own: ``ort_worker.py LIBRARY FOLDER FIRST COUNT``.

Prints a line of JSON before and after each mutant; the results of runs are pickled beside the sources. A process of its own
shows crashes, and what a mutant costs in memory: the peak of resident memory, which the kernel lets one set back.

Making the session may take little memory whatever the file says. A run takes what the operators' results need, which may be
any amount; it gets little address space, so that results of mutants that need more are clear errors.
"""

import contextlib
import importlib
import json
import pickle
import resource
import signal
import sys
import threading
import warnings
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).parent))
from ort_mutations import rebuild

SECONDS = 20
"""Until a mutant counts as hanging."""
RUN_SECONDS = 2
"""Until a run is asked to stop: a Loop may have been told to run for long, and then the caller may stop it."""


LOAD_BYTES, RUN_BYTES = 2 << 30, 256 << 20
"""Address space beyond what the process has: for making sessions, far more than they may use; for runs."""


class TookTooLong(BaseException):
    """No ``Exception``: nothing on the way may take it for a kernel's."""


def _stop(_number, _frame):
    raise TookTooLong


def resident(field):
    """Bytes of a field of ``/proc/self/status``."""
    line = next(line for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines() if line.startswith(field))
    return int(line.split()[1]) * 1024


@contextlib.contextmanager
def limits(nbytes):
    """Bounds on time and address space for what is done inside."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    before = signal.signal(signal.SIGALRM, _stop)
    resource.setrlimit(resource.RLIMIT_AS, (resident("VmSize") + nbytes, hard))
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def peak_of(work):
    """What ``work`` returns, and by how many bytes resident memory grew meanwhile at most."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    before = resident("VmRSS")
    return work(), max(resident("VmHWM") - before, 0)


def session_options(library):
    options = library.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = library.GraphOptimizationLevel.ORT_ENABLE_ALL
    return options


def make(library, mutant):
    return library.InferenceSession(mutant, session_options(library), providers=["CPUExecutionProvider"], enable_fallback=0)


def run(library, session, feeds):
    """Results of two runs, the second of which may be replayed."""
    results = []
    for _ in range(2):
        run_options = library.RunOptions()
        run_options.log_severity_level = 4
        stop = threading.Timer(RUN_SECONDS, setattr, (run_options, "terminate", True))
        stop.start()
        try:
            results.append(session.run(None, feeds, run_options))
        finally:
            stop.cancel()
            stop.join()
    return results


def outcome(nbytes, work):
    """(what came of it, its text, result)."""
    try:
        with limits(nbytes), warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            return "result", "", work()
    except TookTooLong:
        return "hang", "", None
    except Exception as error:  # noqa: BLE001 - which exceptions are allowed is for the test to say
        kinds = [kind.__name__ for kind in type(error).__mro__]
        return ("refused" if "OrtSdkError" in kinds else "error"), f"{kinds[0]}: {error}"[:500], None


def try_mutant(library, mutant, feeds):
    """Outcome of a mutant's load and runs, and the peak of memory in each."""
    (kind, text, session), peak = peak_of(lambda: outcome(LOAD_BYTES, lambda: make(library, mutant)))
    row = {"bytes": len(mutant), "kind": kind, "text": text, "peak": peak, "run_peak": 0}
    if session is None:
        return row, None
    (kind, text, results), peak = peak_of(lambda: outcome(RUN_BYTES, lambda: run(library, session, feeds)))
    return row | {"kind": kind, "text": text, "run_peak": peak}, results


def feeds_of(source):
    return pickle.loads(source.with_suffix(".feeds").read_bytes())  # noqa: S301 - written by the test


def try_seed(library, folder, seed):
    mutant, source = rebuild(folder, seed)
    row, results = try_mutant(library, mutant, feeds_of(source))
    if results is not None:
        (folder / f"{library.__name__}-{seed}.results").write_bytes(pickle.dumps(results))
    return {"seed": seed, "source": source.stem, **row}


def warm_up(library, folder):
    """Import what the sources need, so that no mutant pays for it."""
    for source in sorted(folder.glob("*.ort")):
        try_mutant(library, source.read_bytes(), feeds_of(source))


def write_row(row):
    sys.stdout.write(json.dumps(row) + "\n")
    sys.stdout.flush()


def main():
    library, folder = importlib.import_module(sys.argv[1]), Path(sys.argv[2])
    first, count = map(int, sys.argv[3:])
    warm_up(library, folder)
    for seed in range(first, first + count):
        write_row({"begins": seed})
        write_row(try_seed(library, folder, seed))


if __name__ == "__main__":
    main()
