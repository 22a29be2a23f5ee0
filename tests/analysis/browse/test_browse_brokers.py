"""Brokers in the lists of the screen: their text is that of answers and filters."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from analysis.browse.commands import condition
from analysis.browse.rates_pane import _condition
from analysis.browse.rows import Rows, exchange_columns
from analysis.input.filters import Filter
from dissector.tables import EXCHANGES


@pytest.mark.parametrize(
    ("ip", "text"), [("10.0.0.9", "10.0.0.9:9092"), ("fd00::9", "[fd00::9]:9092")]
)
def test_a_condition_on_the_broker_of_a_row_selects_the_row(ip: str, text: str) -> None:
    given = [{"broker_ip": ip, "broker_port": port} for port in (9092, 9093)]
    rows = Rows([pa.RecordBatch.from_pylist(given, EXCHANGES.schema)], exchange_columns())
    shown = rows.take("broker", np.array([0]))[0].as_py()
    assert shown == text
    for chosen in (condition("broker", shown), _condition("broker", shown)):
        assert rows.matching(Filter([chosen])).tolist() == [0]
