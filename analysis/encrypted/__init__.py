"""Response times of encrypted connections, from the direction of their packets.

turns           packets -> turns: bytes of the client, then bytes of the broker
response_times  turns and the table `connections` -> response times of clients and brokers
"""

from __future__ import annotations

from typing import Final

BY: Final = ("client", "broker")
"""The default columns to group by."""
FILTERS: Final = ("client", "broker", "since", "until")
"""The fields of a `Filter` for values that encrypted connections show."""
