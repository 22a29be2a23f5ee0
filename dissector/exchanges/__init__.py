"""Exchanges: requests joined with their responses.

ordering          sort order by several columns
columns           columns of Arrow tables as arrays of NumPy
message_headers   the headers of frames, as arrays
decoded_fields    fields of message bodies, by role, over all APIs
decoded_messages  headers and fields of the messages of one direction
matching          pairs of requests and responses; requests in flight
sasl              SASL tokens, which have no header
topic_names       names of topics that messages refer to by id
request_table     requests as columns, kept until their responses arrive
correlator        all of these, block by block
exchange          one exchange as an object
"""
