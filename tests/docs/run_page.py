"""Does what a page says, block by block, in the current folder: ``python run_page.py PAGE``.

``python`` blocks run in one namespace; ``shell`` blocks run command by command; a block whose first line is
``# file: PATH`` is written to that file; each line of a ``text`` block must be in what the block before it printed.
"""

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"# file: (\S+)\n")
OFFLINE = ["--quiet", "--no-index", "--no-deps", "--no-build-isolation", "--disable-pip-version-check"]
PROGRAMS = {"python": [sys.executable], "ort-sdk": [sys.executable, "-m", "ort_sdk"]}
SITE = Path("site").resolve()


def run_page(page: Path) -> None:
    namespace: dict = {"__name__": "__page__"}
    printed = ""
    for language, text in BLOCK.findall(page.read_text(encoding="utf-8")):
        target = FILE.match(text)
        if target:
            path = Path(target[1])
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        elif language == "python":
            printed = run_python(text, namespace)
        elif language == "shell":
            printed = "".join(run_command(line) for line in text.splitlines())
        elif language == "text":
            missing = [line for line in text.splitlines() if squeezed(line) not in squeezed(printed)]
            assert not missing, f"{page.name} says that {missing} is printed; it is:\n{printed}"


def run_python(text: str, namespace: dict) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(text, "<page>", "exec"), namespace)  # noqa: S102 - the repository's own pages
    return out.getvalue()


def run_command(line: str) -> str:
    program, *arguments = shlex.split(line)
    if arguments[:3] == ["-m", "pip", "install"]:
        arguments = ["-m", "pip", "install", *OFFLINE, "--target", str(SITE), *arguments[3:]]
    paths = [str(SITE), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    command = [*PROGRAMS[program], *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
    return done.stdout


def squeezed(text: str) -> str:
    return " ".join(text.split())


if __name__ == "__main__":
    run_page(Path(sys.argv[1]))
