"""Where libraries of this process came from, for reports."""

from __future__ import annotations

from pathlib import Path

__all__ = ["loaded_library"]

_MAPS = Path("/proc/self/maps")


def loaded_library(*names: str) -> str:
    """Path of the first loaded library whose file name begins with one of the names; a name where paths are not known."""
    try:
        lines = _MAPS.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return names[0]
    paths = dict.fromkeys(line[line.index("/") :] for line in lines if "/" in line)
    found = [path for path in paths if Path(path).name.startswith(names)]
    return found[0] if found else names[0]
