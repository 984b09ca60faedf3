"""One mutant through a session: created at every level, run three times, fed wrongly; what may come of it."""

import contextlib
import math
import random
import resource
import signal
import struct
import warnings

import numpy as np

from ort_sdk import GraphOptimizationLevel, InferenceSession, SessionOptions
from ort_sdk.api import OrtSdkError, tensor_type_element

LEVELS = (
    GraphOptimizationLevel.ORT_DISABLE_ALL,
    GraphOptimizationLevel.ORT_ENABLE_BASIC,
    GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    GraphOptimizationLevel.ORT_ENABLE_ALL,
)
SECONDS = 10
HEADROOM = 2 << 30
SLIPS = (AssertionError, AttributeError, LookupError, RecursionError, NameError, ImportError, struct.error)
"""What a pass or a kernel's making may not stumble over, even where the caller is told in good form."""
MAX_ELEMENTS = 100_000


class TookTooLong(BaseException):
    """No ``Exception``: nothing on the way may take it for a kernel's."""


@contextlib.contextmanager
def limits(seconds=SECONDS, headroom=HEADROOM):
    """Bounds on time and address space for what is done inside."""

    def stop(_number, _frame):
        raise TookTooLong

    with open("/proc/self/statm") as file:  # noqa: PTH123 - a kernel's file, not a path of ours
        used = int(file.read().split()[0]) * resource.getpagesize()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    before = signal.signal(signal.SIGALRM, stop)
    resource.setrlimit(resource.RLIMIT_AS, (used + headroom, hard))
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def tensor(element_type, shape, rng):
    """Small numbers of an element type; None for a shape too big to try."""
    if math.prod(max(size, 1) for size in shape) > MAX_ELEMENTS:
        return None
    numbers = np.random.default_rng(rng.randrange(2**32)).integers(0, 4, shape)
    dtype = element_type.numpy_dtype
    return numbers.astype(str).astype(object) if dtype.hasobject else numbers.astype(dtype)


def feed(argument, rng, resize=False):
    """A value for an input as declared; None if there is none, or a tensor of another shape if asked for."""
    kind, _, rest = argument.type.partition("(")
    if kind == "tensor":
        shape = [size if isinstance(size, int) else rng.choice((1, 2, 3)) for size in argument.shape]
        if resize:
            shape = [size + rng.choice((0, 1, -1)) for size in shape]
        element_type = tensor_type_element(argument.type)
        return None if element_type is None or min(shape, default=0) < 0 else tensor(element_type, shape, rng)
    if kind == "seq" and rest.startswith("tensor("):
        return [tensor(tensor_type_element(rest[:-1]), (2, 3), rng) for _ in range(2)]
    return None


def wrong_feeds(feeds, rng):
    """Feeds with one fault."""
    if not feeds:
        return {"extra": np.ones(2, np.float32)}
    name = rng.choice(sorted(feeds))
    spoilt = rng.choice((
        {}, {name: None}, {name: "text"}, {name: object()}, {name: [1, [2, 3]]}, {name: {}}, {1: feeds[name]},
        {name: np.zeros((1,) * 7, np.complex64)}, {name: np.array([object()])}, {name: np.zeros((0,), np.float16)},
    ))  # fmt: skip
    return {**{other: value for other, value in feeds.items() if other != name}, **spoilt}


def attempt(data, seed):
    """Take one model through everything.

    Returns:
        How many sessions could be made, and how many runs gave results.

    Raises:
        Exception: anything a caller may not be shown.
    """
    made = completed = 0
    for level in LEVELS:
        options = SessionOptions()
        options.graph_optimization_level = level
        try:
            session = InferenceSession(data, options, providers=["CPUExecutionProvider"])
        except OrtSdkError as error:
            if isinstance(error.__cause__, SLIPS):
                raise error.__cause__ from error
            continue
        made += 1
        rng = random.Random(seed)
        for turn in range(4):
            feeds = {argument.name: feed(argument, rng, resize=turn == 3) for argument in session.get_inputs()}
            try:
                session.run(None, feeds)
                completed += 1
            except OrtSdkError:
                pass
        with contextlib.suppress(OrtSdkError, TypeError):
            session.run(None, wrong_feeds(feeds, rng))
    return made, completed


def quiet_attempt(data, seed):
    """``attempt`` within limits, without numerical warnings."""
    with limits(), warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return attempt(data, seed)
