/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A runsc that never brings its container up: with SILENT, one whose guest says that it is there, and no more. */
#include <stdio.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	if (argc == 2)
		return puts("runsc version release-20990101.0\n\n  -platform string\n  -ignore-cgroups\n  -file-access value\n") < 0;
#ifdef SILENT
	fputs("agentbox-guest at setup\n", stderr);
#endif
	fputs("the last word\n", stderr);
	for (;;)
		pause();
}
