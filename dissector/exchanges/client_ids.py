"""The client ids of requests as text.

A client id of which the capture lacks bytes ends with `CUT`. A damaged length extends a client id
over the body, which may contain a secret. Before each secret, the body has a byte of a number that
is a control character. So for the APIs with secrets, a client id ends, with `CUT`, at its first
control character.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dissector.byteview import ByteView
from dissector.exchanges.columns import CUT
from dissector.exchanges.decoded_fields import texts
from dissector.exchanges.message_headers import MessageHeaders, RequestHeaders
from dissector.protocol.notation import Direction
from dissector.secrets import CONTROL, has_secrets


def client_ids(
    headers: MessageHeaders, parts: RequestHeaders, spaces: Sequence[ByteView]
) -> pa.Array:
    """The client id of each request, in a dictionary; null if there is none."""
    client = texts(spaces, headers.space, parts.client_id, parts.client_id_length)
    if parts.client_id_is_cut.any():
        text = client.cast(pa.string())
        marked = pc.binary_join_element_wise(text, CUT, "")
        client = pc.if_else(parts.client_id_is_cut, marked, text).dictionary_encode()
    has_control = pc.match_substring_regex(client.dictionary, CONTROL)
    if pc.any(has_control).as_py():
        suspects = np.flatnonzero(pc.fill_null(has_control.take(client.indices), False))
        api_keys = parts.api_key[suspects].tolist()
        is_extended = np.zeros(len(client), np.bool_)
        is_extended[suspects] = [has_secrets(key, Direction.REQUEST) for key in api_keys]
        text = client.cast(pa.string())
        shortened = pc.replace_substring_regex(text, f"(?s){CONTROL}.*", CUT)
        client = pc.if_else(is_extended, shortened, text).dictionary_encode()
    return client
