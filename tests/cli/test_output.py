"""What a terminal shows beside plain text."""

import json
import re
import sys

import pytest

from ort_sdk.cli.output import print_json, print_table, progress, shape_text


@pytest.fixture
def terminal(monkeypatch, capsys):
    """Makes the streams of the running test say that they are terminals."""

    def pretend():
        monkeypatch.setenv("COLUMNS", "60")
        monkeypatch.setenv("TERM", "xterm")
        for stream in (sys.stdout, sys.stderr):
            monkeypatch.setattr(stream, "isatty", lambda: True)

    return pretend


def test_table_on_a_terminal(terminal, capsys):
    terminal()
    print_table(["name", "number"], [("[red]shape [1, 2]", 7), ("long " * 30, 8)], right=(1,))
    out = re.sub(r"\x1b\[\d*m", "", capsys.readouterr().out)
    assert "[red]shape [1, 2]" in out
    assert "─" in out
    assert max(len(line) for line in out.splitlines()) <= 60


def test_table_in_a_pipe(capsys):
    print_table(["name", "number"], [("[red]x", 7), ("y", 1234)], right=(1,))
    assert capsys.readouterr().out == "name    number\n[red]x       7\ny         1234\n"


def test_progress_is_for_terminals(terminal, capsys):
    terminal()
    with progress("working on [this]"):
        pass
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "working on [this]" in captured.err


def test_no_progress_in_a_pipe(shell, digits):
    assert shell("bench", digits, "--runs", "1").err == ""


def test_json_of_numbers_it_lacks(capsys):
    print_json({"a": [float("nan"), 1.5, (float("inf"), -float("inf"))], 3: "ü"})
    assert json.loads(capsys.readouterr().out) == {"a": ["NaN", 1.5, ["Infinity", "-Infinity"]], "3": "ü"}


def test_shapes():
    assert [shape_text(shape) for shape in (None, (), ("batch", 3, None))] == ["[...]", "[]", "[batch, 3, ?]"]
