/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * "csi-nfs check": looks at one export, step by step, as the controller and the nodes use it, and
 * says what is wrong and what to do about it. For people, before and beside the daemon; one thread.
 */
#ifndef CHECK_CHECK_H
#define CHECK_CHECK_H

/* argv[1] that asks for it. */
#define CHECK_COMMAND "check"

/*
 * The whole program: argv[0] is CHECK_COMMAND. Returns the exit status: 0 when nothing failed, 1
 * when something did, 2 for an error on the command line.
 */
int check_main(int argc, char **argv);

#endif
