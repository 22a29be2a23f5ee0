"""Tables as DataFrames: which pandas dtype each Arrow type becomes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    import pandas as pd


def frame(table: pa.Table) -> pd.DataFrame:
    """One table; see `analysis.load` for its dtypes."""
    made: pd.DataFrame = table.to_pandas(types_mapper=_dtypes().get)
    return made


@cache
def _dtypes() -> Mapping[pa.DataType, Any]:
    """The pandas dtype of each Arrow type that has a nullable one; imports pandas.

    Without these an integer column with a null would be float64, and lose large offsets; and its
    dtype would depend on whether this capture happens to have a null in it.
    """
    import pandas as pd

    return {
        pa.int8(): pd.Int8Dtype(),
        pa.int16(): pd.Int16Dtype(),
        pa.int32(): pd.Int32Dtype(),
        pa.int64(): pd.Int64Dtype(),
        pa.bool_(): pd.BooleanDtype(),
    }
