"""Messages that the network transfers most of the time, for the rule `network_time`.

Latencies begin when a request has arrived, and end when its response begins. So they do not show
that a link is at its limit: a request or a response then takes long from its first byte to its
last.

Connections with zero windows do not count, because their receiver reads slowly, nor do those that a
quota throttles, or of which the capture lost bytes. A few zero windows are short peaks. Of an
incomplete message, the bytes that came count: the transfer may go on when the capture ends.
"""

from __future__ import annotations

from typing import Final

from analysis.diagnosis.case import Case
from analysis.diagnosis.rule import Finding, Limits
from analysis.diagnosis.words import client, listed, ms, of_client, percent, share, sql
from analysis.display.terminal import counted, size_text
from analysis.sql.expressions import endpoint, first_packet, ms_between, sum_of_ms
from analysis.sql.query import Row

ZERO_WINDOWS: Final = 5
"""Zero windows of a receiver that reads slowly, by default; see the rule `zero_windows`."""

RECEIVERS: Final = {"request": "broker", "response": "client"}
"""The receiver of each message."""


def _transfers(message: str, receiver: str) -> str:
    """SQL: the time for which each connection transfers messages, and the time that it lasts."""
    return f"""
      select any_value(client_id) as client_id, {endpoint("broker")} as broker,
        '{message}' as message, count(*) filter (transfer_ms > 0) as messages,
        sum({message}_bytes - coalesce(missing, 0)) filter (transfer_ms > 0) as bytes,
        {sum_of_ms("transfer_ms")} as transfer_ms,
        {first_packet()} as first_packet, min(request_time) as first_time,
        max(greatest(response_end_time, request_end_time)) as last_time,
        {ms_between("first_time", "last_time")} as span_ms
      from (
        select *, {ms_between(f"{message}_time", f"{message}_end_time")} as transfer_ms
        from exchanges left join (
          select connection_id, time, any_value(bytes) as missing from problems
          where kind = 'cut_message' group by all) as cut
          on exchanges.connection_id = cut.connection_id and {message}_time = cut.time
        where request_time is not null)
      where connection_id in (
        select connection_id from connections
        where coalesce({receiver}_zero_windows, 0) < {ZERO_WINDOWS}
          and coalesce(client_lost_bytes, 0) + coalesce(broker_lost_bytes, 0) = 0)
      group by connection_id, broker_ip, broker_port
      having coalesce(max(throttle_time_ms), 0) = 0 and messages > 0"""


TRANSFERS: Final = " union all ".join(_transfers(*each) for each in RECEIVERS.items())


def slow_transfers(case: Case, limits: Limits) -> list[Row]:
    """The transfers of each client and broker that take most of the time, in one direction."""
    return case.rows(f"""
      select client_id, broker, message, sum(messages) as messages, sum(bytes) as bytes,
        {sum_of_ms("transfer_ms")} as transfer_ms, {sum_of_ms("span_ms")} as span_ms,
        arg_min(first_packet, (first_time, first_packet)) as first_packet,
        min(first_time) as first_time,
        max(last_time) as last_time
      from ({TRANSFERS})
      where transfer_ms >= span_ms * {limits["transfer_percent"]} / 100
      group by client_id, broker, message
      having transfer_ms >= {limits["transfer_ms"]} and transfer_ms > 0
        and bytes / transfer_ms <= {limits["transfer_rate"]} * 1000
      order by transfer_ms desc, client_id, broker""")


_SPANS: Final = " union all ".join(
    f"""
  select client_id, '{message}' as message, {message}_bytes as bytes,
    {ms_between(f"{message}_time", f"{message}_end_time")} as ms from exchanges"""
    for message in RECEIVERS
)
COMMAND: Final = sql(f"""
  select client_id, message, count(*) as messages, sum(bytes)::bigint as bytes,
    sum(ms) as transfer_ms
  from ({_SPANS}) where ms > 0 group by all order by transfer_ms desc""")


def _reading(receiver: str, link: Row) -> str:
    """How a receiver reads messages; `link`: its row of `network`."""
    times = link[f"{receiver}_zero_windows"]
    closed = f"closed its window only {counted(times, 'time')}" if times else (
        "never closed its window"
    )  # fmt: skip
    return f"{receiver} read them as fast as they came: it {closed}."


def transfer_finding(case: Case, row: Row, waiting: list[Row]) -> Finding:
    """The finding for a row of `slow_transfers`; `waiting`: the rows of `network` of clients whose
    packets wait behind it."""
    is_request, name = row["message"] == "request", client(row["client_id"])
    rate = size_text(round(1000 * row["bytes"] / row["transfer_ms"]))
    part = percent(share(row["transfer_ms"], row["span_ms"]))
    (link,) = case.matching("network --by client_id,broker", row, "client_id broker")
    average = (
        f", {ms(row['transfer_ms'] / row['messages'])} on average" if row["messages"] > 1 else ""
    )
    others = [
        f"{client(each['client_id'])} take {ms(each['rtt_ms'])} (handshakes: "
        f"{ms(each['handshake_rtt_ms'])})"
        for each in waiting
    ]
    ends = f"{name} to {row['broker']}" if is_request else f"{row['broker']} to {name}"
    return Finding(
        severity="warning",
        **of_client(row, "client_id message"),
        sentence=f"The network transfers {row['message']}s from {ends} for {part} of the time, at "
        f"{rate} a second",
        evidence=f"{counted(row['messages'], row['message'])} with {size_text(row['bytes'])} took "
        f"{ms(row['transfer_ms'])} from the first byte to the last{average}. The "
        f"{_reading(RECEIVERS[row['message']], link)} "
        f"{percent(link['retransmitted_percent'] or 0)} of the packets were retransmitted; the "
        f"round trip is {ms(link['rtt_ms'])}."
        + (f" Other packets between these hosts wait, too: round trips of {listed(others)}."
           if others else ""),
        cause="a link between client and broker is at its limit, or the path loses packets, or its "
        "round trip is too long for the buffers of the sockets"
        + ", or the broker reads these records slowly from its disk"
        * (not is_request),
        side="network",
        setting="compression.type",
        change="Compare the rate with that of the links on the path, and look for other traffic on "
        "them. Compressed batches need less of it (compression.type of the producer). On a long "
        "path, raise send.buffer.bytes and receive.buffer.bytes, or leave them to the system (-1).",
        reference="Kafka documentation: Producer Configs; RFC 7323",
        command=COMMAND,
        requests=row["messages"],
    )  # fmt: skip
