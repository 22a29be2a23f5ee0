"""The input of a live source: an interface, or a pipe."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dissector.arrays import value
from dissector.packets.block import Bytes
from dissector.packets.capture_reader import PacketColumns
from dissector.problems import Problem


@value
class LivePackets:
    """Packets in order of arrival, with their bytes."""

    data: Bytes
    """uint8; `columns.start` counts from its first byte."""
    columns: PacketColumns
    interface: NDArray[np.int32]
    """The system's index of each packet's interface; shape (n,), 0 for a pipe."""
    bytes_read: int = 0
    problems: tuple[Problem, ...] = ()


class LiveInput(Protocol):
    """Returns packets that have arrived, without waiting."""

    @property
    def ended(self) -> bool:
        """Whether no packet will arrive after those that are available now."""

    def name_of(self, interface: int) -> str:
        """The name of an interface of `LivePackets`."""

    def time(self) -> int | None:
        """ns since 1970: approximate time of packets that arrive now; None if unknown."""

    @property
    def is_pressing(self) -> bool:
        """Whether the buffer is so full that it should be emptied early."""

    def take(self) -> list[LivePackets]:
        """All available packets."""

    def release(self) -> None:
        """Free the memory of taken packets, which the caller has copied."""

    def watch(self) -> list[Problem]:
        """Problems since the last call."""

    def close(self) -> None:
        """Close the input and free its memory."""
