"""Quality of the capture: how much of it could be read, and what other answers cannot cover.

    $ kafka-dissector quality captures/kafka-4-cut-requests.pcap.zst

**How to read it.** Each row is a kind of flaw, with its count and the total number of candidates,
so that parts without flaws are also listed. The candidates of the first two rows are all
connections; one without data does not count as unknown. Those of the other rows about
connections are Kafka connections, and those of requests in several connections are Produce requests
with records. Log segments have only rows of problems, without a total.

**What to do.** If bytes were lost, or the capture dropped packets, capture with a larger buffer
(`tcpdump -B 65536`) or a filter. If packets are truncated, set the snapshot length to 0 (`tcpdump
-s 0`). If a direction is missing, capture at the host itself, or mirror both directions. If it has
another address, capture on the interface of the container or of the network, not on the
bridge. If connections are encrypted, pass `--keylog`. If responses have an earlier time than their
request, the two directions were captured with different clocks, and latencies are wrong: correct
the times of one file with `editcap -t SECONDS`. If packets were captured more than once, capture on
one interface. If requests were captured in several connections, select one side of the proxy or of
the address translation, for example with `--broker`.

**How it is computed.** Lost bytes and packets truncated by a snapshot length remove messages from
all other answers; a connection with only one direction has no latencies; encrypted connections, and
versions newer than the definitions, are only counted. A failed TLS handshake is a problem, not an
encrypted connection: it hides no request. A connection was captured more than once if both sides
sent about twice the bytes of their messages, or more, and many packets repeat captured bytes. One
side is enough if it has a repeated packet for every second message, and at least ten: a bridge may
show only the requests twice. The rows and latencies of such connections are those of the first
copy, but the other copies count as retransmitted. The other side of a connection is under another
address if a connection with that side has the same client or broker, and the same correlation ids
at the same time; with another port of the client, that connection must lack one side, too. A
Produce request was captured in several connections if the same batches, with the same client id and
correlation id, wait for the response in two of them. Other answers count each copy. A response may
be missing if `unanswered` has the reason loss, one_sided or capture_end for its request.

**Limitations.** Packets that were lost before the first and after the last packet of a connection
leave no trace. Only pcapng files contain the number of packets that the capture dropped. A
connection that began before the capture is recognised by its port or its content.
"""

from __future__ import annotations

from typing import Final

from analysis.answers import ArrowTable, Tables, answer, select
from analysis.answers.unanswered import unanswered_requests
from analysis.columns import Column, resolved
from analysis.sql.expressions import literal, literals
from dissector.problems import FAILED_HANDSHAKE, FILE_KINDS, NO_KEY_LOG, UNDECRYPTED, UNREADABLE

_COLUMNS: Final = (
    Column("flaw", "string", "kind of flaw"),
    Column("count", "int64", "connections, exchanges or batches with this flaw"),
    Column(
        "total", "int64", "candidates: connections, exchanges or batches; null for other problems"
    ),
    Column("bytes", "int64", "bytes affected, if known", "bytes"),
    Column("detail", "string", "the worst or first example, or the reason"),
)


@answer(
    question="How much of this capture could be read, and what is missing?",
    place=15,
    tables=("connections", "exchanges", "batches", "problems"),
    rows="flaws",
    columns=_COLUMNS,
    essential="flaw count total detail",
    useful="bytes",
    lists_problems=True,
    former_names=("trust",),
)
def quality(tables: Tables) -> ArrowTable:
    """A row for each kind of flaw, even without any; then the kinds of problems.

    A capture without connections has only problems.
    """
    import pyarrow as pa

    from analysis.sql.query import shaped

    queries = [*_flaws(), _PROBLEMS]
    *flaws, problems = (shaped(select(tables, each), resolved(_COLUMNS)) for each in queries)
    if not flaws[0]["total"][0].as_py():
        return problems
    return pa.concat_tables([*flaws, problems])


def _flaw(name: str, rows: str, condition: str, detail: str = "null", bytes: str = "null") -> str:
    """A query for one row: the number of rows with a flaw; `detail` and `bytes` describe these."""
    return f"""
      with checked as (select *, coalesce({condition}, false) as is_flawed from {rows}),
      flawed as (from checked where is_flawed)
      select '{name}' as flaw, count(*) filter (is_flawed) as count, count(*) as total,
        (select {bytes} from flawed limit 1)::bigint as bytes,
        (select {detail} from flawed limit 1) as detail
      from checked"""


def _most_frequent(value: str) -> str:
    """SQL: the three most frequent values, separated by commas."""
    return f"""
      (select string_agg(value, ', ' order by place) from (
        select {value} as value, row_number() over (order by count(*) desc, min(nth)) as place
        from flawed group by value) where place <= 3)"""


_CONNECTIONS: Final = """(
  select *, coalesce(client_bytes, 0) + coalesce(broker_bytes, 0) as size,
    coalesce(client_lost_bytes, 0) + coalesce(broker_lost_bytes, 0) as lost
  from connections)"""
_REASONS: Final = {
    kind: reason for kind, reason in UNDECRYPTED.items() if kind not in FAILED_HANDSHAKE
}
_NOT_DECRYPTED: Final = f"""coalesce(
  (select case kind {
    " ".join(f"when {literal(kind)} then {literal(reason)}" for kind, reason in _REASONS.items())
} else arg_min(detail, nth) end
   from problems where kind in {literals([*_REASONS, "tls_unsupported"])}
     and not ends_with(detail, {literal(NO_KEY_LOG)})
   group by kind order by count(*) desc, min(nth) limit 1),
  'a key log decrypts them')"""
"""SQL: why most connections are encrypted. Problems have the reason."""
_ENCRYPTED: Final = f"""protocol = 'tls' and connection_id not in (
  select connection_id from problems
  where kind in {literals(FAILED_HANDSHAKE)} and connection_id is not null)"""
"""SQL: whether a row of `connections` hides requests. None follows a failed handshake."""
_KAFKA: Final = f"(from {_CONNECTIONS} where protocol = 'kafka')"

_LEAST_REPEATED: Final = 10
"""Packets. The timeout doubles each time (RFC 6298, section 5.5): as many retransmissions of one
packet take minutes, longer than clients wait."""


def _repeats(end: str) -> str:
    """SQL: whether all packets of an end were captured several times."""
    copies = f"{end}_copies"
    return f"""{copies} >= 1.9 and {end}_retransmitted >= greatest(messages / 2, {_LEAST_REPEATED})
        and (messages >= {_LEAST_REPEATED} or abs({copies} - round({copies})) <= 0.1)"""


REPEATED: Final = f"""(
  select connection_id, client_bytes + broker_bytes - sent - received as surplus,
    greatest(client_copies, broker_copies) as copies
  from (
    select *, client_bytes / nullif(sent, 0) as client_copies,
      broker_bytes / nullif(received, 0) as broker_copies
    from connections join (
      select connection_id, count(*) as messages, coalesce(sum(request_bytes), 0) as sent,
        coalesce(sum(response_bytes), 0) as received
      from exchanges group by all) using (connection_id))
  where client_retransmitted + broker_retransmitted >= (client_packets + broker_packets) / 20
    and (client_copies >= 1.9 and broker_copies >= 1.9
      or {_repeats("client")} or {_repeats("broker")}))"""
"""SQL: connections whose packets were captured more than once, the bytes of the other copies, and
how often each byte of the side with more copies was captured. Retransmissions alone double neither
the bytes of both sides, nor those of one side with many messages; few messages, whose packets a
path drops again and again, are seldom sent a whole number of times."""

_COPIES: Final = """(
  with sent as (
    select exchanges.nth, client_id, connection_id, correlation_id, exchanges.request_time,
      exchanges.response_time, exchanges.request_bytes, list(crc order by batches.nth) as crcs,
      broker_ip || ':' || broker_port as broker
    from exchanges join batches using (connection_id, correlation_id, client_id)
    where exchanges.api = 'Produce' and batches.api = 'Produce'
    group by all)
  select nth, request_bytes, broker, exists (
    from sent as earlier where earlier.connection_id != sent.connection_id
      and earlier.client_id is not distinct from sent.client_id
      and earlier.correlation_id = sent.correlation_id and earlier.crcs = sent.crcs
      and (earlier.request_time, earlier.nth) < (sent.request_time, sent.nth)
      and coalesce(earlier.response_time >= sent.request_time, true)) as is_copy
  from sent)"""
"""SQL: Produce requests with batches, and whether each is a copy: the same request waits for its
response in another connection, which may lack the direction of responses. A client that sends
batches again gives them another id."""

_TRANSLATED: Final = f"""(
  with ids as (
    select connection_id, count(*) as messages, sum(correlation_id) as ids from exchanges
    group by all),
  known as (from {_KAFKA} join ids using (connection_id)),
  sides as (
    select *, unnest(['client', 'broker']) as side, unnest([client_packets, broker_packets]) as sent
    from known)
  select if(count(*) = 0, '', '; other side under another address (NAT): ' || count(*))
  from (from sides where sent = 0) as half semi join (from sides where sent > 0) as other
    on half.side = other.side and half.messages = other.messages and half.ids = other.ids
    and ((half.client_ip, half.client_port) = (other.client_ip, other.client_port)
      or (half.broker_ip, half.broker_port) = (other.broker_ip, other.broker_port)
        and (half.client_port = other.client_port or 0 in (other.client_packets,
          other.broker_packets)))
    and half.first_time <= other.last_time and other.first_time <= half.last_time)"""
"""SQL: how many connections have their other direction in a connection with another client or
broker: the same correlation ids at the same time. Address translation may change all ports; but
many clients have the same ids, so a connection with another port must lack a direction, too."""


def _flaws() -> tuple[str, ...]:
    requests = f"""(
      select nth, reason from exchanges left join {unanswered_requests()} as unanswered using (nth)
      where exchanges.status != 'request_missing')"""
    return (
        _flaw(
            "connections of no known protocol", _CONNECTIONS, "protocol = 'unknown' and size > 0",
            "'most from ' || mode(client_ip || ' to port ' || broker_port)",
            "coalesce(sum(size), 0)",
        ),
        _flaw(
            "connections encrypted", _CONNECTIONS, _ENCRYPTED,
            _NOT_DECRYPTED, "coalesce(sum(size), 0)",
        ),
        _flaw("connections begun before the capture", _KAFKA, "not opened"),
        _flaw(
            "connections with one side only", _KAFKA, "client_packets = 0 or broker_packets = 0",
            f"'their latencies are unknown' || {_TRANSLATED}",
        ),
        _flaw(
            "connections with holes", _KAFKA, "lost > 0",
            "'most in connection ' || arg_min(connection_id, (-lost, nth))",
            "coalesce(sum(lost), 0)",
        ),
        _flaw(
            "connections captured more than once",
            f"({_KAFKA} left join {REPEATED} using (connection_id))", "copies is not null",
            "'each byte ' || round(median(copies), 1) || ' times'", "coalesce(sum(surplus), 0)",
        ),
        _flaw(
            "requests captured in several connections", _COPIES, "is_copy",
            "'Produce requests, most to ' || mode(broker)", "coalesce(sum(request_bytes), 0)",
        ),
        _flaw(
            "exchanges not decoded", "exchanges", "status = 'undecoded'",
            _most_frequent("coalesce(api || ' ' || api_version, 'an unknown API')"),
        ),
        _flaw("responses without their request", "exchanges", "status = 'request_missing'"),
        _flaw(
            "responses with an earlier time than their request", "exchanges", "latency_ms < 0",
            "'up to ' || round(-min(latency_ms), 3) || ' ms earlier'",
        ),
        _flaw(
            "requests whose response may be missing from the capture", requests,
            "reason in ('loss', 'one_sided', 'capture_end')", _most_frequent("reason"),
        ),
        _flaw(
            "batches with a wrong checksum",
            # Damage of a log segment is a problem of the file.
            "(from batches where connection_id is not null)", "not crc_ok",
            "'first in ' || arg_min(topic || '-' || partition, nth)", "coalesce(sum(bytes), 0)",
        ),
    )  # fmt: skip


_FILE: Final = f"""
  if(kind in {literals(each for each in FILE_KINDS if each != UNREADABLE)},
    coalesce(if(capture = '-', 'standard input', capture) || ': ', ''), '')"""
"""SQL: the name of the file, where the detail of a problem does not begin with it."""
_PROBLEMS: Final = f"""
  select 'problem: ' || stage || ' ' || kind as flaw,
    sum(coalesce(problems.count, 1))::bigint as count, null::bigint as total,
    coalesce(sum(bytes), 0) as bytes,
    arg_min({_FILE} || detail, nth) as detail
  from problems group by stage, kind order by 2 desc, min(nth)"""
