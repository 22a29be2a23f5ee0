"""Tables as DataFrames: which pandas dtype each Arrow type becomes."""

from __future__ import annotations

from types import MappingProxyType

import pandas as pd
import pyarrow as pa

# Without these an integer column with a null would be float64, and lose large offsets; and its
# dtype would depend on whether this capture happens to have a null in it.
_DTYPES = MappingProxyType(
    {
        pa.int8(): pd.Int8Dtype(),
        pa.int16(): pd.Int16Dtype(),
        pa.int32(): pd.Int32Dtype(),
        pa.int64(): pd.Int64Dtype(),
        pa.bool_(): pd.BooleanDtype(),
    }
)


def frame(table: pa.Table) -> pd.DataFrame:
    """One table; see `analysis.load` for its dtypes."""
    made: pd.DataFrame = table.to_pandas(types_mapper=_DTYPES.get)
    return made
