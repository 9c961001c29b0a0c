"""Decodes a Perfetto trace with the full schema of Perfetto's Python package; prints what the schema does not know.

full_schema.py TRACE: one JSON document with the number of packets, the kinds of packets, and the paths of unknown fields.
"""
import json
import sys

from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace


def unknown(message, path, found):
    """Adds the paths of unknown fields anywhere in a message."""
    found.update(f"{path}.{field.field_number}" for field in UnknownFieldSet(message))
    for field, value in message.ListFields():
        values = value if field.is_repeated else [value]
        if field.message_type:
            for inner in values:
                if isinstance(inner, Message):
                    unknown(inner, f"{path}.{field.name}", found)


trace = Trace()
with open(sys.argv[1], "rb") as file:
    trace.ParseFromString(file.read())
found = set()
unknown(trace, "Trace", found)
kinds = {}
for packet in trace.packet:
    kind = packet.WhichOneof("data")
    kinds[kind] = kinds.get(kind, 0) + 1
print(json.dumps({"packets": len(trace.packet), "kinds": kinds, "unknown": sorted(found)}))
