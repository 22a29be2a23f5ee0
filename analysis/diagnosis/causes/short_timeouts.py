"""Clients that close a connection before a response can arrive, for the rule `no_response`.

If `request.timeout.ms` is shorter than a round trip and the time of the broker, no response arrives
in time: the client closes the connection, connects again, and sends the request again. The capture
contains the response nevertheless, and no table contains the time of the FIN. But the last packet
of the connection replies to the FIN of the broker, which replies to that of the client:

    the client waited         from the request to the last packet, without a round trip
    the response took         from the request to the response, and from there to the client

A client that closes a connection because of a response waits longer than that. A client that stops
may close one before the response, too, but after any time, while timeouts have about the same. The
timer of a client may end much later: then the response arrives at about the same time as the FIN.
"""

from __future__ import annotations

from typing import Final

from analysis.answers.network import LINKS
from analysis.diagnosis.case import Case
from analysis.diagnosis.rule import Finding
from analysis.diagnosis.words import (
    Advice,
    capital,
    cells,
    client,
    clients,
    listed,
    ms,
    of_ends,
)
from analysis.display.terminal import counted
from analysis.sql.expressions import endpoint, first_packet, ms_between
from analysis.sql.query import Row

MARGIN_MS: Final = 10
"""Smallest difference between the two times: round trips vary, and acknowledgements are delayed."""
MARGIN_SHARE: Final = 0.06
"""The same, as a share of the round trip, or of the time of the broker."""
SAME: Final = 1.2
"""The median of timeouts is at most this multiple of their lower quartile: a client looks at its
timers when it has something to do, and a few clients stop before."""

SHORT_TIMEOUTS: Final = f"""
  with pending as (
    select client_id, exchanges.client_ip, connection_id, {endpoint("broker")} as broker, api,
      links.rtt_ms, request_packet, request_time, links.last_time,
      {ms_between("request_time", "links.last_time")} - links.rtt_ms as waited_ms,
      {ms_between("request_time", "response_time")} as answered_ms,
      answered_ms + links.client_rtt_ms as needed_ms,
      answered_ms - links.broker_rtt_ms as broker_ms,
      greatest({MARGIN_MS}, {MARGIN_SHARE} * links.rtt_ms) as margin_ms
    from exchanges join (
      select connection_id, client_rtt_ms, broker_rtt_ms, first_time, last_time,
        least(rtt_ms, handshake_rtt_ms) as rtt_ms
      from {LINKS}
      where opened and closed = 'fin'
        and coalesce(client_lost_bytes, 0) + coalesce(broker_lost_bytes, 0) = 0) as links
      using (connection_id)
    where response_time is not null and coalesce(error_code, 0) = 0
      and needed_ms > waited_ms - margin_ms
    qualify row_number() over (partition by connection_id order by request_time, nth) = 1)
  select client_id, client_ip, broker, mode(api) as api, count(*) as connections,
    count(*) filter (is_early) as early, median(waited_ms) filter (is_early) as waited_ms,
    quantile_cont(waited_ms, 0.25) filter (is_early) as short_ms,
    median(needed_ms) filter (is_early) as needed_ms, median(rtt_ms) as median_rtt_ms,
    {first_packet()} as first_packet, min(request_time) as first_time,
    max(last_time) as last_time
  from (
    select *, waited_ms <= needed_ms - margin_ms
      and waited_ms >= broker_ms + greatest(margin_ms, {MARGIN_SHARE} * broker_ms)
      and abs(waited_ms - answered_ms) >= margin_ms as is_early
    from pending)
  group by client_id, client_ip, broker
  having early > 0 and waited_ms <= {SAME} * short_ms
  order by connections desc, client_id, broker"""
"""SQL: clients that closed connections before the response, or at that time. Brokers that close a
connection with a response have waited for nothing: the last packet comes a round trip later."""

_TOO_SHORT: Final = Advice(
    "request.timeout.ms of the client is shorter than a round trip and the time of the broker: it "
    "closes the connection, connects again, and sends the request again",
    "client", "request.timeout.ms",
    "Raise it (30 s by default; socket.timeout.ms of librdkafka, 1 min) well above the longest "
    "response time. Repeated Produce requests write records again, unless the producer is "
    "idempotent.",
    "Kafka documentation: Producer Configs, request.timeout.ms",
)  # fmt: skip

COMMAND: Final = "network --by client_id,broker"


def short_timeouts(case: Case, least: float) -> list[Row]:
    """The rows of `SHORT_TIMEOUTS` with as many connections that ended early.

    Their two times differ by less than a round trip, so without a long one, there are none.
    """
    if not any((link["rtt_ms"] or 0) >= MARGIN_MS for link in case.answer(COMMAND)):
        return []
    return [row for row in case.rows(SHORT_TIMEOUTS) if row["early"] >= least]


def short_timeout_finding(case: Case, rows: list[Row]) -> Finding:
    """The finding for rows of `SHORT_TIMEOUTS` with one broker, with the most connections first."""
    links = {row["client_id"]: case.matching(COMMAND, row, "client_id broker")[0] for row in rows}
    row, link = rows[0], links[rows[0]["client_id"]]
    count = sum(each["connections"] for each in links.values())
    connections, early = (sum(row[name] for row in rows) for name in ("connections", "early"))
    is_critical = any(
        2 * each["connections"] >= links[each["client_id"]]["connections"] for each in rows
    )
    closed = f"Of {counted(count, 'connection')}, {'it' if len(links) == 1 else 'they'} closed"
    at_once = f", and {connections - early:,} at about that time" * (connections > early)
    needed = f"responses of {row['broker']} arrive"
    sentence = (
        f"{capital(client(row['client_id']))} gives up after {row['waited_ms']:,.0f} ms: {needed} "
        f"after {row['needed_ms']:,.0f} ms"
    )
    times = f"The times are medians; {ms(row['median_rtt_ms'])} of the second is a round trip."
    if len(links) > 1:
        sentence = f"{capital(clients([*links]))} give up before {needed}"
        medians = (
            f"{client(row['client_id'])} {row['waited_ms']:,.0f} and {row['needed_ms']:,.0f} ms"
            for row in rows
        )
        times = (
            "Medians of the time until they give up, and until responses arrive: "
            f"{listed(medians)}. A round trip takes {ms(row['median_rtt_ms'])}."
        )
    return Finding(
        severity="critical" if is_critical else "warning",
        **of_ends(rows, "client_id broker")
        | {"numbers": cells(link, "client_id broker connections rtt_ms broker_p50_ms")},
        sentence=sentence,
        evidence=f"{closed} {early:,} before the response arrived{at_once}. {times} Most of these "
        f"requests: {row['api']}.",
        command=COMMAND,
        requests=connections,
        **_TOO_SHORT._asdict(),
    )
