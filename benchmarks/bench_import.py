"""What `import ort_sdk` costs, beside `import numpy`: medians over fresh interpreters.

    python -P benchmarks/bench_import.py [--runs 15] [--check]

Each figure is the time of the import statement inside a new process; starting Python is not in it. The statements
take turns, so that a machine that grows slower meanwhile slows all of them. `--check` fails when the target is
missed.
"""

import argparse
import statistics
import subprocess
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
import processes

NUMPY, HOST = "import numpy", "import ort_sdk"
STATEMENTS = [NUMPY, HOST, "import ort_sdk.api", "from ort_sdk import InferenceSession"]
TARGET = 2.0
"""`import ort_sdk` may cost this many times what `import numpy` costs."""


def import_ms(statement: str) -> float:
    code = f"import time; start = time.perf_counter(); {statement}; print((time.perf_counter() - start) * 1e3)"
    command = [sys.executable, "-P", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=processes.environment())
    return float(done.stdout)


def measure(runs: int) -> dict[str, list[float]]:
    for statement in STATEMENTS:
        import_ms(statement)  # fills the file cache and writes byte code
    rounds = [[import_ms(statement) for statement in STATEMENTS] for _ in range(runs)]
    return {statement: list(times) for statement, times in zip(STATEMENTS, zip(*rounds, strict=True), strict=True)}


def main() -> int:
    parser = argparse.ArgumentParser(description="Time of `import ort_sdk` beside `import numpy`")
    parser.add_argument("--runs", type=int, default=15, help="fresh interpreters per statement")
    parser.add_argument("--check", action="store_true", help=f"exit with 1 above {TARGET:g} times numpy's time")
    arguments = parser.parse_args()
    times = measure(arguments.runs)
    base = statistics.median(times[NUMPY])
    print(f"{'statement':<40}{'median ms':>10}{'min ms':>10}{'x numpy':>10}")
    for statement, values in times.items():
        median = statistics.median(values)
        print(f"{statement:<40}{median:>10.1f}{min(values):>10.1f}{median / base:>10.2f}")
    return int(arguments.check and statistics.median(times[HOST]) > TARGET * base)


if __name__ == "__main__":
    sys.exit(main())
