/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/* Wire the rooms together: options, services, event loop, exit status. */

#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <stdnoreturn.h>
#include <string.h>
#include <unistd.h>

#include <uv.h>

#include "base/cleanup.h"
#include "base/library.h"
#include "base/log.h"
#include "base/str.h"
#include "check/check.h"
#include "csi/copy_turn.h"
#include "csi/services.h"
#include "grpc/server.h"
#include "mount/mounter.h"
#include "net/connect.h"
#include "nfs/libnfs.h"
#include "node/node.h"
#include "node/stats.h"
#include "options.h"
#include "store/holder.h"
#include "systemd.h"
#include "tree/archive.h"

#define EXIT_USAGE 2

/*
 * Worker threads of a controller or a node. A server can occupy 32 of a controller: calls at work
 * on it (NFS_SERVER_PLACES), and as many that wait; and 40 of a node (mount/request.h). Several
 * servers leave some of a controller's to others (net/breaker.h). Calls that are held
 * (grpc/call.h) occupy none.
 */
#define WORKERS "48"
#define WORKERS_ALL "88" /* with both roles in one process */

/* Time to finish after SIGTERM; kubelet sends SIGKILL after 30 s. */
#define SHUTDOWN_GRACE_MS 5000 /* for calls */
#define PURGER_GRACE_MS 1000 /* after that, for the purger, which stops with the calls */

#define SWEEP_INTERVAL_MS 30000

struct app {
	struct options options;
	struct systemd systemd;
	char *path; /* of the socket; '@' first: abstract */
	struct csi_driver controller_driver;
	struct node_driver node_driver;
	struct key_locks *key_locks; /* shared by both drivers */
	struct csi_identity identity;
	struct csi_controller controller;
	struct node_service node;
	Csi__V1__GroupController_Service group;
	Csi__V1__SnapshotMetadata_Service metadata;
	struct grpc_service services[5];
	size_t n_services;
	struct grpc_server *server;
	uv_loop_t loop;
	uv_signal_t signals[2];
	uv_timer_t sweep;
	uv_work_t sweep_work;
	bool sweeping; /* sweep_work is queued or runs */
	bool stopping;
	atomic_bool end_work; /* tells workers to end long operations */
	struct tree_budget budget;
};

static void log_purger_report(const struct purger_report *p)
{
	const struct nfs_export *e = p->export;
	uint64_t per_second = (p->files + p->directories) * 1000 / p->ms;
	uint64_t seconds = p->ms / 1000;

	switch (p->event) {
	case PURGE_GOES_ON:
		log_info("Purging", LOG_STR("what", p->name), LOG_STR("server", e->server),
			 LOG_STR("share", e->share), LOG_NUM("files", p->files),
			 LOG_NUM("directories", p->directories),
			 LOG_NUM("entries_per_second", per_second), LOG_NUM("seconds", seconds));
		break;
	case PURGE_LEFT:
		log_warn("Part of a deleted volume stays in the trash", LOG_STR("what", p->name),
			 LOG_STR("server", e->server), LOG_STR("share", e->share),
			 LOG_STR("error", p->err->msg));
		break;
	case PURGE_FAILED:
		log_warn("Purging deleted volumes failed, it will be tried again",
			 LOG_STR("server", e->server), LOG_STR("share", e->share),
			 LOG_NUM("files", p->files), LOG_NUM("directories", p->directories),
			 LOG_NUM("failed", p->failed), LOG_NUM("left", p->left),
			 LOG_STR("error", p->err->msg));
		break;
	case PURGE_DONE:
		log_info("Purged deleted volumes", LOG_STR("server", e->server),
			 LOG_STR("share", e->share), LOG_NUM("files", p->files),
			 LOG_NUM("directories", p->directories), LOG_NUM("left", p->left),
			 LOG_NUM("entries_per_second", per_second), LOG_NUM("seconds", seconds));
		break;
	}
}

/* Purge what an earlier process left in the trash of the default share. */
static int resume_purge(struct app *app, struct error *err)
{
	struct nfs_export e;
	int r;

	if (app->options.server == NULL || app->options.share == NULL)
		return 0;
	r = nfs_export_init(&e, app->options.server, app->options.share, err);
	if (r < 0)
		return r;
	r = purger_add(app->controller_driver.purger, &e);
	nfs_export_done(&e);
	return r < 0 ? error_sys(err, ERROR_INTERNAL, -r, "cannot start the purger") : 0;
}

static int init_controller(struct app *app, struct error *err)
{
	struct csi_driver *d = &app->controller_driver;
	const struct options *o = &app->options;

	*d = (struct csi_driver){
		.server = o->server,
		.share = o->share,
		.mount_permissions = o->mount_permissions,
		.on_delete = o->on_delete,
		.replace_archive = o->replace_archive,
		.purge_now = o->purge_now,
		.key_locks = app->key_locks,
		.compression = o->compression,
		.get_snapshot = o->get_snapshot,
		.verify_clones = o->verify_clones,
		.budget = &app->budget,
		.stopping = &app->end_work,
	};
	if (nfs_pool_new(&d->pool, nfs_client_connect, o->window) < 0 ||
	    dir_locks_new(&d->dir_locks) < 0 || known_exports_new(&d->known) < 0 ||
	    copy_turns_new(&d->turns) < 0 || purger_new(&d->purger, d->pool, log_purger_report) < 0)
		return error_oom(err);
	return resume_purge(app, err);
}

static int init_node(struct app *app, struct error *err)
{
	struct node_driver *d = &app->node_driver;
	const struct options *o = &app->options;
	int r;

	*d = (struct node_driver){
		.node_id = o->node_id,
		.server = o->server,
		.share = o->share,
		.mount_permissions = o->mount_permissions,
		.key_locks = app->key_locks,
		.state_dir = o->state_dir,
		.inline_volumes = o->inline_volumes,
	};
	r = mounter_new(&d->mounter, NULL, err);
	if (r < 0)
		return r;
	return node_stats_new(&d->stats) < 0 ? error_oom(err) : 0;
}

static int init_drivers(struct app *app, struct error *err)
{
	int r;

	if (key_locks_new(&app->key_locks) < 0)
		return error_oom(err);
	if (app->options.mode & MODE_CONTROLLER) {
		r = init_controller(app, err);
		if (r < 0)
			return r;
	}
	return app->options.mode & MODE_NODE ? init_node(app, err) : 0;
}

static void done_drivers(struct app *app)
{
	purger_free(app->controller_driver.purger);
	nfs_pool_free(app->controller_driver.pool);
	known_exports_free(app->controller_driver.known);
	copy_turns_free(app->controller_driver.turns);
	dir_locks_free(app->controller_driver.dir_locks);
	mounter_free(app->node_driver.mounter);
	node_stats_free(app->node_driver.stats);
	key_locks_free(app->key_locks);
}

static void add_service(struct app *app, ProtobufCService *service)
{
	app->services[app->n_services++] = (struct grpc_service){ .service = service,
								  .is_quick = csi_is_quick,
								  .hold_max = csi_hold_max };
}

static void init_services(struct app *app)
{
	csi_identity_init(&app->identity, app->options.driver_name, PACKAGE_VERSION);
	add_service(app, &app->identity.service.base);
	if (app->options.mode & MODE_CONTROLLER) {
		csi_controller_init(&app->controller, &app->controller_driver);
		add_service(app, &app->controller.service.base);
		csi_group_controller_init(&app->group);
		add_service(app, &app->group.base);
		csi_snapshot_metadata_init(&app->metadata);
		add_service(app, &app->metadata.base);
	}
	if (app->options.mode & MODE_NODE) {
		node_service_init(&app->node, &app->node_driver);
		add_service(app, &app->node.service.base);
	}
}

/* systemd would end a service that it does not know to be ready. */
static void tell_systemd(const struct app *app, const char *state)
{
	int r = systemd_notify(&app->systemd, state);

	if (r < 0)
		log_warn("Cannot notify the service manager", LOG_STR("state", state),
			 LOG_STR("error", strerror(-r)));
}

static void on_stopped(void *data)
{
	struct app *app = data;

	uv_close((uv_handle_t *)&app->sweep, NULL);
	uv_close((uv_handle_t *)&app->signals[0], NULL);
	uv_close((uv_handle_t *)&app->signals[1], NULL);
	uv_stop(&app->loop);
}

static void on_signal(uv_signal_t *handle, int signum)
{
	struct app *app = handle->data;

	if (app->stopping)
		return;
	app->stopping = true;
	tell_systemd(app, "STOPPING=1");
	atomic_store(&app->end_work, true);
	if (app->controller_driver.purger != NULL)
		(void)purger_stop(app->controller_driver.purger, 0); /* serve() waits for it */
	log_info("Stopping", LOG_NUM("signal", signum));
	grpc_server_shutdown(app->server, SHUTDOWN_GRACE_MS, on_stopped, app);
}

/* In a worker: telling servers that clients leave blocks. */
static void sweep_pool(uv_work_t *work)
{
	const struct app *app = work->data;

	nfs_pool_sweep(app->controller_driver.pool);
}

static void on_pool_swept(uv_work_t *work, int status)
{
	struct app *app = work->data;

	(void)status;
	app->sweeping = false;
}

/* Let a sweep of the pool end, so that the pool can be freed. */
static void wait_for_sweep(struct app *app)
{
	if (app->sweeping)
		(void)uv_cancel((uv_req_t *)&app->sweep_work); /* fails if it runs */
	while (app->sweeping)
		(void)uv_run(&app->loop, UV_RUN_ONCE);
}

static void on_sweep(uv_timer_t *handle)
{
	struct app *app = handle->data;

	if (app->controller_driver.pool != NULL && !app->sweeping) {
		app->sweep_work.data = app;
		app->sweeping =
			uv_queue_work(&app->loop, &app->sweep_work, sweep_pool, on_pool_swept) == 0;
	}
	if (app->node_driver.mounter != NULL) {
		mounter_sweep(app->node_driver.mounter);
		node_stats_sweep(app->node_driver.stats);
	}
#ifdef HAVE_MALLOC_TRIM
	/* Give memory that a burst of calls needed back to the system. */
	(void)malloc_trim(0);
#endif
}

static int init_loop(struct app *app, struct error *err)
{
	static const int signums[] = { SIGTERM, SIGINT };
	size_t i;
	int r;

	r = uv_loop_init(&app->loop);
	if (r < 0)
		return error_sys(err, ERROR_INTERNAL, -r, "cannot make an event loop");
	for (i = 0; i < ARRAY_SIZE(signums); i++) {
		(void)uv_signal_init(&app->loop, &app->signals[i]); /* cannot fail now */
		app->signals[i].data = app;
		r = uv_signal_start(&app->signals[i], on_signal, signums[i]);
		if (r < 0)
			return error_sys(err, ERROR_INTERNAL, -r, "cannot watch for signals");
	}
	(void)uv_timer_init(&app->loop, &app->sweep); /* cannot fail */
	app->sweep.data = app;
	r = uv_timer_start(&app->sweep, on_sweep, SWEEP_INTERVAL_MS, SWEEP_INTERVAL_MS);
	return r < 0 ? error_sys(err, ERROR_INTERNAL, -r, "cannot start a timer") : 0;
}

/* Exit without joining threads: some wait for a server. */
static noreturn void leave_at_once(const char *why)
{
	log_warn(why);
	_exit(EXIT_SUCCESS);
}

/* Set the path of the socket, passed or not. Return 0, or a negative errno for EXIT_USAGE. */
static int init_path(struct app *app, struct error *err)
{
	const char *endpoint = app->options.endpoint;
	int r = systemd_init(&app->systemd, err);

	if (r < 0)
		return r;
	if (app->systemd.socket >= 0)
		return grpc_endpoint_of_socket(app->systemd.socket, endpoint, &app->path, err);
	if (endpoint == NULL)
		endpoint = OPTIONS_DEFAULT_ENDPOINT;
	return grpc_endpoint_parse(endpoint, &app->path, err);
}

static int serve(struct app *app, struct error *err)
{
	struct grpc_server_config config;
	int r;

	store_holder_set_patience(app->options.replica_timeout);
	if (app->options.mode & MODE_CONTROLLER)
		store_holder_init(app->systemd.holder != NULL ? app->systemd.holder : app->path);
	r = init_loop(app, err);
	if (r < 0)
		return r;
	r = init_drivers(app, err);
	if (r < 0)
		return r;
	init_services(app);
	config = (struct grpc_server_config){ app->services, app->n_services };
	r = grpc_server_new(&app->server, &app->loop, &config, err);
	if (r < 0)
		return r;
	if (app->systemd.socket >= 0)
		r = grpc_server_listen_on(app->server, steal_fd(&app->systemd.socket), err);
	else
		r = grpc_server_listen(app->server, app->path, err);
	if (r < 0)
		return r;
	tell_systemd(app, "READY=1");
	log_info("Serving", LOG_STR("endpoint", app->path),
		 LOG_STR("driver", app->options.driver_name), LOG_STR("version", PACKAGE_VERSION),
		 LOG_STR("node_id", app->options.node_id));
	(void)uv_run(&app->loop, UV_RUN_DEFAULT); /* until on_stopped() */
	wait_for_sweep(app);
	grpc_server_free(app->server);
	(void)uv_run(&app->loop, UV_RUN_NOWAIT); /* for close callbacks */
	/* The grace is over. The next process continues the operations, as after a crash. */
	if (uv_loop_close(&app->loop) < 0)
		leave_at_once("Stopped with calls that still wait for a server");
	if (app->controller_driver.purger != NULL &&
	    !purger_stop(app->controller_driver.purger, PURGER_GRACE_MS))
		leave_at_once("Stopped while a deletion still waits for a server");
	done_drivers(app);
	systemd_done(&app->systemd);
	free(app->path);
	log_info("Stopped");
	return 0;
}

/* Open the first three descriptors if they are closed: libuv and pipes rely on them. */
static void open_standard_files(void)
{
	int fd = open("/dev/null", O_RDWR);

	while (fd >= 0 && fd <= STDERR_FILENO)
		fd = open("/dev/null", O_RDWR);
	if (fd > STDERR_FILENO)
		close(fd);
}

/* Only glibc's heap needs this; musl gives memory back by itself. */
static void init_heap(void)
{
#ifdef HAVE_MALLOPT
	/* Share one heap: with a heap per thread, idle workers would hold megabytes. */
	(void)mallopt(M_ARENA_MAX, 1);
	/*
	 * Keep freed memory until on_sweep() trims it: copies allocate and free file blocks all the
	 * time, and the kernel would have to map and clear pages for each.
	 */
	(void)mallopt(M_MMAP_THRESHOLD, 1024 * 1024);
	(void)mallopt(M_TRIM_THRESHOLD, 4 * 1024 * 1024);
#endif
}

static void warn_if_missing(int (*prepare)(struct error *err))
{
	struct error err = { .code = ERROR_OK };

	if (library_try(prepare, &err) < 0)
		log_warn("A library is missing", LOG_STR("error", err.msg));
}

/* The first call that needs one reports it, too, maybe weeks later. */
static void look_for_libraries(const struct app *app)
{
	if (!(app->options.mode & MODE_CONTROLLER))
		return;
	warn_if_missing(tree_archive_prepare);
	warn_if_missing(net_reserve_prepare);
}

/* Say so if the libnfs that was loaded cannot be used. */
static bool has_libnfs(void)
{
	struct error err = { .code = ERROR_OK };

	if (library_try(nfs_libnfs_check, &err) == 0)
		return true;
	fprintf(stderr,
		"csi-nfs: the libnfs of this system cannot be used: %s; install the libnfs that "
		"csi-nfs was built with, and look for another one in LD_LIBRARY_PATH, LD_PRELOAD "
		"and ldconfig -p\n",
		err.msg);
	return false;
}

static void init_process(const struct options *options)
{
	const char *workers = options->mode == MODE_ALL ? WORKERS_ALL : WORKERS;

	open_standard_files();
	/* Peers may close while we write, as grpc-go does at the end of each connection. */
	(void)signal(SIGPIPE, SIG_IGN);
	(void)setenv("UV_THREADPOOL_SIZE", workers, 0); /* on failure, libuv's default */
	init_heap();
}

int main(int argc, char **argv)
{
	struct error err = { .code = ERROR_OK };
	static struct app app;

	if (argc > 1 && strcmp(argv[1], MOUNT_HELPER_COMMAND) == 0)
		return mount_helper_main();
	if (argc > 1 && strcmp(argv[1], CHECK_COMMAND) == 0) {
		open_standard_files();
		return has_libnfs() ? check_main(argc - 1, argv + 1) : EXIT_FAILURE;
	}
	if (options_parse(&app.options, argc, argv, &err) < 0) {
		fprintf(stderr, "csi-nfs: %s; see csi-nfs --help\n", err.msg);
		return EXIT_USAGE;
	}
	if (app.options.action == ACTION_HELP)
		return options_print_help() < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
	if (app.options.action == ACTION_VERSION) {
		printf("csi-nfs %s\n", PACKAGE_VERSION);
		return fflush(stdout) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
	}
	log_init(app.options.log_level, app.options.log_format);
	if (init_path(&app, &err) < 0) {
		fprintf(stderr, "csi-nfs: %s\n", err.msg);
		return EXIT_USAGE;
	}
	init_process(&app.options);
	if (!has_libnfs())
		return EXIT_FAILURE;
	look_for_libraries(&app);
	if (serve(&app, &err) < 0) {
		fprintf(stderr, "csi-nfs: %s\n", err.msg);
		return EXIT_FAILURE;
	}
	return EXIT_SUCCESS;
}
