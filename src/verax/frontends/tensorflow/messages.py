"""TensorFlow's messages, described to protobuf: graphs, tensors, SavedModels, checkpoints.

Only the fields that importing reads; the rest of a file is skipped as unknown fields. Field numbers
are public (graph.proto, node_def.proto, attr_value.proto, tensor.proto, function.proto,
saved_model.proto, meta_graph.proto, tensor_bundle.proto).
"""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

PACKAGE = "verax.tensorflow"
KINDS = {
    "double": 1,
    "float": 2,
    "int64": 3,
    "int32": 5,
    "bool": 8,
    "string": 9,
    "bytes": 12,
    "uint32": 13,
    "enum": 5,
    "fixed32": 7,
    "uint64": 4,
}
"""Protobuf's numbers of field types; enums are read as int32."""

MESSAGES: dict[str, str] = {
    "Dim": "size=1:int64 name=2:string",
    "Shape": "dim=2:*Dim unknown_rank=3:bool",
    "Tensor": "dtype=1:enum tensor_shape=2:Shape tensor_content=4:bytes half_val=13:*int32 "
    "float_val=5:*float double_val=6:*double int_val=7:*int32 string_val=8:*bytes "
    "scomplex_val=9:*float dcomplex_val=12:*double "
    "int64_val=10:*int64 bool_val=11:*bool uint32_val=16:*uint32 uint64_val=17:*uint64 "
    "lifted=1000:int64",
    "List": "s=2:*bytes i=3:*int64 f=4:*float b=5:*bool type=6:*enum shape=7:*Shape "
    "tensor=8:*Tensor func=9:*NamedFunction",
    "NamedFunction": "name=1:string",
    "Attribute": "list=1:List s=2:bytes i=3:int64 f=4:float b=5:bool type=6:enum shape=7:Shape "
    "tensor=8:Tensor placeholder=9:string func=10:NamedFunction",
    "Node": "name=1:string op=2:string input=3:*string device=4:string attr=5:@Attribute",
    "Versions": "producer=1:int32 min_consumer=2:int32",
    "Argument": "name=1:string type=3:enum",
    "Signature": "name=1:string input_arg=2:*Argument output_arg=3:*Argument",
    "Function": "signature=1:Signature node_def=3:*Node ret=4:@string",
    "Library": "function=1:*Function",
    "Graph": "node=1:*Node library=2:Library versions=4:Versions",
    "TensorInfo": "name=1:string dtype=2:enum tensor_shape=3:Shape",
    "ServingSignature": "inputs=1:@TensorInfo outputs=2:@TensorInfo method_name=3:string",
    "MetaInfo": "tags=4:*string tensorflow_version=5:string",
    "MetaGraph": "meta_info_def=1:MetaInfo graph_def=2:Graph signature_def=5:@ServingSignature",
    "SavedModel": "saved_model_schema_version=1:int64 meta_graphs=2:*MetaGraph",
    "BundleHeader": "num_shards=1:int32 endianness=2:enum",
    "BundleEntry": "dtype=1:enum shape=2:Shape shard_id=3:int32 offset=4:int64 size=5:int64 "
    "slices=7:*Slice",
    "Slice": "",
    "SavedAttribute": "name=1:string full_name=2:string checkpoint_key=3:string",
    "SavedObject": "attributes=2:*SavedAttribute",
    "SavedObjects": "nodes=1:*SavedObject",
}
"""Message -> fields: `name=number:type`, * for repeated, @ for a map from text. `lifted` is
written by `large_tensors`, not by TensorFlow."""
ONE_OF = ("Attribute",)
"""Messages of which one field is set, `WhichOneof("value")`, even to 0."""


def _described() -> dict[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(
        name="verax_tensorflow.proto", package=PACKAGE, syntax="proto3"
    )
    for name, text in MESSAGES.items():
        message = file.message_type.add(name=name)
        if name in ONE_OF:
            message.oneof_decl.add(name="value")
        for entry in text.split():
            label, _, declaration = entry.partition("=")
            field_number, _, kind = declaration.partition(":")
            field = _add_field(message, name, label, int(field_number), kind)
            if name in ONE_OF:
                field.oneof_index = 0
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.{name}"))
        for name in MESSAGES
    }


def _add_field(message: Any, owner: str, label: str, field_number: int, kind: str) -> Any:
    field = message.field.add(name=label, number=field_number, label=3 if kind[0] in "*@" else 1)
    kind, is_map = kind.lstrip("*@"), kind.startswith("@")
    if is_map:
        entry = "".join(p.title() for p in label.split("_")) + "Entry"
        pair = message.nested_type.add(name=entry)
        pair.options.map_entry = True
        pair.field.add(name="key", number=1, label=1, type=KINDS["string"])
        _set_type(pair.field.add(name="value", number=2, label=1), kind)
        field.type, field.type_name = 11, f".{PACKAGE}.{owner}.{entry}"
    else:
        _set_type(field, kind)
    return field


def _set_type(field: Any, kind: str) -> None:
    if kind in KINDS:
        field.type = KINDS[kind]
    else:
        field.type, field.type_name = 11, f".{PACKAGE}.{kind}"


CLASSES = _described()
