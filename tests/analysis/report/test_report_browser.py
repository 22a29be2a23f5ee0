"""A report in Chromium: it opens offline, and its controls work."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

import dissector
from analysis.answers import ANSWERS
from analysis.summary.counts import Summary
from tests.analysis.answering import path_of
from tests.analysis.report.browser import Browser, chromium, report_of

GROUPS = "kafka-4-group-eager"
ERRORS = "[data-table=errors] tbody tr"
"""The rows of the answer, without those of its charts, which other tests open."""


@pytest.fixture(scope="module")
def groups() -> Browser:
    """The report of a group that rebalances, opened once for several tests."""
    chromium().open(report_of(GROUPS))
    return chromium()


def test_the_head_counts_exchanges_connections_and_errors(groups: Browser) -> None:
    """Errors are those of the summary, without those of normal operation."""
    capture = dissector.open_capture(
        next(Path(__file__).parents[3].glob(f"captures/{GROUPS}.pcap*"))
    )
    tables = capture.tables(["exchanges", "connections"])
    summary = Summary()
    summary.read(capture.stream(Summary.TABLES))
    tiles = groups.run(
        "return Object.fromEntries([...document.querySelectorAll('.tiles div')]"
        ".map((each) => [...each.children].map((child) => child.textContent)))"
    )
    for name, table in tables.items():
        assert tiles[name] == f"{len(table):,}"
    assert tiles["errors"] == str(sum(use.errors for use in summary.apis()))


def test_a_table_sorts_by_mouse_and_keyboard(groups: Browser) -> None:
    rows = "[...document.querySelectorAll('[data-table=latency] tbody tr')]"
    column = f"return {rows}.map((row) => %s)"
    counts = column % "Number(row.cells[1].textContent.replaceAll(',', ''))"
    names = column % "row.cells[0].textContent"
    head = groups.driver.find_elements(By.CSS_SELECTOR, "[data-table=latency] thead button")
    groups.run("arguments[0].scrollIntoView({behavior: 'instant', block: 'center'})", head[1])
    head[1].click()
    assert groups.run(counts) == sorted(groups.run(counts), reverse=True)
    head[1].send_keys(Keys.ENTER)
    assert groups.run(counts) == sorted(groups.run(counts))
    head[0].send_keys(Keys.SPACE)
    assert groups.run(names) == sorted(groups.run(names))
    sorts = (
        "return [...document.querySelectorAll('[data-table=latency] th')].slice(0, 2)"
        ".map((e) => e.ariaSort)"
    )
    assert groups.run(sorts) == ["ascending", None]


def test_a_table_filters(groups: Browser) -> None:
    field = groups.driver.find_element(By.CSS_SELECTOR, "#errors input[type=search]")
    groups.run("arguments[0].scrollIntoView({behavior: 'instant', block: 'center'})", field)
    rows = f"return [...document.querySelectorAll('{ERRORS}')].map((row) => row.textContent)"
    before = groups.run(rows)
    field.send_keys("member_ID")
    matching = [row for row in before if "MEMBER_ID" in row]
    assert 0 < len(matching) < len(before)
    assert groups.run(rows) == matching
    status = groups.run("return document.querySelector('#errors [role=status]').textContent")
    assert status == f"{len(matching)} of {len(before)} rows"


def test_charts_over_time_share_one_axis(groups: Browser) -> None:
    ends = groups.run(
        "return Object.values(charts).filter((spec) => spec.params?.some((e) => e.name === 'from'))"
        ".map((spec) => spec.params.filter((e) => ['from', 'to'].includes(e.name))"
        ".map((e) => e.value))"
    )
    assert len(ends) >= 3
    assert len({tuple(each) for each in ends}) == 1


def test_the_time_range_selects_rows_and_marks(groups: Browser) -> None:
    errors = dissector.open_capture(path_of(GROUPS)).tables(["errors"])
    times = [time.value / 1e6 for time in errors["errors"]["time"].to_pandas()]
    first, last = groups.run("return span")
    assert first <= min(times) < max(times) <= last
    middle = first + (last - first) * 0.45
    shown = f"return document.querySelectorAll('{ERRORS}').length"
    marks = "return document.querySelectorAll('#errors .role-mark.marks path[aria-label]').length"
    whole = "return getComputedStyle(document.querySelector('#%s .whole')).display"
    groups.run(
        "const field = document.querySelector('#errors input[type=search]'); field.value = '';"
        "field.dispatchEvent(new Event('input'))"
    )
    before, bars = groups.run(shown), groups.run(marks)
    groups.run(
        "const to = document.getElementById('to'); to.value = 450;"
        "to.dispatchEvent(new Event('input'))"
    )
    table = groups.run("return tables.errors")
    names = [column["name"] for column in table["columns"]]
    starts = [row[names.index("first_time")] / 1000 for row in table["rows"]]
    assert groups.run(shown) == len([time for time in starts if time <= middle])
    groups.until(f"{marks} < {bars}")
    assert 0 < groups.run(shown) < before
    assert groups.run(whole % "findings") == "inline"
    assert groups.run(whole % "errors figure") == "none"
    until = groups.run("return new Date(Math.round(range[1])).toISOString()")
    assert groups.run("return document.querySelector('#range code').textContent").endswith(until)
    groups.run("document.querySelector('#range button').click()")
    groups.until(f"{marks} === {bars}")
    assert groups.run(shown) == before
    assert groups.run(whole % "findings") == "none"
    assert groups.console() == []


def test_the_data_of_a_chart_is_a_table(groups: Browser) -> None:
    groups.run("for (const each of document.querySelectorAll('details')) each.open = true")
    groups.until(
        "return [...document.querySelectorAll('details')].every((each) => each.querySelector('td'))"
    )
    assert groups.run("return document.querySelectorAll('details').length") == groups.run(
        "return document.querySelectorAll('[data-chart]').length"
    )
    assert groups.console() == []


def test_controls_have_names_and_are_in_the_tab_order(groups: Browser) -> None:
    controls = "return [...document.querySelectorAll('input, button, summary, [role=region]')]"
    assert len(groups.run(controls)) > 100
    nameless = ".filter((e) => !(e.ariaLabel || e.textContent || e.labels?.length)).length"
    assert groups.run(controls + nameless) == 0
    assert groups.run(controls + ".filter((e) => e.tabIndex < 0).length") == 0


def test_the_first_tab_stop_skips_to_the_answers() -> None:
    chromium().open(report_of(GROUPS), draw=False)
    chromium().driver.switch_to.active_element.send_keys(Keys.TAB)
    chromium().driver.switch_to.active_element.send_keys(Keys.ENTER)
    chromium().until("return document.activeElement.id === 'main'")


@pytest.mark.parametrize("name", [GROUPS, "kafka-4-transactions", "kafka-4-misused"])
def test_charts_are_drawn_without_console_messages(name: str) -> None:
    chromium().open(report_of(name))
    assert chromium().console() == []
    loaded = "return performance.getEntriesByType('resource').map((each) => each.name)"
    assert chromium().run(loaded) == []
    assert chromium().run(
        "return [...document.querySelectorAll('main section')].map((each) => each.id)"
    ) == list(ANSWERS)
    unseen = "return [...document.querySelectorAll('[data-chart]')].filter((each) => !%s).length"
    assert chromium().run(unseen % "each.querySelector('svg .role-mark path[d]')") == 0
    assert chromium().run(unseen % "each.querySelector('svg [aria-label]')") == 0


def test_colours_follow_the_system_and_the_button() -> None:
    light = (
        "return getComputedStyle(document.documentElement).backgroundColor === 'rgb(255, 255, 255)'"
    )
    chromium().open(report_of(GROUPS), draw=False)
    assert chromium().run(light)
    chromium().driver.find_element(By.ID, "theme").click()
    assert not chromium().run(light)
    chromium().open(report_of(GROUPS), dark=True, draw=False)
    assert not chromium().run(light)
    chromium().driver.find_element(By.ID, "theme").click()
    assert chromium().run(light)


def test_the_page_fits_a_phone() -> None:
    chromium().open(report_of(GROUPS), wide=390)
    assert chromium().run("return document.documentElement.scrollWidth") == 390
    wide = "return [...document.querySelectorAll('svg')].filter((e) => e.clientWidth > 390).length"
    assert chromium().run(wide) == 0


@pytest.mark.parametrize("name", ["kafka-4-misused", "kafka-4-unbalanced"])
def test_names_on_axes_of_a_phone_are_distinct_and_inside_of_their_chart(name: str) -> None:
    """Brokers, and a client at several brokers, have long names that begin alike."""
    chromium().open(report_of(name), wide=390)
    axes = chromium().run(
        "return [...document.querySelectorAll('svg .role-axis-label')].map((axis) => {"
        "  const box = ({left, right, top, bottom}) => [left, right, top, bottom];"
        "  const chart = box(axis.ownerSVGElement.getBoundingClientRect());"
        "  const texts = [...axis.querySelectorAll('text')].filter((e) => e.textContent"
        "    && e.getAttribute('opacity') !== '0');"
        "  return [chart, texts.map((e) => [e.textContent, box(e.getBoundingClientRect())])];})"
    )
    assert len(axes) > 10
    for chart, labels in axes:
        texts = [text for text, _ in labels]
        assert len({*texts}) == len(texts)
        for text, box in labels:
            inside = [low >= 0 for low in (box[0] - chart[0], chart[1] - box[1], chart[3] - box[3])]
            assert all(inside), text
        for (text, left), (neighbour, right) in pairwise(labels):
            overlaps = left[0] < right[1] and right[0] < left[1]
            assert not (overlaps and left[2] < right[3] and right[2] < left[3]), (text, neighbour)


def test_a_note_has_no_colour_of_an_alarm() -> None:
    chromium().open(report_of("kafka-4-misused"), draw=False)
    grounds = (
        "return ['critical', 'warning', 'note'].map((severity) => getComputedStyle("
        "document.querySelector(`.finding.${severity}`)).backgroundColor)"
    )
    assert len(set(chromium().run(grounds))) == 1


def test_a_printed_table_fits_the_page_and_breaks_no_number() -> None:
    page = 1032  # A4, landscape, without margins, in CSS pixels
    chromium().open(report_of("kafka-4-misused"), wide=page, draw=False)
    chromium().driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    try:
        widest = "return Math.max(...[...document.querySelectorAll('table')].map((e) => %s))"
        assert chromium().run(widest % "e.scrollWidth") <= page
        broken = (
            "return [...document.querySelectorAll('td.number')].map((cell) => {"
            " const range = document.createRange(); range.selectNodeContents(cell);"
            " return new Set([...range.getClientRects()].map((each) => each.top)).size })"
            ".filter((lines) => lines > 1).length"
        )
        assert chromium().run("return document.querySelectorAll('td.number').length") > 500
        assert chromium().run(broken) == 0
    finally:
        chromium().driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
