"""What a person reads on a terminal: text that is safe and fits its width.

presentation    the time zone and the names that all text has
terminal        printable text, sizes, times, the pager, the progress bar
listing         columns and rows that fit a width
row_table       the rows of a table or an answer as a listing
exchange_tree   one exchange, field by field; exchange_json: as JSON
summary_screen  a summary, problems first; diagnosis_screen: findings, the worst first
prompt          the prompt of ``kafka-dissector sql``
"""
