"""A capture as a page: one HTML file, which opens without a network.

bins      what charts show, counted by SQL
charts    of what bins counts; answer_charts, flow: of answers; marks: what they share
sections  every answer with its charts
page      the sections as HTML
"""
