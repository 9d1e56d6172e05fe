/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A file server for a workspace that no box runs on. Helper code: the keeper program under another name.
 */
#ifndef FILE_STAND_H
#define FILE_STAND_H

#define FILE_STAND_NAME "agentbox-files"	/* argv[0] */
#define FILE_STAND_VERSION 1

/*
 * The order, the first message over the socket: u32 version, u8 writes, u8 is_root, u32 base, u32 count (ids inside 0.. to
 * base.. outside; root only), u32 uid, u32 gid (inside), u32 owner_uid, u32 owner_gid (whom they stand for on the host),
 * u8 userxattr, u32 host (number of the layer that has host ids, UINT32_MAX: none), str work ("" where none is needed), u32
 * n, n x {str path, u64 device, u64 inode}: the layers, uppermost first. With `work` the first is written to; without, there is
 * one layer that is the whole tree, or nothing is written.
 */

/* Enters namespaces of its own, mounts the layers, leaves everything else behind and serves. The exit code. */
int file_stand(int socket_fd);

#endif
