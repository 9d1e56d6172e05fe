/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Sealed memory files. What is promised: once a descriptor comes out of memfd_new_sealed(), nobody changes
 * its bytes, whatever way they get hold of it. What a program or a plan in it means is left to the caller.
 */
#include "base/memfd.h"

#include <sys/mman.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "kernel/compat.h"

#define SEALS (F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE)

int memfd_begin(const char *name, uint32_t mode)
{
	unsigned int flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
	int fd;

	fd = sys_memfd_create(name, flags | (mode & 0111 ? MFD_EXEC : MFD_NOEXEC_SEAL));
	if (fd < 0 && errno == EINVAL)	/* before 6.3 every memory file is executable */
		fd = sys_memfd_create(name, flags);
	return fd < 0 ? -errno : fd;
}

int memfd_seal(int fd, uint32_t mode)
{
	if (fchmod(fd, mode) < 0)
		return -errno;
	/* Security: F_SEAL_EXEC only fixes the mode, which protects nothing that the other seals do not;
	 * older kernels lack it. */
	if (fcntl(fd, F_ADD_SEALS, SEALS | F_SEAL_EXEC) < 0 && fcntl(fd, F_ADD_SEALS, SEALS) < 0)
		return -errno;
	return 0;
}

int memfd_new_sealed(const char *name, const void *data, size_t len, uint32_t mode, int *retfd)
{
	_cleanup_(fd_closep) int fd = -EBADF;
	int r;

	fd = memfd_begin(name, mode);
	if (fd < 0)
		return fd;
	r = fd_pwrite_all(fd, data, len, 0);
	if (r < 0)
		return r;
	r = memfd_seal(fd, mode);
	if (r < 0)
		return r;
	*retfd = steal_fd(fd);
	return 0;
}

bool memfd_is_sealed(int fd)
{
	int seals = fcntl(fd, F_GET_SEALS);

	return seals >= 0 && (seals & SEALS) == SEALS;
}

int memfd_map_sealed(int fd, size_t max, const void **retdata, size_t *retlen)
{
	static const char empty[1];
	struct stat st;
	void *data;

	/* Security: without the seals the other side could change the bytes after they were checked, or
	 * shrink the file and kill us with SIGBUS. */
	if (!memfd_is_sealed(fd))
		return -EINVAL;
	if (fstat(fd, &st) < 0)
		return -errno;
	if (st.st_size < 0 || (uint64_t)st.st_size > max)
		return -EFBIG;
	if (st.st_size == 0) {
		*retdata = empty;
		*retlen = 0;
		return 0;
	}
	data = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	if (data == MAP_FAILED)
		return -errno;
	*retdata = data;
	*retlen = (size_t)st.st_size;
	return 0;
}

void memfd_unmap(const void *data, size_t len)
{
	if (len > 0)
		munmap((void *)(uintptr_t)data, len);
}
