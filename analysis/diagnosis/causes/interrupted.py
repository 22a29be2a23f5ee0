"""Paths that carry nothing for seconds, for the rule `retransmissions`.

While a path is interrupted, TCP sends the oldest packet of a connection again, after 200 ms and
then after twice the time each (RFC 6298, section 5.5; Linux starts with 200 ms). These packets are
few, and do not show a lossy link.

Packets have no times in the tables. But a request of a client then waits for its response, until
the path is back or the connection ends. After a response in vain, the client sends no request, and
the connection does not end with FIN. A connection that was only idle sends nothing again. One of
which the capture has a single direction does not show what came back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from analysis.answers.network import LINKS
from analysis.diagnosis.case import Case
from analysis.diagnosis.causes.dropped import RETRANSMITTED
from analysis.diagnosis.causes.pauses import PAUSE_MS
from analysis.diagnosis.rule import Finding
from analysis.diagnosis.words import Advice, ends, ms, of_ends, verb
from analysis.kafka.normal import group_barriers
from analysis.sql.expressions import endpoint, literals
from analysis.sql.query import Row

if TYPE_CHECKING:
    from analysis.diagnosis.rule import Numbers

_INTERRUPTED: Final = Advice(
    "the path was interrupted, or the other host was down or paused",
    "network", None,
    "Look at the hosts, switches and firewalls between these addresses at this time: packets of "
    "the sender did not arrive, or nothing came back.",
    "RFC 6298, section 5",
)  # fmt: skip


def interrupted_directions(case: Case) -> dict[tuple[str | None, str, str], Row]:
    """The times in which senders retransmitted in vain, by client id, broker and sender.

    `resent`: the packets that they can have sent again meanwhile; `lasts_ms`: the longest time.
    """
    rows = case.rows(f"""
      with resending as (
        select *, {endpoint("broker")} as broker from {LINKS}
        where client_ip != broker_ip and client_packets > 0 and broker_packets > 0
          and greatest(client_retransmitted, broker_retransmitted) >= {RETRANSMITTED}),
      sent as (
        select resending.*, request_time, response_time, status, api,
          epoch_ns(request_time) + coalesce(max_wait_ms, 0)::bigint * 1000000 as wait_since
        from exchanges join resending using (connection_id)),
      silences as (
        select connection_id, 'client' as sender, client_retransmitted as sent_again,
          wait_since as since, epoch_ns(coalesce(response_time, last_time)) as until
        from sent
        where status in ('answered', 'unanswered') and api not in {literals(group_barriers())}
        union all
        select connection_id, 'broker', any_value(broker_retransmitted),
          epoch_ns(max(response_time)), epoch_ns(any_value(last_time))
        from sent where closed is distinct from 'fin'
        group by connection_id having max(response_time) >= max(request_time)),
      longest as (
        select connection_id, sender, any_value(sent_again) as sent_again,
          max(until - since) / 1e6 as lasts_ms, arg_max(since, until - since) as since,
          arg_max(until, until - since) as until
        from silences group by all)
      select client_id, broker, sender, min(since) as first_time, max(until) as last_time,
        max(lasts_ms) as lasts_ms, count(*) as connections,
        -- Before the first timeout, Linux sends a tail loss probe (RFC 8985, section 7).
        sum(least(longest.sent_again, 1 + floor(log2(lasts_ms / 200 + 1))))::bigint as resent
      from longest join resending using (connection_id)
      where longest.sent_again >= {RETRANSMITTED} and lasts_ms >= {PAUSE_MS} group by all""")
    return {(row["client_id"], row["broker"], row["sender"]): row for row in rows}


def interrupted_finding(rows: list[Row], numbers: Numbers, command: str) -> Finding:
    """A finding for the directions of one client, or of one broker.

    `rows`: of `lossy_directions`, with the columns of `interrupted_directions`. `numbers`: of the
    first one.
    """
    name, broker = ends(rows)
    count, packets, resent = (
        sum(row[column] for row in rows) for column in ("sent_again", "packets", "resent")
    )
    to = {"client": f"from {name} to {broker}", "broker": f"from {broker} to {name}"}
    senders = {row["sender"] for row in rows}
    path = to[senders.pop()] if len(senders) == 1 else f"between {name} and {broker}"
    longest_ms = max(row["lasts_ms"] for row in rows)
    return Finding(
        severity="warning",
        **of_ends(rows, "client_id broker") | {"numbers": numbers},
        sentence=f"TCP retransmits packets {path} in vain: no message came back for "
        f"{ms(longest_ms)}",
        evidence=f"{count:,} of {packets:,} packets {verb(count, 'were')} retransmitted, up to "
        f"{resent:,} of them in this time.",
        command=command,
        requests=sum(row["connections"] for row in rows),  # the oldest one of each
        **_INTERRUPTED._asdict(),
    )
