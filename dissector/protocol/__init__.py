"""Kafka's message formats: definition pages, and the decoders that read messages by them.

definitions/      a page of text per API, pages of structures, error codes, configurations
notation          the notation of the pages, and the classes that a parsed page consists of
parser            parses a page
roles             roles of fields: what the tables use a field for
registry          looks up APIs, versions, structures and error codes by number or name
column_decoder    decodes all messages of one layout at once into columns
decoder_program   the program of a layout, which the column decoder walks
field_columns     the result of both: a column per field
tree_decoder      decodes one body into nested dicts
explain           decodes one body into a list of fields with their offsets
message           whole frames, header and body: `decode_request`, `decode_response`
structures        structures of Kafka that messages and records carry as bytes
wire              encodings of single values
body_end          where the body of a message ends, of whose bytes only the first are known
evidence          scores whether bytes are a request
limits            how many array elements and surplus bytes a message may have
"""
