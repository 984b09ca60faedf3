"""The system's OpenCL drivers and Intel's runtime for processors, if its wheel is installed, as one folder for the loader.

The wheel's own ``.icd`` file names a path that is not there. ``python opencl_drivers.py FOLDER`` writes the files and prints the
folder, for ``OCL_ICD_VENDORS``.
"""

import importlib.metadata
import shutil
import sys
from pathlib import Path

SYSTEM = Path("/etc/OpenCL/vendors")


def intel_library():
    """Path of the runtime's library; None if it is not installed."""
    try:
        files = importlib.metadata.files("intel-opencl-rt") or ()
    except importlib.metadata.PackageNotFoundError:
        return None
    return next((path.locate().resolve() for path in files if path.name == "libintelocl.so"), None)


def write_icd_files(folder):
    """Write the files of all drivers."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in SYSTEM.glob("*.icd") if SYSTEM.is_dir() else ():
        shutil.copy(path, folder)
    library = intel_library()
    if library is not None:
        (folder / "intel-cpu.icd").write_text(f"{library}\n", encoding="utf-8")


if __name__ == "__main__":
    write_icd_files(Path(sys.argv[1]))
    sys.stdout.write(sys.argv[1])
