"""What findings about errors add to their evidence: partitions, brokers, names and settings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

from analysis.diagnosis.case import Case
from analysis.diagnosis.causes.changed_clusters import changed_clusters, changed_evidence
from analysis.diagnosis.causes.error_advice import MISPLACED, NO_LEADER, OFFLINE, UNKNOWN
from analysis.diagnosis.causes.resets import OFFSET_OUT_OF_RANGE, skipped_dates
from analysis.diagnosis.causes.sessions import BEFORE_LOGIN
from analysis.diagnosis.words import capital, client, clients, listed, ms
from analysis.display.terminal import counted, shell_words, time_text
from analysis.sql.expressions import endpoint, literals
from analysis.sql.query import Row

SHARED_ADDRESSES: Final = """
  with responses as (
    select host || ':' || port as address, list_sort(list(distinct broker_id)) as broker_ids
    from brokers where api = 'Metadata' and host is not null
    group by connection_id, correlation_id, time, address)
  select distinct address, broker_ids from responses where len(broker_ids) > 1 order by all"""
"""SQL: addresses of several brokers, by the same Metadata response."""

LEADERLESS: Final = """
  select topic, partition, any_value(replicas) as replicas from topics where leader < 0
  group by all order by topic, partition"""

OFFLINE_BROKERS: Final = f"""
  select distinct {endpoint("broker")} as broker from errors where error = '{OFFLINE}'
  order by broker"""

TOO_LARGE_ALONE: Final = """
  select client_id, topic, count(*) as batches from batches
  where api = 'Produce' and error_code = 10 and record_count = 1 group by all order by all"""
"""SQL: batches of one record that brokers refused with MESSAGE_TOO_LARGE."""

REFUSED_DATES: Final = """
  select client_id, topic,
    max(epoch_ns(max_timestamp) / 1e6 - epoch_ns(time) / 1e6) as ahead_ms,
    max(epoch_ns(time) / 1e6 - epoch_ns(base_timestamp) / 1e6) as behind_ms
  from batches where api = 'Produce' and error_code = 32 group by all"""
"""SQL: how far the records of batches with INVALID_TIMESTAMP are from the clock of the capture."""

SHARED_INSTANCES: Final = ("FENCED_INSTANCE_ID", "UNRELEASED_INSTANCE_ID")

INSTANCES: Final = f"""
  with instances as (
    select group_id, group_instance_id, list_sort(list(distinct client_id)) as client_ids
    from memberships where group_instance_id is not null and client_id is not null group by all)
  select distinct group_id, group_instance_id, client_ids
  from errors join instances
    on list_contains(client_ids, errors.client_id) and coalesce(resource = group_id, true)
  where error in {literals(SHARED_INSTANCES)} and len(client_ids) > 1 order by all"""
"""SQL: static members (KIP-345) with several client ids, one of which got an error."""

GROUP_PROTOCOLS: Final = """
  with refused as (
    select distinct client_id, group_id from memberships
    where error = 'INCONSISTENT_GROUP_PROTOCOL' and group_id is not null)
  select refused.client_id, group_id, list_sort(list(distinct protocol)) as protocols
  from refused join memberships using (group_id) where protocol is not null and error_code = 0
  group by all order by all"""
"""SQL: the groups that refused a client, and their assignors."""

REFUSED_MECHANISMS: Final = """
  select distinct client_id, sasl_mechanism from errors join connections using (connection_id)
  where error = 'UNSUPPORTED_SASL_MECHANISM' and sasl_mechanism is not null order by all"""

DENIED: Final = """
  select distinct client_id, error, resource from errors
  where ends_with(error, '_AUTHORIZATION_FAILED') and resource is not null order by all"""


NOT_AUTHENTICATED: Final = "SASL_AUTHENTICATION_FAILED"
NOT_AUTHORIZED: Final = "TOPIC_AUTHORIZATION_FAILED"
CHANGES: Final = {
    NOT_AUTHENTICATED: ("AlterUserScramCredentials", "ExpireDelegationToken"),
    NOT_AUTHORIZED: ("CreateAcls", "DeleteAcls"),
    OFFSET_OUT_OF_RANGE: ("DeleteRecords",),
    **dict.fromkeys(UNKNOWN, ("DeleteTopics",)),
}
"""APIs that change what a client may do, or delete its topics or records, by the error that it then
gets."""
DELETIONS: Final = ("DeleteRecords", "DeleteTopics")


def _shared_addresses(case: Case, errors: list[Row]) -> str:
    """Sentences about addresses that several brokers advertise."""
    return "".join(
        f" Brokers {listed(row['broker_ids'])} advertise the same address: {row['address']}."
        for row in case.rows(SHARED_ADDRESSES)
    )


def _too_large_alone(case: Case, errors: list[Row]) -> str:
    """A sentence about refused batches that no client can split."""
    refused = {(row["client_id"], row["topic"]) for row in errors}
    batches: Counter[str | None] = Counter()
    for row in case.rows(TOO_LARGE_ALONE):
        if (row["client_id"], row["topic"]) in refused:
            batches[row["client_id"]] += row["batches"]
    number = sum(batches.values())
    does = "consists" if number == 1 else "consist"
    return (
        f" {counted(number, 'batch')} of {clients([*batches])} {does} of one record, which is lost."
        if batches else ""
    )  # fmt: skip


def _refused_dates(case: Case, errors: list[Row]) -> str:
    """A sentence about the timestamps of refused records."""
    refused = {(row["client_id"], row["topic"]) for row in errors}
    ages = [
        (row[f"{side}_ms"] or 0, words)
        for row in case.rows(REFUSED_DATES) if (row["client_id"], row["topic"]) in refused
        for side, words in (("ahead", "in the future"), ("behind", "in the past"))
    ]  # fmt: skip
    age_ms, words = max(ages, default=(0, ""))
    return f" The records are dated up to {ms(age_ms)} {words}." if age_ms > 0 else ""


def _leaderless(case: Case, errors: list[Row]) -> str:
    """A sentence about partitions without a leader in Metadata."""
    topics = {row["topic"] for row in errors}
    partitions = listed(
        f"{row['topic']}-{row['partition']} (replicas: {', '.join(map(str, row['replicas']))})"
        for row in case.rows(LEADERLESS) if row["topic"] in topics
    )  # fmt: skip
    return f" Without a leader: {partitions}." if partitions else ""


def _offline_brokers(case: Case, errors: list[Row]) -> str:
    """A sentence about the brokers with an offline log directory."""
    brokers = [row["broker"] for row in case.rows(OFFLINE_BROKERS)]
    return f" The error comes from {listed(brokers)}." if brokers else ""


def _refused_mechanisms(case: Case, errors: list[Row]) -> str:
    """A sentence about SASL mechanisms that a broker does not support."""
    names = {row["client_id"] for row in errors}
    requested = dict.fromkeys(
        row["sasl_mechanism"] for row in case.rows(REFUSED_MECHANISMS) if row["client_id"] in names
    )
    first = min(errors, key=lambda row: row["first_time"])
    packet = first["first_packet"]
    file = case.file_of_response(packet, first["first_time"])
    capture = shell_words([file]) if file else "CAPTURE"
    return (
        f" Requested: {listed(requested)}. The response contains the mechanisms of the listener: "
        f"`kafka-dissector show {capture} --packet {packet}`."
        if requested else ""
    )  # fmt: skip


def _resources(case: Case, errors: list[Row]) -> str:
    """A sentence about the names that clients may not use."""
    error, names = errors[0]["error"], {row["client_id"] for row in errors}
    denied = dict.fromkeys(
        f"`{row['resource']}`"
        for row in case.rows(DENIED) if row["error"] == error and row["client_id"] in names
    )  # fmt: skip
    return f" {_RESOURCES[error]}: {listed(denied)}." if denied else ""


def _earlier_successes(case: Case, errors: list[Row]) -> str:
    """Sentences about requests that succeeded before the first error, and the change since then."""
    error, first = errors[0]["error"], min(row["first_time"] for row in errors)
    names, apis = (literals({row[name] for row in errors}) for name in ("client_id", "api"))
    is_alike = (
        f"""api not in {literals(BEFORE_LOGIN)} and connection_id in (
          select connection_id from connections where sasl_mechanism is not null)"""
        if error == NOT_AUTHENTICATED
        else f"api in {apis} and {_is_of_topics(errors)}"
    )
    (successes,) = case.rows(f"""
      select count(*) as requests, epoch_ns(max(response_time)) as last_time from exchanges
      where error_code = 0 and epoch_ns(response_time) < {first} and client_id in {names}
        and {is_alike}""")
    is_unknown = error in UNKNOWN
    if not successes["requests"] and not is_unknown:
        return ""
    before = (
        f" Before, {counted(successes['requests'], 'request')} succeeded, the last one at "
        f"{time_text(successes['last_time'], 3)}."
        if successes["requests"] else ""
    )  # fmt: skip
    changed = changed_evidence(changed_clusters(case, first)) if is_unknown else ""
    return before + changed + _changes(case, errors)


def last_changes(case: Case, errors: list[Row]) -> list[Row]:
    """The last of the requests `CHANGES` before the first error; empty without any."""
    error, first = errors[0]["error"], min(row["first_time"] for row in errors)
    return case.rows(f"""
      select client_id, api, epoch_ns(request_time) as time from exchanges
      where error_code = 0 and epoch_ns(request_time) < {first}
        and api in {literals(CHANGES[error])}
        and (api not in {literals(DELETIONS)} or {_is_of_topics(errors)})
      order by time desc limit 1""")


def _changes(case: Case, errors: list[Row]) -> str:
    """A sentence for each of `last_changes`."""
    return "".join(
        f" {capital(client(row['client_id']))} sent {row['api']} at {time_text(row['time'], 3)}."
        for row in last_changes(case, errors)
    )


def _is_of_topics(errors: list[Row]) -> str:
    """SQL: whether a request is about topics of errors."""
    return (
        f"list_has_any(topics, list_value{literals({row['topic'] for row in errors})}::varchar[])"
    )


def _reset_dates(case: Case, errors: list[Row]) -> str:
    """Sentences about records that are no longer in the log: their dates, and requests that deleted
    them."""
    return skipped_dates(case, errors) + _changes(case, errors)


def _instances(case: Case, errors: list[Row]) -> str:
    """Sentences about clients that share a group.instance.id."""
    names = {row["client_id"] for row in errors}
    return "".join(
        f" In group `{row['group_id']}`, {clients(row['client_ids'])} have the group.instance.id "
        f"`{row['group_instance_id']}`."
        for row in case.rows(INSTANCES) if names & {*row["client_ids"]}
    )  # fmt: skip


def _protocols(case: Case, errors: list[Row]) -> str:
    """Sentences about the assignors of groups that refused a member."""
    names = {row["client_id"] for row in errors}
    groups = {
        row["group_id"]: row["protocols"]
        for row in case.rows(GROUP_PROTOCOLS) if row["client_id"] in names
    }  # fmt: skip
    return "".join(f" Group `{name}` uses {listed(used)}." for name, used in groups.items())


_RESOURCES: Final = {
    "GROUP_AUTHORIZATION_FAILED": "Group",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": "Transactional id",
}
EVIDENCE: Final[Mapping[str, Callable[[Case, list[Row]], str]]] = {
    **dict.fromkeys(SHARED_INSTANCES, _instances),
    "INCONSISTENT_GROUP_PROTOCOL": _protocols,
    **dict.fromkeys(MISPLACED, _shared_addresses),
    NO_LEADER: _leaderless,
    OFFLINE: _offline_brokers,
    "MESSAGE_TOO_LARGE": _too_large_alone,
    "INVALID_TIMESTAMP": _refused_dates,
    **dict.fromkeys(_RESOURCES, _resources),
    **dict.fromkeys(CHANGES, _earlier_successes),
    OFFSET_OUT_OF_RANGE: _reset_dates,
    "UNSUPPORTED_SASL_MECHANISM": _refused_mechanisms,
}
"""Functions that add to the evidence of an error."""
