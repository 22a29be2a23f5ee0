"""Leaders move when nodes stop; refused requests are those of the logs of brokers."""

from __future__ import annotations

from typing import Any

import pytest

import analysis
from tests.analysis.answering import broker_log, capture, made
from tests.analysis.made_rows import exchange_at, partition
from tools.record.kafka.truth import read

NEEDS = ("topics", "errors", "partitions", "exchanges", "connections")
NS = 1_000_000_000
CODES = {"NOT_LEADER_OR_FOLLOWER": 6, "FENCED_LEADER_EPOCH": 74, "UNKNOWN_LEADER_EPOCH": 76}


def events(name: str, event: str) -> list[dict[str, Any]]:
    rows = read(name)
    return [row for row in rows if row.get("event") == event]


@pytest.mark.parametrize(
    ("name", "topic", "node"), [("kafka-3-zookeeper", "orders", 2), ("kafka-4-quorum", "orders", 5)]
)
def test_leaders_move_when_their_node_is_stopped(name: str, topic: str, node: int) -> None:
    stopped = next(row["time"] for row in events(name, "stopped") if row["node"] == node)
    moves = analysis.leadership(capture(name, NEEDS)).query("topic == @topic")
    left = moves[(moves["previous_leader"] == node) & (moves["leader"] != node)]
    assert len(left) > 0
    # A broker that is stopped hands its leadership over first; followers are fenced, and so learn.
    assert ((left["time"].astype("int64") - stopped) / NS).between(0, 1).any()
    assert (left["leader_epoch"] > left["previous_epoch"]).all()
    assert (left["errors"] > 0).any()


@pytest.mark.parametrize(
    ("name", "unlogged"),
    [("kafka-3-zookeeper", 0), ("kafka-4-errors", 1)],  # a broker that stops does not log its last
)
def test_every_request_that_brokers_refused_is_counted_once(name: str, unlogged: int) -> None:
    logged = broker_log(name)["errors"].dropna()
    codes = [[code for code in codes if code in CODES.values()] for codes in logged]
    moves = analysis.leadership(capture(name, NEEDS))
    assert moves["errors"].sum() == unlogged + sum(map(len, codes))
    clients = analysis.leadership(capture(name, NEEDS), show="clients")
    assert clients["leader_errors"].sum() == unlogged + sum(map(bool, codes))


@pytest.mark.parametrize("name", ["kafka-2-4", "kafka-3-zookeeper"])
def test_a_controller_with_zookeeper_moves_leaders_before_brokers_refuse_requests(
    name: str,
) -> None:
    """Brokers learn of a new epoch from its request, also those of topics that no client uses."""
    moves = analysis.leadership(capture(name, NEEDS))
    assert (moves["errors"] > 0).any()
    assert moves["leader"].notna().all()
    assert (moves["time"] <= moves["first_error_time"].fillna(moves["time"])).all()


def test_a_partition_that_was_moved_under_its_clients() -> None:
    """scenarios/trouble.py moves `movable` from node 1 to node 2 under a producer and a reader."""
    move = analysis.leadership(capture("kafka-4-errors", NEEDS)).query("topic == 'movable'").iloc[0]
    assert (move["previous_leader"], move["leader"], move["reported_by"]) == (1, 2, "broker")
    assert (move["leader_epoch"], move["error"]) == (1, "NOT_LEADER_OR_FOLLOWER")
    assert move["clients"] == 2  # the client, and the follower that was the leader


def test_nothing_moves_where_nothing_does() -> None:
    for name in ("kafka-4-followed", "kafka-4-transactions"):
        assert analysis.leadership(capture(name, NEEDS)).empty


def topic(at: int, leader: int, epoch: int | None) -> dict[str, object]:
    return {"time": at * NS, "topic": "t", "partition": 0, "leader": leader, "leader_epoch": epoch}


def error(at: int, name: str = "NOT_LEADER_OR_FOLLOWER") -> dict[str, object]:
    return {
        "time": at * NS, "topic": "t", "partition": 0, "error": name, "client_id": "c",
        "client_ip": "10.0.0.1",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("reported_leaders", "moves"),
    [
        ([topic(1, 1, 0)], []),
        ([topic(1, 1, 0), topic(2, 2, 1)], [(2, 1)]),
        ([topic(1, 1, 0), topic(2, 1, 1)], [(1, 1)]),  # elected again
        ([topic(1, 1, 3), topic(2, 2, 2)], []),  # a broker that is behind
        ([topic(1, 1, 3), topic(2, 2, 2), topic(3, 2, 4)], [(2, 4)]),
        ([topic(1, 1, 0), topic(2, -1, 0), topic(3, 2, 1)], [(-1, 0), (2, 1)]),
        ([topic(1, 1, None), topic(2, 2, None)], [(2, None)]),
        # An old client is the first that shows a move, or a later one.
        ([topic(1, 1, 0), topic(2, 2, None), topic(3, 2, 1)], [(2, 1)]),
        ([topic(1, 1, 0), topic(2, 1, None), topic(3, 1, 1), topic(4, 1, None)], [(1, 1)]),
        ([topic(1, 1, 0), topic(2, 2, None), topic(3, 1, 2)], [(2, None), (1, 2)]),
    ],
)
def test_changes_of_leader_and_epoch(
    reported_leaders: list[dict[str, object]], moves: list[tuple[int, int | None]]
) -> None:
    leaders = analysis.leadership(made(topics=reported_leaders)).astype("object")
    rows = leaders[["leader", "leader_epoch"]].where(leaders["leader_epoch"].notna(), None)
    assert [tuple(row) for row in rows.values.tolist()] == [
        move if move[1] is not None else (None, None) for move in moves
    ]


def test_a_request_that_is_refused_for_several_partitions_is_one_request() -> None:
    ids = {"connection_id": 0, "correlation_id": 7}
    rows = [error(at) | ids | {"partition": each} for at in (1, 2) for each in range(5)]
    rows += [error(3, "NOT_COORDINATOR") | ids | {"resource": group} for group in ("g", "h")]
    (row,) = analysis.leadership(made(errors=rows), show="clients").to_dict("records")
    assert (row["leader_errors"], row["coordinator_errors"]) == (2, 1)


def test_a_topic_that_was_created_again_has_epochs_of_its_own() -> None:
    reported_leaders = [
        topic(1, 1, 5) | {"topic_id": "A"}, topic(9, 1, 0) | {"topic_id": "B"},
        topic(20, 2, 1) | {"topic_id": "B"},
    ]  # fmt: skip
    (move,) = analysis.leadership(made(topics=reported_leaders)).to_dict("records")
    assert (move["time"].value, move["leader"], move["previous_epoch"]) == (20 * NS, 2, 0)


def test_brokers_lead_the_partitions_of_the_newest_metadata() -> None:
    """Partition 0 moves from 1 to 2, and a broker that is behind responds last; 1 has no leader; 2
    was part of an earlier topic of this name."""
    states = [
        (1, 2, 1, 4, "A"), (1, 0, 1, 5, "B"), (1, 1, 1, 5, "B"), (2, 0, 2, 6, "B"),
        (2, 1, -1, 6, "B"), (3, 0, 1, 5, "B"),
    ]  # fmt: skip
    rows = [
        topic(at, leader, epoch) | {"partition": partition, "topic_id": id, "replicas": [1, 2]}
        for at, partition, leader, epoch, id in states
    ]
    brokers = analysis.leadership(made(topics=rows), show="brokers").set_index("broker_id")
    assert brokers["leads"].to_dict() == {2: 1, 1: 0}
    assert brokers["replicas"].to_dict() == {2: 2, 1: 2}
    assert brokers["preferred"].to_dict() == {2: 0, 1: 2}


@pytest.mark.parametrize(
    ("used", "deleted", "unknown", "created", "leads"),
    [
        (3, None, None, None, 1),
        (3, 4, None, None, 0),
        (3, 4, None, 6, 1),  # again
        (5, 4, None, None, 1),  # used later
        (3, None, 4, None, 1),  # by a broker that does not know the topic yet
        (3, None, 14, None, 0),
        (20, None, 14, None, 1),
    ],
)
def test_brokers_do_not_lead_deleted_topics(
    used: int, deleted: int | None, unknown: int | None, created: int | None, leads: int
) -> None:
    states = [topic(at, 1, 0) | {"replicas": [1]} for at in (1, created) if at]
    kept = topic(1, 2, 0) | {"topic": "kept", "replicas": [2]}
    request = {"api": "DeleteTopics", "topics": ["t"]}
    tables = made(
        topics=[*states, kept],
        partitions=[partition("Produce", used * NS)],
        exchanges=[exchange_at(at * NS, **request) for at in (deleted,) if at],
        errors=[
            error(at) | {"api": "Metadata", "error": "UNKNOWN_TOPIC_OR_PARTITION"}
            for at in (unknown,) if at
        ],
    )  # fmt: skip
    brokers = analysis.leadership(tables, show="brokers").set_index("broker_id")
    assert brokers["leads"].to_dict() == {2: 1} | ({1: 1} if leads else {})


@pytest.mark.parametrize(("at", "errors"), [(19, 1), (21, 1), (5, 0), (40, 0)])
def test_errors_go_with_the_nearest_move(at: int, errors: int) -> None:
    rows = analysis.leadership(made(topics=[topic(1, 1, 0), topic(20, 2, 1)], errors=[error(at)]))
    assert rows.loc[rows["leader"].notna(), "errors"].tolist() == [errors]
    assert rows["errors"].sum() == 1


def test_clients_that_connect_again() -> None:
    def connection(number: int, first: int, last: int) -> dict[str, object]:
        return {
            "connection_id": number, "client_ip": "10.0.0.1", "broker_ip": "10.0.0.9",
            "broker_port": 9092, "first_time": first * NS, "last_time": last * NS,
            "opened": True, "closed": "rst" if number == 0 else "fin", "protocol": "kafka",
        }  # fmt: skip

    def reconnects(*times: tuple[int, int]) -> int:
        rows = [connection(number, *each) for number, each in enumerate(times)]
        row = analysis.leadership(made(connections=rows), show="clients").iloc[0]
        assert (row["connections"], row["resets"]) == (len(times), 1)
        return int(row["reconnects"])

    assert reconnects((1, 5), (2, 9)) == 0  # a client may have several
    assert reconnects((1, 5), (2, 9), (6, 9)) == 1
    assert reconnects((1, 3), (4, 9), (5, 9)) == 1
    assert reconnects((1, 3), (4, 5), (6, 9)) == 2
