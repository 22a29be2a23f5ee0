"""The search for messages where a chain of sizes is doubtful, and the evidence for messages.

header_evidence   evidence for headers of messages, in bits
request_evidence  evidence for requests that decide the protocol of a connection
bodies            whether a body fits the size of its message
places            the evidence that messages begin at places of many streams
resync            the search for messages in one stream
"""
