/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * A library to preload into user-mode-linux 6.1 on a processor with more than the 2,696 bytes of
 * registers that it keeps for a process, such as one with AMX. Linux sets the registers of a traced
 * process only all at once (xstateregs_set() in arch/x86/kernel/fpu/regset.c), so the guest would
 * die of EFAULT when it first runs a process. Here the registers that it does not know keep their
 * values.
 *
 * The guest has one thread that traces, and small stacks: the buffer is static.
 */

#include <elf.h>
#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static unsigned char registers[1 << 16];

/* As in the C library: what a request peeks at is returned. */
static long do_ptrace(long request, pid_t pid, void *addr, void *data)
{
	bool peeks = request == PTRACE_PEEKTEXT || request == PTRACE_PEEKDATA ||
		     request == PTRACE_PEEKUSER;
	long value = 0;
	long r = syscall(SYS_ptrace, request, pid, addr, peeks ? &value : data);

	if (r < 0 || !peeks)
		return r;
	errno = 0;
	return value;
}

long ptrace(enum __ptrace_request request, ...)
{
	va_list args;
	pid_t pid;
	void *addr;
	void *data;

	va_start(args, request);
	pid = va_arg(args, pid_t);
	addr = va_arg(args, void *);
	data = va_arg(args, void *);
	va_end(args);

	if (request == PTRACE_SETREGSET && addr == (void *)NT_X86_XSTATE) {
		const struct iovec *part = data;
		struct iovec all = { .iov_base = registers, .iov_len = sizeof(registers) };

		if (do_ptrace(PTRACE_GETREGSET, pid, addr, &all) == 0 &&
		    all.iov_len > part->iov_len) {
			memcpy(registers, part->iov_base, part->iov_len);
			return do_ptrace(request, pid, addr, &all);
		}
	}
	return do_ptrace(request, pid, addr, data);
}
