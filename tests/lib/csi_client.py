# SPDX-License-Identifier: Apache-2.0
# Copyright the csi-nfs authors
"""A CSI client: every RPC of proto/csi.proto as a method, over gRPC's own C core.

    client = Client("unix:///run/csi.sock")
    answer = client.CreateVolume(name="v", volume_capabilities=[capability()])

Fields are given by name; maps and messages may be dicts and lists. Errors raise grpc.RpcError.
As a program: csi_client.py ENDPOINT METHOD [JSON]
"""
import importlib
import json
import os
import subprocess
import sys
import tempfile
import time

import grpc
from google.protobuf import json_format, symbol_database

HERE = os.path.dirname(os.path.abspath(__file__))
PROTO = os.path.join(HERE, "..", "..", "proto")


def _load():
    with tempfile.TemporaryDirectory() as out:
        subprocess.run(["protoc", "-I", PROTO, "-I", "/usr/include", "--python_out", out,
                        "csi.proto"], check=True)
        sys.path.insert(0, out)
        try:
            return importlib.import_module("csi_pb2")
        finally:
            sys.path.remove(out)


pb = _load()
MODES = pb.VolumeCapability.AccessMode
OK = grpc.StatusCode.OK
SLOW = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)


def capability(mode="MULTI_NODE_MULTI_WRITER", flags=(), block=False, fs_type=""):
    """Return a VolumeCapability for a file system, or for a block device."""
    cap = pb.VolumeCapability(access_mode={"mode": mode})
    if block:
        cap.block.SetInParent()
    else:
        cap.mount.SetInParent()
        cap.mount.fs_type = fs_type
        cap.mount.mount_flags.extend(flags)
    return cap


def patiently(call, seconds=60, **fields):
    """Repeat the call, as kubelet does, while the driver says that a server is slow: in a starved
    guest any server may be. Return the answer."""
    end = time.monotonic() + seconds
    while True:
        try:
            return call(**fields)
        except grpc.RpcError as e:
            if e.code() not in SLOW or time.monotonic() > end:
                raise
        time.sleep(1)


class Client:
    """A channel. Calls have a default timeout, in seconds."""

    def __init__(self, endpoint, timeout=60):
        self.timeout = timeout
        # Don't share the connection of another Client, which may be in backoff.
        self.channel = grpc.insecure_channel(endpoint, options=[
            ("grpc.enable_http_proxy", 0), ("grpc.use_local_subchannel_pool", 1)])
        self._calls = {}
        for service in pb.DESCRIPTOR.services_by_name.values():
            for method in service.methods:
                self._calls[method.name] = self._stub(service, method)

    def _stub(self, service, method):
        database = symbol_database.Default()
        request = database.GetPrototype(method.input_type)
        answer = database.GetPrototype(method.output_type)
        path = "/%s/%s" % (service.full_name, method.name)
        make = self.channel.unary_stream if method.name.startswith("GetMetadata") \
            else self.channel.unary_unary
        call = make(path, request_serializer=request.SerializeToString,
                    response_deserializer=answer.FromString)

        def run(timeout=None, **fields):
            got = call(request(**fields), timeout=timeout or self.timeout)
            return list(got) if make == self.channel.unary_stream else got
        run.request = request
        return run

    def __getattr__(self, name):
        try:
            return self.__dict__["_calls"][name]
        except KeyError:
            raise AttributeError(name) from None

    def methods(self):
        """The names of all RPCs."""
        return list(self._calls)

    def close(self):
        self.channel.close()

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.close()


def to_json(message):
    """Return the message as a short line."""
    return json.dumps(json_format.MessageToDict(message, preserving_proto_field_name=True),
                      sort_keys=True, ensure_ascii=False)


def main(endpoint, method, text="{}"):
    with Client(endpoint) as client:
        call = getattr(client, method)
        request = json_format.Parse(text, call.request())
        try:
            print(to_json(call(**{f.name: v for f, v in request.ListFields()})))
        except grpc.RpcError as e:
            sys.exit("%s: %s" % (e.code().name, e.details()))


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    main(*sys.argv[1:])
