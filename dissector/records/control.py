"""Control records: records that a broker or a KRaft controller writes into the log itself.

They are in batches with the control bit. The key is a version and a type, both int16 (KIP-98,
KIP-595, KIP-630, KIP-853). The type determines the structure of the value.
"""

from __future__ import annotations

import numpy as np

from dissector.packets.block import Int64
from dissector.records.batch_headers import Batches
from dissector.records.record_columns import LENGTH, NULL, RecordColumns

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
    front = columns.key[:, 0]
    length = front & LENGTH
    is_control = batches.is_control[columns.batch] & (length >= _KEY_LENGTH) & (length != NULL)
    types = (front >> 48 & 0xFF) << 8 | front >> 56  # the third and the fourth byte of the key
    return np.where(is_control, types.astype(np.int64), NOT_CONTROL)


def kind_of(control_type: int) -> str | None:
    """Name of a type in the `records` table; an unknown type is named by its number."""
    if control_type == NOT_CONTROL:
        return None
    if control_type < len(CONTROL_KINDS):
        return CONTROL_KINDS[control_type]
    return f"control_{control_type}"
