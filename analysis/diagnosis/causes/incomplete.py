"""Clients that close a connection before they have a whole response, for the rule `no_response`.

A response that takes longer than `request.timeout.ms` to transfer never arrives: the client closes
the connection, connects again, and requests the same records. Either the path is slow, or it drops
large packets: then nothing arrives, or only the small first packet of a response. A client that
stops also leaves behind the response that a broker is sending at that moment.
"""

from __future__ import annotations

from typing import Final

from analysis.answers.unanswered import TIMEOUT_MS
from analysis.diagnosis.case import Case
from analysis.diagnosis.causes.dropped import RETRANSMITTED, SMALL_BYTES, TRUNCATING
from analysis.diagnosis.rule import Finding
from analysis.diagnosis.words import Advice, capital, client, ms, of_client, percent, share, sql
from analysis.display.terminal import counted, size_text
from analysis.sql.expressions import endpoint, first_packet, ms_between
from analysis.sql.query import Row

_INCOMPLETE: Final = """
  from exchanges join connections using (connection_id)
    join (select connection_id, time as response_time, bytes from problems
      where kind = 'cut_message') as cut using (connection_id, response_time)"""
"""SQL: exchanges whose response has no more bytes."""

SLOW: Final = Advice(
    "the network is too slow to transfer responses of this size within request.timeout.ms, so the "
    "client requests them again and again",
    "network", None,
    "Compare the throughput of the path with the size of the responses. On the client, lower "
    "max.partition.fetch.bytes and fetch.max.bytes, or raise request.timeout.ms.",
    "Kafka documentation: Consumer Configs, request.timeout.ms",
)  # fmt: skip

COMMAND: Final = sql(f"""
  select client_id, api, response_bytes, bytes as missing_bytes, response_packet {_INCOMPLETE}
    order by response_time""")


def incomplete_responses(case: Case) -> list[Row]:
    """Responses of which bytes are missing at the end of their connection, by client and broker.

    The largest is that of which the most bytes are missing.
    """
    return case.rows(f"""
      with incomplete as (
        select exchanges.*, bytes as missing_bytes, broker_retransmitted,
          {ms_between("request_time", "last_time")} as wait_ms
        {_INCOMPLETE} where closed is not null and coalesce(broker_lost_bytes, 0) = 0
          and {ms_between("response_time", "last_time")} >= {TIMEOUT_MS})
      select client_id, {endpoint("broker")} as broker, api, count(*) as responses,
        arg_max(response_bytes, missing_bytes) as response_bytes,
        max(missing_bytes) as missing_bytes,
        arg_max(response_packet, missing_bytes) as response_packet,
        min(wait_ms) as shortest_ms, max(wait_ms) as longest_ms,
        bool_and(broker_retransmitted >= {RETRANSMITTED}
          or response_bytes - missing_bytes < {SMALL_BYTES}) as is_blocked,
        sum(broker_retransmitted) as retransmitted,
        {first_packet()} as first_packet, min(request_time) as first_time,
        max(request_time) as last_time
      from incomplete group by client_id, broker, api
      order by responses desc, client_id, broker, api""")


def incomplete_finding(row: Row) -> Finding:
    """The finding for a row of `incomplete_responses`."""
    size, missing = row["response_bytes"], row["missing_bytes"]
    arrived = percent(100 - share(missing, size))
    again = row["retransmitted"]
    return Finding(
        severity="critical",
        **of_client(row, "client_id api response_bytes missing_bytes response_packet"),
        sentence=f"{capital(client(row['client_id']))} closes connections before it has the whole "
        f"response to {row['api']}",
        evidence=f"{counted(row['responses'], 'response')} from {row['broker']} did not arrive "
        f"completely. The client waited {ms(row['shortest_ms'])} to {ms(row['longest_ms'])}, and "
        f"received {'at most ' * bool(again)}{arrived} of a response with {size_text(size)}."
        + f" The broker retransmitted {counted(again, 'packet')} of these responses."
        * bool(again),
        command=COMMAND,
        requests=row["responses"],
        **(TRUNCATING if row["is_blocked"] else SLOW)._asdict(),
    )
