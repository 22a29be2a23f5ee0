"""Control records: records that a broker or a KRaft controller writes into the log itself.

They are in batches with the control bit. The key is a version and a type, both int16 (KIP-98,
KIP-595, KIP-630, KIP-853). The type determines the structure of the value.
"""

from __future__ import annotations

import numpy as np

from dissector.packets.block import Int64
from dissector.records.batch_headers import Batches
from dissector.records.record_columns import RecordColumns
from dissector.streams.byteview import ContiguousBytes

CONTROL_KINDS = (
    "abort",
    "commit",
    "leader_change",
    "snapshot_header",
    "snapshot_footer",
    "kraft_version",
    "kraft_voters",
)
"""Name of each type of control record."""
NOT_CONTROL = -1
_KEY_LENGTH = 4


def control_types(columns: RecordColumns, batches: Batches) -> Int64:
    """Type of each record, shape (n,); NOT_CONTROL for ordinary records."""
    types = np.full(len(columns.offset), NOT_CONTROL)
    if batches.is_control.any():
        at, length = columns.key
        rows = np.flatnonzero(batches.is_control[columns.batch] & (length >= _KEY_LENGTH))
        types[rows] = ContiguousBytes(columns.row).number(at[rows] + 2, "u2")
    return types


def kind_of(control_type: int) -> str | None:
    """Name of a type in the `records` table; an unknown type is named by its number."""
    if control_type == NOT_CONTROL:
        return None
    if control_type < len(CONTROL_KINDS):
        return CONTROL_KINDS[control_type]
    return f"control_{control_type}"
