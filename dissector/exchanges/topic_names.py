"""Topic names by id (KIP-516).

From Fetch v13 and Produce v13 on, messages refer to topics by id only. Names are learned from all
messages that contain both, which may come later than the messages that need them. Until then a row
contains the id, as Kafka's 22 characters of base64url. Such ids are recorded as unresolved, so that
the rows can be completed later.
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64encode
from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dissector.exchanges.decoded_fields import DecodedFields, distinct_pairs
from dissector.protocol.structures import METADATA_TOPIC, METADATA_TOPIC_ID

_COMMENT = re.compile(r"Topic id ([\w-]{22}) is ([\w.-]{1,249})")
"""249: the longest topic name of a broker."""


class TopicNames:
    """Topic names by id, learned while the capture is read."""

    def __init__(self) -> None:
        self.names = {METADATA_TOPIC_ID: METADATA_TOPIC}
        """Name by id as text."""
        self.unresolved: set[str] = set()
        """Ids that rows contain in place of a name."""

    def learn_from_comments(self, comments: Iterable[str]) -> None:
        """Learn from comments on a capture file, as `comment` writes them."""
        for match in filter(None, map(_COMMENT.fullmatch, comments)):
            self.names.setdefault(match[1], match[2])

    def learn(self, fields: DecodedFields) -> None:
        """Learn from messages that contain the name and the id of a topic."""
        for group, column in fields.columns("topic_id"):
            names = group.sibling_texts(column, "topic")
            if names.null_count == len(names):
                continue
            for topic_id, name in distinct_pairs(group.uuid(column), names):
                if topic_id is not None and name is not None:
                    self.names[uuid_text(topic_id)] = name

    def resolve(self, ids: pa.Array) -> pa.DictionaryArray:
        """The name of each id (16 bytes or null); the id as text if its name is unknown."""
        encoded = ids.dictionary_encode()
        words = []
        for each in encoded.dictionary.to_pylist():
            text = uuid_text(each)
            if text not in self.names:
                self.unresolved.add(text)
            words.append(self.names.get(text, text))
        return pa.DictionaryArray.from_arrays(encoded.indices, pa.array(words, pa.string()))

    @property
    def missing(self) -> set[str]:
        """Ids that rows contain, and whose name is unknown so far."""
        return self.unresolved - self.names.keys()

    def replace_ids(self, column: pa.Array) -> pa.Array:
        """The column with ids replaced by the names that have been learned since.

        A list contains each name once: a message may contain both the name and the id of a topic.
        """
        learned = sorted(self.unresolved & self.names.keys())
        if not learned:
            return column
        if pa.types.is_list(column.type):
            words = self.replace_ids(column.values)
            # Arrow takes no mask with the offsets of a slice.
            is_null = np.append(column.is_null().to_numpy(zero_copy_only=False), False)
            offsets = pa.array(column.offsets.to_numpy(), mask=is_null)
            return _each_once(pa.ListArray.from_arrays(offsets, words))
        index = pc.index_in(column, pa.array(learned, pa.string()))
        return pc.coalesce(pa.array([self.names[each] for each in learned]).take(index), column)


def comment(topic_id: str, name: str) -> str:
    """A comment on a capture file without the messages that name the topic."""
    return f"Topic id {topic_id} is {name}"


def _each_once(lists: pa.ListArray) -> pa.ListArray:
    """The lists of texts without repetitions within a list."""
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
    """A uuid as Kafka prints it: base64url of its 16 bytes, without padding."""
    return urlsafe_b64encode(raw)[:22].decode()
