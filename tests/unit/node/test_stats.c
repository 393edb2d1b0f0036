/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/* What NodeGetVolumeStats remembers while another thread asks. */

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

static void answered(const ProtobufCMessage *reply, void *data)
{
	(void)data;
	ck_assert_ptr_nonnull(reply);
}

static void ask(void)
{
	Csi__V1__NodeGetVolumeStatsRequest in = CSI__V1__NODE_GET_VOLUME_STATS_REQUEST__INIT;
	struct request call = { .err = { .code = ERROR_OK } };
	char id[] = "v", path[] = PATH;

	in.volume_id = id;
	in.volume_path = path;
	node_get_volume_stats(&node.service, &in,
			      (Csi__V1__NodeGetVolumeStatsResponse_Closure)answered, &call);
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

CHECK_MAIN("stats", .setup = setup, .teardown = teardown,
	   .tests = {
		   test_asked_while_it_is_asked,
		   test_asked_while_old_ones_are_dropped,
	   })
