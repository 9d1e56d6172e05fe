/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What a command costs at least: nothing. */
int main(void)
{
	return 0;
}
