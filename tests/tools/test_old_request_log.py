"""The request logs of old brokers, which are text instead of JSON."""

from __future__ import annotations

from typing import Any

import pytest

from tools.record.kafka import truth
from tools.record.kafka.old_request_log import entry

PRODUCE_0_8 = (
    "Name: ProducerRequest; Version: 0; CorrelationId: 13; ClientId: writer; RequiredAcks: -1; "
    "AckTimeoutMs: 10000 ms; TopicAndPartition: [orders,1] -> 335,[orders,0] -> 41 "
    "from client /127.0.0.1:33474;totalTime:21,requestQueueTime:1,localTime:17,remoteTime:0,"
    "responseQueueTime:3,sendTime:0"
)
LEADER_0_8 = (
    "Name:LeaderAndIsrRequest;Version:0;Controller:1;ControllerEpoch:1;CorrelationId:9;"
    "ClientId:id_1-host_127.0.0.1-port_9092;Leaders:id:1,host:127.0.0.1,port:9092;"
    "PartitionState:(orders,1) -> (LeaderAndIsrInfo:(Leader:2,ISR:2,1,LeaderEpoch:0,"
    "ControllerEpoch:1),ReplicationFactor:2),AllReplicas:2,1) from client /127.0.0.1:57056;"
    "totalTime:295,requestQueueTime:112,localTime:177,remoteTime:0,responseQueueTime:8,sendTime:6"
)
SHUTDOWN_0_9 = (
    "Name: ControlledShutdownRequest; Version: 1; CorrelationId: 0;ClientId:Some(1); BrokerId: 1 "
    "from connection 127.0.0.1:9092-127.0.0.1:47086;totalTime:28,requestQueueTime:1,localTime:26,"
    "remoteTime:0,responseQueueTime:1,sendTime:0,securityProtocol:PLAINTEXT,"
    "principal:User:ANONYMOUS"
)
FETCH_0_11 = (
    "{api_key=1,api_version=5,correlation_id=7,client_id=reader} -- {replica_id=-1,"
    "max_wait_time=500,min_bytes=1,max_bytes=52428800,isolation_level=1,topics=[{topic=orders,"
    "partitions=[{partition=0,fetch_offset=0,log_start_offset=-1,max_bytes=4096}]}]} "
    "from connection 127.0.0.1:9092-127.0.0.1:44580;totalTime:1064.518000,"
    "requestQueueTime:1.842000,localTime:16.704000,remoteTime:1003.389000,throttleTime:38.862000,"
    "responseQueueTime:0.818000,sendTime:2.902000,securityProtocol:PLAINTEXT,"
    "principal:User:ANONYMOUS,listener:PLAINTEXT"
)
METADATA_1_1 = (
    "RequestHeader(apiKey=METADATA, apiVersion=5, clientId=writer, correlationId=3) -- "
    "{topics=[orders],allow_auto_topic_creation=true},response:{throttle_time_ms=12,brokers=[],"
    "topic_metadata=[{error_code=5,topic=orders,partition_metadata=[{error_code=0,partition=1},"
    "{error_code=9,partition=0}]}]} from connection 127.0.0.1:9092-127.0.0.1:54954-1;"
    "totalTime:10.5,requestQueueTime:0.2,localTime:5.3,remoteTime:0.0,throttleTime:0.9,"
    "responseQueueTime:0.1,sendTime:4.0,securityProtocol:PLAINTEXT,principal:User:ANONYMOUS,"
    "listener:PLAINTEXT"
)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (PRODUCE_0_8, {"api_key": 0, "api": "PRODUCE", "version": 0, "correlation_id": 13,
                       "client_id": "writer", "acks": -1, "record_bytes": 376, "total_ms": 21,
                       "broker": "127.0.0.1:9093", "client": "127.0.0.1:33474"}),
        (LEADER_0_8, {"api_key": 4, "api": "LEADER_AND_ISR", "version": 0, "correlation_id": 9,
                      "client_id": "id_1-host_127.0.0.1-port_9092", "send_ms": 6}),
        (SHUTDOWN_0_9, {"api_key": 7, "api": "CONTROLLED_SHUTDOWN", "version": 1, "client_id": "1",
                        "broker": "127.0.0.1:9092", "client": "127.0.0.1:47086",
                        "principal": "User:ANONYMOUS"}),
        (FETCH_0_11, {"api_key": 1, "version": 5, "max_wait_ms": 500, "min_bytes": 1,
                      "max_bytes": 52428800, "isolation_level": "read_committed",
                      "remote_ms": 1003.389, "response_is_logged": False}),
        (METADATA_1_1, {"api_key": 3, "version": 5, "correlation_id": 3, "client_id": "writer",
                        "errors": [5, 9], "throttle_time_ms": 12, "client": "127.0.0.1:54954"}),
    ],
)  # fmt: skip
def test_facts_of_a_line(line: str, expected: dict[str, Any]) -> None:
    facts = truth.of_request(entry(line, "127.0.0.1:9093"))
    assert {name: facts.get(name) for name in expected} == expected


def test_responses_in_the_log_have_no_mark() -> None:
    facts = truth.of_request(entry(METADATA_1_1, ""))
    assert "response_is_logged" not in facts
