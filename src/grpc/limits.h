/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Every quantity that a peer controls, and where it ends. The peers are a handful of sidecars and
 * the kubelet on one node, all trusted with the socket; the limits are there so that a broken one
 * cannot take the driver down.
 */
#ifndef GRPC_LIMITS_H
#define GRPC_LIMITS_H

#define GRPC_KIB 1024U
#define GRPC_MIB (1024U * GRPC_KIB)

/* ---- Messages ---- */

/* One request or reply: what grpc-go and grpc-js accept by default. CSI needs some KiB. */
#define GRPC_MESSAGE_MAX (4U * GRPC_MIB)

/* What a request may take once unpacked: 2 bytes on the wire can be 60 on the heap. */
#define GRPC_UNPACK_MAX (8U * GRPC_MIB)

/* Request bytes held over all calls, unpacked ones not counted. */
#define GRPC_RECEIVED_MAX (64U * GRPC_MIB)

/* Messages within messages. CSI has four levels; the scanner's stack is what this guards. */
#define GRPC_SCAN_DEPTH_MAX 16U

/* ---- Headers ---- */

/* Names, values and 32 bytes each, as HTTP/2 counts them; announced to the peer. */
#define GRPC_HEADER_LIST_MAX (16U * GRPC_KIB)

/* ":path" that is kept; a longer one cannot name a method. */
#define GRPC_PATH_MAX 255U

/* grpc-message once percent-encoded. gRPC's C core takes 8 KiB of trailers in all. */
#define GRPC_STATUS_MESSAGE_MAX 2048U

/* ---- Calls ---- */

/* Streams of a connection; the provisioner alone runs up to 200 calls at once on one. */
#define GRPC_STREAMS_MAX 512U

/*
 * Handlers queued or running over all connections, whether or not their streams are still open:
 * resetting a stream gives no room for another handler (the point of the rapid reset attack).
 */
#define GRPC_WORKING_MAX 1024U

/* A request has to be complete after this, where it names no earlier deadline. */
#define GRPC_BODY_TIMEOUT_MS 60000U

/* ---- Connections ---- */

/* Further ones wait in the listen backlog. Kubelet opens one a call, sidecars one each. */
#define GRPC_CONNECTIONS_MAX 256U

/* For a connection that has not sent the HTTP/2 preface; any other one may idle for ever. */
#define GRPC_PREFACE_TIMEOUT_MS 10000U

/*
 * Bytes read at a time. Small, so that the acknowledgements which one read can ask for (a PING
 * takes 17 bytes) stay below the 1,000 at which nghttp2 suspects a flood; they are sent before
 * the next read.
 */
#define GRPC_READ_SIZE (16U * GRPC_KIB)

/* Bytes gathered for one write. While some of them are refused by the socket, nothing is read. */
#define GRPC_WRITE_SIZE (64U * GRPC_KIB)

/* Replies waiting on one connection for the peer's window; above it new calls are refused. */
#define GRPC_REPLIES_MAX (16U * GRPC_MIB)

/* Out of descriptors: accepting is tried again after this. */
#define GRPC_ACCEPT_RETRY_MS 1000U

/* Shutting down: the final GOAWAY follows the notice after a round trip, or after this. */
#define GRPC_DRAIN_MS 1000U

#endif
