/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * A gRPC server for unary calls on one unix socket: nghttp2 speaks HTTP/2, libuv waits, and the
 * services are vtables that protoc-c generates. This room knows no CSI and no NFS.
 *
 * Threads: the loop thread owns sockets, HTTP/2 sessions and calls, and every function below is
 * for it only. Handlers run in libuv's pool (UV_THREADPOOL_SIZE) and may block there, or on the
 * loop thread where the service calls them quick. A handler gets its request message, a closure
 * and, as closure data, a struct request (base/request.h); it calls the closure once before it
 * returns, with the reply or with NULL and request->err set.
 *
 * What holds for every call: it is answered once. At its deadline the client is answered
 * DEADLINE_EXCEEDED while the handler runs on and its result is dropped; a call whose client is
 * gone before a worker takes it is not started. One line is logged where the status is sent.
 *
 * Whoever uses it ignores SIGPIPE all the same: what is written here is sent with MSG_NOSIGNAL,
 * other descriptors of the process are not.
 */
#ifndef GRPC_SERVER_H
#define GRPC_SERVER_H

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>
#include <uv.h>

#include "base/error.h"

struct grpc_server;

struct grpc_service {
	/*
	 * The generated vtable (FOO__INIT), every method of it set. Borrowed until
	 * grpc_server_free(), or longer where a handler is still running then.
	 */
	ProtobufCService *service;
	/*
	 * Asked by the method's bare name ("Probe"), for each call. True: the handler never
	 * blocks and runs on the loop thread, whatever the workers are stuck in. NULL: none is.
	 */
	bool (*is_quick)(const char *method);
};

struct grpc_server_config {
	const struct grpc_service *services; /* copied */
	size_t n_services;
};

/*
 * Makes a server that does not listen yet. The loop is borrowed and has to outlive it. Returns 0,
 * or -ENOMEM or libuv's negative errno with the error set.
 */
int grpc_server_new(struct grpc_server **ret, uv_loop_t *loop,
		    const struct grpc_server_config *config, struct error *err);

/*
 * Binds the socket at path (as grpc_endpoint_parse() gives it; '@' first: abstract), mode 0600,
 * and serves it whenever the loop runs. Once a server. A socket file that nobody answers on is
 * replaced; one that somebody does answer on, and anything that is no socket, is left alone.
 * Sets the umask for a moment, so call it before threads start to create files. Returns 0 or a
 * negative errno: -EADDRINUSE (FAILED_PRECONDITION) where another process is serving, -ENOTSOCK,
 * -ENAMETOOLONG, -ENOENT for a missing directory, or what the system says.
 */
int grpc_server_listen(struct grpc_server *s, const char *path, struct error *err);

/*
 * Begins to stop: no new connections, the socket file removed if it is still ours, GOAWAY to every
 * client; calls that are running or arrive within the round trip are finished. done (may be NULL)
 * is called once from the loop, never from within this function, when no connection and no handler
 * is left, or grace_ms are over: then open calls are answered UNAVAILABLE and told that they are
 * cancelled, connections are closed, and handlers still running are on their own, their results
 * dropped. Called again it can only shorten the grace.
 *
 * uv_run() does not return by itself while a handler runs, and libuv joins its pool when the
 * process exits: where handlers may still hang, call uv_stop() in done and leave by _exit().
 */
void grpc_server_shutdown(struct grpc_server *s, unsigned int grace_ms, void (*done)(void *data),
			  void *data);

/*
 * Gives the server up, at any stage; NULL is accepted. After done there is nothing left to close.
 * Otherwise everything is closed here as at the end of the grace, and the memory goes when the loop
 * has run the close callbacks (and the last handler has ended): run the loop once more before
 * uv_loop_close().
 */
void grpc_server_free(struct grpc_server *s);

/*
 * The socket path of an endpoint: "unix:///abs", "unix://abs" (the same, as csi-driver-nfs reads
 * it), "unix:/abs", "unix:relative", "/abs", "unix-abstract:name" and "@name" (both give "@name").
 * The scheme may be in any case. Returns 0 with a new string, which the caller frees, -ENOMEM, or
 * a negative errno with INVALID_ARGUMENT: tcp and other schemes, empty, longer than sun_path.
 */
int grpc_endpoint_parse(const char *endpoint, char **ret_path, struct error *err);

#endif
