"""Schemas of keys and values in Confluent's framing.

registry   schemas from a registry or a folder; Avro and JSON Schema
protobuf   Protobuf: descriptors to messages to JSON
"""
