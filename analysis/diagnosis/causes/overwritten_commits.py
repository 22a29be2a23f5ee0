"""Groups whose committed offsets go back again and again, for `growing_lag`.

The coordinator divides the partitions among the members of a group, and refuses the commits of
others. Consumers with assign() are no members: each may read all partitions, and commit their
offsets. A consumer that is behind then sets the group back, and the next one sets it forward again.
A consumer that starts later begins at the last commit: it skips records, or reads them again.

An application that seeks to an earlier offset each time it starts also sets its group back, after
the earlier connection has made its last commit. An administrator resets offsets a few times
only.
"""

from __future__ import annotations

from typing import Final

from analysis.answers.lag import SUCCESSFUL
from analysis.diagnosis.case import Case
from analysis.diagnosis.rule import Finding
from analysis.diagnosis.words import Advice, cells, clients, known, span_of, sql, topics
from analysis.display.terminal import counted
from analysis.sql.query import Row

BACK: Final = f"""
  with own as (
    select *, max(response_time) over (
      partition by group_id, topic, partition, connection_id) as last_own
    from {SUCCESSFUL} where api = 'OffsetCommit' and "offset" is not null),
  commits as (
    select *, lag("offset") over before as offset_before,
      lag(connection_id) over before as connection_before,
      lag(client_id) over before as client_before, lag(last_own) over before as last_before
    from own
    window before as (partition by group_id, topic, partition order by response_time, nth)),
  back as (
    select *, last_before > response_time as is_overwritten
    from commits where "offset" < offset_before and connection_id != connection_before)
  select group_id, topic, partition, is_overwritten, count(*) as times, min("offset") as lowest,
    max(offset_before - "offset") as records,
    list_sort(list_distinct(list(client_id) || list(client_before))) as client_ids,
    min(response_time) as first_time, max(response_time) as last_time
  from back where group_id is not null group by group_id, topic, partition, is_overwritten
  order by times desc, group_id, topic, partition"""
"""SQL: partitions whose committed offset went back when another connection committed, and whether
the one before continued to commit: an application that starts and seeks has no other connection."""


def overwritten_commits(case: Case, least: float) -> list[Row]:
    """The rows of `BACK` with at least this number of times, the most first."""
    return [row for row in case.rows(BACK) if row["times"] >= least]


def overwritten_finding(rows: list[Row]) -> Finding:
    """A finding for the partitions of a group, that which went back most often first."""
    row, names = rows[0], sorted({name for row in rows for name in row["client_ids"] if name})
    times = sum(each["times"] for each in rows)
    by = f": {clients(names)} commit offsets of the same partitions" if names else ""
    sentence = f"Consumers of group `{row['group_id']}` overwrite each other's offsets{by}"
    if not row["is_overwritten"]:
        sentence = f"Group `{row['group_id']}` goes back to earlier offsets again and again"
    return Finding(
        severity="warning",
        subject=f"group `{row['group_id']}`",
        clients=known(names),
        sentence=sentence,
        evidence=f"In {counted(len(rows), 'partition')} of "
        f"{topics(sorted({each['topic'] for each in rows}))}, the committed offset went back "
        f"{counted(times, 'time')} when another connection committed, by up to "
        f"{counted(max(each['records'] for each in rows), 'record')}."
        + ("" if row["is_overwritten"]
           else f" The earlier connection sent no later commit. The lowest of these offsets of "
           f"partition {row['partition']} is {row['lowest']:,}."),
        numbers=cells(row, "group_id topic partition times records"),
        command=sql(BACK),
        requests=times,
        **span_of(rows),
        **(_SHARED if row["is_overwritten"] else _SOUGHT)._asdict(),
    )  # fmt: skip


_SHARED: Final = Advice(
    "several consumers read the same partitions with one group.id: they use assign(), so that the "
    "group does not divide the partitions, or a second process runs by mistake",
    "client", "group.id",
    "Use subscribe(), so that each partition has one reader, or give each consumer that reads all "
    "partitions a group.id of its own. A consumer that starts begins at the last commit: it skips "
    "records, or reads them again.",
    "Kafka documentation: KafkaConsumer, Manual Partition Assignment",
)  # fmt: skip
_SOUGHT: Final = Advice(
    "the application seeks to an earlier offset each time it starts or gets partitions "
    "(seekToBeginning, seek), and processes the records from there again",
    "client", None,
    "Do not seek if the group has a committed offset. Without one, auto.offset.reset=earliest "
    "begins at the start of the log. If the application has to read all records after each start, "
    "use assign() without group.id.",
    "Kafka documentation: KafkaConsumer, Controlling The Consumer's Position",
)  # fmt: skip
