/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GUEST_BOOT_H
#define GUEST_BOOT_H

/*
 * What the first program of a virtual machine does before it has a channel: loads the modules of the first filesystem,
 * and opens the port of that name (such as "vport0p1"). A descriptor; where that fails it says why on the console and
 * ends, which ends the machine.
 */
int boot_open_port(const char *name);

#endif
