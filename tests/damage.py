"""Files as bad disks and broken transfers leave them."""

import random

KINDS = ["cut", "bit", "byte", "zeros", "noise", "lost", "doubled", "swapped", "longer"]


def damaged(whole: bytes, kind: str, count: int) -> list[bytes]:
    """``count`` copies of a file, each damaged at random, and each different from the file."""
    draw = random.Random(f"{kind} 0")
    found: list[bytes] = []
    while len(found) < count:
        data = _damage(bytearray(whole), kind, draw)
        if data != whole:
            found.append(data)
    return found


def _damage(data: bytearray, kind: str, draw: random.Random) -> bytes:
    at = draw.randrange(len(data))
    end = min(at + draw.choice([1, 4, 64, 512]), len(data))
    if kind == "cut":
        del data[at:]
    elif kind == "bit":
        data[at] ^= 1 << draw.randrange(8)
    elif kind == "byte":
        data[at] = draw.randrange(256)
    elif kind == "zeros":
        data[at:end] = bytes(end - at)
    elif kind == "noise":
        data[at:end] = draw.randbytes(end - at)
    elif kind == "lost":
        del data[at:end]
    elif kind == "doubled":
        data[at:at] = data[at:end]
    elif kind == "swapped":
        other = draw.randrange(len(data))
        data[at], data[other] = data[other], data[at]
    elif kind == "longer":
        data += draw.randbytes(draw.choice([1, 4, 512]))
    return bytes(data)
