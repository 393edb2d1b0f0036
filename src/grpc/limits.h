/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Limits for every quantity that a peer controls. The peers are the kubelet and a few sidecars on
 * one node, all trusted with the socket; the limits keep a broken one from taking the driver down.
 */
#ifndef GRPC_LIMITS_H
#define GRPC_LIMITS_H

#define GRPC_KIB 1024U
#define GRPC_MIB (1024U * GRPC_KIB)

/* ---- Messages ---- */

/* Size of a request or reply; the default of grpc-go and grpc-js. CSI needs a few KiB. */
#define GRPC_MESSAGE_MAX (4U * GRPC_MIB)

/* Memory of an unpacked request: 2 bytes on the wire can take 60 on the heap. */
#define GRPC_UNPACK_MAX (8U * GRPC_MIB)

/* Bytes of all requests being held, before they are unpacked. */
#define GRPC_RECEIVED_MAX (64U * GRPC_MIB)

/* Depth of nested messages, to bound the scanner's stack. CSI has four levels. */
#define GRPC_SCAN_DEPTH_MAX 16U

/* ---- Headers ---- */

/* Names, values and 32 bytes for each field, as HTTP/2 counts them. Announced to the peer. */
#define GRPC_HEADER_LIST_MAX (16U * GRPC_KIB)

/* Bytes kept of ":path"; a longer one cannot name a method. */
#define GRPC_PATH_MAX 255U

/* Length of grpc-message after percent-encoding. gRPC's C core accepts 8 KiB of trailers. */
#define GRPC_STATUS_MESSAGE_MAX 2048U

/* ---- Calls ---- */

/* Concurrent streams on a connection; the external-provisioner runs up to 200 calls on one. */
#define GRPC_STREAMS_MAX 512U

/*
 * Handlers queued or running for all connections, including those whose streams are closed: a reset
 * of a stream must not make room for another handler (the HTTP/2 rapid reset attack).
 */
#define GRPC_WORKING_MAX 1024U

/* Time for a request to arrive completely, unless its deadline is earlier. */
#define GRPC_BODY_TIMEOUT_MS 60000U

/*
 * How long a call is held (call.h), counted from its start: GRPC_HOLD_MS, but no longer than
 * GRPC_HOLD_MARGIN_MS before its deadline; GRPC_HOLD_ALONE_MS if it has no deadline. A held call
 * occupies no worker.
 */
#define GRPC_HOLD_MS 20000U
#define GRPC_HOLD_ALONE_MS 8000U
#define GRPC_HOLD_MARGIN_MS 1000U

/* A handler that is still busy this long after it began to run again has found its server. */
#define GRPC_HOLD_ASKING_MS 10000U

/* ---- Connections ---- */

/* Further clients wait in the listen backlog. Kubelet opens one per call, each sidecar one. */
#define GRPC_CONNECTIONS_MAX 256U

/* Time for the HTTP/2 preface to arrive; after that a connection may idle forever. */
#define GRPC_PREFACE_TIMEOUT_MS 10000U

/*
 * Bytes per read. One read of PINGs, at 17 bytes each, asks for fewer than the 1,000 queued
 * acknowledgements that nghttp2 takes for a flood; they are sent before the next read.
 */
#define GRPC_READ_SIZE (16U * GRPC_KIB)

/* Bytes per write. While the socket takes only a part of them, nothing is read. */
#define GRPC_WRITE_SIZE (64U * GRPC_KIB)

/* Bytes of replies that wait for the peer's window on a connection; above it, refuse calls. */
#define GRPC_REPLIES_MAX (16U * GRPC_MIB)

/* Delay before accepting again after running out of descriptors. */
#define GRPC_ACCEPT_RETRY_MS 1000U

/* At most one line in the log in this time about clients that cannot be accepted. */
#define GRPC_ACCEPT_LOG_MS 60000U

/* At shutdown, time to wait for the round trip between the notice and the final GOAWAY. */
#define GRPC_DRAIN_MS 1000U

#endif
