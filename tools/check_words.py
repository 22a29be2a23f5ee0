"""Check the words of names and prose: `python -m tools.check_words`.

PRIVATE words are errors in names, comments, docstrings, texts and documents: they have no meaning
for a reader with knowledge of TCP, Kafka and pandas. PHRASES are errors in the same prose, because
no reference documentation has them. FILLERS are errors as names, because a name is a noun for a
thing. CONTRACT has the columns of tables that keep their name, FOREIGN the functions of libraries.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
FOLDERS: Final = ("analysis", "dissector", "kafka_dissector", "tests", "tools")

# fmt: off
PRIVATE: Final = frozenset([
    "told", "tell", "tells", "telling", "teller", "who", "settle", "settles", "settled",
    "unsettled", "desk", "office", "parcel", "parcels", "crew", "asking", "spool", "faults",
])
# fmt: on
FILLERS: Final = frozenset(["some", "none", "every", "more", "rest", "one", "found"])
PHRASES: Final = re.compile(
    r"in the place of|look what|say what|what lies|what is left of|held against|turned round"
    r"|com(?:e|es) of (?:it|them)|of no use|by and by|for so long|no more and no less"
    r"|(?:the other side|not one|none) of (?:it|which)|one that was not|whoever|somebody",
    re.IGNORECASE,
)
CONTRACT: Final = "told_leader_epoch|told_leader|told_lag|asked_timestamp"
FOREIGN: Final = {"none": "st", "tell": "file"}
"""By name of the function: how the name of its module or object ends."""

_NAME: Final = re.compile(rf"{CONTRACT}|[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_TEXT: Final = re.compile(rf"{CONTRACT}|[a-z]+(?:'[a-z]+)?", re.IGNORECASE)


def counts() -> dict[str, Counter[str]]:
    """Private words, phrases and fillers of all Python files and documents, by path."""
    paths = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
    own = {Path(__file__), ROOT / "tests" / "tools" / "test_check_words.py"}
    by_file = {
        path.relative_to(ROOT).as_posix(): words_of(path.read_text())
        for path in paths
        if path not in own
    }
    documents = {*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")}
    for path in documents - {ROOT / "CHANGELOG.md"}:  # has the words that were renamed
        by_file[path.relative_to(ROOT).as_posix()] = words_of_prose(path.read_text())
    return by_file


def words_of(source: str) -> Counter[str]:
    """Private words, phrases and fillers of a program."""
    tree = ast.parse(source)
    words: Counter[str] = Counter()
    for name in names(tree):
        words.update(FILLERS & {name})
        words.update(word for word in map(str.lower, _NAME.findall(name)) if word in PRIVATE)
    if words_of_prose(source):
        for text in [*texts(tree), *comments(source)]:
            words.update(words_of_prose(text))
    return words


def words_of_prose(text: str) -> Counter[str]:
    """Private words and phrases."""
    words = Counter(word for word in map(str.lower, _TEXT.findall(text)) if word in PRIVATE)
    words.update(phrase.lower() for phrase in PHRASES.findall(" ".join(text.split())))
    return words


def names(tree: ast.AST) -> Iterator[str]:
    """Each occurrence of a name: of a variable, attribute, argument, function, class or module."""
    for node in ast.walk(tree):
        for field in ("id", "attr", "arg", "name", "asname", "rest"):
            value = getattr(node, field, None)
            if isinstance(value, str) and not is_foreign(node):
                yield from value.split(".")
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from node.module.split(".")


def is_foreign(node: ast.AST) -> bool:
    """Whether this is a function of a library."""
    return (
        isinstance(node, ast.Attribute)
        and node.attr in FOREIGN
        and ast.unparse(node.value).endswith(FOREIGN[node.attr])
    )


def texts(tree: ast.AST) -> Iterator[str]:
    """Strings, docstrings among them."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def comments(source: str) -> Iterator[str]:
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.string


def main() -> int:
    """Exit status: 1 if a file has such a word."""
    lines = [
        f"{path}: `{word}` {count} times"
        for path, words in sorted(counts().items())
        for word, count in sorted(words.items())
    ]
    print(*lines, sep="\n", end="\n" if lines else "")
    return int(bool(lines))


if __name__ == "__main__":
    raise SystemExit(main())
