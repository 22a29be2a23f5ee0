"""Producers: whether idempotent and transactional ones are healthy.

An idempotent producer (KIP-98) has an id and an epoch, and numbers its records in each partition;
so a broker can tell what came twice from what is missing, and so can a capture. A newer producer of
the same transactional id gets a higher epoch, and the older one is fenced.

A transaction is a span: it begins with what it first writes (since KIP-890 nothing announces it; a
broker, or before it the producer, adds the partition), and it ends when the producer is told so
(EndTxn), or when brokers write markers without being asked: its time was up, or it was fenced. The
epoch grows with every transaction since KIP-890, and with every end that nobody asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

import pandas as pd
import pyarrow as pa

from analysis.answers.asof import as_of
from analysis.answers.common import Tables, milliseconds, shaped
from dissector.errors import DissectorError
from dissector.tables import TIME, TableColumn

_TEXT, _COUNT = pa.string(), pa.int64()

_WHO: Final = (
    TableColumn("client_id", _TEXT, "client, as it calls itself"),
    TableColumn("transactional_id", _TEXT, "name of the producer; null: it has no transactions"),
    TableColumn("producer_id", _COUNT, "its id"),
)

COLUMNS: Final = (
    *_WHO,
    TableColumn("first_epoch", _COUNT, "its first epoch in the capture"),
    TableColumn("last_epoch", _COUNT, "its highest epoch"),
    TableColumn("batches", _COUNT, "batches that it produced, with those sent again"),
    TableColumn("records", _COUNT, "records in them"),
    TableColumn("resent", _COUNT, "batches that it had sent before"),
    TableColumn("gaps", _COUNT, "places where sequence numbers are missing; lost by the capture?"),
    TableColumn("missing", _COUNT, "records that are missing there"),
    TableColumn("refused", _COUNT, "batches out of order, of an unknown producer, or repeated"),
    TableColumn("fenced", _COUNT, "times that it was told that its epoch is over"),
    TableColumn("committed", _COUNT, "transactions that committed"),
    TableColumn("aborted", _COUNT, "transactions that it aborted"),
    TableColumn("ended_by_broker", _COUNT, "transactions that brokers aborted by themselves"),
    TableColumn("unfinished", _COUNT, "transactions that failed, or of which no end is seen"),
    TableColumn("longest_ms", pa.float64(), "longest of its transactions", "ms"),
    TableColumn("first_time", TIME, "first time that it is heard of"),
    TableColumn("last_time", TIME, "last time"),
)

TRANSACTION_COLUMNS: Final = (
    *_WHO,
    TableColumn("producer_epoch", _COUNT, "its epoch"),
    TableColumn("start_time", TIME, "first time that something became part of it"),
    TableColumn("end_time", TIME, "when its end was told; null: it is not seen"),
    TableColumn("duration_ms", pa.float64(), "from the one to the other", "ms"),
    TableColumn(
        "outcome", _TEXT, "committed, aborted, aborted by the broker, failed, or open: no end seen"
    ),
    TableColumn("error", _TEXT, "what the broker answered to the last attempt to end it"),
    TableColumn("partitions", _COUNT, "partitions that it wrote to"),
    TableColumn("records", _COUNT, "records that it wrote"),
    TableColumn("bytes", _COUNT, "size of their batches", "bytes"),
    TableColumn("group_id", _TEXT, "group whose offsets it commits"),
)

GAP_COLUMNS: Final = (
    *_WHO,
    TableColumn("producer_epoch", _COUNT, "its epoch"),
    TableColumn("topic", _TEXT, "name of the topic"),
    TableColumn("partition", pa.int32(), "index of the partition"),
    TableColumn("time", TIME, "when the batch behind the gap was sent"),
    TableColumn("expected", _COUNT, "sequence number that was to follow"),
    TableColumn("found", _COUNT, "sequence number that followed"),
)

OTHER_COLUMNS: Final = MappingProxyType(
    {"--show transactions": TRANSACTION_COLUMNS, "--show gaps": GAP_COLUMNS}
)

REFUSED: Final = (
    45, 46, 59,
)  # fmt: skip
"""OUT_OF_ORDER_SEQUENCE_NUMBER, DUPLICATE_SEQUENCE_NUMBER, UNKNOWN_PRODUCER_ID."""
FENCED: Final = (47, 90)
"""INVALID_PRODUCER_EPOCH, PRODUCER_FENCED."""

_WRAP: Final = 1 << 31
"""Sequence numbers begin again at 0 behind 2^31 - 1."""

_ID: Final = ["producer_id", "producer_epoch"]
_LOG: Final = [*_ID, "topic", "partition"]


def producers(tables: Tables, *, show: str = "producers") -> pd.DataFrame:
    """Idempotent and transactional producers, those with trouble first; columns: `COLUMNS`.

    Needs batches and transactions. `show`: "producers"; "transactions", a row for each, in order of
    time, with `TRANSACTION_COLUMNS`; or "gaps", a row for each, with `GAP_COLUMNS`.
    Raises DissectorError for another `show`.
    """
    if show not in _SHOWN:
        raise DissectorError(f"show {show} is none of {', '.join(_SHOWN)}")
    batches = tables["batches"]
    batches = batches[(batches["api"] == "Produce") & batches["producer_id"].notna()]
    return _SHOWN[show](batches.sort_values("time", kind="stable"), tables["transactions"])


def _producers(batches: pd.DataFrame, told: pd.DataFrame) -> pd.DataFrame:
    spans, gaps = _spans(batches, told), _gaps(batches)
    heard = _heard(batches, told)
    found = heard.groupby("producer_id", sort=False).agg(
        first_epoch=("producer_epoch", "first"),
        last_epoch=("producer_epoch", "max"),
        fenced=("fenced", "sum"),
        first_time=("time", "min"),
        last_time=("time", "max"),
    )
    marks = batches.assign(
        resent=batches.duplicated([*_LOG, "base_sequence"]),
        refused=batches["error_code"].isin(REFUSED),
    )
    found = found.join(
        marks.groupby("producer_id").agg(
            batches=("time", "size"),
            records=("record_count", "sum"),
            resent=("resent", "sum"),
            refused=("refused", "sum"),
        )
    )
    gaps["missing"] = (gaps["found"] - gaps["expected"]) % _WRAP
    found = found.join(gaps.groupby("producer_id")["missing"].agg(gaps="size", missing="sum"))
    outcome = pd.DataFrame(
        {name: spans["outcome"].isin(of).astype("int64") for name, of in _OUTCOMES.items()}
    )
    outcome["longest_ms"] = spans["duration_ms"]
    ended = outcome.groupby(spans["producer_id"]).agg(
        dict.fromkeys(_OUTCOMES, "sum") | {"longest_ms": "max"}
    )
    found = found.join(ended)
    counts = found.columns.difference(["longest_ms", "first_time", "last_time", "last_epoch"])
    found[counts] = found[counts].fillna(0)
    found = found.reset_index().merge(_names(batches, told), on="producer_id", how="left")
    trouble = found[["fenced", "refused", "gaps", "ended_by_broker", "unfinished"]].sum(axis=1)
    order = trouble.sort_values(ascending=False, kind="stable").index
    return shaped(found.loc[order], COLUMNS)


_OUTCOMES: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "committed": ("committed",),
        "aborted": ("aborted",),
        "ended_by_broker": ("aborted by the broker",),
        "unfinished": ("failed", "open"),
    }
)


def _heard(batches: pd.DataFrame, told: pd.DataFrame) -> pd.DataFrame:
    """Each time that a producer is heard of, in order: its id and epoch, and whether fenced."""
    given = told[told["given_producer_id"].notna() & (told["api"] == "InitProducerId")]
    given = given.assign(
        producer_id=given["given_producer_id"], producer_epoch=given["given_producer_epoch"]
    )
    own = told[told["producer_id"].notna() & (told["api"] != "WriteTxnMarkers")]
    wanted = [*_ID, "time", "error_code"]
    rows = pd.concat([batches[wanted], given[wanted], own[wanted]])
    return rows.assign(fenced=rows["error_code"].isin(FENCED)).sort_values("time", kind="stable")


def _names(batches: pd.DataFrame, told: pd.DataFrame) -> pd.DataFrame:
    """The client id and the transactional id of each producer id, as far as they are told."""
    of_client = told["api"].isin(_OF_CLIENTS)
    told = told.assign(producer_id=told["given_producer_id"].fillna(told["producer_id"]))
    told = told.assign(client_id=told["client_id"].where(of_client))
    wanted = ["producer_id", "client_id", "transactional_id"]
    rows = pd.concat([told[wanted], batches[wanted[:2]]])
    return rows.groupby("producer_id", as_index=False)[wanted[1:]].first()


_OF_CLIENTS: Final = ("InitProducerId", "AddOffsetsToTxn", "TxnOffsetCommit", "EndTxn")
"""What only producers send; AddPartitionsToTxn may be of a broker, since KIP-890."""


def _gaps(batches: pd.DataFrame) -> pd.DataFrame:
    """Sequence numbers that no batch has, between others of the producer in the partition."""
    rows = batches[batches["base_sequence"].notna() & batches["record_count"].notna()]
    step = rows.groupby(_LOG)["base_sequence"].diff()
    wrapped = (step < -(_WRAP // 2)).fillna(False).astype("int64")
    wraps = wrapped.groupby([rows[name] for name in _LOG]).cumsum()
    first = rows["base_sequence"].astype("int64") + _WRAP * wraps
    rows = rows.assign(first=first, behind=first + rows["record_count"].astype("int64"))
    rows = rows.sort_values("first", kind="stable").drop_duplicates([*_LOG, "first"])
    rows["seen"] = rows.groupby(_LOG)["behind"].cummax()
    rows["expected"] = rows.groupby(_LOG)["seen"].shift()
    rows = rows[rows["expected"].notna() & (rows["first"] > rows["expected"])]
    rows = rows.assign(
        expected=rows["expected"].astype("int64") % _WRAP,
        found=rows["base_sequence"].astype("int64"),
    )
    return rows.sort_values("time", kind="stable")


def _of_gaps(batches: pd.DataFrame, told: pd.DataFrame) -> pd.DataFrame:
    gaps = _gaps(batches).drop(columns="client_id")
    return shaped(gaps.merge(_names(batches, told), on="producer_id", how="left"), GAP_COLUMNS)


def _spans(batches: pd.DataFrame, told: pd.DataFrame) -> pd.DataFrame:
    """A row for each transaction that something became part of."""
    did = _activity(batches, told)
    did = as_of(did, _ends(told), on="time", by=_ID, direction="forward")
    failed = told[(told["api"] == "EndTxn") & (told["error_code"] != 0).fillna(True)]
    failed = failed[[*_ID, "time", "error"]].assign(attempt=failed["time"])
    failed["error"] = failed["error"].fillna("no answer")
    did = as_of(did, failed.dropna(subset=_ID), on="time", by=_ID, direction="forward")
    spans = did.groupby([*_ID, "end_time"], dropna=False, sort=False).agg(
        start_time=("time", "min"),
        outcome=("outcome", "first"),
        error=("error", "first"),
        attempt=("attempt", "first"),
        partitions=("where", "nunique"),
        records=("records", "sum"),
        bytes=("bytes", "sum"),
        group_id=("group_id", "first"),
    )
    spans = spans.reset_index().sort_values("start_time", kind="stable", ignore_index=True)
    later = spans["outcome"].isin(["committed", "aborted"]) & (spans["attempt"] > spans["end_time"])
    spans["error"] = spans["error"].mask(later)
    unknown = spans["error"].map(lambda _: "failed", na_action="ignore").fillna("open")
    spans["outcome"] = spans["outcome"].fillna(unknown)
    spans["duration_ms"] = milliseconds(spans["end_time"] - spans["start_time"])
    return spans


def _activity(batches: pd.DataFrame, told: pd.DataFrame) -> pd.DataFrame:
    """What became part of transactions: id, epoch, time, where, records, bytes, group_id."""
    wrote = batches[batches["is_transactional"].fillna(False) & (batches["error_code"] == 0)]
    where = wrote["topic"].fillna("") + "/" + wrote["partition"].astype("str")
    wrote = wrote.assign(where=where, records=wrote["record_count"])
    added = told[told["api"].isin(_ADDS) & (told["error_code"] == 0)]
    added = added[~added["verify_only"].fillna(False).astype("bool")]
    wanted = [*_ID, "time", "where", "records", "bytes", "group_id"]
    rows = pd.concat([wrote, added]).reindex(columns=wanted)
    return rows.dropna(subset=[*_ID, "time"]).reset_index(drop=True)


_ADDS: Final = ("AddPartitionsToTxn", "AddOffsetsToTxn", "TxnOffsetCommit")


def _ends(told: pd.DataFrame) -> pd.DataFrame:
    """What ends transactions: id, the epoch that the transaction had, time, end_time, outcome."""
    told = told[(told["error_code"] == 0) & told["committed"].notna()]
    did = told["committed"].astype("bool")
    asked = told[told["api"] == "EndTxn"]
    asked = asked.assign(outcome=did.map({True: "committed", False: "aborted"}))
    marked = told[told["api"] == "WriteTxnMarkers"]
    marked = marked.assign(outcome=did.map({True: "committed", False: "aborted by the broker"}))
    bumped = marked.assign(producer_epoch=marked["producer_epoch"] - 1)
    rows = pd.concat([asked, marked, bumped])
    rows["end_time"] = rows["response_time"]
    return rows[[*_ID, "time", "end_time", "outcome"]].dropna(subset=[*_ID, "time"])


def _of_transactions(batches: pd.DataFrame, told: pd.DataFrame) -> pd.DataFrame:
    spans = _spans(batches, told).merge(_names(batches, told), on="producer_id", how="left")
    return shaped(spans, TRANSACTION_COLUMNS)


_SHOWN: Final[Mapping[str, Callable[[pd.DataFrame, pd.DataFrame], pd.DataFrame]]] = (
    MappingProxyType({"producers": _producers, "transactions": _of_transactions, "gaps": _of_gaps})
)
