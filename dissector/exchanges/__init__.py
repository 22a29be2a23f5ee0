"""Exchanges: requests joined with their responses.

ordering          sort order by several columns
columns           columns of Arrow tables as arrays of NumPy
message_headers   the headers of frames, as arrays
client_ids        client ids as text
two_threads       calls of compiled loops in two threads
decoded_fields    fields of message bodies, by role, over all APIs
decoded_messages  headers and fields of the messages of one direction
matching          pairs of requests and responses; requests in flight
repeated_ids      pairs on connections that use correlation ids again
sasl              SASL tokens, which have no header
topic_names       names of topics that messages refer to by id
request_table     requests as columns, kept until their responses arrive
wanted_roles      roles of the fields that tables need
correlated_block  the result for one block
correlator        all of these, block by block
states            the state of connections in a correlator, when it moves to another one
exchange          one exchange as an object
"""
