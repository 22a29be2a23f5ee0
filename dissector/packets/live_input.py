"""What a live source is fed by: an interface, or a pipe."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dissector.packets.block import Bytes
from dissector.packets.capture_reader import PacketColumns
from dissector.problems import Problem


@dataclass(frozen=True, slots=True)
class LivePackets:
    """Some packets in order of arrival, with the bytes they stand in."""

    data: Bytes
    """uint8; `columns.start` counts from its first byte."""
    columns: PacketColumns
    interface: NDArray[np.int32]
    """Index of each packet's interface, as the system numbers them; shape (n,), 0 for a pipe."""
    bytes_read: int = 0
    problems: tuple[Problem, ...] = ()


class LiveInput(Protocol):
    """Gives what has come, and never waits."""

    @property
    def ended(self) -> bool:
        """Nothing more will come, once what is there was taken."""

    def name_of(self, interface: int) -> str:
        """What an interface of its pieces is called."""

    def time(self) -> int | None:
        """ns since 1970: what comes now is about as late; None where nothing tells."""

    @property
    def is_pressing(self) -> bool:
        """So much waits that it should be taken before its time."""

    def take(self) -> list[LivePackets]:
        """All that is there."""

    def release(self) -> None:
        """What was taken has been copied."""

    def watch(self) -> list[Problem]:
        """What went wrong meanwhile."""

    def close(self) -> None:
        """Give everything back."""
