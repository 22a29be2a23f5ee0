"""From frames to exchanges.

heads        what the headers say, before any body is read
matching     which response answers which request; how many wait
sasl         tokens that have no header
facts        what bodies say, by role, over all APIs
topic_names  names of topics that messages name by id
describe     what a request says, kept in columns until its response comes
dialogue     all of it, block by block
"""
