/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "csi/volume_message.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "store/volume.h"

/* protobuf-c has no const strings; a reply is only read. */
static char *borrow(const char *s)
{
	return (char *)(uintptr_t)s;
}

static void volume_message_set_source(struct volume_message *m, const char *source)
{
	if (source == NULL)
		return;
	csi__v1__volume_content_source__init(&m->source);
	if (str_has_prefix(source, VOLUME_SOURCE_VOLUME)) {
		csi__v1__volume_content_source__volume_source__init(&m->volume_source);
		m->volume_source.volume_id = borrow(source + strlen(VOLUME_SOURCE_VOLUME));
		m->source.type_case = CSI__V1__VOLUME_CONTENT_SOURCE__TYPE_VOLUME;
		m->source.volume = &m->volume_source;
	} else if (str_has_prefix(source, VOLUME_SOURCE_SNAPSHOT)) {
		csi__v1__volume_content_source__snapshot_source__init(&m->snapshot_source);
		m->snapshot_source.snapshot_id = borrow(source + strlen(VOLUME_SOURCE_SNAPSHOT));
		m->source.type_case = CSI__V1__VOLUME_CONTENT_SOURCE__TYPE_SNAPSHOT;
		m->source.snapshot = &m->snapshot_source;
	} else {
		return;
	}
	m->volume.content_source = &m->source;
}

int volume_message_init(struct volume_message *m, const char *id, const struct record *rec)
{
	const struct volume v = volume_of(rec);
	size_t i, n = 0;

	csi__v1__volume__init(&m->volume);
	m->context = calloc(rec->n + 1, sizeof(*m->context));
	m->context_list = calloc(rec->n + 1, sizeof(*m->context_list));
	if (m->context == NULL || m->context_list == NULL)
		return -ENOMEM;
	for (i = 0; i < rec->n; i++) {
		const char *key = volume_context_key(&rec->pairs[i]);

		if (key == NULL)
			continue;
		csi__v1__volume__volume_context_entry__init(&m->context[n]);
		m->context[n].key = borrow(key);
		m->context[n].value = rec->pairs[i].value;
		m->context_list[n] = &m->context[n];
		n++;
	}
	m->volume.volume_id = borrow(id);
	m->volume.capacity_bytes = v.size;
	m->volume.volume_context = m->context_list;
	m->volume.n_volume_context = n;
	volume_message_set_source(m, v.source);
	return 0;
}

void volume_message_set_condition(struct volume_message *m, const char *problem)
{
	csi__v1__volume_condition__init(&m->condition);
	m->condition.abnormal = problem != NULL;
	m->condition.message = borrow(problem != NULL ? problem : "the volume is there");
}

void volume_message_done(struct volume_message *m)
{
	free(m->context);
	free(m->context_list);
}
