/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A stand-in for a code forge on 127.0.0.1: POST /pulls?head=NAME opens a pull request, GET counts those of a head. */
#ifndef EXAMPLES_FORGE_H
#define EXAMPLES_FORGE_H

int forge_start(void);			/* a process of its own; its port, or -1 */
void forge_stop(void);
/* Sends one request; the status, with the body in answer; 0 when there was no complete answer. */
int forge_ask(int port, const char *method, const char *head, char *answer, unsigned int size);

#endif
