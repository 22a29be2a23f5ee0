"""Words that names and prose avoid: where they count."""

import pytest

from tools.check_words import words_of


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("told = 1", {"told": 1}),
        ("class LogTeller: ...", {"teller": 1}),
        ("def f(who, *, told_value): return rows.settled", {"who": 1, "told": 1, "settled": 1}),
        ("from desk.rows import value as found", {"desk": 1, "found": 1}),
        ("every = some + 1", {"every": 1, "some": 1}),
        ('"""Who tells?"""  # a parcel', {"who": 1, "tells": 1, "parcel": 1}),
        ('f"{value} told"', {"told": 1}),
        ("""# in the\n# place of it""", {}),
        ('"""Look what\n    is left."""', {"look what": 1}),
        ("x = 1  # whoever calls", {"whoever": 1}),
        ("position = self._file.tell() + st.none", {}),
        ("def tell(): ...", {"tell": 1}),
        ("every_row = one_row  # some text, found in one place", {}),
        ("whole = row.told_leader, row.told_leader_epoch, row['told_lag'], 'asked_timestamp'", {}),
    ],
)
def test_words_of_a_program(source, words):
    assert words_of(source) == words
