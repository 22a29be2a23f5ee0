"""Causes that rules look for, each with its queries, evidence and advice.

advertised           addresses that brokers advertise
corrupt_batches      batches with a wrong checksum that consumers get
dropped              connections that a device on the path drops
error_advice         causes and remedies of error codes
error_evidence       what findings about errors add to their evidence
incomplete           clients that close a connection before they have a whole response
interrupted          paths that carry nothing for seconds
lagging_readers      what the reader of a partition does while its lag grows
late_packets         packets that were lost before the capture point
no_offset            consumers without a committed offset
overwritten_commits  consumers that overwrite each other's offsets
pauses               brokers that send nothing while requests wait
redeliveries         records that a share group gets again and again
resets               the offset at which a consumer continues after OFFSET_OUT_OF_RANGE
sessions             clients without SASL, and SASL sessions that expire
short_timeouts       clients that close a connection before a response can arrive
skipped_partitions   new partitions whose first records a group skips
slow_follower        the follower for which leaders wait
stalled_producers    producers that wait while their broker serves others
stopped_clients      clients that stop because of an error
transfers            messages that the network transfers most of the time
unsupported          requests in versions that a broker does not know
without_commits      groups that read the same records again and again without a commit
"""
