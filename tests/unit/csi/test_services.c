/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "base/request.h"
#include "csi/copy_turn.h"
#include "csi/services.h"
#include "node/node.h"
#include "node/stats.h"
#include "store/layout.h"
#include "store/volume_record.h"
#include "fake/mounter.h"
#include "fake/nfs.h"
#include "check_util.h"

#define MODE(name) CSI__V1__VOLUME_CAPABILITY__ACCESS_MODE__MODE__##name
#define PAIRS_MAX 6

/* A driver with everything fake below it. */
struct bench {
	struct csi_driver driver;
	struct node_driver node_driver;
	struct csi_identity identity;
	struct csi_controller controller;
	struct node_service node;
	struct tree_budget budget;
	atomic_bool stopping;
	Csi__V1__GroupController_Service group;
	Csi__V1__SnapshotMetadata_Service metadata;
	struct fake_nfs *nfs;
	struct fake_mounter mounter;
	char dir[CHECK_FOLDER]; /* an empty directory, for targets */
	char state[CHECK_FOLDER]; /* the node's state folder */
};

static void bench_init(struct bench *b)
{
	*b = (struct bench){ .node_driver = { .node_id = "node-1" } };
	check_make_folder(b->dir);
	check_make_folder(b->state);
	b->nfs = fake_nfs_new();
	fake_nfs_serve(b->nfs);
	fake_mounter_init(&b->mounter);
	b->node_driver.mounter = &b->mounter.mounter;
	ck_assert(key_locks_new(&b->driver.key_locks) == 0);
	ck_assert(copy_turns_new(&b->driver.turns) == 0);
	b->driver.budget = &b->budget;
	b->driver.stopping = &b->stopping;
	ck_assert(nfs_pool_new(&b->driver.pool, fake_nfs_connect_fn, 0) == 0);
	ck_assert(known_exports_new(&b->driver.known) == 0);
	ck_assert(dir_locks_new(&b->driver.dir_locks) == 0);
	b->node_driver.state_dir = b->state;
	ck_assert(node_stats_new(&b->node_driver.stats) == 0);
	ck_assert(purger_new(&b->driver.purger, b->driver.pool, NULL) == 0);
	csi_identity_init(&b->identity, "nfs.test", "1.2.3");
	csi_controller_init(&b->controller, &b->driver);
	b->node_driver.key_locks = b->driver.key_locks;
	node_service_init(&b->node, &b->node_driver);
	csi_group_controller_init(&b->group);
	csi_snapshot_metadata_init(&b->metadata);
}

static void bench_done(struct bench *b)
{
	purger_free(b->driver.purger);
	nfs_pool_free(b->driver.pool);
	dir_locks_free(b->driver.dir_locks);
	node_stats_free(b->node_driver.stats);
	known_exports_free(b->driver.known);
	key_locks_free(b->driver.key_locks);
	copy_turns_free(b->driver.turns);
	fake_nfs_free(b->nfs);
	/* What was unpublished has left no note. */
	ck_assert_msg(rmdir(b->state) == 0, "something is left in '%s'", b->state);
	ck_assert_msg(rmdir(b->dir) == 0, "something is left in '%s': %s", b->dir, strerror(errno));
}

/* One call: how it ended, and a copy of the reply. */
struct call {
	struct request req; /* first: it is the closure's data */
	ProtobufCMessage *reply;
	unsigned int answers;
};

static void answered(const ProtobufCMessage *reply, void *data)
{
	struct call *call = data;
	size_t size;
	uint8_t *bytes;

	call->answers++;
	if (reply == NULL)
		return;
	size = protobuf_c_message_get_packed_size(reply);
	bytes = malloc(size + 1);
	ck_assert(bytes != NULL);
	(void)protobuf_c_message_pack(reply, bytes);
	call->reply = protobuf_c_message_unpack(reply->descriptor, NULL, size, bytes);
	free(bytes);
	ck_assert_msg(call->reply != NULL, "the reply does not unpack");
}

static void call_done(struct call *call)
{
	if (call->reply != NULL)
		protobuf_c_message_free_unpacked(call->reply, NULL);
	call->reply = NULL;
}

#define cleanup_call __attribute__((cleanup(call_done)))

/* Calls a method by its name, and checks what holds for every answer. */
static void invoke(const char *row, ProtobufCService *service, const char *method, const void *in,
		   struct call *call)
{
	const ProtobufCMethodDescriptor *m =
		protobuf_c_service_descriptor_get_method_by_name(service->descriptor, method);

	ck_assert_msg(m != NULL, "%s: there is no method %s", row, method);
	*call = (struct call){ .answers = 0 };
	service->invoke(service, (unsigned int)(m - service->descriptor->methods), in, answered,
			&call->req);
	check_int(row, "answers", call->answers, 1);
	check_int(row, "error and no reply", call->req.err.code != ERROR_OK, call->reply == NULL);
	check_that(row, "an error has a message",
		   call->reply != NULL || call->req.err.msg[0] != '\0');
}

static char *text(const char *s)
{
	return (char *)(uintptr_t)s;
}

START_TEST(test_unimplemented)
{
	static const char *const implemented[] = {
		"GetPluginInfo",
		"GetPluginCapabilities",
		"Probe",
		"CreateVolume",
		"DeleteVolume",
		"ValidateVolumeCapabilities",
		"ControllerGetCapabilities",
		"ListVolumes",
		"GetCapacity",
		"ControllerGetVolume",
		"ControllerModifyVolume",
		"ControllerExpandVolume",
		"CreateSnapshot",
		"DeleteSnapshot",
		"ListSnapshots",
		"NodePublishVolume",
		"NodeUnpublishVolume",
		"NodeGetInfo",
		"NodeGetCapabilities",
		"NodeGetVolumeStats",
		"GroupControllerGetCapabilities",
	};
	struct bench b;
	ProtobufCService *const services[] = { &b.identity.service.base, &b.controller.service.base,
					       &b.node.service.base, &b.group.base,
					       &b.metadata.base };
	size_t i, k, m, methods = 0;

	bench_init(&b);
	for (i = 0; i < ARRAY_SIZE(services); i++) {
		const ProtobufCServiceDescriptor *desc = services[i]->descriptor;

		for (m = 0; m < desc->n_methods; m++) {
			const ProtobufCMethodDescriptor *method = &desc->methods[m];
			cleanup_free ProtobufCMessage *in =
				calloc(1, method->input->sizeof_message);
			cleanup_call struct call call = { .answers = 0 };
			bool is_there = false;

			methods++;
			for (k = 0; k < ARRAY_SIZE(implemented); k++)
				is_there = is_there || strcmp(method->name, implemented[k]) == 0;
			ck_assert(in != NULL);
			protobuf_c_message_init(method->input, in);
			invoke(method->name, services[i], method->name, in, &call);
			check_int(method->name, "UNIMPLEMENTED",
				  call.req.err.code == ERROR_UNIMPLEMENTED, !is_there);
			if (!is_there)
				check_error(method->name, &call.req.err, ERROR_UNIMPLEMENTED,
					    method->name);
		}
	}
	check_int("all services", "methods", methods, 3 + 15 + 8 + 4 + 2);
	bench_done(&b);
}
END_TEST

START_TEST(test_identity)
{
	const Csi__V1__GetPluginInfoRequest in = CSI__V1__GET_PLUGIN_INFO_REQUEST__INIT;
	const Csi__V1__GetPluginCapabilitiesRequest caps =
		CSI__V1__GET_PLUGIN_CAPABILITIES_REQUEST__INIT;
	const Csi__V1__ProbeRequest probe = CSI__V1__PROBE_REQUEST__INIT;
	const Csi__V1__GetPluginInfoResponse *info;
	const Csi__V1__GetPluginCapabilitiesResponse *list;
	const Csi__V1__ProbeResponse *ready;
	struct call call;
	struct bench b;

	bench_init(&b);
	invoke("info", &b.identity.service.base, "GetPluginInfo", &in, &call);
	info = (const void *)call.reply;
	check_str("info", "name", info->name, "nfs.test");
	check_str("info", "version", info->vendor_version, "1.2.3");
	call_done(&call);
	invoke("capabilities", &b.identity.service.base, "GetPluginCapabilities", &caps, &call);
	list = (const void *)call.reply;
	check_int("capabilities", "number", list->n_capabilities, 2);
	check_int("capabilities", "case", list->capabilities[0]->type_case,
		  CSI__V1__PLUGIN_CAPABILITY__TYPE_SERVICE);
	check_int("capabilities", "service", list->capabilities[0]->service->type,
		  CSI__V1__PLUGIN_CAPABILITY__SERVICE__TYPE__CONTROLLER_SERVICE);
	check_int("capabilities", "second case", list->capabilities[1]->type_case,
		  CSI__V1__PLUGIN_CAPABILITY__TYPE_VOLUME_EXPANSION);
	check_int("capabilities", "expansion", list->capabilities[1]->volume_expansion->type,
		  CSI__V1__PLUGIN_CAPABILITY__VOLUME_EXPANSION__TYPE__ONLINE);
	call_done(&call);
	fake_nfs_serve(NULL); /* an outage is no reason to restart the driver */
	invoke("probe", &b.identity.service.base, "Probe", &probe, &call);
	ready = (const void *)call.reply;
	check_that("probe", "ready, in so many words", ready->ready != NULL && ready->ready->value);
	call_done(&call);
	bench_done(&b);
}
END_TEST

START_TEST(test_capabilities)
{
	const Csi__V1__ControllerGetCapabilitiesRequest controller =
		CSI__V1__CONTROLLER_GET_CAPABILITIES_REQUEST__INIT;
	const Csi__V1__NodeGetCapabilitiesRequest node =
		CSI__V1__NODE_GET_CAPABILITIES_REQUEST__INIT;
	const Csi__V1__NodeGetInfoRequest info = CSI__V1__NODE_GET_INFO_REQUEST__INIT;
	const Csi__V1__GroupControllerGetCapabilitiesRequest group =
		CSI__V1__GROUP_CONTROLLER_GET_CAPABILITIES_REQUEST__INIT;
	const Csi__V1__ControllerGetCapabilitiesResponse *list;
	const Csi__V1__NodeGetCapabilitiesResponse *node_list;
	const Csi__V1__NodeGetInfoResponse *node_info;
	const Csi__V1__GroupControllerGetCapabilitiesResponse *group_list;
	struct call call;
	struct bench b;

	bench_init(&b);
	invoke("controller", &b.controller.service.base, "ControllerGetCapabilities", &controller,
	       &call);
	list = (const void *)call.reply;
	check_int("controller", "number", list->n_capabilities, 11);
	check_int("controller", "case", list->capabilities[0]->type_case,
		  CSI__V1__CONTROLLER_SERVICE_CAPABILITY__TYPE_RPC);
	check_int("controller", "type", list->capabilities[0]->rpc->type,
		  CSI__V1__CONTROLLER_SERVICE_CAPABILITY__RPC__TYPE__CREATE_DELETE_VOLUME);
	call_done(&call);
	b.driver.get_snapshot = true;
	invoke("controller with GetSnapshot", &b.controller.service.base,
	       "ControllerGetCapabilities", &controller, &call);
	list = (const void *)call.reply;
	check_int("controller with GetSnapshot", "number", list->n_capabilities, 12);
	call_done(&call);
	invoke("node", &b.node.service.base, "NodeGetCapabilities", &node, &call);
	node_list = (const void *)call.reply;
	check_int("node", "number", node_list->n_capabilities, 3);
	call_done(&call);
	invoke("node info", &b.node.service.base, "NodeGetInfo", &info, &call);
	node_info = (const void *)call.reply;
	check_str("node info", "node_id", node_info->node_id, "node-1");
	check_int("node info", "max_volumes_per_node", node_info->max_volumes_per_node, 0);
	check_that("node info", "no topology", node_info->accessible_topology == NULL);
	call_done(&call);
	invoke("group", &b.group.base, "GroupControllerGetCapabilities", &group, &call);
	group_list = (const void *)call.reply;
	check_int("group", "number", group_list->n_capabilities, 0);
	call_done(&call);
	bench_done(&b);
}
END_TEST

START_TEST(test_quick)
{
	static const char *const quick[] = { "GetPluginInfo",
					     "GetPluginCapabilities",
					     "Probe",
					     "ControllerGetCapabilities",
					     "NodeGetCapabilities",
					     "NodeGetInfo",
					     "GroupControllerGetCapabilities" };
	static const char *const slow[] = { "CreateVolume",
					    "DeleteVolume",
					    "NodePublishVolume",
					    "NodeUnpublishVolume",
					    "ValidateVolumeCapabilities",
					    "",
					    "probe" };
	size_t i;

	for (i = 0; i < ARRAY_SIZE(quick); i++)
		check_that(quick[i], "is quick", csi_is_quick(quick[i]));
	for (i = 0; i < ARRAY_SIZE(slow); i++)
		check_that(slow[i], "is not quick", !csi_is_quick(slow[i]));
}
END_TEST

/* Some workers of the sidecars stay free for other servers; what only reports is not held. */
START_TEST(test_hold_max)
{
	static const struct {
		const char *method;
		unsigned int workers; /* of the sidecar that calls it; 0: not held */
	} rows[] = {
		{ "CreateVolume", 100 },
		{ "DeleteVolume", 100 },
		{ "ControllerExpandVolume", 10 },
		{ "ControllerModifyVolume", 10 },
		{ "CreateSnapshot", 5 }, /* half of csi-snapshotter's, which do both */
		{ "DeleteSnapshot", 5 },
		{ "NodePublishVolume", 0 },
		{ "NodeUnpublishVolume", 0 },
		{ "NodeGetVolumeStats", 0 },
		{ "ListVolumes", 0 },
		{ "GetCapacity", 0 },
		{ "ControllerGetVolume", 0 },
		{ "Probe", 0 },
		{ "", 0 },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		check_int(rows[i].method, "is held", csi_hold_max(rows[i].method) > 0,
			  rows[i].workers > 0);
		check_that(rows[i].method, "leaves workers",
			   csi_hold_max(rows[i].method) * 10 <= rows[i].workers * 8);
	}
}
END_TEST

enum capability { MOUNT, NONE, BLOCK, NO_TYPE, NO_MODE, UNKNOWN_MODE, LATER_MODE, READER };

/* One capability and the messages in it. */
struct capability_box {
	Csi__V1__VolumeCapability cap;
	Csi__V1__VolumeCapability__MountVolume mount;
	Csi__V1__VolumeCapability__BlockVolume block;
	Csi__V1__VolumeCapability__AccessMode mode;
	Csi__V1__VolumeCapability *list[1];
	char *flags[1];
};

static void fill_capability(struct capability_box *x, enum capability kind, const char *flags)
{
	csi__v1__volume_capability__init(&x->cap);
	csi__v1__volume_capability__mount_volume__init(&x->mount);
	csi__v1__volume_capability__block_volume__init(&x->block);
	csi__v1__volume_capability__access_mode__init(&x->mode);
	x->cap.access_type_case = CSI__V1__VOLUME_CAPABILITY__ACCESS_TYPE_MOUNT;
	x->cap.mount = &x->mount;
	x->cap.access_mode = &x->mode;
	x->mode.mode = MODE(MULTI_NODE_MULTI_WRITER);
	if (kind == BLOCK) {
		x->cap.access_type_case = CSI__V1__VOLUME_CAPABILITY__ACCESS_TYPE_BLOCK;
		x->cap.block = &x->block;
	}
	if (kind == NO_TYPE) {
		x->cap.access_type_case = CSI__V1__VOLUME_CAPABILITY__ACCESS_TYPE__NOT_SET;
		x->cap.mount = NULL;
	}
	if (kind == NO_MODE)
		x->cap.access_mode = NULL;
	if (kind == UNKNOWN_MODE)
		x->mode.mode = MODE(UNKNOWN);
	if (kind == LATER_MODE)
		x->mode.mode = (Csi__V1__VolumeCapability__AccessMode__Mode)99;
	if (kind == READER)
		x->mode.mode = MODE(MULTI_NODE_READER_ONLY);
	x->list[0] = &x->cap;
	x->flags[0] = text(flags);
	x->mount.mount_flags = x->flags;
	x->mount.n_mount_flags = flags != NULL ? 1 : 0;
}

struct creation {
	const char *name; /* of the volume */
	enum capability capability;
	const char *pairs[2 * PAIRS_MAX + 1];
	int64_t required, limit;
	const char *flags, *secret; /* mount flag, and mountOptions in the secret; NULL: none */
};

static void create_volume(const char *row, struct bench *b, const struct creation *x,
			  struct call *call)
{
	Csi__V1__CreateVolumeRequest in = CSI__V1__CREATE_VOLUME_REQUEST__INIT;
	Csi__V1__CreateVolumeRequest__ParametersEntry entries[PAIRS_MAX], *list[PAIRS_MAX];
	Csi__V1__CreateVolumeRequest__SecretsEntry secret =
		CSI__V1__CREATE_VOLUME_REQUEST__SECRETS_ENTRY__INIT;
	Csi__V1__CreateVolumeRequest__SecretsEntry *secrets[] = { &secret };
	Csi__V1__CapacityRange range = CSI__V1__CAPACITY_RANGE__INIT;
	struct capability_box box;
	size_t n;

	for (n = 0; n < PAIRS_MAX && x->pairs[2 * n] != NULL; n++) {
		csi__v1__create_volume_request__parameters_entry__init(&entries[n]);
		entries[n].key = text(x->pairs[2 * n]);
		entries[n].value = text(x->pairs[2 * n + 1]);
		list[n] = &entries[n];
	}
	in.parameters = list;
	in.n_parameters = n;
	secret.key = text("mountOptions");
	secret.value = text(x->secret);
	in.secrets = secrets;
	in.n_secrets = x->secret != NULL ? 1 : 0;
	in.name = text(x->name);
	fill_capability(&box, x->capability, x->flags);
	in.volume_capabilities = box.list;
	in.n_volume_capabilities = x->capability == NONE ? 0 : 1;
	range.required_bytes = x->required;
	range.limit_bytes = x->limit;
	if (x->required != 0 || x->limit != 0)
		in.capacity_range = &range;
	invoke(row, &b->controller.service.base, "CreateVolume", &in, call);
}

#define SRV "server", "s", "share", "/e"

/* The code of a row whose call is refused. */
static enum error_code code_of(enum error_code code)
{
	return code != ERROR_OK ? code : ERROR_INVALID_ARGUMENT;
}

/* Five components of 200 bytes, which no class has to spell out. */
#define PV_DIRS                                                                                    \
	"/${pv.metadata.name}/${pv.metadata.name}/${pv.metadata.name}/${pv.metadata.name}/"        \
	"${pv.metadata.name}"
#define DIGITS_50 "01234567890123456789012345678901234567890123456789"
#define PV_NAME DIGITS_50 DIGITS_50 DIGITS_50 DIGITS_50

START_TEST(test_create_refused)
{
	static const struct {
		const char *name;
		struct creation in;
		enum error_code code; /* 0: INVALID_ARGUMENT */
		const char *word;
	} rows[] = {
		{ "no name", { "", MOUNT, { SRV } }, .word = "name" },
		{ "control in the name", { "a\x01", MOUNT, { SRV } }, .word = "name" },
		{ "no capabilities", { "a", NONE, { SRV } }, .word = "volume_capabilities" },
		{ "block", { "a", BLOCK, { SRV } }, .word = "block" },
		{ "no access type", { "a", NO_TYPE, { SRV } }, .word = "access_type" },
		{ "no access mode", { "a", NO_MODE, { SRV } }, .word = "access_mode" },
		{ "unknown access mode", { "a", UNKNOWN_MODE, { SRV } }, .word = "access_mode" },
		{ "later access mode", { "a", LATER_MODE, { SRV } }, .word = "access_mode" },
		{ "no parameters", { "a", MOUNT }, .word = "server" },
		{ "no share", { "a", MOUNT, { "server", "s" } }, .word = "share" },
		{ "unknown parameter", { "a", MOUNT, { SRV, "x", "y" } }, .word = "x" },
		{ "dot dot", { "a", MOUNT, { SRV, "subDir", "../a" } }, .word = "subDir" },
		{ "bad octal",
		  { "a", MOUNT, { SRV, "mountPermissions", "9" } },
		  .word = "mountPermissions" },
		{ "subDir that is long once it is filled in",
		  { "a",
		    MOUNT,
		    { SRV, "subDir", PV_DIRS PV_DIRS PV_DIRS PV_DIRS, "csi.storage.k8s.io/pv/name",
		      PV_NAME } },
		  .word = "parameters, with subDir filled in: has 4" },
		{ "negative size", { "a", MOUNT, { SRV }, -1 }, .word = "required_bytes" },
		{ "negative limit", { "a", MOUNT, { SRV }, 0, -1 }, .word = "limit_bytes" },
		{ "bind among the flags",
		  { "a", MOUNT, { SRV }, .flags = "hard,bind" },
		  .word = "mount options: 'bind' is not allowed for a volume" },
		{ "a flag with a value",
		  { "a", MOUNT, { SRV }, .flags = "helper=hunter2" },
		  .word = "mount options: 'helper' is not allowed for a volume" },
		{ "minorversion",
		  { "a", MOUNT, { SRV }, .flags = "minorversion=3" },
		  .word = "minor" },
		{ "port", { "a", MOUNT, { SRV }, .flags = "port=x" }, .word = "port" },
		{ "mountport",
		  { "a", MOUNT, { SRV }, .flags = "mountport=x" },
		  .word = "mountport" },
		{ "bind in the secret",
		  { "a", MOUNT, { SRV }, .secret = "vers=4,bind" },
		  .word = "mount options: 'bind' is not allowed for a volume" },
		{ "an address in the secret",
		  { "a", MOUNT, { SRV }, .secret = "addr=hunter2" },
		  .word = "mount options: 'addr' is not allowed for a volume" },
		{ "limit below",
		  { "a", MOUNT, { SRV }, 2, 1 },
		  .code = ERROR_OUT_OF_RANGE,
		  .word = "limit_bytes" },
	};
	struct bench b;
	size_t i;

	bench_init(&b);
	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		cleanup_call struct call call = { .answers = 0 };
		cleanup_free char *left = NULL;

		create_volume(rows[i].name, &b, &rows[i].in, &call);
		check_error(rows[i].name, &call.req.err, code_of(rows[i].code), rows[i].word);
		check_that(rows[i].name, "no value of an option is shown",
			   strstr(call.req.err.msg, "hunter2") == NULL);
		left = fake_nfs_list(b.nfs, NULL);
		check_str(rows[i].name, "what is on the share", left, "");
	}
	bench_done(&b);
}
END_TEST

static const char *context_get(const Csi__V1__Volume *volume, const char *key)
{
	size_t i;

	for (i = 0; i < volume->n_volume_context; i++)
		if (strcmp(volume->volume_context[i]->key, key) == 0)
			return volume->volume_context[i]->value;
	return NULL;
}

static void delete_volume(const char *row, struct bench *b, const char *id, struct call *call)
{
	Csi__V1__DeleteVolumeRequest in = CSI__V1__DELETE_VOLUME_REQUEST__INIT;

	in.volume_id = text(id);
	invoke(row, &b->controller.service.base, "DeleteVolume", &in, call);
}

START_TEST(test_create)
{
	static const struct {
		const char *name;
		struct creation in;
		const char *id, *dir;
		const char *context[4]; /* a key and its value, twice */
	} rows[] = {
		{ "plain",
		  { "pvc-1", MOUNT, { SRV }, 10 },
		  .id = "s#e#pvc-1##",
		  .dir = "pvc-1",
		  .context = { "server", "s", "subdir", "pvc-1" } },
		{ "hidden and nested name",
		  { "../a/b", MOUNT, { SRV }, 10, 10 },
		  .id = "s#e#%2E.%2Fa%2Fb##",
		  .dir = "%2E.%2Fa%2Fb",
		  .context = { "share", "/e", "subdir", "%2E.%2Fa%2Fb" } },
		{ "subDir",
		  { "pvc-2", MOUNT, { SRV, "SubDir", "/ns/x/", "onDelete", "Delete" } },
		  .id = "s#e#ns/x#pvc-2#",
		  .dir = "ns/x",
		  .context = { "SubDir", "ns/x", "onDelete", "Delete" } },
		{ "template",
		  { "pvc-3",
		    MOUNT,
		    { SRV, "subDir", "${pvc.metadata.name}", "csi.storage.k8s.io/pvc/name",
		      "claim" } },
		  .id = "s#e#claim#pvc-3#",
		  .dir = "claim",
		  .context = { "subDir", "claim", "csi.storage.k8s.io/pvc/name", "claim" } },
		{ "IPv6 and root",
		  { "pvc-4", MOUNT, { "server", "[fd00::1]", "share", "/" }, 0, 7 },
		  .id = "fd00::1##pvc-4##",
		  .dir = "pvc-4",
		  .context = { "share", "/", "subdir", "pvc-4" } },
	};
	struct bench b;
	size_t i, k;

	bench_init(&b);
	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		struct creation larger = rows[i].in;
		const Csi__V1__CreateVolumeResponse *out;
		struct call call;

		for (k = 0; k < 2; k++) {
			create_volume(rows[i].name, &b, &rows[i].in, &call);
			check_error(rows[i].name, &call.req.err, ERROR_OK, NULL);
			out = (const void *)call.reply;
			check_str(rows[i].name, "id", out->volume->volume_id, rows[i].id);
			check_int(rows[i].name, "size", out->volume->capacity_bytes,
				  rows[i].in.required != 0 ? rows[i].in.required
							   : rows[i].in.limit);
			check_str(rows[i].name, "context",
				  context_get(out->volume, rows[i].context[0]), rows[i].context[1]);
			check_str(rows[i].name, "second context",
				  context_get(out->volume, rows[i].context[2]), rows[i].context[3]);
			call_done(&call);
		}
		check_int(rows[i].name, "type", fake_nfs_type(b.nfs, rows[i].dir),
			  NFS_TYPE_DIRECTORY);
		larger.required = 1000;
		larger.limit = 0;
		create_volume(rows[i].name, &b, &larger, &call);
		check_error(rows[i].name, &call.req.err, ERROR_ALREADY_EXISTS, NULL);
		call_done(&call);
		delete_volume(rows[i].name, &b, rows[i].id, &call);
		check_error(rows[i].name, &call.req.err, ERROR_OK, NULL);
		check_int(rows[i].name, "gone", fake_nfs_type(b.nfs, rows[i].dir),
			  NFS_TYPE_UNKNOWN);
		call_done(&call);
	}
	bench_done(&b);
}
END_TEST

/* What the request does not name is as it was, whatever the driver's defaults have become. */
START_TEST(test_create_with_other_defaults)
{
	static const struct {
		const char *name;
		struct creation in;
		enum error_code code;
		const char *word;
	} rows[] = {
		{ "nothing is named", { "pvc-1", MOUNT, { SRV } }, ERROR_OK },
		{ "another policy is named",
		  { "pvc-1", MOUNT, { SRV, "onDelete", "retain" } },
		  ERROR_ALREADY_EXISTS,
		  "onDelete" },
		{ "another mode is named",
		  { "pvc-1", MOUNT, { SRV, "mountPermissions", "0700" } },
		  ERROR_ALREADY_EXISTS,
		  "mountPermissions" },
		{ "what is recorded is named",
		  { "pvc-1", MOUNT, { SRV, "onDelete", "archive", "mountPermissions", "0770" } },
		  ERROR_OK },
	};
	struct call call;
	struct bench b;
	size_t i;

	bench_init(&b);
	b.driver.mount_permissions = 0770;
	b.driver.on_delete = ON_DELETE_ARCHIVE;
	create_volume("first", &b, &rows[0].in, &call);
	check_error("first", &call.req.err, ERROR_OK, NULL);
	call_done(&call);
	b.driver.mount_permissions = 0;
	b.driver.on_delete = ON_DELETE_DELETE;
	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		const Csi__V1__CreateVolumeResponse *out;

		create_volume(rows[i].name, &b, &rows[i].in, &call);
		check_error(rows[i].name, &call.req.err, rows[i].code, rows[i].word);
		out = (const void *)call.reply;
		if (rows[i].code == ERROR_OK)
			check_str(rows[i].name, "id", out->volume->volume_id, "s#e#pvc-1##archive");
		call_done(&call);
	}
	bench_done(&b);
}
END_TEST

/* Somebody has taken the id out of the record: the answer still has one. */
START_TEST(test_create_without_recorded_id)
{
	static const struct creation in = { "pvc-1", MOUNT, { SRV } };
	cleanup_record struct record rec = { .n = 0 };
	const Csi__V1__CreateVolumeResponse *out;
	const struct nfs_handle *folder;
	struct nfs_client *client;
	struct call call;
	struct bench b;

	bench_init(&b);
	create_volume("first", &b, &in, &call);
	check_error("first", &call.req.err, ERROR_OK, NULL);
	call_done(&call);
	client = fake_nfs_connect(b.nfs);
	check_int("record", "folder", store_folder(client, STORE_VOLUMES, false, &folder, NULL), 0);
	check_int("record", "read", record_read(client, folder, "pvc-1", &rec, NULL), 0);
	record_unset(&rec, VOLUME_KEY_ID);
	check_int("record", "write", record_replace(client, folder, "pvc-1", &rec, NULL), 0);
	nfs_client_free(client);
	create_volume("again", &b, &in, &call);
	check_error("again", &call.req.err, ERROR_OK, NULL);
	out = (const void *)call.reply;
	check_str("again", "id", out->volume->volume_id, "s#e#pvc-1##");
	call_done(&call);
	bench_done(&b);
}
END_TEST

/*
 * A volume whose creation was cut short is asked for again, and the server refuses: that is no end,
 * for the CO would forget what is there.
 */
START_TEST(test_create_refused_after_an_attempt)
{
	static const struct {
		const char *name;
		int error;
		unsigned int types;
		unsigned int after; /* operations of these types that succeed */
	} rows[] = {
		{ "no space for the record", -ENOSPC, 1U << NFS_OP_SYMLINK },
		{ "read-only", -EROFS, 1U << NFS_OP_SYMLINK },
		{ "denied", -EACCES, 1U << NFS_OP_SYMLINK | 1U << NFS_OP_CREATE },
		{ "the folder cannot be looked up", -EACCES, 1U << NFS_OP_LOOKUP },
		/* The first two find .csi-nfs and volumes. */
		{ "the record cannot be looked up", -EACCES, 1U << NFS_OP_LOOKUP, 2 },
		{ "nor read", -EACCES, 1U << NFS_OP_READLINK },
	};
	static const struct creation in = { "pvc-1", MOUNT, { SRV }, 10, 0 };
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		const struct fake_failure failure = {
			.nth = rows[i].after + 1,
			.error = rows[i].error,
			.types = rows[i].types,
			.all = true,
		};
		cleanup_call struct call call = { .answers = 0 };
		struct bench b;

		bench_init(&b);
		fake_nfs_put(b.nfs, ".csi-nfs/volumes/pvc-1", NFS_TYPE_SYMLINK,
			     "v=1;name=pvc-1;dir=pvc-1");
		fake_nfs_put(b.nfs, "pvc-1", NFS_TYPE_DIRECTORY, NULL);
		fake_nfs_fail(b.nfs, &failure);
		create_volume(rows[i].name, &b, &in, &call);
		fake_nfs_fail(b.nfs, NULL);
		check_error(rows[i].name, &call.req.err, ERROR_ABORTED, NULL);
		bench_done(&b);
	}
}
END_TEST

static const struct {
	const char *name;
	enum error_code code;
	int sys;
} vanishings[] = {
	{ "no such export", ERROR_NOT_FOUND, ENOENT },
	{ "refused", ERROR_PERMISSION_DENIED, EACCES },
	{ "another version of NFS", ERROR_FAILED_PRECONDITION, EPROTONOSUPPORT },
};

/* Whether shares are exported: all of them, or but for one. */
static _Atomic bool is_exported;
static const char *unexported; /* NULL: all */
static size_t vanishing;

static int connect_if_exported(struct nfs_client **ret, const struct nfs_export *e,
			       struct error *err)
{
	int r;

	if (is_exported || (unexported != NULL && strcmp(e->share, unexported) != 0)) {
		r = fake_nfs_connect_fn(ret, e, err);
		if (r == 0)
			fake_nfs_pair_newest(*ret, strcmp(e->share, "/f") == 0 ? "/e" : "/f");
		return r;
	}
	(void)error_set(err, vanishings[vanishing].code, "not exported");
	err->sys = vanishings[vanishing].sys;
	return -err->sys;
}

static void unexport(struct fake_nfs *f, const struct nfs_op *op, void *data)
{
	(void)f;
	(void)data;
	is_exported = is_exported && op->type != NFS_OP_MKDIR;
}

static void bench_init_exported(struct bench *b)
{
	bench_init(b);
	purger_free(b->driver.purger);
	nfs_pool_free(b->driver.pool);
	ck_assert(nfs_pool_new(&b->driver.pool, connect_if_exported, 0) == 0);
	ck_assert(purger_new(&b->driver.purger, b->driver.pool, NULL) == 0);
	is_exported = true;
	unexported = NULL;
}

/*
 * A server restarts while a volume is created, and does not have the share yet, or not any more:
 * that is no end, since the record is there.
 */
START_TEST(test_create_on_a_share_that_vanishes)
{
	static const struct creation in = { "pvc-1", MOUNT, { SRV }, 10, 0 };
	/* Of a StorageClass with other mount options. */
	static const struct creation other = { "pvc-0", MOUNT, { SRV }, 10, 0, .flags = "vers=3" };
	const struct fake_failure failure = { .nth = 1,
					      .error = -ECONNABORTED,
					      .types = 1U << NFS_OP_MKDIR };
	const char *row = vanishings[_i].name;
	struct call call;
	struct bench b;

	vanishing = (size_t)_i;
	bench_init_exported(&b);
	fake_nfs_put(b.nfs, ".csi-nfs/volumes", NFS_TYPE_DIRECTORY, NULL);
	fake_nfs_put(b.nfs, ".csi-nfs/trash", NFS_TYPE_DIRECTORY, NULL);
	fake_nfs_put(b.nfs, ".csi-nfs/users", NFS_TYPE_DIRECTORY, NULL);
	fake_nfs_put(b.nfs, ".csi-nfs/busy", NFS_TYPE_DIRECTORY, NULL);
	create_volume(row, &b, &other, &call);
	check_error(row, &call.req.err, ERROR_OK, NULL);
	call_done(&call);
	fake_nfs_fail(b.nfs, &failure);
	fake_nfs_watch(b.nfs, unexport, NULL);
	create_volume(row, &b, &in, &call);
	check_error(row, &call.req.err, ERROR_ABORTED, "not exported");
	call_done(&call);
	check_int(row, "record", fake_nfs_type(b.nfs, ".csi-nfs/volumes/pvc-1"), NFS_TYPE_SYMLINK);
	create_volume(row, &b, &in, &call);
	check_error(row, &call.req.err, ERROR_ABORTED, "not exported");
	call_done(&call);
	fake_nfs_watch(b.nfs, NULL, NULL);
	is_exported = true;
	create_volume(row, &b, &in, &call);
	check_error(row, &call.req.err, ERROR_OK, NULL);
	call_done(&call);
	bench_done(&b);
}
END_TEST

/* Likewise between two calls. A share that was never there is a wrong one. */
START_TEST(test_create_on_a_share_that_has_vanished)
{
	static const struct creation first = { "pvc-1", MOUNT, { SRV }, 10, 0 };
	static const struct creation second = { "pvc-2", MOUNT, { SRV }, 10, 0 };
	static const struct creation other = { "pvc-3", MOUNT, { "server", "s", "share", "/f" } };
	const char *row = vanishings[_i].name;
	struct call call;
	struct bench b;

	vanishing = (size_t)_i;
	bench_init_exported(&b);
	create_volume(row, &b, &first, &call);
	check_error(row, &call.req.err, ERROR_OK, NULL);
	call_done(&call);
	nfs_pool_drop(b.driver.pool, &(struct nfs_export){ .server = text("s") });
	is_exported = false;
	create_volume(row, &b, &second, &call);
	check_error(row, &call.req.err, ERROR_ABORTED, "not exported");
	create_volume(row, &b, &other, &call);
	check_error(row, &call.req.err, vanishings[_i].code, "not exported");
	bench_done(&b);
}
END_TEST

static void expand(const char *row, struct bench *b, const char *id, struct call *call)
{
	Csi__V1__ControllerExpandVolumeRequest in = CSI__V1__CONTROLLER_EXPAND_VOLUME_REQUEST__INIT;
	Csi__V1__CapacityRange range = CSI__V1__CAPACITY_RANGE__INIT;

	range.required_bytes = 20;
	in.volume_id = text(id);
	in.capacity_range = &range;
	invoke(row, &b->controller.service.base, "ControllerExpandVolume", &in, call);
}

static void modify(const char *row, struct bench *b, const char *id, const char *key,
		   const char *value, struct call *call)
{
	Csi__V1__ControllerModifyVolumeRequest in = CSI__V1__CONTROLLER_MODIFY_VOLUME_REQUEST__INIT;
	Csi__V1__ControllerModifyVolumeRequest__MutableParametersEntry entry =
		CSI__V1__CONTROLLER_MODIFY_VOLUME_REQUEST__MUTABLE_PARAMETERS_ENTRY__INIT;
	Csi__V1__ControllerModifyVolumeRequest__MutableParametersEntry *list[] = { &entry };

	entry.key = text(key);
	entry.value = text(value);
	in.volume_id = text(id);
	in.mutable_parameters = list;
	in.n_mutable_parameters = 1;
	invoke(row, &b->controller.service.base, "ControllerModifyVolume", &in, call);
}

static void change_volume(const char *row, struct bench *b, const char *id, enum error_code code)
{
	struct call call;

	expand(row, b, id, &call);
	check_error(row, &call.req.err, code, "not exported");
	call_done(&call);
	modify(row, b, id, "onDelete", "retain", &call);
	check_error(row, &call.req.err, code, "not exported");
	call_done(&call);
}

/*
 * A CO takes NOT_FOUND for the end of a change, and may forget it, though an earlier attempt may
 * have made it.
 */
START_TEST(test_changes_on_a_share_that_has_vanished)
{
	static const struct creation in = { "pvc-1", MOUNT, { SRV }, 10, 0 };
	const char *row = vanishings[_i].name;
	Csi__V1__ControllerGetVolumeRequest get = CSI__V1__CONTROLLER_GET_VOLUME_REQUEST__INIT;
	const Csi__V1__ControllerGetVolumeResponse *got;
	struct call call;
	struct bench b;

	vanishing = (size_t)_i;
	bench_init_exported(&b);
	create_volume(row, &b, &in, &call);
	check_error(row, &call.req.err, ERROR_OK, NULL);
	call_done(&call);
	nfs_pool_drop(b.driver.pool, &(struct nfs_export){ .server = text("s") });
	is_exported = false;
	change_volume(row, &b, "s#e#pvc-1##", ERROR_ABORTED);
	change_volume(row, &b, "s#f#pvc-1##", vanishings[_i].code);
	get.volume_id = text("s#e#pvc-1##");
	invoke(row, &b.controller.service.base, "ControllerGetVolume", &get, &call);
	check_error(row, &call.req.err, ERROR_OK, NULL);
	got = (const Csi__V1__ControllerGetVolumeResponse *)call.reply;
	check_int(row, "abnormal", got->status->volume_condition->abnormal, true);
	check_that(row, "it says why",
		   strstr(got->status->volume_condition->message, "not exported"));
	call_done(&call);
	get.volume_id = text("s#f#pvc-1##");
	invoke(row, &b.controller.service.base, "ControllerGetVolume", &get, &call);
	check_error(row, &call.req.err, vanishings[_i].code, "not exported");
	bench_done(&b);
}
END_TEST

static void expand_volume(const char *row, struct bench *b, struct call *call)
{
	expand(row, b, "s#e#pvc-1##", call);
}

static void modify_volume(const char *row, struct bench *b, struct call *call)
{
	modify(row, b, "s#e#pvc-1##", "mountPermissions", "0711", call);
}

static void create_second_volume(const char *row, struct bench *b, struct call *call)
{
	static const struct creation in = { "pvc-2", MOUNT, { SRV }, 10, 0 };

	create_volume(row, b, &in, call);
}

static void create_snapshot_on(const char *row, struct bench *b, const char *share,
			       struct call *call)
{
	Csi__V1__CreateSnapshotRequest in = CSI__V1__CREATE_SNAPSHOT_REQUEST__INIT;
	Csi__V1__CreateSnapshotRequest__ParametersEntry entry =
		CSI__V1__CREATE_SNAPSHOT_REQUEST__PARAMETERS_ENTRY__INIT;
	Csi__V1__CreateSnapshotRequest__ParametersEntry *list[] = { &entry };

	entry.key = text("share");
	entry.value = text(share);
	in.parameters = list;
	in.n_parameters = 1;
	in.name = text("snapshot-1");
	in.source_volume_id = text("s#e#pvc-1##");
	invoke(row, &b->controller.service.base, "CreateSnapshot", &in, call);
}

static void create_snapshot(const char *row, struct bench *b, struct call *call)
{
	create_snapshot_on(row, b, "/e", call);
}

static void create_snapshot_elsewhere(const char *row, struct bench *b, struct call *call)
{
	create_snapshot_on(row, b, "/f", call);
}

static void clone_volume_to(const char *row, struct bench *b, const char *path, struct call *call)
{
	Csi__V1__CreateVolumeRequest in = CSI__V1__CREATE_VOLUME_REQUEST__INIT;
	Csi__V1__CreateVolumeRequest__ParametersEntry server =
		CSI__V1__CREATE_VOLUME_REQUEST__PARAMETERS_ENTRY__INIT;
	Csi__V1__CreateVolumeRequest__ParametersEntry share =
		CSI__V1__CREATE_VOLUME_REQUEST__PARAMETERS_ENTRY__INIT;
	Csi__V1__CreateVolumeRequest__ParametersEntry *list[] = { &server, &share };
	Csi__V1__VolumeContentSource from = CSI__V1__VOLUME_CONTENT_SOURCE__INIT;
	Csi__V1__VolumeContentSource__VolumeSource volume =
		CSI__V1__VOLUME_CONTENT_SOURCE__VOLUME_SOURCE__INIT;
	struct capability_box box;

	fill_capability(&box, MOUNT, NULL);
	server.key = text("server");
	server.value = text("s");
	share.key = text("share");
	share.value = text(path);
	volume.volume_id = text("s#e#pvc-1##");
	from.type_case = CSI__V1__VOLUME_CONTENT_SOURCE__TYPE_VOLUME;
	from.volume = &volume;
	in.name = text("clone-1");
	in.parameters = list;
	in.n_parameters = ARRAY_SIZE(list);
	in.volume_capabilities = box.list;
	in.n_volume_capabilities = 1;
	in.volume_content_source = &from;
	invoke(row, &b->controller.service.base, "CreateVolume", &in, call);
}

static void clone_volume(const char *row, struct bench *b, struct call *call)
{
	clone_volume_to(row, b, "/e", call);
}

static void clone_volume_elsewhere(const char *row, struct bench *b, struct call *call)
{
	clone_volume_to(row, b, "/f", call);
}

static const struct {
	const char *name;
	void (*call)(const char *row, struct bench *b, struct call *call);
	const char *unexported;
} broken_calls[] = {
	{ "expand", expand_volume },
	{ "modify", modify_volume },
	{ "create volume", create_second_volume },
	{ "create snapshot", create_snapshot },
	{ "create snapshot from another share", create_snapshot_elsewhere, "/e" },
	{ "create snapshot on another share", create_snapshot_elsewhere, "/f" },
	{ "clone", clone_volume },
	{ "clone from another share", clone_volume_elsewhere, "/e" },
	{ "clone to another share", clone_volume_elsewhere, "/f" },
};

/* Operations until a connection breaks and the share is no longer exported; 0: it has happened. */
static _Atomic unsigned int operations_left;

static void break_and_unexport(struct fake_nfs *f, const struct nfs_op *op, void *data)
{
	(void)f;
	(void)op;
	(void)data;
	if (operations_left > 0 && --operations_left == 0)
		is_exported = false;
}

/* Likewise at any operation: a server is restarted, and exports the share a little later. */
START_TEST(test_calls_on_a_restarted_server)
{
	static const struct creation in = { "pvc-1", MOUNT, { SRV }, 10, 0 };
	static const struct creation other = { "pvc-0", MOUNT, { "server", "s", "share", "/f" } };
	const size_t i = (size_t)_i / ARRAY_SIZE(vanishings);
	struct fake_failure failure = { .error = -ECONNABORTED };
	struct call call;
	struct bench b;
	bool broke = true;
	char row[128];
	unsigned int n;

	vanishing = (size_t)_i % ARRAY_SIZE(vanishings);
	for (n = 1; broke; n++) {
		(void)snprintf(row, sizeof(row), "%s, %s, operation %u", broken_calls[i].name,
			       vanishings[vanishing].name, n);
		bench_init_exported(&b);
		create_volume(row, &b, &in, &call);
		check_error(row, &call.req.err, ERROR_OK, NULL);
		call_done(&call);
		create_volume(row, &b, &other, &call);
		check_error(row, &call.req.err, ERROR_OK, NULL);
		call_done(&call);
		unexported = broken_calls[i].unexported;
		failure.nth = n;
		operations_left = n;
		fake_nfs_fail(b.nfs, &failure);
		fake_nfs_watch(b.nfs, break_and_unexport, NULL);
		broken_calls[i].call(row, &b, &call);
		broke = operations_left == 0;
		if (broke) {
			/* OK: only the note of use was to be removed. */
			ck_assert_msg(call.req.err.code == ERROR_OK ||
					      !error_is_final(call.req.err.code),
				      "%s: %s", row, call.req.err.msg);
			call_done(&call);
			fake_nfs_fail(b.nfs, NULL);
			fake_nfs_watch(b.nfs, NULL, NULL);
			is_exported = true;
			broken_calls[i].call(row, &b, &call);
		}
		check_error(row, &call.req.err, ERROR_OK, NULL);
		call_done(&call);
		bench_done(&b);
	}
	check_that(row, "some operations were tried", n > 2);
}
END_TEST

/* What another replica does between a call's look at a source volume and its note of use. */
struct replacement {
	const char *name;
	const char *record; /* the volume's, after that; NULL: none */
	bool done;
};

static void replace_before_note(struct fake_nfs *f, const struct nfs_op *op, void *data)
{
	struct replacement *x = data;

	if (op->type != NFS_OP_SYMLINK || strstr(op->name, "pvc-1~u~") == NULL)
		return;
	fake_nfs_watch(f, NULL, NULL);
	x->done = true;
	fake_nfs_remove(f, ".csi-nfs/volumes/pvc-1");
	if (x->record != NULL)
		fake_nfs_put(f, ".csi-nfs/volumes/pvc-1", NFS_TYPE_SYMLINK, x->record);
}

/* Without the note, another replica may delete the volume, and another one get its directory. */
START_TEST(test_source_that_is_replaced)
{
	static const struct creation in = { "pvc-1", MOUNT, { SRV }, 10, 0 };
	static const struct {
		const char *name;
		void (*call)(const char *row, struct bench *b, struct call *call);
	} calls[] = { { "snapshot", create_snapshot }, { "clone", clone_volume } };
	struct replacement replacements[] = {
		{ "deleted", NULL },
		{ "made again", "v=1;id=s%23e%23pvc-1%23%23;dir=pvc-1;mode=0000;nonce=other" },
	};
	struct replacement *x;
	size_t i, j;

	for (i = 0; i < ARRAY_SIZE(calls); i++) {
		for (j = 0; j < ARRAY_SIZE(replacements); j++) {
			struct call call;
			struct bench b;
			char row[96];

			x = &replacements[j];
			(void)snprintf(row, sizeof(row), "%s, %s", calls[i].name, x->name);
			bench_init(&b);
			create_volume(row, &b, &in, &call);
			check_error(row, &call.req.err, ERROR_OK, NULL);
			call_done(&call);
			x->done = false;
			fake_nfs_watch(b.nfs, replace_before_note, x);
			calls[i].call(row, &b, &call);
			check_that(row, "it was replaced", x->done);
			check_error(row, &call.req.err, ERROR_ABORTED, "made again");
			call_done(&call);
			bench_done(&b);
		}
	}
}
END_TEST

/* Another replica answers a deletion OK while the connection breaks on an operation. */
static void delete_and_break(struct fake_nfs *f, const struct nfs_op *op, void *data)
{
	const char *record = data;

	if (operations_left == 0 || op->type != NFS_OP_MKDIR || --operations_left > 0)
		return;
	ck_assert_int_ne(fake_nfs_type(f, record), NFS_TYPE_UNKNOWN);
	fake_nfs_remove(f, record);
}

/*
 * A call that is repeated on a new connection, without anybody asking for it, must not make again
 * what was deleted since: nobody would delete it then.
 */
START_TEST(test_deleted_before_the_call_is_repeated)
{
	static const struct creation in = { "pvc-1", MOUNT, { SRV }, 10, 0 };
	static const struct {
		const char *name;
		void (*call)(const char *row, struct bench *b, struct call *call);
		char record[64];
		unsigned int nth; /* MKDIR */
	} rows[] = {
		{ "volume", create_second_volume, ".csi-nfs/volumes/pvc-2", 1 },
		{ "snapshot", create_snapshot, ".csi-nfs/snapshots/snapshot-1", 2 },
		{ "clone", clone_volume, ".csi-nfs/volumes/clone-1", 1 },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		const struct fake_failure failure = { .nth = rows[i].nth,
						      .error = -ECONNABORTED,
						      .types = 1U << NFS_OP_MKDIR };
		char record[64];
		struct call call;
		struct bench b;

		bench_init(&b);
		create_volume(rows[i].name, &b, &in, &call);
		check_error(rows[i].name, &call.req.err, ERROR_OK, NULL);
		call_done(&call);
		(void)snprintf(record, sizeof(record), "%s", rows[i].record);
		operations_left = rows[i].nth;
		fake_nfs_fail(b.nfs, &failure);
		fake_nfs_watch(b.nfs, delete_and_break, record);
		rows[i].call(rows[i].name, &b, &call);
		check_int(rows[i].name, "it was deleted", operations_left, 0);
		check_error(rows[i].name, &call.req.err, ERROR_ABORTED, "being deleted");
		check_int(rows[i].name, "record", fake_nfs_type(b.nfs, record), NFS_TYPE_UNKNOWN);
		fake_nfs_watch(b.nfs, NULL, NULL);
		rows[i].call(rows[i].name, &b, &call);
		check_error(rows[i].name, &call.req.err, ERROR_OK, NULL);
		call_done(&call);
		bench_done(&b);
	}
}
END_TEST

/* Exports that calls reach, without success, leave room for those on which calls succeed. */
START_TEST(test_many_exports_reached)
{
	char share[32], server[] = "s";
	const struct nfs_export e = { .server = server, .share = share };
	struct known_exports *known;
	struct nfs_export *list;
	unsigned int i;
	size_t n;

	ck_assert(known_exports_new(&known) == 0);
	for (i = 0; i < KNOWN_EXPORTS_MAX; i++) {
		(void)snprintf(share, sizeof(share), "/wrong/%u", i);
		known_exports_reach(known, &e);
	}
	(void)snprintf(share, sizeof(share), "/right");
	known_exports_remember(known, &e);
	ck_assert(known_exports_list(known, &list, &n) == 0);
	check_int("many exports", "listed", n, 1);
	known_exports_list_free(list, n);
	known_exports_free(known);
}
END_TEST

/* Clients send maps in any order. The record is the same, but for the tag of its creation. */
START_TEST(test_create_in_any_order)
{
	static const struct creation orders[] = {
		{ "pvc-1", MOUNT, { SRV, "onDelete", "delete", "subDir", "x" }, 10, 0 },
		{ "pvc-1", MOUNT, { "subDir", "x", "onDelete", "delete", SRV }, 10, 0 },
	};
	cleanup_free char *first = NULL;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(orders); i++) {
		cleanup_call struct call call = { .answers = 0 };
		cleanup_free char *dump = NULL;
		struct bench b;
		char *nonce;

		bench_init(&b);
		create_volume("order", &b, &orders[i], &call);
		check_error("order", &call.req.err, ERROR_OK, NULL);
		dump = fake_nfs_dump(b.nfs, ".csi-nfs/volumes");
		nonce = strstr(dump, ";nonce=");
		ck_assert_ptr_nonnull(nonce);
		*nonce = '\0';
		if (first == NULL)
			first = steal_ptr(&dump);
		else
			check_str("order", "record", strstr(dump, "v=1"), strstr(first, "v=1"));
		bench_done(&b);
	}
}
END_TEST

START_TEST(test_delete)
{
	static const struct {
		const char *name;
		const char *id;
		enum error_code code;
		const char *word;
	} rows[] = {
		{ "no id", "", ERROR_INVALID_ARGUMENT, "volume_id" },
		{ "csi-sanity's garbage", "fake-vol-id-1a2b3c4d-5", ERROR_OK, NULL },
		{ "separators", "####", ERROR_OK, NULL },
		{ "dot dot", "s#e#..##", ERROR_OK, NULL },
		{ "dot dot in the share", "s#..#precious##", ERROR_OK, NULL },
		{ "the driver's folder", "s#e#.csi-nfs##", ERROR_OK, NULL },
		{ "not there", "s#e#pvc-9##", ERROR_OK, NULL },
		{ "not there, nested", "s#e#a/b/c#pvc-9#", ERROR_OK, NULL },
		{ "a file", "s#e#file##", ERROR_FAILED_PRECONDITION, "file" },
	};
	struct bench b;
	size_t i;

	bench_init(&b);
	fake_nfs_put(b.nfs, "precious/data", NFS_TYPE_FILE, NULL);
	fake_nfs_put(b.nfs, "file", NFS_TYPE_FILE, NULL);
	fake_nfs_put(b.nfs, ".csi-nfs/volumes/pvc-8", NFS_TYPE_SYMLINK, "v=1;dir=pvc-8");
	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		cleanup_call struct call call = { .answers = 0 };
		cleanup_free char *left = NULL;

		delete_volume(rows[i].name, &b, rows[i].id, &call);
		check_error(rows[i].name, &call.req.err, rows[i].code, rows[i].word);
		fake_nfs_put(b.nfs, ".csi-nfs/busy", NFS_TYPE_DIRECTORY, NULL);
		left = fake_nfs_list(b.nfs, NULL);
		check_str(rows[i].name, "what is on the share", left,
			  ".csi-nfs/\n.csi-nfs/busy/\n.csi-nfs/volumes/\n.csi-nfs/volumes/pvc-8\nfile\nprecious/\nprecious/data\n");
	}
	bench_done(&b);
}
END_TEST

/* Root may not look into the share, and the server does not say for now whose it is. */
static void refuse_and_be_busy(struct fake_nfs *f, const struct nfs_op *op, void *data)
{
	const int *error = data;

	if (op->type == NFS_OP_LOOKUP)
		fake_nfs_fail(f, &(struct fake_failure){ .nth = 1, .error = -EACCES });
	else if (op->type == NFS_OP_GETATTR)
		fake_nfs_fail(f, &(struct fake_failure){ .nth = 1, .error = *error });
}

/* A refusal is final only if nobody else may look, either. */
START_TEST(test_delete_refused)
{
	static const struct {
		const char *name;
		int error; /* of the look at the share's owner */
		enum error_code code;
	} rows[] = {
		{ "the owner cannot be asked", -EIO, ERROR_UNAVAILABLE },
		{ "the owner is not told", -EACCES, ERROR_PERMISSION_DENIED },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		cleanup_call struct call call = { .answers = 0 };
		int error = rows[i].error;
		struct bench b;

		bench_init(&b);
		fake_nfs_watch(b.nfs, refuse_and_be_busy, &error);
		delete_volume(rows[i].name, &b, "s#e#pvc-1##", &call);
		check_error(rows[i].name, &call.req.err, rows[i].code, NULL);
		fake_nfs_watch(b.nfs, NULL, NULL);
		bench_done(&b);
	}
}
END_TEST

START_TEST(test_validate)
{
	static const struct {
		const char *name;
		const char *id;
		enum capability capability;
		const char *context[2];
		const char *flags; /* NULL: none */
		enum error_code code;
		const char *word; /* in the error, or in the message of what is not confirmed */
		bool confirmed;
	} rows[] = {
		{ "no id", "", .code = ERROR_INVALID_ARGUMENT, .word = "volume_id" },
		{ "no capabilities", "s#e#pvc-1##", .capability = NONE,
		  .code = ERROR_INVALID_ARGUMENT, .word = "volume_capabilities" },
		{ "garbage", "fake-vol-id-1", .code = ERROR_NOT_FOUND, .word = "fake-vol-id-1" },
		{ "dot dot", "s#e#..##", .code = ERROR_NOT_FOUND },
		{ "not there", "s#e#pvc-2##", .code = ERROR_NOT_FOUND, .word = "pvc-2" },
		{ "there", "s#e#pvc-1##", .confirmed = true },
		{ "read-only", "s#e#pvc-1##", .capability = READER, .confirmed = true },
		{ "its context", "s#e#pvc-1##", .context = { "subdir", "pvc-1" },
		  .confirmed = true },
		{ "another context", "s#e#pvc-1##", .context = { "subdir", "pvc-2" } },
		{ "context of the CO", "s#e#pvc-1##",
		  .context = { "storage.kubernetes.io/csiProvisionerIdentity", "x" },
		  .confirmed = true },
		{ "options for nodes", "s#e#pvc-1##", .flags = "hard,nofail,vers=4.1",
		  .confirmed = true },
		{ "bind", "s#e#pvc-1##", .flags = "hard,bind",
		  .word = "mount options: 'bind' is not allowed for a volume" },
		{ "helper", "s#e#pvc-1##", .flags = "helper=hunter2",
		  .word = "mount options: 'helper' is not allowed for a volume" },
		{ "bad version", "s#e#pvc-1##", .flags = "vers=hunter2", .word = "version" },
		{ "block", "s#e#pvc-1##", .capability = BLOCK },
		{ "later mode", "s#e#pvc-1##", .capability = LATER_MODE },
	};
	static const struct creation volume = { "pvc-1", MOUNT, { SRV }, 0, 0 };
	struct call created;
	struct bench b;
	size_t i;

	bench_init(&b);
	create_volume("volume", &b, &volume, &created);
	call_done(&created);
	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		Csi__V1__ValidateVolumeCapabilitiesRequest in =
			CSI__V1__VALIDATE_VOLUME_CAPABILITIES_REQUEST__INIT;
		Csi__V1__ValidateVolumeCapabilitiesRequest__VolumeContextEntry entry =
			CSI__V1__VALIDATE_VOLUME_CAPABILITIES_REQUEST__VOLUME_CONTEXT_ENTRY__INIT;
		Csi__V1__ValidateVolumeCapabilitiesRequest__VolumeContextEntry *entries[] = {
			&entry
		};
		const Csi__V1__ValidateVolumeCapabilitiesResponse *out;
		cleanup_call struct call call = { .answers = 0 };
		struct capability_box box;

		fill_capability(&box, rows[i].capability, rows[i].flags);
		in.volume_id = text(rows[i].id);
		in.volume_capabilities = box.list;
		in.n_volume_capabilities = rows[i].capability == NONE ? 0 : 1;
		entry.key = text(rows[i].context[0]);
		entry.value = text(rows[i].context[1]);
		in.volume_context = entries;
		in.n_volume_context = rows[i].context[0] != NULL ? 1 : 0;
		invoke(rows[i].name, &b.controller.service.base, "ValidateVolumeCapabilities", &in,
		       &call);
		check_error(rows[i].name, &call.req.err, rows[i].code, rows[i].word);
		if (call.reply == NULL)
			continue;
		out = (const void *)call.reply;
		check_int(rows[i].name, "confirmed", out->confirmed != NULL, rows[i].confirmed);
		if (rows[i].confirmed) {
			check_int(rows[i].name, "capabilities",
				  out->confirmed->n_volume_capabilities, 1);
			continue;
		}
		check_that(rows[i].name, "a message says why",
			   out->message[0] != '\0' &&
				   (rows[i].word == NULL || strstr(out->message, rows[i].word)));
		check_that(rows[i].name, "no value of an option is shown",
			   strstr(out->message, "hunter2") == NULL);
	}
	bench_done(&b);
}
END_TEST

/* A field that this version does not know, or does not look at, must not be confirmed. */
START_TEST(test_validate_confirms_what_was_looked_at)
{
	const char *row = "later capability";
	const struct creation volume = { "pvc-1", MOUNT, { SRV }, 0, 0 };
	Csi__V1__ValidateVolumeCapabilitiesRequest in =
		CSI__V1__VALIDATE_VOLUME_CAPABILITIES_REQUEST__INIT;
	ProtobufCMessageUnknownField later = {
		.tag = 103,
		.wire_type = PROTOBUF_C_WIRE_TYPE_VARINT,
		.len = 1,
		.data = (uint8_t[]){ 1 },
	};
	const Csi__V1__VolumeCapability *got;
	struct call created, call;
	struct capability_box box;
	struct bench b;

	bench_init(&b);
	create_volume("volume", &b, &volume, &created);
	call_done(&created);
	fill_capability(&box, READER, "hard");
	box.mount.fs_type = text("nfs4");
	box.mount.volume_mount_group = text("1000");
	box.cap.base.n_unknown_fields = 1;
	box.cap.base.unknown_fields = &later;
	box.mount.base = box.cap.base;
	box.mount.base.descriptor = &csi__v1__volume_capability__mount_volume__descriptor;
	box.mode.base = box.cap.base;
	box.mode.base.descriptor = &csi__v1__volume_capability__access_mode__descriptor;
	in.volume_id = text("s#e#pvc-1##");
	in.volume_capabilities = box.list;
	in.n_volume_capabilities = 1;
	invoke(row, &b.controller.service.base, "ValidateVolumeCapabilities", &in, &call);
	check_error(row, &call.req.err, ERROR_OK, NULL);
	got = ((const Csi__V1__ValidateVolumeCapabilitiesResponse *)call.reply)
		      ->confirmed->volume_capabilities[0];
	check_int(row, "unknown fields", got->base.n_unknown_fields, 0);
	check_int(row, "those of the mount", got->mount->base.n_unknown_fields, 0);
	check_int(row, "those of the access mode", got->access_mode->base.n_unknown_fields, 0);
	check_str(row, "group", got->mount->volume_mount_group, "");
	check_str(row, "type", got->mount->fs_type, "nfs4");
	check_int(row, "options", got->mount->n_mount_flags, 1);
	check_str(row, "option", got->mount->mount_flags[0], "hard");
	check_int(row, "mode", got->access_mode->mode, MODE(MULTI_NODE_READER_ONLY));
	call_done(&call);
	bench_done(&b);
}
END_TEST

START_TEST(test_unreachable)
{
	static const struct creation volume = { "pvc-1", MOUNT, { SRV }, 0, 0 };
	struct call call;
	struct bench b;

	bench_init(&b);
	fake_nfs_serve(NULL);
	create_volume("create", &b, &volume, &call);
	check_error("create", &call.req.err, ERROR_UNAVAILABLE, "'s'");
	delete_volume("delete", &b, "s#e#pvc-1##", &call);
	check_error("delete", &call.req.err, ERROR_UNAVAILABLE, "'s'");
	bench_done(&b);
}
END_TEST

static void check_crowd(const char *row, const struct call *call)
{
	check_error(row, &call->req.err, ERROR_UNAVAILABLE, "too many calls");
	check_that(row, "the call can be held", call->req.err.wait == ERROR_WAIT_PLACE);
	check_that(row, "it is worth another try", call->req.err.retry_ms > 0);
}

/* That too many calls wait for a server says nothing about its volumes. */
START_TEST(test_crowd)
{
	static const struct creation volume = { "pvc-1", MOUNT, { SRV }, 0, 0 };
	static const struct creation other = { "pvc-2", MOUNT, { "server", "t", "share", "/e" } };
	Csi__V1__ControllerGetVolumeRequest get = CSI__V1__CONTROLLER_GET_VOLUME_REQUEST__INIT;
	const Csi__V1__ListVolumesRequest list = CSI__V1__LIST_VOLUMES_REQUEST__INIT;
	const Csi__V1__ListSnapshotsRequest snapshots = CSI__V1__LIST_SNAPSHOTS_REQUEST__INIT;
	const struct nfs_export e = { .server = text("s"), .share = text("/e") };
	const struct {
		const char *method;
		const void *in;
	} rows[] = {
		{ "ListVolumes", &list },
		{ "ListSnapshots", &snapshots },
		{ "ControllerGetVolume", &get },
	};
	struct nfs_client *held[NFS_SERVER_PLACES];
	struct call call;
	struct bench b;
	size_t i;

	bench_init(&b);
	get.volume_id = text("s#e#pvc-1##");
	create_volume("create", &b, &volume, &call);
	call_done(&call);
	for (i = 0; i < NFS_SERVER_PLACES; i++)
		ck_assert(nfs_pool_lease(b.driver.pool, &e, &held[i], NULL) == 0);
	invoke("the only share", &b.controller.service.base, "ListVolumes", &list, &call);
	check_crowd("the only share", &call);
	/* Another share can be listed. */
	create_volume("create", &b, &other, &call);
	check_error("create", &call.req.err, ERROR_OK, NULL);
	call_done(&call);
	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		invoke(rows[i].method, &b.controller.service.base, rows[i].method, rows[i].in,
		       &call);
		check_crowd(rows[i].method, &call);
	}
	for (i = 0; i < NFS_SERVER_PLACES; i++)
		nfs_pool_return(b.driver.pool, held[i]);
	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		invoke(rows[i].method, &b.controller.service.base, rows[i].method, rows[i].in,
		       &call);
		check_error(rows[i].method, &call.req.err, ERROR_OK, NULL);
		call_done(&call);
	}
	bench_done(&b);
}
END_TEST

#define DEAD_SERVERS 10

static atomic_bool are_dead;
static atomic_uint n_asked, n_asking, most_asking;

/*
 * Servers whose name begins with "dead" do not answer before all others are asked. The share
 * "/broken" cannot be reached either, such as over version 3 without the mount service.
 */
static int connect_unless_dead(struct nfs_client **ret, const struct nfs_export *e,
			       struct error *err)
{
	unsigned int ms, n;
	bool is_first;

	if (are_dead && strcmp(e->share, "/broken") == 0)
		return error_sys(err, ERROR_UNAVAILABLE, EHOSTUNREACH, "asking for its port");
	if (!are_dead || strncmp(e->server, "dead", 4) != 0)
		return fake_nfs_connect_fn(ret, e, err);
	n = atomic_fetch_add(&n_asking, 1) + 1;
	if (n > most_asking)
		most_asking = n;
	is_first = atomic_fetch_add(&n_asked, 1) == 0; /* that one is asked alone */
	for (ms = 0; !is_first && ms < 5000 && most_asking < DEAD_SERVERS - 1; ms++)
		(void)usleep(1000);
	atomic_fetch_sub(&n_asking, 1);
	(void)error_set(err, ERROR_UNAVAILABLE, "server '%s' does not answer", e->server);
	return -EHOSTDOWN;
}

/* Make a share on each dead server known, and then two on a live one. */
static void bench_init_dead(struct bench *b)
{
	char server[16], name[16];
	struct call call;
	unsigned int i;

	bench_init(b);
	purger_free(b->driver.purger);
	nfs_pool_free(b->driver.pool);
	ck_assert(nfs_pool_new(&b->driver.pool, connect_unless_dead, 0) == 0);
	ck_assert(purger_new(&b->driver.purger, b->driver.pool, NULL) == 0);
	are_dead = false;
	n_asked = n_asking = most_asking = 0;
	for (i = 0; i <= DEAD_SERVERS + 1; i++) {
		const char *share = i <= DEAD_SERVERS ? "/e" : "/broken";
		const struct creation volume = { name,
						 MOUNT,
						 { "server", server, "share", share } };

		(void)snprintf(server, sizeof(server), "%s-%02u",
			       i < DEAD_SERVERS ? "dead" : "live", i < DEAD_SERVERS ? i : 0);
		(void)snprintf(name, sizeof(name), "pvc-%02u", i);
		create_volume(server, b, &volume, &call);
		check_error(server, &call.req.err, ERROR_OK, NULL);
		call_done(&call);
	}
	purger_free(b->driver.purger); /* it would ask, too */
	ck_assert(purger_new(&b->driver.purger, b->driver.pool, NULL) == 0);
	for (i = 0; i < DEAD_SERVERS; i++) {
		(void)snprintf(server, sizeof(server), "dead-%02u", i);
		nfs_pool_drop(b->driver.pool, &(struct nfs_export){ .server = server });
	}
	nfs_pool_drop(b->driver.pool, &(struct nfs_export){ .server = text("live-00") });
	are_dead = true;
}

/*
 * A list asks dead servers at the same time, each once, and lists the live one, though one of its
 * shares is broken.
 */
START_TEST(test_list_with_dead_servers)
{
	const Csi__V1__ListVolumesRequest list = CSI__V1__LIST_VOLUMES_REQUEST__INIT;
	const Csi__V1__ListVolumesResponse *reply;
	struct call call;
	struct bench b;

	bench_init_dead(&b);
	invoke("list", &b.controller.service.base, "ListVolumes", &list, &call);
	check_error("list", &call.req.err, ERROR_OK, NULL);
	reply = (const void *)call.reply;
	check_that("list", "the live server's volumes", reply->n_entries > 0);
	check_int("list", "dead servers that were asked", n_asked, DEAD_SERVERS);
	check_int("list", "at the same time", most_asking, DEAD_SERVERS - 1);
	call_done(&call);
	bench_done(&b);
}
END_TEST

/* A list for which nobody waits any more asks no further server. */
START_TEST(test_list_that_nobody_awaits)
{
	const Csi__V1__ListVolumesRequest list = CSI__V1__LIST_VOLUMES_REQUEST__INIT;
	ProtobufCService *service;
	struct call cancelled = { .req = { .cancelled = true } };
	struct call late = { .req = { .deadline_ns = 1 } };
	const ProtobufCMethodDescriptor *m;
	struct bench b;

	bench_init_dead(&b);
	service = &b.controller.service.base;
	m = protobuf_c_service_descriptor_get_method_by_name(service->descriptor, "ListVolumes");
	n_asked = 0;
	service->invoke(service, (unsigned int)(m - service->descriptor->methods), &list.base,
			answered, &cancelled.req);
	check_error("cancelled", &cancelled.req.err, ERROR_CANCELLED, "given up");
	service->invoke(service, (unsigned int)(m - service->descriptor->methods), &list.base,
			answered, &late.req);
	check_error("late", &late.req.err, ERROR_DEADLINE_EXCEEDED, "deadline");
	check_int("both", "servers that were asked", n_asked, 0);
	bench_done(&b);
}
END_TEST

/* A connection that turns out to be dead is no error of the call: it is made once more. */
START_TEST(test_dead_connection)
{
	static const int errors[] = { -ECONNABORTED, -ESTALE };
	static const struct creation volume = { "pvc-1", MOUNT, { SRV }, 0, 0 };
	size_t i;

	for (i = 0; i < ARRAY_SIZE(errors); i++) {
		const struct fake_failure failure = { .nth = 1, .error = errors[i] };
		struct call call;
		struct bench b;

		bench_init(&b);
		fake_nfs_fail(b.nfs, &failure);
		create_volume(strerror(-errors[i]), &b, &volume, &call);
		check_error(strerror(-errors[i]), &call.req.err, ERROR_OK, NULL);
		check_int(strerror(-errors[i]), "type", fake_nfs_type(b.nfs, "pvc-1"),
			  NFS_TYPE_DIRECTORY);
		call_done(&call);
		bench_done(&b);
	}
}
END_TEST

struct publish_row {
	const char *id;
	const char *target; /* below the bench's directory when it starts with '+' */
	enum capability capability;
	const char *flags;
	const char *pairs[2 * PAIRS_MAX + 1];
	bool read_only;
};

static const char *target_of(const struct bench *b, const char *target, char path[256])
{
	if (target[0] != '+')
		return target;
	(void)snprintf(path, 256, "%s/%s", b->dir, target + 1);
	return path;
}

static void publish(const char *row, struct bench *b, const struct publish_row *asked,
		    struct call *call)
{
	Csi__V1__NodePublishVolumeRequest in = CSI__V1__NODE_PUBLISH_VOLUME_REQUEST__INIT;
	Csi__V1__NodePublishVolumeRequest__VolumeContextEntry entries[PAIRS_MAX], *list[PAIRS_MAX];
	struct capability_box box;
	char path[256];
	size_t n;

	for (n = 0; n < PAIRS_MAX && asked->pairs[2 * n] != NULL; n++) {
		csi__v1__node_publish_volume_request__volume_context_entry__init(&entries[n]);
		entries[n].key = text(asked->pairs[2 * n]);
		entries[n].value = text(asked->pairs[2 * n + 1]);
		list[n] = &entries[n];
	}
	in.volume_context = list;
	in.n_volume_context = n;
	in.volume_id = text(asked->id);
	in.target_path = text(target_of(b, asked->target, path));
	in.readonly = asked->read_only;
	fill_capability(&box, asked->capability, asked->flags);
	if (asked->capability != NONE)
		in.volume_capability = &box.cap;
	invoke(row, &b->node.service.base, "NodePublishVolume", &in, call);
}

static void unpublish(const char *row, struct bench *b, const char *id, const char *target,
		      struct call *call)
{
	Csi__V1__NodeUnpublishVolumeRequest in = CSI__V1__NODE_UNPUBLISH_VOLUME_REQUEST__INIT;
	char path[256];

	in.volume_id = text(id);
	in.target_path = text(target_of(b, target, path));
	invoke(row, &b->node.service.base, "NodeUnpublishVolume", &in, call);
}

static bool exists(const struct bench *b, const char *target)
{
	char path[256];

	return access(target_of(b, target, path), F_OK) == 0;
}

START_TEST(test_publish_refused)
{
	static const struct {
		const char *name;
		struct publish_row in;
		enum error_code code; /* 0: INVALID_ARGUMENT */
		const char *word;
	} rows[] = {
		{ "no id", { "", "+t", MOUNT, NULL, { SRV } }, .word = "volume_id" },
		{ "no target", { "v", "", MOUNT, NULL, { SRV } }, .word = "target_path" },
		{ "relative target", { "v", "a/b", MOUNT, NULL, { SRV } }, .word = "target_path" },
		{ "target with dot dot",
		  { "v", "+a/../t", MOUNT, NULL, { SRV } },
		  .word = "target_path" },
		{ "no capability", { "v", "+t", NONE, NULL, { SRV } }, .word = "volume_capability" },
		{ "block", { "v", "+t", BLOCK, NULL, { SRV } }, .word = "block" },
		{ "no access mode", { "v", "+t", NO_MODE, NULL, { SRV } }, .word = "access_mode" },
		{ "no server", { "v", "+t", MOUNT, NULL, { "share", "/e" } }, .word = "server" },
		{ "no share", { "v", "+t", MOUNT, NULL, { "server", "s" } }, .word = "share" },
		{ "dot dot",
		  { "v", "+t", MOUNT, NULL, { SRV, "subDir", "../x" } },
		  .word = "subDir" },
		{ "bad octal",
		  { "v", "+t", MOUNT, NULL, { SRV, "mountPermissions", "9" } },
		  .word = "mountPermissions" },
		{ "control in flags", { "v", "+t", MOUNT, "a\nb", { SRV } }, .word = "mount_flags" },
		{ "no directory above",
		  { "v", "+a/b/t", MOUNT, NULL, { SRV } },
		  .code = ERROR_FAILED_PRECONDITION,
		  .word = "target_path" },
	};
	struct bench b;
	size_t i;

	bench_init(&b);
	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		cleanup_call struct call call = { .answers = 0 };

		publish(rows[i].name, &b, &rows[i].in, &call);
		check_error(rows[i].name, &call.req.err, code_of(rows[i].code), rows[i].word);
		check_int(rows[i].name, "mounts", b.mounter.n_mounted, 0);
		check_that(rows[i].name, "no directory is left", !exists(&b, "+t"));
	}
	bench_done(&b);
}
END_TEST

START_TEST(test_publish)
{
	static char large[5000];
	static const struct {
		const char *name;
		struct publish_row in;
		const char *source, *options; /* NULL: "s:/e" and none */
		bool read_only;
		uint32_t mode;
	} rows[] = {
		{ "plain", { "v", "+t", MOUNT, NULL, { SRV } } },
		{ "tokens that kubelet adds",
		  { "v",
		    "+t",
		    MOUNT,
		    NULL,
		    { SRV, "csi.storage.k8s.io/serviceAccount.tokens", large } } },
		{ "subDir and mode",
		  { "v", "+t", MOUNT, NULL, { SRV, "subDir", "a/b", "mountPermissions", "0770" } },
		  .source = "s:/e/a/b",
		  .mode = 0770 },
		{ "the root as subDir", { "v", "+t", MOUNT, NULL, { SRV, "subDir", "/" } } },
		{ "the root's mode is not ours",
		  { "v", "+t", MOUNT, NULL, { SRV, "mountPermissions", "0770" } } },
		{ "IPv6",
		  { "v", "+t", MOUNT, NULL, { "server", "fd00::1", "share", "/" } },
		  .source = "[fd00::1]:/" },
		{ "flags and attribute",
		  { "v", "+t", MOUNT, "vers=4.1", { SRV, "mountOptions", "soft,timeo=5" } },
		  .options = "vers=4.1,soft,timeo=5" },
		{ "readonly", { "v", "+t", MOUNT, NULL, { SRV }, true }, .read_only = true },
		{ "kubelet sends the first mode of several", { "v", "+t", READER, NULL, { SRV } } },
		{ "ro as a flag",
		  { "v", "+t", MOUNT, "ro", { SRV } },
		  .options = "ro",
		  .read_only = true },
		{ "any id", { "fake-vol-id-1", "+t", MOUNT, NULL, { SRV } } },
	};
	struct bench b;
	char path[256];
	size_t i;

	memset(large, 'a', sizeof(large) - 1);
	bench_init(&b);
	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		const struct publish_row *in = &rows[i].in;
		struct publish_row other = *in;
		const struct fake_mount *mount;
		struct call call;

		b.mounter.n_mounted = 0;
		publish(rows[i].name, &b, in, &call);
		check_error(rows[i].name, &call.req.err, ERROR_OK, NULL);
		call_done(&call);
		mount = fake_mounter_at(&b.mounter, target_of(&b, "+t", path));
		check_that(rows[i].name, "it is mounted", mount != NULL);
		check_str(rows[i].name, "source", mount->source,
			  rows[i].source != NULL ? rows[i].source : "s:/e");
		check_str(rows[i].name, "options", mount->options,
			  rows[i].options != NULL ? rows[i].options : "");
		check_int(rows[i].name, "read-only", mount->read_only, rows[i].read_only);
		check_int(rows[i].name, "mode", mount->mode, rows[i].mode);
		publish(rows[i].name, &b, in, &call);
		check_error(rows[i].name, &call.req.err, ERROR_OK, NULL);
		call_done(&call);
		check_int(rows[i].name, "mounts after the second call", b.mounter.n_mounted, 1);
		other.pairs[0] = "server";
		other.pairs[1] = "other";
		publish(rows[i].name, &b, &other, &call);
		check_error(rows[i].name, &call.req.err, ERROR_ABORTED, "target_path");
		other = *in;
		other.capability = MOUNT;
		other.flags = rows[i].read_only ? "rw" : "ro";
		other.read_only = false;
		publish(rows[i].name, &b, &other, &call);
		check_error(rows[i].name, &call.req.err, ERROR_ALREADY_EXISTS, "read-only");
		check_int(rows[i].name, "mounts after all", b.mounter.n_mounted, 1);
		check_that(rows[i].name, "it is still mounted",
			   fake_mounter_at(&b.mounter, path) != NULL && exists(&b, "+t"));
		unpublish(rows[i].name, &b, "v", "+t", &call);
		check_error(rows[i].name, &call.req.err, ERROR_OK, NULL);
		call_done(&call);
		check_that(rows[i].name, "nothing is mounted",
			   fake_mounter_at(&b.mounter, path) == NULL && !exists(&b, "+t"));
		unpublish(rows[i].name, &b, "v", "+t", &call);
		check_error(rows[i].name, &call.req.err, ERROR_OK, NULL);
		call_done(&call);
	}
	bench_done(&b);
}
END_TEST

/* The directory from which the path is walked: the server must not resolve what a pod can write. */
START_TEST(test_publish_top)
{
#define POD "csi.storage.k8s.io/ephemeral", "true"
#define OPEN_MODE "mountPermissions", "0777"
	static const struct {
		const char *name;
		struct publish_row in;
		const char *source, *top;
		uint32_t mode;
	} rows[] = {
		{ "the share", { "v", "+t", MOUNT, NULL, { SRV } }, .source = "s:/e", .top = "" },
		{ "directly below",
		  { "v", "+t", MOUNT, NULL, { SRV, "subDir", "a" } },
		  .source = "s:/e/a",
		  .top = "" },
		{ "deeper",
		  { "v", "+t", MOUNT, NULL, { SRV, "subDir", "a/b" } },
		  .source = "s:/e/a/b",
		  .top = "/e" },
		{ "a share of many parts",
		  { "v", "+t", MOUNT, NULL, { "server", "s", "share", "x/y/", "subDir", "a/b/c" } },
		  .source = "s:/x/y/a/b/c",
		  .top = "/x/y" },
		{ "the server's root",
		  { "v", "+t", MOUNT, NULL, { "server", "s", "share", "/", "subDir", "a/b" } },
		  .source = "s:/a/b",
		  .top = "/" },
		{ "inline",
		  { "v", "+t", MOUNT, NULL, { SRV, "subDir", "in/a", POD } },
		  .source = "s:/e/in/a",
		  .top = "/e/in" },
		{ "inline, the entry itself",
		  { "v", "+t", MOUNT, NULL, { SRV, "subDir", "in", OPEN_MODE, POD } },
		  .source = "s:/e/in",
		  .top = "/e/in" },
		{ "inline, with a mode, which is not set",
		  { "v", "+t", MOUNT, NULL, { SRV, "subDir", "in/a", OPEN_MODE, POD } },
		  .source = "s:/e/in/a",
		  .top = "/e/in" },
		{ "inline, all as share",
		  { "v", "+t", MOUNT, NULL, { "server", "s", "share", "/e/in/a/b", POD } },
		  .source = "s:/e/in/a/b",
		  .top = "/e/in" },
	};
	struct bench b;
	char path[256];
	size_t i;

	bench_init(&b);
	b.node_driver.inline_volumes = "s:/e/in/a,s:/e/in";
	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		const struct fake_mount *mount;
		struct call call;

		publish(rows[i].name, &b, &rows[i].in, &call);
		check_error(rows[i].name, &call.req.err, ERROR_OK, NULL);
		call_done(&call);
		mount = fake_mounter_at(&b.mounter, target_of(&b, "+t", path));
		check_that(rows[i].name, "it is mounted", mount != NULL);
		check_str(rows[i].name, "source", mount->source, rows[i].source);
		check_str(rows[i].name, "top", mount->top, rows[i].top);
		check_int(rows[i].name, "mode", mount->mode, rows[i].mode);
		unpublish(rows[i].name, &b, "v", "+t", &call);
		call_done(&call);
	}
	bench_done(&b);
#undef POD
#undef OPEN_MODE
}
END_TEST

/* mountinfo may show a mount under another name than the one it was requested by. */
START_TEST(test_publish_again_under_another_name)
{
	static const struct {
		const char *name;
		const char *source; /* as mountinfo has it */
		bool same, one_superblock, stale;
		enum error_code compare_error, code;
		unsigned int n_compared, n_mounted;
	} rows[] = {
		{ "a link led there", .source = "s:/real", .same = true, .n_compared = 1,
		  .n_mounted = 1 },
		{ "another directory", .source = "s:/other", .code = ERROR_ABORTED, .n_compared = 1,
		  .n_mounted = 1 },
		{ "what is asked for is gone", .source = "s:/other",
		  .compare_error = ERROR_NOT_FOUND, .code = ERROR_ABORTED, .n_compared = 1,
		  .n_mounted = 1 },
		{ "nobody can say", .source = "s:/other", .compare_error = ERROR_UNAVAILABLE,
		  .code = ERROR_UNAVAILABLE, .n_compared = 1, .n_mounted = 1 },
		{ "another address of the server", .source = "t:/e", .same = true,
		  .one_superblock = true, .n_compared = 1, .n_mounted = 1 },
		{ "another server", .source = "t:/e", .one_superblock = true, .code = ERROR_ABORTED,
		  .n_compared = 1, .n_mounted = 1 },
		{ "stale", .source = "s:/real", .stale = true, .n_mounted = 2 },
		{ "its own name", .source = "s:/e", .n_mounted = 1 },
	};
	static const struct publish_row in = { "v", "+t", MOUNT, NULL, { SRV }, false };
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		struct bench b;
		struct call call;

		bench_init(&b);
		publish(rows[i].name, &b, &in, &call);
		check_error(rows[i].name, &call.req.err, ERROR_OK, NULL);
		call_done(&call);
		(void)snprintf(b.mounter.mounts[0].source, sizeof(b.mounter.mounts[0].source), "%s",
			       rows[i].source);
		b.mounter.same = rows[i].same;
		b.mounter.stale = rows[i].stale;
		b.mounter.mount_error = rows[i].compare_error;
		publish(rows[i].name, &b, &in, &call);
		check_error(rows[i].name, &call.req.err, rows[i].code, NULL);
		call_done(&call);
		check_int(rows[i].name, "comparisons", b.mounter.n_compared, rows[i].n_compared);
		check_int(rows[i].name, "one superblock", b.mounter.one_superblock,
			  rows[i].one_superblock);
		check_int(rows[i].name, "mounts", b.mounter.n_mounted, rows[i].n_mounted);
		unpublish(rows[i].name, &b, "v", "+t", &call);
		call_done(&call);
		bench_done(&b);
	}
}
END_TEST

START_TEST(test_publish_failed)
{
	static const struct publish_row in = { "v", "+t", MOUNT, NULL, { SRV }, false };
	static const enum error_code codes[] = { ERROR_UNAVAILABLE, ERROR_NOT_FOUND,
						 ERROR_PERMISSION_DENIED, ERROR_DEADLINE_EXCEEDED };
	struct bench b;
	char path[256];
	size_t i;

	bench_init(&b);
	for (i = 0; i < ARRAY_SIZE(codes); i++) {
		const char *row = error_code_name(codes[i]);
		struct call call;

		b.mounter.mount_error = codes[i];
		publish(row, &b, &in, &call);
		check_error(row, &call.req.err, codes[i], NULL);
		check_that(row, "the directory that was made is gone", !exists(&b, "+t"));
		ck_assert(mkdir(target_of(&b, "+t", path), 0755) == 0);
		publish(row, &b, &in, &call);
		check_error(row, &call.req.err, codes[i], NULL);
		check_that(row, "the directory that was there stays", exists(&b, "+t"));
		b.mounter.mount_error = ERROR_OK;
		b.mounter.find_error = codes[i];
		publish(row, &b, &in, &call);
		check_error(row, &call.req.err, codes[i], NULL);
		b.mounter.find_error = ERROR_OK;
		unpublish(row, &b, "v", "+t", &call);
		check_error(row, &call.req.err, ERROR_OK, NULL);
		call_done(&call);
		check_that(row, "the directory is gone", !exists(&b, "+t"));
	}
	check_int("all", "mounts", b.mounter.n_mounted, 0);
	bench_done(&b);
}
END_TEST

START_TEST(test_unpublish)
{
	static const struct {
		const char *name;
		const char *id, *target;
		enum error_code code;
		const char *word;
	} rows[] = {
		{ "no id", "", "+t", ERROR_INVALID_ARGUMENT, "volume_id" },
		{ "no target", "v", "", ERROR_INVALID_ARGUMENT, "target_path" },
		{ "relative target", "v", "a", ERROR_INVALID_ARGUMENT, "target_path" },
		{ "garbage id", "fake-vol-id-1", "+t", ERROR_OK, NULL },
		{ "not there", "v", "+a/b/c", ERROR_OK, NULL },
	};
	struct call call;
	struct bench b;
	char path[256], file[512];
	FILE *stream;
	size_t i;

	bench_init(&b);
	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		unpublish(rows[i].name, &b, rows[i].id, rows[i].target, &call);
		check_error(rows[i].name, &call.req.err, rows[i].code, rows[i].word);
		call_done(&call);
	}
	/* Never remove data in the directory below the mount. */
	ck_assert(mkdir(target_of(&b, "+t", path), 0755) == 0);
	(void)snprintf(file, sizeof(file), "%s/file", path);
	stream = fopen(file, "w");
	ck_assert(stream != NULL && fclose(stream) == 0);
	unpublish("not empty", &b, "v", "+t", &call);
	check_error("not empty", &call.req.err, ERROR_INTERNAL, "target_path");
	check_that("not empty", "the file is there", access(file, F_OK) == 0);
	ck_assert(unlink(file) == 0);
	b.mounter.unmount_error = ERROR_UNAVAILABLE;
	unpublish("unmount fails", &b, "v", "+t", &call);
	check_error("unmount fails", &call.req.err, ERROR_UNAVAILABLE, NULL);
	check_that("unmount fails", "the directory stays", exists(&b, "+t"));
	ck_assert(rmdir(path) == 0);
	bench_done(&b);
}
END_TEST

static void setup(void)
{
	log_init(LOG_LEVEL_ERROR, LOG_FORMAT_TEXT);
}

CHECK_MAIN("services", .setup = setup,
	   .loops = { { test_create_on_a_share_that_vanishes, ARRAY_SIZE(vanishings) },
		      { test_create_on_a_share_that_has_vanished, ARRAY_SIZE(vanishings) },
		      { test_changes_on_a_share_that_has_vanished, ARRAY_SIZE(vanishings) },
		      { test_calls_on_a_restarted_server,
			ARRAY_SIZE(broken_calls) * ARRAY_SIZE(vanishings) } },
	   .tests = {
		   test_source_that_is_replaced,
		   test_deleted_before_the_call_is_repeated,
		   test_many_exports_reached,
		   test_unimplemented,
		   test_identity,
		   test_capabilities,
		   test_quick,
		   test_hold_max,
		   test_create_refused,
		   test_create,
		   test_create_refused_after_an_attempt,
		   test_create_with_other_defaults,
		   test_create_without_recorded_id,
		   test_create_in_any_order,
		   test_delete,
		   test_delete_refused,
		   test_validate,
		   test_validate_confirms_what_was_looked_at,
		   test_unreachable,
		   test_crowd,
		   test_list_with_dead_servers,
		   test_list_that_nobody_awaits,
		   test_dead_connection,
		   test_publish_refused,
		   test_publish,
		   test_publish_top,
		   test_publish_again_under_another_name,
		   test_publish_failed,
		   test_unpublish,
	   })
