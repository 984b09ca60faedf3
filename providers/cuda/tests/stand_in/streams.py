"""Streams that do their work when somebody waits, and not before."""

import collections
import itertools
import time


class Stream:
    """Work in order."""

    _numbers = itertools.count(1)

    def __init__(self):
        self.number = next(self._numbers)
        self.queued = self.done = 0
        self._work = collections.deque()
        self.graph = None
        """What is captured."""
        self.capturing_thread = None

    def put(self, work):
        """Queue work; its number."""
        self._work.append(work)
        self.queued += 1
        return self.queued

    def run_until(self, number):
        """Do the work up to a number."""
        while self.done < number:
            self.done += 1
            self._work.popleft()()


class Event:
    """A point in a stream."""

    def __init__(self, *, is_timed):
        self.is_timed = is_timed
        self.stream, self.number, self.seconds = None, 0, None

    def record(self, stream):
        self.stream, self.seconds = stream, None
        self.number = stream.put(self._take_time)

    def _take_time(self):
        self.seconds = time.perf_counter()

    @property
    def is_done(self):
        return self.stream is None or self.stream.done >= self.number

    def wait(self):
        if self.stream is not None:
            self.stream.run_until(self.number)


class Node:
    """A node of a graph: what it does, with what."""

    def __init__(self, kind, *parameters):
        self.kind, self.parameters = kind, parameters


class Graph:
    """Nodes in order."""

    def __init__(self):
        self.nodes = []
        self.is_broken = False


class Executable:
    """A graph with parameters of its own."""

    def __init__(self, graph):
        self.parameters = {node: node.parameters for node in graph.nodes}
        self.is_alive = True
