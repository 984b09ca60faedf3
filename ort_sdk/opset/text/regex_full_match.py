"""RegexFullMatch: RE2's syntax, matched by Python's ``re``."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from ort_sdk.api import Compute, HostArray, InvalidGraph, KernelInfo
from ort_sdk.opset.definition import operator

_POSIX_CLASSES = {
    "alnum": "0-9A-Za-z",
    "alpha": "A-Za-z",
    "ascii": r"\x00-\x7f",
    "blank": r"\t ",
    "cntrl": r"\x00-\x1f\x7f",
    "digit": "0-9",
    "graph": "!-~",
    "lower": "a-z",
    "print": " -~",
    "punct": r"!-/:-@\[-`{-~",
    "space": r"\t\n\v\f\r ",
    "upper": "A-Z",
    "word": "0-9A-Za-z_",
    "xdigit": "0-9A-Fa-f",
}

_ESCAPED_CLASSES = {
    "d": "0-9",
    "D": r"\x00-/:-\U0010ffff",
    "s": r"\t\n\f\r ",
    "S": r"\x00-\x08\x0b\x0e-\x1f!-\U0010ffff",
    "w": "0-9A-Za-z_",
    "W": r"\x00-/:-@\[-^`{-\U0010ffff",
}
"""RE2's classes, which are ASCII; Python's are Unicode unless case folding is ASCII too."""

_ESCAPE = r"\\x\{(?P<code>[0-9A-Fa-f]+)\}|\\(?P<escape>.)"

_OUTSIDE_BRACKETS = re.compile(
    rf"""\\Q(?P<literal>.*?)(?:\\E|\Z)                               # literal text
      | {_ESCAPE}
      | \[(?P<brackets>\^?\]?(?:\\.|\[:\^?[a-z]+:\]|[^\]\\])*)\]     # character class
      | \(\?<(?P<group>[A-Za-z_]\w*)>                                # named group in the newer spelling
      | \((?P<lookaround>\?<?[=!]|\?\(|\?\#)                         # not RE2
    """,
    re.DOTALL | re.VERBOSE,
)
_INSIDE_BRACKETS = re.compile(rf"{_ESCAPE}|\[:(?P<posix>\^?[a-z]+):\]|(?P<bracket>\[)", re.DOTALL)


@operator("RegexFullMatch", host_only=True)
def regex_full_match(info: KernelInfo, xp: Any) -> Compute:
    """Whether each string matches the pattern from beginning to end, as bool.

    Raises:
        InvalidGraph: the pattern is no valid RE2 syntax, or uses Unicode property classes, which Python's ``re`` lacks.
    """
    match = _compiled(info, info.attribute("pattern", "")).fullmatch

    def compute(x: HostArray) -> HostArray:
        matches = (match(text) is not None for text in x.ravel().tolist())
        return np.fromiter(matches, dtype=np.bool_, count=x.size).reshape(x.shape)

    return compute


def _compiled(info: KernelInfo, pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(_OUTSIDE_BRACKETS.sub(_outside, pattern))
    except (re.error, ValueError, OverflowError) as error:
        raise InvalidGraph(
            f"{info.describe()}: pattern '{pattern}' is not a supported RE2 regular expression: {error}"
        ) from error


def _outside(match: re.Match[str]) -> str:
    """Python's spelling of a construct outside brackets that RE2 spells differently.

    Raises:
        ValueError: Python or RE2 has no such construct.
    """
    kind = match.lastgroup or ""
    text = match[kind]
    if kind == "literal":
        return re.escape(text)
    if kind == "brackets":
        return f"[{_INSIDE_BRACKETS.sub(_inside, text)}]"
    if kind == "group":
        return f"(?P<{text}>"
    if kind == "lookaround":
        raise ValueError(f"RE2 has no '({text}'")
    if text in _ESCAPED_CLASSES and kind == "escape":
        return f"[{_ESCAPED_CLASSES[text]}]"
    if text in "bB" and kind == "escape":
        return rf"(?a:\{text})"
    return _either(kind, text)


def _inside(match: re.Match[str]) -> str:
    """Python's spelling of a construct inside brackets that RE2 spells differently.

    Raises:
        ValueError: Python or RE2 has no such construct.
    """
    kind = match.lastgroup or ""
    text = match[kind]
    if kind == "bracket":
        return r"\["
    if kind == "posix":
        if text not in _POSIX_CLASSES:
            raise ValueError(f"character class [:{text}:] is not supported")
        return _POSIX_CLASSES[text]
    if text in _ESCAPED_CLASSES and kind == "escape":
        return _ESCAPED_CLASSES[text]
    return _either(kind, text)


def _either(kind: str, text: str) -> str:
    if kind == "code":
        return re.escape(chr(int(text, 16)))
    if text == "z":
        return r"\Z"
    if text in "123456789":
        raise ValueError(rf"RE2 has no back-references such as '\{text}'")
    if text in "pPCXKZGRuUN":
        raise ValueError(rf"'\{text}' is not supported")
    return f"\\{text}"
