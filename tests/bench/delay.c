/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * A TCP proxy that holds back what passes through it, each way for the same time: a network with a
 * round trip, on one machine and without privileges.
 *
 *   delay LISTEN-PORT PORT MILLISECONDS
 *
 * Connections to LISTEN-PORT of 127.0.0.1 go on to PORT. It ends with a signal.
 */

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <uv.h>

#include "base/list.h"
#include "base/str.h"

#define CHUNK 65536
#define HIGH_WATER (4U << 20) /* held back in one direction: then reading pauses */

struct chunk {
	struct list link;
	uint64_t due_ms;
	size_t len;
	uv_write_t write;
	char data[];
};

struct side {
	struct connection *connection;
	struct side *other;
	uv_tcp_t tcp;
	uv_timer_t timer; /* of the first chunk that goes to the other side */
	struct list held;
	size_t held_bytes;
	bool ended, reading;
};

struct connection {
	struct side client, server;
	unsigned int open_handles;
	bool closing;
};

static struct sockaddr_in upstream;
static uint64_t delay_ms;

static void on_closed(uv_handle_t *handle)
{
	struct connection *c = handle->data;

	if (--c->open_handles == 0)
		free(c);
}

static void drop_held(struct side *s)
{
	struct list *pos, *tmp;

	list_for_each_safe(pos, tmp, &s->held)
		free(container_of(pos, struct chunk, link));
	list_init(&s->held);
}

static void close_connection(struct connection *c)
{
	struct side *sides[] = { &c->client, &c->server };
	size_t i;

	if (c->closing)
		return;
	c->closing = true;
	for (i = 0; i < ARRAY_SIZE(sides); i++) {
		drop_held(sides[i]);
		uv_close((uv_handle_t *)&sides[i]->tcp, on_closed);
		uv_close((uv_handle_t *)&sides[i]->timer, on_closed);
	}
}

static void read_more(struct side *s);

static void on_written(uv_write_t *write, int status)
{
	struct chunk *chunk = container_of(write, struct chunk, write);
	struct side *s = write->data;

	free(chunk);
	if (status < 0)
		close_connection(s->connection);
	else if (!s->connection->closing)
		read_more(s);
}

static void on_timer(uv_timer_t *timer);

static void arm(struct side *s)
{
	const uint64_t now = uv_now(s->timer.loop);
	const struct chunk *first;

	if (list_is_empty(&s->held)) {
		/* All that came before the end has gone on. */
		if (s->ended)
			close_connection(s->connection);
		return;
	}
	first = container_of(s->held.next, struct chunk, link);
	(void)uv_timer_start(&s->timer, on_timer, first->due_ms > now ? first->due_ms - now : 0, 0);
}

static void on_timer(uv_timer_t *timer)
{
	struct side *s = container_of(timer, struct side, timer);
	const uint64_t now = uv_now(timer->loop);

	while (!list_is_empty(&s->held) && !s->connection->closing) {
		struct chunk *chunk = container_of(s->held.next, struct chunk, link);
		uv_buf_t buf = uv_buf_init(chunk->data, (unsigned int)chunk->len);

		if (chunk->due_ms > now)
			break;
		list_remove(&chunk->link);
		s->held_bytes -= chunk->len;
		chunk->write.data = s;
		if (uv_write(&chunk->write, (uv_stream_t *)&s->other->tcp, &buf, 1, on_written) <
		    0) {
			free(chunk);
			close_connection(s->connection);
		}
	}
	if (!s->connection->closing)
		arm(s);
}

static void on_alloc(uv_handle_t *handle, size_t size, uv_buf_t *buf)
{
	struct chunk *chunk = malloc(sizeof(*chunk) + CHUNK);

	(void)handle;
	(void)size;
	*buf = chunk != NULL ? uv_buf_init(chunk->data, CHUNK) : uv_buf_init(NULL, 0);
}

static void hold(struct side *s, struct chunk *chunk, size_t len)
{
	bool first = list_is_empty(&s->held);

	chunk->len = len;
	chunk->due_ms = uv_now(s->timer.loop) + delay_ms;
	list_add_tail(&s->held, &chunk->link);
	s->held_bytes += len;
	if (s->held_bytes > HIGH_WATER && s->reading) {
		s->reading = false;
		(void)uv_read_stop((uv_stream_t *)&s->tcp);
	}
	if (first)
		arm(s);
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
	struct side *s = container_of((uv_tcp_t *)stream, struct side, tcp);
	struct chunk *chunk =
		buf->base != NULL ? container_of(buf->base, struct chunk, data) : NULL;

	if (n > 0) {
		hold(s, chunk, (size_t)n);
		return;
	}
	free(chunk);
	if (n == 0)
		return;
	s->ended = true;
	if (n != UV_EOF)
		close_connection(s->connection);
	else if (list_is_empty(&s->held))
		arm(s);
}

static void read_more(struct side *s)
{
	if (s->reading || s->ended || s->held_bytes > HIGH_WATER)
		return;
	s->reading = uv_read_start((uv_stream_t *)&s->tcp, on_alloc, on_read) == 0;
}

static void on_connected(uv_connect_t *connect, int status)
{
	struct connection *c = connect->data;

	free(connect);
	if (status < 0) {
		close_connection(c);
		return;
	}
	if (c->closing)
		return;
	read_more(&c->client);
	read_more(&c->server);
}

static void init_side(struct connection *c, struct side *s, struct side *other, uv_loop_t *loop)
{
	s->connection = c;
	s->other = other;
	list_init(&s->held);
	(void)uv_tcp_init(loop, &s->tcp); /* neither can fail */
	(void)uv_timer_init(loop, &s->timer);
	s->tcp.data = s->timer.data = c;
	c->open_handles += 2;
	(void)uv_tcp_nodelay(&s->tcp, 1);
}

static void on_connection(uv_stream_t *listener, int status)
{
	struct connection *c = calloc(1, sizeof(*c));
	uv_connect_t *connect = calloc(1, sizeof(*connect));

	if (status < 0 || c == NULL || connect == NULL) {
		fprintf(stderr, "delay: cannot take a connection\n");
		exit(EXIT_FAILURE);
	}
	init_side(c, &c->client, &c->server, listener->loop);
	init_side(c, &c->server, &c->client, listener->loop);
	connect->data = c;
	if (uv_accept(listener, (uv_stream_t *)&c->client.tcp) < 0 ||
	    uv_tcp_connect(connect, &c->server.tcp, (const struct sockaddr *)&upstream,
			   on_connected) < 0) {
		free(connect);
		close_connection(c);
	}
}

int main(int argc, char **argv)
{
	uint64_t listen_port, port;
	struct sockaddr_in own;
	uv_tcp_t listener;
	uv_loop_t loop;

	if (argc != 4 || str_parse_u64(argv[1], 10, UINT16_MAX, &listen_port) < 0 ||
	    str_parse_u64(argv[2], 10, UINT16_MAX, &port) < 0 ||
	    str_parse_u64(argv[3], 10, 10000, &delay_ms) < 0) {
		fprintf(stderr, "usage: delay LISTEN-PORT PORT MILLISECONDS\n");
		return 2;
	}
	(void)uv_ip4_addr("127.0.0.1", (int)listen_port, &own);
	(void)uv_ip4_addr("127.0.0.1", (int)port, &upstream);
	if (uv_loop_init(&loop) < 0 || uv_tcp_init(&loop, &listener) < 0 ||
	    uv_tcp_bind(&listener, (const struct sockaddr *)&own, 0) < 0 ||
	    uv_listen((uv_stream_t *)&listener, 64, on_connection) < 0) {
		fprintf(stderr, "delay: cannot listen on port %s\n", argv[1]);
		return EXIT_FAILURE;
	}
	return uv_run(&loop, UV_RUN_DEFAULT);
}
