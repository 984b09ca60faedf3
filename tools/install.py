"""Install the host and every provider of the checkout into the running interpreter.

All in one call, because a provider alone would look for the host on the package index. Extra arguments go to pip:

    python tools/install.py --group test
"""

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def distributions() -> list[Path]:
    return [ROOT, *sorted(path.parent for path in ROOT.glob("providers/*/pyproject.toml"))]


def main() -> int:
    folders = distributions()
    for folder in folders:
        # setuptools packs whatever an earlier build left there, also modules that were removed since
        shutil.rmtree(folder / "build", ignore_errors=True)
    command = [sys.executable, "-m", "pip", "install", *sys.argv[1:], *(str(folder) for folder in folders)]
    return subprocess.run(command, check=False, cwd=ROOT).returncode  # noqa: S603


if __name__ == "__main__":
    sys.exit(main())
