"""Kafka's records: batches and their records, from bytes to columns.

batch_reader      `read_batches`: the batches of `records` fields, with checksums verified
batch_headers     follows batch sizes and reads batch headers
checksums         verifies checksums
recovery          finds intact batches after damage
record_reader     `read_records`: the records of batches, decompressed
codecs            decompresses, with limits
assemble          builds record columns for each kind of batch
record_offsets    positions of the records in batches of magic 2
record_fields     fields of records of magic 2
message_fields    fields of messages of magic 0 and 1
record_columns    the classes of record columns
control           types of control records
contiguous        contiguous memory for address ranges
arrow             records as Arrow columns
decode            `decode_records`: batches and records as Python objects
log_segment       reads a broker's log segment files
"""
