"""Kafka's records: batches and their records, from bytes to columns.

batch_reader      `read_batches`: the batches of `records` fields, with checksums verified
batch_headers     follows batch sizes and reads batch headers
recovery          verifies checksums, and finds intact batches after damage
record_reader     `read_records`: the records of batches, decompressed
codecs            decompresses, with limits
record_fields     records of magic 2
message_fields    messages of magic 0 and 1
record_columns    the classes of record columns, and views of keys and values
contiguous        contiguous memory for address ranges
arrow             records as Arrow columns; types of control records
decode            `decode_records`: batches and records as Python objects
log_segment       reads a broker's log segment files
"""
