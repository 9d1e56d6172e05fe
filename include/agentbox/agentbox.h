/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Everything of libagentbox. Each header also stands alone. */
#ifndef AGENTBOX_AGENTBOX_H
#define AGENTBOX_AGENTBOX_H

#include <agentbox/change.h>
#include <agentbox/command.h>
#include <agentbox/credential.h>
#include <agentbox/effect.h>
#include <agentbox/error.h>
#include <agentbox/file.h>
#include <agentbox/journal.h>
#include <agentbox/network.h>
#include <agentbox/plan.h>
#include <agentbox/probe.h>
#include <agentbox/report.h>
#include <agentbox/sandbox.h>
#include <agentbox/spec.h>
#include <agentbox/task.h>
#include <agentbox/types.h>
#include <agentbox/version.h>
#include <agentbox/workspace.h>

#endif
