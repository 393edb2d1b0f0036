/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/* Resolution of names, with a name service that answers when it is told to. */

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/str.h"
#include "net/address.h"
#include "check_util.h"

/* Names that begin so are looked up until the name service is told to answer. */
#define SILENT "silent"
#define STUCK "stuck" /* likewise, but only its first lookup */
#define AGAIN_S 31 /* after which there may be another lookup */
#define CALLERS 100 /* more than there are threads */

static struct {
	pthread_mutex_t lock; /* guards what follows */
	pthread_cond_t changed;
	bool answers;
	unsigned int asked, asking, asked_stuck;
} service = { .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER };

static bool are_patient; /* callers wait until there is an answer; else their time is up at once */
static _Atomic unsigned int waiting; /* callers that have begun to */

/* By how much the monotonic clock is wrong: a lookup that lasts has not to be waited for. */
static _Atomic time_t ahead_s;

int clock_gettime(clockid_t id, struct timespec *ret)
{
	int r = check_real_clock(id, ret);

	ret->tv_sec += ahead_s;
	return r;
}

int pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *lock,
			   const struct timespec *until)
{
	(void)until;
	waiting++;
	return are_patient ? pthread_cond_wait(cond, lock) : ETIMEDOUT;
}

/* With the lock held. is_first: the first lookup of STUCK. */
static bool is_unanswered(const char *node, bool is_first)
{
	if (service.answers)
		return false;
	return str_has_prefix(node, SILENT) || is_first;
}

/* Replaces the C library's, which would ask the machine's name service. */
int getaddrinfo(const char *node, const char *name, const struct addrinfo *hints,
		struct addrinfo **ret)
{
	struct sockaddr_in *address;
	struct addrinfo *info;
	bool is_first;

	(void)name;
	if ((hints->ai_flags & AI_NUMERICHOST) != 0)
		return EAI_NONAME;
	pthread_mutex_lock(&service.lock);
	service.asked++;
	is_first = strcmp(node, STUCK) == 0 && service.asked_stuck++ == 0;
	service.asking++;
	pthread_cond_broadcast(&service.changed);
	while (is_unanswered(node, is_first))
		(void)pthread_cond_wait(&service.changed, &service.lock);
	service.asking--;
	pthread_cond_broadcast(&service.changed);
	pthread_mutex_unlock(&service.lock);
	info = calloc(1, sizeof(*info) + sizeof(*address));
	ck_assert(info != NULL);
	address = (struct sockaddr_in *)(void *)(info + 1);
	address->sin_family = AF_INET;
	address->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	info->ai_addr = (struct sockaddr *)(void *)address;
	info->ai_addrlen = sizeof(*address);
	*ret = info;
	return 0;
}

void freeaddrinfo(struct addrinfo *info)
{
	free(info);
}

static void service_answers(bool answers)
{
	pthread_mutex_lock(&service.lock);
	service.answers = answers;
	pthread_cond_broadcast(&service.changed);
	while (answers && service.asking > 0)
		(void)pthread_cond_wait(&service.changed, &service.lock);
	pthread_mutex_unlock(&service.lock);
}

/* The thread of a lookup may be late. */
static void wait_for_stuck_lookup(void)
{
	pthread_mutex_lock(&service.lock);
	while (service.asked_stuck == 0)
		(void)pthread_cond_wait(&service.changed, &service.lock);
	pthread_mutex_unlock(&service.lock);
}

static unsigned int lookups(void)
{
	unsigned int n;

	pthread_mutex_lock(&service.lock);
	n = service.asked;
	pthread_mutex_unlock(&service.lock);
	return n;
}

static void resolves(const char *server)
{
	struct net_address addresses[NET_ADDRESSES_MAX];
	struct error err = { .code = ERROR_OK };
	char text[64];
	size_t n = 0;

	check_int(server, "result", net_resolve(server, addresses, &n, &err), 0);
	check_int(server, "addresses", n, 1);
	net_address_text(&addresses[0], text, sizeof(text));
	check_str(server, "address", text, "127.0.0.1");
}

static void is_not_resolved(const char *server)
{
	struct net_address addresses[NET_ADDRESSES_MAX];
	struct error err = { .code = ERROR_OK };
	size_t n;

	check_int(server, "result", net_resolve(server, addresses, &n, &err), -EHOSTDOWN);
	check_error(server, &err, ERROR_UNAVAILABLE, "name service does not answer");
}

/* Tests may run in one process, where a thread of the one before may still be ending. */
static void setup(void)
{
	pthread_mutex_lock(&service.lock);
	service.answers = false;
	service.asked = service.asked_stuck = 0;
	pthread_mutex_unlock(&service.lock);
	are_patient = false;
	waiting = 0;
}

/*
 * A name whose name service is silent keeps one thread, however often it is asked for, and leaves
 * the others to other names. Once the service answers, so does the next call.
 */
START_TEST(test_silent_service)
{
	unsigned int i;

	for (i = 0; i < CALLERS; i++)
		is_not_resolved(SILENT);
	are_patient = true;
	resolves("other");
	service_answers(true);
	resolves(SILENT);
	service_answers(false);
	check_that(SILENT, "few lookups", lookups() <= 3);
}
END_TEST

/* A lookup may never end. Others are tried beside it, but ever fewer. */
START_TEST(test_stuck_lookup)
{
	unsigned int s;

	is_not_resolved(STUCK);
	wait_for_stuck_lookup();
	is_not_resolved(STUCK);
	for (s = 0; s < 3600; s += AGAIN_S) {
		ahead_s += AGAIN_S;
		is_not_resolved(SILENT);
	}
	are_patient = true;
	resolves(STUCK);
	service_answers(true);
	resolves(SILENT);
	service_answers(false);
	check_that(STUCK, "few lookups", lookups() <= 12);
	ahead_s = 0; /* or the framework finds that the test has lasted for too long */
}
END_TEST

#define TOGETHER SILENT "-together"

static void *resolve_together(void *data)
{
	(void)data;
	resolves(TOGETHER);
	return NULL;
}

/* Calls that ask together get one answer. */
START_TEST(test_together)
{
	pthread_t callers[CALLERS];
	size_t i;

	are_patient = true;
	for (i = 0; i < CALLERS; i++)
		ck_assert(pthread_create(&callers[i], NULL, resolve_together, NULL) == 0);
	while (waiting < CALLERS)
		clock_sleep_ms(1);
	service_answers(true);
	for (i = 0; i < CALLERS; i++)
		(void)pthread_join(callers[i], NULL);
	service_answers(false);
	check_int("together", "lookups", lookups(), 1);
}
END_TEST

CHECK_MAIN("address", .setup = setup,
	   .tests = { test_silent_service, test_stuck_lookup, test_together })
