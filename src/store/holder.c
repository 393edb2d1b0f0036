/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "store/holder.h"

#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"

/* Names watched at a time. A new one replaces the one asked about least recently. */
#define SIGHTINGS_MAX 256

static char holder_id[STORE_HOLDER_LEN + 1];
static pthread_once_t holder_once = PTHREAD_ONCE_INIT;
static _Atomic uint64_t next_number;

static void make_holder_id(void)
{
	struct timespec now;
	uint64_t bits;

	(void)clock_gettime(CLOCK_REALTIME, &now); /* cannot fail for this clock */
	/* Successive processes with the same id never use a number twice. */
	atomic_store(&next_number, (uint64_t)now.tv_sec * CLOCK_NS_PER_S + (uint64_t)now.tv_nsec);
	if (holder_id[0] != '\0')
		return;
	if (getrandom(&bits, sizeof(bits), 0) != (ssize_t)sizeof(bits))
		bits = str_hash((const char *)&now, sizeof(now)) + (uint64_t)getpid();
	(void)snprintf(holder_id, sizeof(holder_id), "%0*" PRIx64, STORE_HOLDER_LEN, bits);
}

/* The text of the file is "<id> <boot>": when the machine was booted. */
#define HOLDER_TEXT_MAX (STORE_HOLDER_LEN + 24)

#define BOOT_TOLERANCE_S 60 /* the clock may have been set since */

/* When the machine was booted, in seconds since the Epoch. The boot id in /proc may be hidden. */
static long long boot_time(void)
{
	struct timespec now, up;

	(void)clock_gettime(CLOCK_REALTIME, &now);
	(void)clock_gettime(CLOCK_BOOTTIME, &up);
	return (long long)now.tv_sec - (long long)up.tv_sec;
}

/*
 * Take the id from the file if it was written since this boot. Otherwise the machine may be a copy
 * of one that still runs.
 */
static void take_holder_id(const char *text)
{
	const long long booted = boot_time();
	long long then;
	uint64_t bits;

	if (sscanf(text, "%16" SCNx64 " %lld", &bits, &then) != 2)
		return;
	if (then < booted - BOOT_TOLERANCE_S || then > booted + BOOT_TOLERANCE_S)
		return;
	(void)snprintf(holder_id, sizeof(holder_id), "%0*" PRIx64, STORE_HOLDER_LEN, bits);
}

void store_holder_init(const char *path)
{
	cleanup_buf struct buf name = { 0 };
	char text[HOLDER_TEXT_MAX];
	struct stat st;
	ssize_t len;
	int fd;

	if (buf_printf(&name, "%s.holder", path) < 0)
		return;
	fd = open(name.data, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
	if (fd < 0)
		return;
	/* The descriptor stays open, so that the lock lasts as long as the process. */
	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || flock(fd, LOCK_EX | LOCK_NB) < 0) {
		close(fd);
		return;
	}
	len = pread(fd, text, sizeof(text) - 1, 0);
	text[len > 0 ? len : 0] = '\0';
	take_holder_id(text);
	if (holder_id[0] != '\0')
		return;
	/* If this fails, the next process gets a new id. */
	len = snprintf(text, sizeof(text), "%s %lld\n", store_holder(), boot_time());
	if (ftruncate(fd, 0) == 0)
		(void)!pwrite(fd, text, (size_t)len, 0);
}

const char *store_holder(void)
{
	(void)pthread_once(&holder_once, make_holder_id);
	return holder_id;
}

void store_holder_tag(char ret[STORE_HOLDER_TAG_MAX])
{
	const char *own = store_holder();

	(void)snprintf(ret, STORE_HOLDER_TAG_MAX, "%s.%" PRIx64, own,
		       atomic_fetch_add(&next_number, 1));
}

bool store_holder_is_own(const char *tag)
{
	return strncmp(tag, store_holder(), STORE_HOLDER_LEN) == 0 && tag[STORE_HOLDER_LEN] == '.';
}

/* -------- patience -------- */

/* A name that another replica left on a share, and when it was seen there. */
struct sighting {
	uint64_t hash; /* of server, share and name; 0: free */
	uint64_t first_ns;
	uint64_t last_ns;
};

static uint64_t patience_ns = STORE_HOLDER_PATIENCE_S * CLOCK_NS_PER_S;
static struct sighting sightings[SIGHTINGS_MAX];
static pthread_mutex_t sightings_lock = PTHREAD_MUTEX_INITIALIZER; /* guards the table; innermost */

/* Find the sighting with that hash, or reuse the oldest. Called with the lock held. */
static struct sighting *find_sighting(uint64_t hash)
{
	struct sighting *oldest = &sightings[0];
	size_t i;

	for (i = 0; i < SIGHTINGS_MAX; i++) {
		if (sightings[i].hash == hash)
			return &sightings[i];
		if (sightings[i].last_ns < oldest->last_ns)
			oldest = &sightings[i];
	}
	*oldest = (struct sighting){ .hash = hash };
	return oldest;
}

bool store_holder_is_dead(const char *server, const char *share, const char *name)
{
	cleanup_buf struct buf b = { 0 };
	struct sighting *sighting;
	uint64_t now;
	bool dead;

	if (buf_printf(&b, "%s#%s#%s", server, share, name) < 0)
		return false;
	pthread_mutex_lock(&sightings_lock);
	now = clock_now_ns(); /* not before first_ns */
	sighting = find_sighting(str_hash(b.data, b.len) | 1);
	if (sighting->first_ns == 0)
		sighting->first_ns = now;
	sighting->last_ns = now;
	dead = now - sighting->first_ns >= patience_ns;
	pthread_mutex_unlock(&sightings_lock);
	return dead;
}

void store_holder_set_patience(unsigned int seconds)
{
	patience_ns = seconds * CLOCK_NS_PER_S;
}

unsigned int store_holder_patience_s(void)
{
	return (unsigned int)(patience_ns / CLOCK_NS_PER_S);
}
