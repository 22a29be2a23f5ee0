"""Topic names by id (KIP-516).

From Fetch v13 and Produce v13 on, messages name topics by their id alone. Every message that tells
a topic's name and id together teaches it, whichever API it is, and it may come later than the one
that needs it. Until then an id stands for itself, as Kafka's 22 characters of base64url,
and is remembered as missing, so that whoever can wait knows what to replace.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dissector.exchanges.decoded_fields import Facts, distinct
from dissector.protocol.structures import METADATA_TOPIC, METADATA_TOPIC_ID


class TopicNames:
    """What is known of topics' names; grows while the capture is read."""

    def __init__(self) -> None:
        self.names = {METADATA_TOPIC_ID: METADATA_TOPIC}
        """Name by id, as text."""
        self.missing: set[str] = set()
        """Ids that were given out in place of a name."""

    def learn(self, facts: Facts) -> None:
        """Take what messages tell of names and ids that stand side by side."""
        for group, column in facts.columns("topic_id"):
            beside = group.texts_beside(column, "topic", np.arange(len(column.row)))
            if beside.null_count == len(beside):
                continue
            for topic_id, name in distinct(group.uuid(column), beside):
                if topic_id is not None and name is not None:
                    self.names[uuid_text(topic_id)] = name

    def resolve(self, ids: pa.Array) -> pa.DictionaryArray:
        """The name of each id (16 bytes or null), or the id as text."""
        encoded = ids.dictionary_encode()
        words = []
        for each in encoded.dictionary.to_pylist():
            text = uuid_text(each)
            if text not in self.names:
                self.missing.add(text)
            words.append(self.names.get(text, text))
        return pa.DictionaryArray.from_arrays(encoded.indices, pa.array(words, pa.string()))

    def lacks(self, column: pa.Array | pa.ChunkedArray) -> bool:
        """Whether a column of topics, plain or list, holds an id in place of a name."""
        if not self.missing:
            return False
        words = pc.list_flatten(column) if pa.types.is_list(column.type) else column
        return bool(pc.any(pc.is_in(words, self._missing())).as_py())

    def complete(self, column: pa.Array) -> pa.Array:
        """The same column with every id replaced whose name has become known since.

        In a list each name is once: a message may have named a topic, and given its id.
        """
        late = sorted(self.missing & self.names.keys())
        if not late:
            return column
        if pa.types.is_list(column.type):
            words = self.complete(column.values)
            return _each_once(
                pa.ListArray.from_arrays(column.offsets, words, mask=column.is_null())
            )
        where = pc.index_in(column, pa.array(late, pa.string()))
        return pc.coalesce(pa.array([self.names[each] for each in late]).take(where), column)

    def _missing(self) -> pa.Array:
        return pa.array(sorted(self.missing), pa.string())


def _each_once(lists: pa.ListArray) -> pa.ListArray:
    """The same lists of texts, without what stood in each of them before."""
    words = pc.list_flatten(lists)
    encoded = words.dictionary_encode()
    owner = pc.list_parent_indices(lists).to_numpy()
    codes = encoded.indices.fill_null(len(encoded.dictionary)).to_numpy()
    pairs = owner * (len(encoded.dictionary) + 1) + codes
    first = np.sort(np.unique(pairs, return_index=True)[1])
    counts = np.bincount(owner[first], minlength=len(lists))
    offsets = pa.array(np.append(0, np.cumsum(counts)), pa.int32())
    return pa.ListArray.from_arrays(offsets, words.take(pa.array(first)), mask=lists.is_null())


def uuid_text(raw: bytes) -> str:
    """A uuid as Kafka shows it: base64url of its 16 bytes, without padding."""
    return urlsafe_b64encode(raw)[:22].decode()
