"""The full-screen interface, made with textual (extra `browse`): of a capture, or of `sniff`.

frame            filter bar, tabs, help, jobs in threads
exchange_screen  list of exchanges, fields and bytes, keys
app              the screen of a capture: connection_pane, findings_pane, answers_pane
live_app         the screen of a session: rates_pane, kept_exchanges; `snapshot` is a capture of it
capture_source   exchanges in a mapped file, answers, findings, timelines of connections
source           what a screen needs of its source
rows             rows in batches: filter, order, values
cursor_view      lists of which only the visible lines are made; row_view: tables
message_pane     fields (field_view) and bytes of an exchange
dialogs          a prompt, texts to copy (commands), help (keys)
"""
