"""Random definition pages, with all that the notation has, and the layouts that they describe."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from dissector.protocol.notation import Direction, Layout
from dissector.protocol.parser import parse_page
from dissector.protocol.roles import ROLES

NEWEST = 3
DEPTH = 3
FIXED = ("bool", "int8", "int16", "uint16", "int32", "uint32", "int64", "float64", "uuid")
SIZED = ("string", "bytes", "records")
ROLE_NAMES = sorted(ROLES)


@st.composite
def layouts(draw: Any) -> Layout:
    """One version of one direction of a random page."""
    flexible = draw(st.sampled_from(["none", "0+", "2+"]))
    first = {"none": NEWEST + 1, "0+": 0, "2+": 2}[flexible]
    lines = [f"api 7 Made   versions 0-{NEWEST}   flexible {flexible}"]
    for section in ("request", "response"):
        lines += [section, *draw(field_lines(1, 0, first))]
    page = parse_page("\n".join(lines), "made")
    return page.layout(draw(st.sampled_from(Direction)), draw(st.integers(0, NEWEST)))


@st.composite
def field_lines(draw: Any, depth: int, since: int, flexible: int) -> list[str]:
    """The lines of a struct whose versions are `since` and later. `flexible`: the first version
    that is."""
    lines = []
    for number in range(draw(st.integers(1, 4))):
        versions = draw(st.integers(since, NEWEST))
        tag = ""
        if number and flexible <= NEWEST and draw(st.booleans()):
            versions, tag = max(versions, flexible), f"tag {number + draw(st.integers(0, 1)) * 200}"
        kind, nullable = draw(types(depth))
        if nullable and draw(st.booleans()):
            kind += draw(st.sampled_from(["?", f"?{max(versions, 2)}+"]))
        role = f"@{draw(st.sampled_from(ROLE_NAMES))}" if draw(st.booleans()) else ""
        indent = "  " * depth
        lines.append(f"{indent}field_{number}  {kind}  {versions}+  {tag}  {role}")
        if kind.startswith(("{}", "[]")):
            lines += draw(field_lines(depth + 1, versions, flexible))
    return lines


@st.composite
def types(draw: Any, depth: int) -> tuple[str, bool]:
    """A type, and whether it may be null."""
    kinds = ["fixed", "sized", "array"] + ["struct", "structs"] * (depth < DEPTH)
    match draw(st.sampled_from(kinds)):
        case "fixed":
            return draw(st.sampled_from(FIXED)), False
        case "sized":
            return draw(st.sampled_from(SIZED)), True
        case "array":
            return f"[{draw(st.sampled_from(FIXED + SIZED))}]", True
        case "struct":
            return "{}", True
    return "[]", True
