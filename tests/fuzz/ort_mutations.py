"""Mutants of files in ORT format, made of seeds. Standard library only: the process that tries them is measured."""

import random
import struct
from pathlib import Path

ODD_WORDS = (0, 1, 2, 4, 8, 0x7F, 0xFFFF, 2**24, 2**30, 2**31 - 1, 2**31, 2**32 - 8, 2**32 - 1)
ODD_LONGS = (-1, 0, 1, 2**31, 2**32 + 1, 2**40, 2**62, 2**63 - 1, -(2**63))


def _flip_bits(data, rng):
    for _ in range(rng.choice((1, 1, 1, 2, 8))):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def _cut(data, rng):
    del data[rng.randrange(len(data)) :]


def _rewrite_word(data, rng):
    at = 4 * rng.randrange(max(len(data) // 4, 1))
    if at + 4 <= len(data):
        struct.pack_into("<I", data, at, rng.choice((*ODD_WORDS, rng.randrange(len(data)))))


def _rewrite_offset(data, rng):
    """What may be an offset leads elsewhere: numbers in files are small, and offsets stay within the file."""
    for _ in range(50):
        at = 4 * rng.randrange(max(len(data) // 4 - 1, 1))
        number = struct.unpack_from("<I", data, at)[0] if at + 4 <= len(data) else 0
        if 4 <= number < len(data) - at:
            choices = (0, 4, rng.randrange(len(data)), len(data) - at, number - 4, number + 4, number + 8)
            struct.pack_into("<I", data, at, rng.choice(choices))
            return


def _rewrite_field_place(data, rng):
    at = 2 * rng.randrange(max(len(data) // 2, 1))
    if at + 2 <= len(data):
        struct.pack_into("<H", data, at, rng.choice((0, 1, 2, 4, 8, 65535, rng.randrange(200))))


def _rewrite_long(data, rng):
    if len(data) >= 16:
        struct.pack_into("<q", data, 8 * rng.randrange(len(data) // 8 - 1), rng.choice(ODD_LONGS))


def _change_small_number(data, rng):
    """What may be a size, an index, a version or a type stays one."""
    for _ in range(50):
        at = 4 * rng.randrange(max(len(data) // 4, 1))
        if at + 4 <= len(data) and struct.unpack_from("<I", data, at)[0] < 64:
            struct.pack_into("<I", data, at, rng.randrange(64))
            return


def _change_letter(data, rng):
    for _ in range(50):
        at = rng.randrange(len(data))
        if 0x61 <= data[at] <= 0x7A:
            data[at] = rng.randrange(0x61, 0x7B)
            return


def _copy_range(data, rng):
    length = 4 * rng.choice((1, 2, 4, 16))
    source, target = (4 * rng.randrange(max(len(data) // 4, 1)) for _ in range(2))
    data[target : target + length] = data[source : source + length]


MUTATIONS = (
    _flip_bits, _flip_bits, _cut, _rewrite_word, _rewrite_offset, _rewrite_offset, _rewrite_field_place, _rewrite_long,
    _change_small_number, _change_small_number, _change_letter, _copy_range,
)  # fmt: skip


def mutate(content, rng):
    """One mutant: bits flipped, the end cut off, offsets, counts, numbers and tables' fields set to something else."""
    data = bytearray(content)
    for _ in range(rng.choice((1, 1, 1, 2))):
        if data:
            rng.choice(MUTATIONS)(data, rng)
    return bytes(data)


def rebuild(folder, seed):
    """The mutant of a seed.

    Args:
        folder: with the sources, ``*.ort``.
        seed: any integer.

    Returns:
        Its bytes, and the source's path.
    """
    sources = sorted(Path(folder).glob("*.ort"))
    rng = random.Random(seed)
    # Each seed takes the next source, so that all get their share.
    source = sources[seed % len(sources)]
    return mutate(source.read_bytes(), rng), source
