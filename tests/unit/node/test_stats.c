/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/* What NodeGetVolumeStats remembers while another thread asks. */

#include <stdio.h>
#include <string.h>

#include "base/request.h"
#include "check_util.h"
#include "meanwhile.h"
#include "fake/mounter.h"
#include "node/node.h"
#include "node/stats.h"

#define PATH "/pods/t"

static struct fake_mounter mounter;
static struct node_driver driver;
static struct node_service node;

static void setup(void)
{
	fake_mounter_init(&mounter);
	strcpy(mounter.mounts[0].target, PATH);
	strcpy(mounter.mounts[0].source, "s:/e");
	driver = (struct node_driver){ .node_id = "n", .mounter = &mounter.mounter };
	ck_assert_int_eq(node_stats_new(&driver.stats), 0);
	node_service_init(&node, &driver);
}

static void teardown(void)
{
	node_stats_free(driver.stats);
}

/* Whether the reply says that the volume is abnormal. */
static bool is_abnormal;

static void answered(const Csi__V1__NodeGetVolumeStatsResponse *reply, void *data)
{
	(void)data;
	is_abnormal = reply != NULL && reply->volume_condition->abnormal;
}

/* Returns the code of the answer. */
static enum error_code ask_for(const char *volume_path)
{
	Csi__V1__NodeGetVolumeStatsRequest in = CSI__V1__NODE_GET_VOLUME_STATS_REQUEST__INIT;
	struct request call = { .err = { .code = ERROR_OK } };
	char id[] = "v", path[64];

	(void)snprintf(path, sizeof(path), "%s", volume_path);
	in.volume_id = id;
	in.volume_path = path;
	node_get_volume_stats(&node.service, &in, answered, &call);
	return call.err.code;
}

static void ask(void)
{
	ck_assert_int_eq(ask_for(PATH), ERROR_OK);
}

START_TEST(test_asked_while_it_is_asked)
{
	meanwhile = ask;
	ask();
	check_int("one of them looks", "looks", mounter.n_looks, 1);
}
END_TEST

START_TEST(test_asked_while_old_ones_are_dropped)
{
	ask();
	meanwhile = ask;
	node_stats_sweep(driver.stats);
	ask();
	check_int("it was not dropped", "looks", mounter.n_looks, 1);
}
END_TEST

static void unpublish(void)
{
	memset(&mounter.mounts[0], 0, sizeof(mounter.mounts[0]));
}

/* That its directory is gone, or a call was failed by umount, is no news of the volume then. */
START_TEST(test_unpublished_meanwhile)
{
	mounter.stale = true;
	ask();
	check_that("stale", "it is abnormal", is_abnormal);
	mounter.after_look = unpublish;
	check_int("stale", "code", ask_for(PATH), ERROR_NOT_FOUND);
	teardown();
	setup();
	mounter.after_look = unpublish;
	mounter.look_error = ERROR_UNAVAILABLE;
	check_int("failed", "code", ask_for(PATH), ERROR_NOT_FOUND);
}
END_TEST

CHECK_MAIN("stats", .setup = setup, .teardown = teardown,
	   .tests = {
		   test_asked_while_it_is_asked,
		   test_asked_while_old_ones_are_dropped,
		   test_unpublished_meanwhile,
	   })
