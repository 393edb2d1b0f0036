/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "nfs/v4_name.h"

#include <inttypes.h>
#include <stdio.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#define HOST_MAX 64

/* Unique also among containers with the same host name and pid. */
void v4_name_client(char ret[V4_NAME_MAX])
{
	uint64_t random[2] = { 0, 0 };
	char host[HOST_MAX + 1] = "";
	struct timespec now;

	(void)gethostname(host, sizeof(host) - 1); /* only for readers of the server's log */
	(void)clock_gettime(CLOCK_REALTIME, &now); /* cannot fail for this clock */
	/* getrandom() returns this few bytes in one call; if it fails, the time has to do. */
	(void)!getrandom(random, sizeof(random), 0);
	(void)snprintf(ret, V4_NAME_MAX, "csi-nfs/%s/%ld/%lld.%09ld/%016" PRIx64 "%016" PRIx64,
		       host, (long)getpid(), (long long)now.tv_sec, now.tv_nsec, random[0],
		       random[1]);
}
