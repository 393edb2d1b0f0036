/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * A load generator: many CSI calls over one connection, a given number of them at once, and one
 * line of results. It is in C because a Python client in a slow guest would measure itself.
 *
 *   load [-u] [-n NAME] [-o SOURCE] [-c COMPRESSION] SOCKET OPERATION COUNT CALLERS
 *        [SERVER SHARE [TARGET-DIRECTORY [FLAGS]]]
 *
 * OPERATION is probe, create, delete, list, publish, unpublish, clone, snapshot, forget or restore.
 * New objects are named NAME-0, NAME-1, ..., with -u a UUID follows, as in the names of
 * external-provisioner (always the same one, for the number differs); NAME is bench without -n.
 * list reads all pages of ListVolumes, one after the other, and counts a call for each page. clone
 * copies the volume SOURCE. snapshot makes snapshots of SOURCE with the given compression, and
 * forget deletes them. restore makes volumes from the snapshot SOURCE, which must be a snapshot of
 * bench-0.
 *
 * Output: operation, callers, calls, failures, calls per second, the median, the 99th percentile
 * and the total in milliseconds, and how many volumes were listed. Exit status 1 if a call failed;
 * the first message goes to stderr.
 */

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <nghttp2/nghttp2.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/str.h"
#include "csi.pb-c.h"

#define PREFIX_BYTES 5 /* of a gRPC message */
#define PAGES_MAX 1000
#define TIMEOUT_NS (600 * CLOCK_NS_PER_S)
#define SNAPSHOTS_OF "bench-0" /* in the ids of snapshots */

struct load {
	const char *server, *share, *target, *flags;
	const char *name, *source, *compression; /* of -n, -o and -c */
	bool has_uuids; /* -u */
	const struct operation *operation;
	unsigned int count, callers;
	unsigned int started, finished, failed;
	uint64_t *durations;
	char *token; /* of the next page; NULL: the first */
	size_t listed; /* volumes */
	nghttp2_session *session;
	int fd;
};

struct call {
	struct load *load;
	uint64_t start_ns;
	struct buf request, reply;
	size_t sent;
	bool ok;
};

/* Packs a message behind its prefix. */
static void put_message(struct buf *b, const ProtobufCMessage *message)
{
	size_t len = protobuf_c_message_get_packed_size(message);
	uint8_t prefix[PREFIX_BYTES] = { 0, (uint8_t)(len >> 24), (uint8_t)(len >> 16),
					 (uint8_t)(len >> 8), (uint8_t)len };
	uint8_t *data = malloc(len + 1);

	if (data == NULL || buf_append(b, prefix, sizeof(prefix)) < 0 ||
	    buf_append(b, data, protobuf_c_message_pack(message, data)) < 0) {
		fprintf(stderr, "load: out of memory\n");
		exit(EXIT_FAILURE);
	}
	free(data);
}

/* One capability with the mount flags of the command line. */
struct capability {
	Csi__V1__VolumeCapability capability;
	Csi__V1__VolumeCapability__AccessMode mode;
	Csi__V1__VolumeCapability__MountVolume mount;
	char *flag;
};

static void init_capability(struct capability *c, const struct load *l)
{
	csi__v1__volume_capability__init(&c->capability);
	csi__v1__volume_capability__access_mode__init(&c->mode);
	csi__v1__volume_capability__mount_volume__init(&c->mount);
	c->mode.mode = CSI__V1__VOLUME_CAPABILITY__ACCESS_MODE__MODE__MULTI_NODE_MULTI_WRITER;
	c->flag = (char *)(uintptr_t)l->flags; /* only read while it is packed */
	c->mount.mount_flags = &c->flag;
	c->mount.n_mount_flags = l->flags[0] != '\0';
	c->capability.access_mode = &c->mode;
	c->capability.access_type_case = CSI__V1__VOLUME_CAPABILITY__ACCESS_TYPE_MOUNT;
	c->capability.mount = &c->mount;
}

/* Of the volume of that name, and of the snapshot. */
static void format_volume(const struct load *l, const char *name, char *id, size_t size)
{
	(void)snprintf(id, size, "%s#%s#%s##", l->server, l->share + (l->share[0] == '/'), name);
}

static void format_snapshot(const struct load *l, const char *name, char *id, size_t size)
{
	(void)snprintf(id, size, "%s#%s#%s#%s#" SNAPSHOTS_OF, l->server,
		       l->share + (l->share[0] == '/'), name, name);
}

static void format_name(const struct load *l, unsigned int i, char *name, size_t size)
{
	const char *uuid = l->has_uuids ? "-00000000-0000-4000-8000-000000000000" : "";

	(void)snprintf(name, size, "%s-%u%s", l->name, i, uuid);
}

static void format_id(const struct load *l, unsigned int i, char *id, size_t size)
{
	char name[64];

	format_name(l, i, name, sizeof(name));
	format_volume(l, name, id, size);
}

static void put_probe(struct load *l, unsigned int i, struct buf *b)
{
	Csi__V1__ProbeRequest in = CSI__V1__PROBE_REQUEST__INIT;

	(void)l;
	(void)i;
	put_message(b, &in.base);
}

static void put_volume(struct load *l, unsigned int i, Csi__V1__VolumeContentSource *source,
		       struct buf *b)
{
	Csi__V1__CreateVolumeRequest__ParametersEntry server =
		CSI__V1__CREATE_VOLUME_REQUEST__PARAMETERS_ENTRY__INIT;
	Csi__V1__CreateVolumeRequest__ParametersEntry share = server;
	Csi__V1__CreateVolumeRequest__ParametersEntry *parameters[] = { &server, &share };
	Csi__V1__CreateVolumeRequest in = CSI__V1__CREATE_VOLUME_REQUEST__INIT;
	Csi__V1__CapacityRange range = CSI__V1__CAPACITY_RANGE__INIT;
	struct capability c;
	Csi__V1__VolumeCapability *capabilities[] = { &c.capability };
	char name[64];

	init_capability(&c, l);
	format_name(l, i, name, sizeof(name));
	server.key = (char *)(uintptr_t) "server";
	server.value = (char *)(uintptr_t)l->server;
	share.key = (char *)(uintptr_t) "share";
	share.value = (char *)(uintptr_t)l->share;
	range.required_bytes = 1 << 30;
	in.name = name;
	in.capacity_range = &range;
	in.volume_capabilities = capabilities;
	in.n_volume_capabilities = 1;
	in.parameters = parameters;
	in.n_parameters = ARRAY_SIZE(parameters);
	in.volume_content_source = source;
	put_message(b, &in.base);
}

static void put_create(struct load *l, unsigned int i, struct buf *b)
{
	put_volume(l, i, NULL, b);
}

static void put_clone(struct load *l, unsigned int i, struct buf *b)
{
	Csi__V1__VolumeContentSource source = CSI__V1__VOLUME_CONTENT_SOURCE__INIT;
	Csi__V1__VolumeContentSource__VolumeSource volume =
		CSI__V1__VOLUME_CONTENT_SOURCE__VOLUME_SOURCE__INIT;
	char id[512];

	format_volume(l, l->source, id, sizeof(id));
	volume.volume_id = id;
	source.type_case = CSI__V1__VOLUME_CONTENT_SOURCE__TYPE_VOLUME;
	source.volume = &volume;
	put_volume(l, i, &source, b);
}

static void put_restore(struct load *l, unsigned int i, struct buf *b)
{
	Csi__V1__VolumeContentSource source = CSI__V1__VOLUME_CONTENT_SOURCE__INIT;
	Csi__V1__VolumeContentSource__SnapshotSource snapshot =
		CSI__V1__VOLUME_CONTENT_SOURCE__SNAPSHOT_SOURCE__INIT;
	char id[512];

	format_snapshot(l, l->source, id, sizeof(id));
	snapshot.snapshot_id = id;
	source.type_case = CSI__V1__VOLUME_CONTENT_SOURCE__TYPE_SNAPSHOT;
	source.snapshot = &snapshot;
	put_volume(l, i, &source, b);
}

static void put_snapshot(struct load *l, unsigned int i, struct buf *b)
{
	Csi__V1__CreateSnapshotRequest__ParametersEntry compression =
		CSI__V1__CREATE_SNAPSHOT_REQUEST__PARAMETERS_ENTRY__INIT;
	Csi__V1__CreateSnapshotRequest__ParametersEntry *parameters[] = { &compression };
	Csi__V1__CreateSnapshotRequest in = CSI__V1__CREATE_SNAPSHOT_REQUEST__INIT;
	char id[512], name[64];

	format_volume(l, l->source, id, sizeof(id));
	format_name(l, i, name, sizeof(name));
	compression.key = (char *)(uintptr_t) "compression";
	compression.value = (char *)(uintptr_t)l->compression;
	in.source_volume_id = id;
	in.name = name;
	in.parameters = parameters;
	in.n_parameters = ARRAY_SIZE(parameters);
	put_message(b, &in.base);
}

static void put_forget(struct load *l, unsigned int i, struct buf *b)
{
	Csi__V1__DeleteSnapshotRequest in = CSI__V1__DELETE_SNAPSHOT_REQUEST__INIT;
	char id[512], name[64];

	format_name(l, i, name, sizeof(name));
	format_snapshot(l, name, id, sizeof(id));
	in.snapshot_id = id;
	put_message(b, &in.base);
}

static void put_delete(struct load *l, unsigned int i, struct buf *b)
{
	Csi__V1__DeleteVolumeRequest in = CSI__V1__DELETE_VOLUME_REQUEST__INIT;
	char id[512];

	format_id(l, i, id, sizeof(id));
	in.volume_id = id;
	put_message(b, &in.base);
}

static void put_publish(struct load *l, unsigned int i, struct buf *b)
{
	Csi__V1__NodePublishVolumeRequest__VolumeContextEntry server =
		CSI__V1__NODE_PUBLISH_VOLUME_REQUEST__VOLUME_CONTEXT_ENTRY__INIT;
	Csi__V1__NodePublishVolumeRequest__VolumeContextEntry share = server, dir = server;
	Csi__V1__NodePublishVolumeRequest__VolumeContextEntry *context[] = { &server, &share,
									     &dir };
	Csi__V1__NodePublishVolumeRequest in = CSI__V1__NODE_PUBLISH_VOLUME_REQUEST__INIT;
	struct capability c;
	char id[512], target[512], name[64];

	init_capability(&c, l);
	format_id(l, i, id, sizeof(id));
	(void)snprintf(target, sizeof(target), "%s/%u", l->target, i);
	format_name(l, i, name, sizeof(name));
	server.key = (char *)(uintptr_t) "server";
	server.value = (char *)(uintptr_t)l->server;
	share.key = (char *)(uintptr_t) "share";
	share.value = (char *)(uintptr_t)l->share;
	dir.key = (char *)(uintptr_t) "subDir";
	dir.value = name;
	in.volume_id = id;
	in.target_path = target;
	in.volume_capability = &c.capability;
	in.volume_context = context;
	in.n_volume_context = ARRAY_SIZE(context);
	put_message(b, &in.base);
}

static void put_unpublish(struct load *l, unsigned int i, struct buf *b)
{
	Csi__V1__NodeUnpublishVolumeRequest in = CSI__V1__NODE_UNPUBLISH_VOLUME_REQUEST__INIT;
	char id[512], target[512];

	format_id(l, i, id, sizeof(id));
	(void)snprintf(target, sizeof(target), "%s/%u", l->target, i);
	in.volume_id = id;
	in.target_path = target;
	put_message(b, &in.base);
}

static void put_list(struct load *l, unsigned int i, struct buf *b)
{
	Csi__V1__ListVolumesRequest in = CSI__V1__LIST_VOLUMES_REQUEST__INIT;

	(void)i;
	if (l->token != NULL)
		in.starting_token = l->token;
	put_message(b, &in.base);
}

static const struct operation {
	const char *name;
	const char *path;
	void (*put)(struct load *l, unsigned int i, struct buf *b);
	bool needs_volume;
	bool needs_target;
	bool needs_source;
} operations[] = {
	{ "probe", "/csi.v1.Identity/Probe", put_probe, false, false, false },
	{ "create", "/csi.v1.Controller/CreateVolume", put_create, true, false, false },
	{ "delete", "/csi.v1.Controller/DeleteVolume", put_delete, true, false, false },
	{ "list", "/csi.v1.Controller/ListVolumes", put_list, false, false, false },
	{ "publish", "/csi.v1.Node/NodePublishVolume", put_publish, true, true, false },
	{ "unpublish", "/csi.v1.Node/NodeUnpublishVolume", put_unpublish, true, true, false },
	{ "clone", "/csi.v1.Controller/CreateVolume", put_clone, true, false, true },
	{ "snapshot", "/csi.v1.Controller/CreateSnapshot", put_snapshot, true, false, true },
	{ "forget", "/csi.v1.Controller/DeleteSnapshot", put_forget, true, false, false },
	{ "restore", "/csi.v1.Controller/CreateVolume", put_restore, true, false, true },
};

static ssize_t read_request(nghttp2_session *session, int32_t stream_id, uint8_t *buf, size_t len,
			    uint32_t *flags, nghttp2_data_source *source, void *data)
{
	struct call *call = source->ptr;
	size_t left = call->request.len - call->sent;

	(void)session;
	(void)stream_id;
	(void)data;
	if (len > left)
		len = left;
	memcpy(buf, call->request.data + call->sent, len);
	call->sent += len;
	if (call->sent == call->request.len)
		*flags |= NGHTTP2_DATA_FLAG_EOF;
	return (ssize_t)len;
}

static nghttp2_nv field(const char *name, const char *value)
{
	return (nghttp2_nv){
		.name = (uint8_t *)(uintptr_t)name, /* nghttp2 copies, and only reads */
		.value = (uint8_t *)(uintptr_t)value,
		.namelen = strlen(name),
		.valuelen = strlen(value),
	};
}

static int start_call(struct load *l)
{
	const nghttp2_nv nv[] = {
		field(":method", "POST"),
		field(":scheme", "http"),
		field(":path", l->operation->path),
		field(":authority", "localhost"),
		field("te", "trailers"),
		field("content-type", "application/grpc"),
	};
	struct call *call = calloc(1, sizeof(*call));
	nghttp2_data_provider provider = { .source.ptr = call, .read_callback = read_request };

	if (call == NULL)
		return -ENOMEM;
	call->load = l;
	l->operation->put(l, l->started++, &call->request);
	call->start_ns = clock_now_ns();
	return nghttp2_submit_request(l->session, NULL, nv, ARRAY_SIZE(nv), &provider, call) < 0
		       ? -EPROTO
		       : 0;
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
		     size_t name_len, const uint8_t *value, size_t value_len, uint8_t flags,
		     void *data)
{
	struct call *call = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
	struct load *l = data;

	(void)flags;
	if (call == NULL)
		return 0;
	if (name_len == 11 && memcmp(name, "grpc-status", 11) == 0)
		call->ok = value_len == 1 && value[0] == '0';
	if (name_len == 12 && memcmp(name, "grpc-message", 12) == 0 && value_len > 0 &&
	    l->failed == 0)
		fprintf(stderr, "load: %s: %.*s\n", l->operation->name, (int)value_len, value);
	return 0;
}

/* Only what is looked at later. */
static int on_data(nghttp2_session *session, uint8_t flags, int32_t stream_id, const uint8_t *data,
		   size_t len, void *user_data)
{
	struct call *call = nghttp2_session_get_stream_user_data(session, stream_id);

	(void)flags;
	(void)user_data;
	if (call == NULL || call->load->operation->put != put_list)
		return 0;
	return buf_append(&call->reply, data, len) < 0 ? NGHTTP2_ERR_CALLBACK_FAILURE : 0;
}

/* Where there is another page, it is asked for next. */
static void take_page(struct load *l, const struct call *call)
{
	Csi__V1__ListVolumesResponse *page;

	free(l->token);
	l->token = NULL;
	if (call->reply.len < PREFIX_BYTES)
		return;
	page = csi__v1__list_volumes_response__unpack(NULL, call->reply.len - PREFIX_BYTES,
						      (const uint8_t *)call->reply.data +
							      PREFIX_BYTES);
	if (page == NULL)
		return;
	l->listed += page->n_entries;
	if (page->next_token[0] != '\0' && l->count < PAGES_MAX) {
		l->token = strdup(page->next_token);
		l->count++;
	}
	csi__v1__list_volumes_response__free_unpacked(page, NULL);
}

static int on_stream_close(nghttp2_session *session, int32_t stream_id, uint32_t code, void *data)
{
	struct call *call = nghttp2_session_get_stream_user_data(session, stream_id);
	struct load *l = data;

	(void)code;
	if (call == NULL)
		return 0;
	l->durations[l->finished++] = clock_now_ns() - call->start_ns;
	if (!call->ok)
		l->failed++;
	if (l->operation->put == put_list)
		take_page(l, call);
	buf_done(&call->request);
	buf_done(&call->reply);
	free(call);
	if (l->started < l->count && start_call(l) < 0)
		return NGHTTP2_ERR_CALLBACK_FAILURE;
	return 0;
}

static int send_all(struct load *l)
{
	const uint8_t *data;
	ssize_t n;

	while ((n = nghttp2_session_mem_send(l->session, &data)) > 0) {
		ssize_t done = 0;

		while (done < n) {
			ssize_t put = send(l->fd, data + done, (size_t)(n - done), MSG_NOSIGNAL);

			if (put < 0)
				return -errno;
			done += put;
		}
	}
	return n < 0 ? -EPROTO : 0;
}

static int run(struct load *l)
{
	uint64_t deadline = clock_now_ns() + TIMEOUT_NS;
	uint8_t data[16384];
	unsigned int i;
	ssize_t n;
	int r = 0;

	for (i = 0; i < l->callers && i < l->count && r == 0; i++)
		r = start_call(l);
	while (r == 0 && l->finished < l->count) {
		struct pollfd p = { .fd = l->fd, .events = POLLIN };

		r = send_all(l);
		if (r < 0)
			break;
		if (poll(&p, 1, clock_left_ms(deadline)) == 0)
			return -ETIMEDOUT;
		n = recv(l->fd, data, sizeof(data), 0);
		if (n <= 0)
			return n < 0 ? -errno : -ECONNRESET;
		if (nghttp2_session_mem_recv(l->session, data, (size_t)n) < 0)
			return -EPROTO;
	}
	return r;
}

static int compare(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

static double percentile_ms(const struct load *l, unsigned int percent)
{
	return (double)l->durations[(l->count - 1) * percent / 100] / (double)CLOCK_NS_PER_MS;
}

static int measure(struct load *l)
{
	nghttp2_session_callbacks *callbacks;
	uint64_t start;
	double seconds;
	int r;

	if (nghttp2_session_callbacks_new(&callbacks) != 0)
		return -ENOMEM;
	nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
	nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_stream_close);
	nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data);
	r = nghttp2_session_client_new(&l->session, callbacks, l) == 0 ? 0 : -ENOMEM;
	nghttp2_session_callbacks_del(callbacks);
	if (r < 0)
		return r;
	(void)nghttp2_submit_settings(l->session, NGHTTP2_FLAG_NONE, NULL, 0); /* shows in run() */
	start = clock_now_ns();
	r = run(l);
	seconds = (double)(clock_now_ns() - start) / (double)CLOCK_NS_PER_S;
	nghttp2_session_del(l->session);
	if (r < 0)
		return r;
	qsort(l->durations, l->count, sizeof(*l->durations), compare);
	printf("%s %u %u %u %.1f %.3f %.3f %.0f %zu\n", l->operation->name, l->callers, l->count,
	       l->failed, (double)l->count / seconds, percentile_ms(l, 50), percentile_ms(l, 99),
	       seconds * 1000, l->listed);
	return 0;
}

static int connect_to(const char *path)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	int fd;

	if (strlen(path) >= sizeof(addr.sun_path))
		return -ENAMETOOLONG;
	memcpy(addr.sun_path, path, strlen(path));
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	if (connect(fd, (struct sockaddr *)&addr, sizeof(addr)) < 0) {
		int e = errno;

		close(fd);
		return -e;
	}
	return fd;
}

static const struct operation *find_operation(const char *name)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(operations); i++)
		if (strcmp(operations[i].name, name) == 0)
			return &operations[i];
	return NULL;
}

static int usage(void)
{
	fprintf(stderr,
		"Usage: load [-n NAME] [-o SOURCE] [-c COMPRESSION] SOCKET OPERATION COUNT CALLERS "
		"[SERVER SHARE [TARGET-DIRECTORY [FLAGS]]]\n");
	return 2;
}

static bool take_options(struct load *l, int argc, char **argv)
{
	int option;

	while ((option = getopt(argc, argv, "+un:o:c:")) != -1) {
		switch (option) {
		case 'u':
			l->has_uuids = true;
			break;
		case 'n':
			l->name = optarg;
			break;
		case 'o':
			l->source = optarg;
			break;
		case 'c':
			l->compression = optarg;
			break;
		default:
			return false;
		}
	}
	return true;
}

static bool take_arguments(struct load *l, int argc, char **argv)
{
	uint64_t count, callers;

	if (argc < 4 || argc > 8)
		return false;
	l->operation = find_operation(argv[1]);
	if (l->operation == NULL || str_parse_u64(argv[2], 10, 1000000, &count) < 0 || count == 0 ||
	    str_parse_u64(argv[3], 10, 1000, &callers) < 0 || callers == 0)
		return false;
	if ((l->operation->needs_volume && argc < 6) || (l->operation->needs_target && argc < 7) ||
	    (l->operation->needs_source && l->source == NULL))
		return false;
	l->count = (unsigned int)count;
	l->callers = (unsigned int)callers;
	l->server = argc > 4 ? argv[4] : "";
	l->share = argc > 5 ? argv[5] : "";
	l->target = argc > 6 ? argv[6] : "";
	l->flags = argc > 7 ? argv[7] : "";
	return true;
}

int main(int argc, char **argv)
{
	struct load l = { .name = "bench", .compression = "none" };
	int r;

	if (!take_options(&l, argc, argv) || !take_arguments(&l, argc - optind, argv + optind))
		return usage();
	l.durations = calloc(l.count + PAGES_MAX, sizeof(*l.durations));
	if (l.durations == NULL)
		return EXIT_FAILURE;
	l.fd = connect_to(argv[optind]);
	r = l.fd < 0 ? l.fd : measure(&l);
	if (r < 0)
		fprintf(stderr, "load: %s\n", strerror(-r));
	if (l.fd >= 0)
		close(l.fd);
	free(l.durations);
	return r < 0 || l.failed > 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
