/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * "csi-nfs check": test an export step by step, as the controller and the nodes use it, and report
 * what is wrong and how to fix it. Runs without the daemon, in one thread.
 */
#ifndef CHECK_CHECK_H
#define CHECK_CHECK_H

/* argv[1] of the command. */
#define CHECK_COMMAND "check"

/*
 * Run the command; argv[0] is CHECK_COMMAND. Return the exit status: 0 if nothing failed, 1 if
 * something did, 2 for an error on the command line.
 */
int check_main(int argc, char **argv);

#endif
