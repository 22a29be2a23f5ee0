"""The report: all answers for a capture on one HTML page, which needs no network.

chart_data      rows for charts, aggregated by SQL
charts          charts of `chart_data`
answer_charts   charts of answers; `topology_chart` draws the topology
chart_elements  axes, colours and tooltips of all charts
sections        each answer with its charts
page            the sections as HTML
vega            the script that draws charts
"""
