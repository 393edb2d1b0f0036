/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * A gRPC server for unary calls on one unix socket. nghttp2 implements HTTP/2, libuv is the event
 * loop, and services are vtables that protoc-c generates. This room knows no CSI and no NFS.
 *
 * Threads: the loop thread owns sockets, HTTP/2 sessions and calls. Call every function below on it
 * only. Handlers run in libuv's thread pool (UV_THREADPOOL_SIZE), where they may block, or on the
 * loop thread if the service calls them quick. A handler gets its request message, a closure and,
 * as closure data, a struct request (base/request.h). It calls the closure once before it returns,
 * with the reply or with NULL and request->err set.
 *
 * Every call is answered once. At its deadline the client gets DEADLINE_EXCEEDED; the handler runs
 * on, and its result is dropped. A call whose client is gone before a worker is free does not
 * start. Each call logs one line when its status is sent.
 *
 * Connections are written to with MSG_NOSIGNAL, but the process should ignore SIGPIPE for its other
 * descriptors.
 */
#ifndef GRPC_SERVER_H
#define GRPC_SERVER_H

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>
#include <uv.h>

#include "base/error.h"
#include "grpc/dispatch.h"

struct grpc_server;

struct grpc_server_config {
	const struct grpc_service *services; /* copied */
	size_t n_services;
};

/*
 * Make a server that does not listen yet. It borrows the loop, which must outlive it. Return 0, or
 * -ENOMEM or libuv's negative errno with the error set.
 */
int grpc_server_new(struct grpc_server **ret, uv_loop_t *loop,
		    const struct grpc_server_config *config, struct error *err);

/*
 * Bind a socket with mode 0600 at path (from grpc_endpoint_parse(); '@' first: abstract) and serve
 * it whenever the loop runs. Once per server. Replaces a socket file on which no process listens,
 * but none on which one listens, and no other file. Sets the umask for a moment, so call it before
 * threads create files. Return 0 or a negative errno: -EADDRINUSE (FAILED_PRECONDITION) if another
 * process still serves the path after two seconds, for which it waits, -ENOTSOCK, -ENAMETOOLONG,
 * -ENOENT for a missing directory, or another error of the system calls.
 */
int grpc_server_listen(struct grpc_server *s, const char *path, struct error *err);

/*
 * Serve a listening socket that another process made, and which grpc_endpoint_of_socket() has
 * accepted. Takes fd. Leaves its file alone at the end: clients that connect then wait for the next
 * process. Otherwise like grpc_server_listen(). Return 0 or a negative errno.
 */
int grpc_server_listen_on(struct grpc_server *s, int fd, struct error *err);

/*
 * Begin to shut down: accept no connections, remove the socket file if it is still ours, send every
 * client a GOAWAY. Finish calls that run or arrive within the round trip. Call done (may be NULL)
 * once, from the loop and never from within this function, when no connection and no handler is
 * left or grace_ms have passed. At the end of the grace, cancel open calls and answer them
 * UNAVAILABLE, close connections, and do not wait for running handlers; their results are dropped.
 * A further call can only shorten the grace.
 *
 * uv_run() does not return by itself while a handler runs, and libuv joins its pool when the
 * process exits. If handlers may hang, call uv_stop() in done and leave by _exit().
 */
void grpc_server_shutdown(struct grpc_server *s, unsigned int grace_ms, void (*done)(void *data),
			  void *data);

/*
 * Release the server in any state; NULL is allowed. Unless done was called, close everything as at
 * the end of the grace. The memory is freed after libuv's close callbacks and the last handler, so
 * run the loop once more before uv_loop_close().
 */
void grpc_server_free(struct grpc_server *s);

/*
 * Return the socket path of an endpoint: "unix:///abs", "unix://abs" (the same, as csi-driver-nfs
 * reads it), "unix:/abs", "unix:relative", "/abs", "unix-abstract:name" or "@name" (both give
 * "@name"). The scheme is matched without case. Return 0 with a new string, which the caller frees,
 * -ENOMEM, or a negative errno with INVALID_ARGUMENT for tcp and other schemes, an empty path, or
 * one that is too long for sun_path.
 */
int grpc_endpoint_parse(const char *endpoint, char **ret_path, struct error *err);

/*
 * Return the path of a listening stream socket that another process made, as grpc_endpoint_parse()
 * does ('@' first: abstract). endpoint is where it has to listen, in any spelling, or NULL for
 * anywhere. Return 0 with a new string, which the caller frees, -ENOMEM, or a negative errno with
 * INVALID_ARGUMENT for a descriptor that is no socket, a socket of another kind, a connection, a
 * malformed endpoint, or one that is not this socket.
 */
int grpc_endpoint_of_socket(int fd, const char *endpoint, char **ret_path, struct error *err);

#endif
