/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GUEST_BOOT_H
#define GUEST_BOOT_H

/* How lines begin that the guest writes where it has no channel yet: the console of a machine, stderr of a container. The
 * first is followed by the stage that it has come to (a word of small letters), the second by why it ends. */
#define BOOT_STAGE "agentbox-guest at "
#define BOOT_FAULT "agentbox-guest: "

/* Where the lines go; those of boot_open_port() it finds itself. */
void boot_tell_at(int fd);
void boot_tell(const char *stage);
/* Nobody listens to them any more. */
void boot_tell_end(void);

/*
 * What the first program of a virtual machine does before it has a channel: it loads the modules of the first filesystem,
 * and opens ports by name (such as "vport0p1"). Where that fails it says why on the console and ends, which ends the
 * machine.
 */
void boot_start(void);
int boot_open_port(const char *name);

#endif
