"""The full screen on textual (extra `browse`).

app              the screen: filter bar, tabs, keys, jobs in threads
capture_source   a capture: exchanges in a mapped file, answers, findings, conversations
rows             rows in batches: filter, order, values
cursor_view      lists of which only the visible lines are made
row_view         tables
message_pane     fields and bytes of an exchange
connection_pane  packets of a connection
findings_pane    findings of `diagnose`
answers_pane     answers
dialogs, keys    a prompt, texts to copy, help
"""
