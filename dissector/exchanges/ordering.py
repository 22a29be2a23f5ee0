"""Sort order by several columns, such as time and connection."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dissector.packets.block import Int64


def ordered(*columns: NDArray[np.integer]) -> Int64:
    """The stable order of n rows by the first column, then the next.

    If all columns and the row number fit into 63 bits, they are sorted as one number, which is
    several times as fast; 16 bits are sorted by their bytes (radix sort).
    """
    rows = np.arange(len(columns[0]))
    if not len(rows):
        return rows
    key, bits = np.zeros(len(rows), np.int64), 0
    for column in columns:
        smallest = int(column.min())
        width = (int(column.max()) - smallest).bit_length()
        bits += width
        if bits + len(rows).bit_length() > 63:
            return np.lexsort(columns[::-1])
        key <<= width
        key |= column - smallest
    if bits <= 16:
        return np.argsort(key.astype(np.uint16), kind="stable")
    key <<= len(rows).bit_length()
    key |= rows
    key.sort()
    key &= (1 << len(rows).bit_length()) - 1
    return key
