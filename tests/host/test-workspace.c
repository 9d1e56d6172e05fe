/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Workspaces through boxes: what a box has written is there afterwards as its plan says, whatever ended it, and nothing
 * else is. Each test has a store of its own; most of it is said as a user says it, in the shell.
 */
#include <criterion/criterion.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "support/support.h"

static char folder[512];
static char output[262144];

static void setup(void)
{
	char home[600];

	snprintf(folder, sizeof(folder), "%s/agentbox-workspace-XXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
	cr_assert_not_null(mkdtemp(folder));
	snprintf(home, sizeof(home), "%s/home", folder);
	cr_assert_eq(mkdir(home, 0700), 0);
	setenv("ABOX_HOME", home, 1);
	setenv("A", agentbox_program(), 1);
	setenv("D", folder, 1);
}

/* Everything is removed by its owner: what a box made must not get in the way. */
static void teardown(void)
{
	char command[1200];

	snprintf(command, sizeof(command), "chmod -R u+rwX '%s' 2>/dev/null; rm -rf '%s'", folder, folder);
	cr_expect_eq(system(command), 0);
}

TestSuite(workspace_box, .init = setup, .fini = teardown, .timeout = 300);

/*
 * A script in the folder of the test, with $A for the program, $D for the folder, and what it needs often:
 *	id_of FILE	id of the workspace in a result
 *	member FILE X	a member of "workspace" in the teardown report
 */
static const char prologue[] =
	"set -eu; cd \"$D\"; exec 2>&1\n"
	"member() { sed -n '/\"workspace\": {/,/}/s/^ *\"'$2'\": \"\\{0,1\\}\\([^\",]*\\)\"\\{0,1\\},\\{0,1\\}$/\\1/p' $1 | head -1; }\n"
	"id_of() { member $1 id; }\n"
	"same() { [ \"$1\" = \"$2\" ] || { echo \"not the same: '$1' '$2'\"; exit 1; }; }\n"
	"fails() { want=$1; shift; got=0; \"$@\" >said || got=$?; same $got $want; }\n";

static int shell_try(unsigned seconds, const char *script)
{
	static char text[65536];

	snprintf(text, sizeof(text), "%s%s", prologue, script);
	return program_run((const char *const[]){ "/bin/bash", "-c", text, NULL }, NULL, seconds, output, sizeof(output));
}

static void shell(unsigned seconds, const char *script)
{
	int r = shell_try(seconds, script);

	cr_assert_eq(r, 0, "%d: %s", r, output);
}

/* Each round goes on where the one before has ended, and no file is lost on the way. */
Test(workspace_box, three_rounds_keep_every_file)
{
	shell(60,
		"mkdir src; echo base >src/base; mkdir src/low; echo deep >src/low/deep\n"
		"$A run --workspace src --on-success keep --result r -- sh -c 'echo 1 >one; echo more >>base; mkdir d; echo x >d/x'\n"
		"W=$(id_of r); same $(member r outcome) kept\n"
		"$A run --workspace-id $W -- sh -c 'test $(cat one) = 1; rm d/x; echo 2 >d/two; rm low/deep; chmod 700 low'\n"
		"$A run --workspace-id $W -- sh -c 'test $(cat d/two) = 2; test ! -e d/x; test ! -e low/deep; echo 3 >three; ln -s one l'\n"
		"same \"$($A run --workspace-id $W -- sh -c 'cat base one d/two three; readlink l; stat -c %a low; ls | wc -l' | tr '\\n' ' ')\""
		" 'base more 1 2 3 one 700 6 '\n"
		"same \"$(cat src/base)\" base; test -e src/low/deep; test ! -e src/one\n");
}

/* A clock that strikes keeps the same as somebody who stops the box, also when its starter is long gone. */
Test(workspace_box, timeout_keeps_what_a_stop_keeps)
{
	shell(60,
		"mkdir src; echo base >src/base; W='echo 1 >one; rm base; mkdir d; echo 2 >d/2; echo ready'\n"
		"B=$($A start --workspace src --on-success keep --on-timeout keep)\n"
		"$A exec $B -- sh -c \"$W\"; $A stop --json $B >stopped; $A rm $B\n"
		"! $A run --workspace src --on-timeout keep --timeout 1s --result late -- sh -c \"$W; sleep 60\"\n"
		"B=$($A start --workspace src --on-timeout keep --timeout 2s); $A exec $B -- sh -c \"$W\"\n"
		"for i in $(seq 200); do $A inspect $B | grep -q '\"report\"' && break; sleep 0.1; done; $A inspect $B >alone; $A rm $B\n"
		"X=$($A workspace ls --json | grep -o '\"id\": *\"[0-9a-f]*\"' | cut -d'\"' -f4); n=0\n"
		"for w in $X; do $A workspace diff $w >diff.$n; same \"$(cat diff.$n)\" \"$(cat diff.0)\"; n=$((n+1)); done\n"
		"same $n 3; grep -q 'D  base' diff.0; grep -q 'A  d/2' diff.0\n"
		"grep -q '\"end\": *\"timeout\"' alone\n");
}

/* A fork begins as its snapshot; from there on nobody sees what the other does, and it has files and nothing else. */
Test(workspace_box, fork_shares_nothing_that_changes)
{
	shell(60,
		"mkdir src; echo base >src/base\n"
		"$A run --workspace src --on-success keep --env API_TOKEN=sesame-sesame-1 --result r -- sh -c 'echo mine >mine; sleep 100 & echo >/tmp/t'\n"
		"W=$(id_of r); F=$($A workspace fork $W)\n"
		"$A run --workspace-id $F -- sh -c 'test -z \"${API_TOKEN-}\"; test ! -e /tmp/t; test $(cat mine) = mine; echo fork >mine; echo f >f; rm base'\n"
		"$A run --workspace-id $W -- sh -c 'test $(cat mine) = mine; test ! -e f; test -e base; echo w >w'\n"
		"$A run --workspace-id $F -- sh -c 'test $(cat mine) = fork; test ! -e w; test ! -e base'\n"
		"! grep -rq sesame-sesame home/state\n"
		"$A workspace rm $W; $A run --workspace-id $F -- sh -c 'test $(cat mine) = fork'\n");
}

/* T17-1: exact states, over three generations of restored snapshots. */
Test(workspace_box, T17_1_restore_gives_exact_states)
{
	shell(90,
		"$A run --on-success snapshot --result r -- sh -c 'echo a >A'\n"
		"W=$(id_of r); S1=$(member r snapshot); L='ls; cat * 2>/dev/null'\n"
		"for g in 1 2 3; do\n"
		"	$A run --workspace-id $W -- sh -c \"rm -f A; echo b$g >B\"; same \"$($A run --workspace-id $W -- sh -c \"$L\")\" \"B\nb$g\"\n"
		"	$A workspace restore $W $S1; same \"$($A run --workspace-id $W -- sh -c \"$L\")\" \"A\na\"\n"
		"	$A workspace restore $W $S1; same \"$($A run --workspace-id $W -- sh -c \"$L\")\" \"A\na\"\n"
		"	S1=$($A workspace snapshot $W)\n"
		"done\n"
		"same \"$($A run --from-snapshot $S1 -- sh -c \"$L\")\" \"A\na\"\n");
}

/* T17-2, T17-3: what was removed stays removed, through a new folder of the same name and through layers. */
Test(workspace_box, T17_2_removed_files_do_not_come_back)
{
	shell(60,
		"mkdir -p src/d src/e; echo old >src/d/old; echo e >src/e/e; echo gone >src/gone\n"
		"$A run --workspace src --on-success snapshot --result r -- sh -c 'rm -r d; mkdir d; echo new >d/new; rm gone; rm -r e'\n"
		"W=$(id_of r)\n"
		"$A run --workspace-id $W -- sh -c 'test \"$(ls d)\" = new; test ! -e gone; test ! -e e; mkdir e; echo 2 >e/2'\n"
		"$A workspace snapshot $W >/dev/null\n"
		"same \"$($A run --workspace-id $W -- sh -c 'ls d e' | tr '\\n' ' ')\" 'd: new  e: 2 '\n"
		"$A workspace diff $W >diff; for l in 'D  d/old' 'A  d/new' 'D  gone' 'D  e/e' 'A  e/2'; do grep -qx \"$l\" diff; done\n"
		"$A workspace export $W w.tgz >/dev/null; tar tzf w.tgz | grep -q tree/d/new; ! tar tzf w.tgz | grep -q -e old -e gone -e tree/e/e\n");
}

/* Names that other tools take for marks of deletion are names like any other. */
Test(workspace_box, files_named_like_whiteouts_are_files)
{
	shell(60,
		"mkdir -p src/d; echo a >src/a; echo b >src/d/b\n"
		"$A run --workspace src --on-success keep --result r -- sh -c 'echo w >.wh.a; echo o >d/.wh..wh..opq; mkdir .wh.d'\n"
		"W=$(id_of r); same \"$($A run --workspace-id $W -- sh -c 'cat a d/b .wh.a d/.wh..wh..opq' | tr '\\n' ' ')\" 'a b w o '\n"
		"$A workspace diff $W >diff; grep -qx 'A  .wh.a' diff; grep -qx 'A  d/.wh..wh..opq' diff; ! grep -q '^D' diff\n");
}

/* Folders of a lower layer are renamed in root's boxes; a plain user gets EXDEV, as the plan says, and mv copies. */
Test(workspace_box, rename_of_a_lower_folder_is_what_the_plan_says)
{
	shell(60,
		"mkdir -p src/low/in; echo x >src/low/in/x\n"
		"$A plan --workspace src --on-success keep --json >plan\n"
		"R='rename(\"low\",\"new\") and exit 0; exit($!{EXDEV} ? 18 : 1)'\n"
		"want=0; ! grep -q EXDEV plan || want=18\n"
		"M=$(sed -n '/^  \"workspace\": {/,/^  }/s/^ *\"mode\": \"\\(.*\\)\",*$/\\1/p' plan)\n"
		"case $M:$(id -u) in overlay:0) same $want 0;; overlay:*) same $want 18;; copy:*) same $want 0;; *) echo \"mode $M\"; exit 1;; esac\n"
		/* whether it is a copy, is a question of where the store lies and what the kernel mounts, and of nothing else */
		"[ $M = overlay ] || grep -Eq '\"why\": \"(workspaces are kept on|this host allows no overlay|the filesystem of the folder cannot)' plan\n"
		"fails $want $A run --workspace src --on-success keep --on-failure discard -- perl -e \"$R\"\n"
		"$A run --workspace src --on-success keep --result r -- sh -c 'mv low new; cat new/in/x'\n"
		"W=$(id_of r); $A run --workspace-id $W -- sh -c 'test $(cat new/in/x) = x; test ! -e low; mv new low'\n"
		"$A run --workspace-id $W -- sh -c 'test $(cat low/in/x) = x; test ! -e new'\n"
		"$A workspace diff $W | grep -q '^0 added, 0 modified, 0 deleted'\n");
}

/* T17-7: what was said to be scratch, what lay elsewhere, what ran, and what the environment held are gone. */
Test(workspace_box, T17_7_only_the_workspace_survives)
{
	shell(60,
		"mkdir src; echo k >src/k\n"
		"$A run --workspace src --on-success keep --scratch 'tmp/**' --scratch '**/*.o' --env MARK=mark-in-environment --result r -- sh -c '"
		"mkdir tmp sub; echo t >tmp/t; echo o >sub/a.o; echo s >sub/s; echo h >~/h; echo t >/tmp/t; echo r >/run/r; setsid sleep 300 & "
		"echo \"$MARK\" >/dev/null'\n"
		"W=$(id_of r)\n"
		"$A run --workspace-id $W -- sh -c 'test ! -e tmp/t; test ! -e sub/a.o; test $(cat sub/s) = s; test ! -e ~/h; test ! -e /tmp/t; "
		"test ! -e /run/r; test -z \"${MARK-}\"; ! grep -l sleep /proc/[0-9]*/comm'\n"
		"! grep -rq mark-in-environment home/state\n");
}

/* T2-6, T2-7, T2-9, T2-12, T2-14: what a box can plant does not stop, fool or fill the host. */
Test(workspace_box, T2_planted_files_do_no_harm)
{
	shell(120,
		"mkdir src; echo top-secret-of-the-host >outside\n"
		"cat >plant <<'E'\n"
		"mkfifo README.md; truncate -s 8T sparse; ln -s b a; ln -s a b; ln -s \"$OUTSIDE\" link; mkdir dist; ln -s /etc/shadow dist/a\n"
		"ln -s \"$OUTSIDE\" dist/b; echo real >dist/c; mkdir closed; echo x >closed/x; chmod 400 closed/x\n"
		"mkdir ro; echo r >ro/r; chmod 500 ro; printf 'n' >\"$(printf '\\377')\"; printf l >\"$(printf 'new\\nline\\t\\033')\"; echo d >./-rf; echo s >'*'\n"
		"printf o >\"$(head -c 255 /dev/zero | tr '\\0' n)\"; echo w >.wh.foo\n"
		"E\n"
		"cp plant src/plant\n"
		"$A run --workspace src --on-success keep --artifact 'dist/*' --env OUTSIDE=\"$D/outside\" --result r -- sh plant\n"
		"W=$(id_of r); R=$(member r results)\n"
		"same \"$(ls $R/artifacts/files/dist)\" c; grep -q '\"a link\"' $R/artifacts/artifacts.json; ! grep -rq top-secret $R\n"
		"timeout 20 $A workspace diff $W --json >diff; S=$(timeout 20 $A workspace snapshot $W); timeout 20 $A workspace verify $W $S\n"
		"timeout 60 $A workspace export $W w.tgz >/dev/null; [ $(stat -c %s w.tgz) -lt 1000000 ]; [ $(du -sk home | cut -f1) -lt 20000 ]\n"
		"I=$(timeout 60 $A workspace import w.tgz)\n"
		"N='import os,sys; print(sorted((os.fsencode(n), os.lstat(n).st_size) for n in os.listdir(b\".\") for n in [n]))'\n"
		"L='for f in * .wh.foo; do printf %s \"$f\" | od -An -tx1 | tr -d \" \\n\"; stat -c \" %F %s %a\" -- \"$f\"; done'\n"
		"same \"$($A run --workspace-id $I -- sh -c \"$L\")\" \"$($A run --workspace-id $W -- sh -c \"$L\")\"\n"
		"$A workspace rm $W $I; $A workspace gc >/dev/null; same \"$(ls home/state/layers home/state/trash | grep -v : | tr -d '\\n')\" ''\n");
}

/* T2-12: what nobody can read or enter is removed all the same. */
Test(workspace_box, T2_12_closed_folders_are_removed)
{
	shell(60,
		"mkdir src; P='mkdir -p none/in ro/in; echo x >none/in/x; echo x >ro/in/x; chmod 400 ro/in/x; chmod 500 ro/in ro; chmod 000 none/in none'\n"
		"for how in overlay copy; do\n"
		"$A run --workspace src:$how --on-failure keep -- sh -c \"$P\"\n"
		"$A run --workspace src:$how --on-success keep --result r -- sh -c \"$P; chmod 700 none none/in\"; $A workspace rm $(id_of r)\n"
		"done; $A workspace gc >/dev/null; same \"$(ls home/state/layers home/state/trash home/state/workspaces | grep -v : | tr -d '\\n')\" ''\n");
}

/* T2-8: many names of one file, and folders deeper than a path can be. */
Test(workspace_box, T2_8_links_and_depth)
{
	char script[2048];

	snprintf(script, sizeof(script),
		"cat >plant <<'E'\n"
		"open F,\">one\"; print F \"x\"; close F; mkdir \"l\"; for $i (1..%d) { link(\"one\",\"l/$i\") or die \"$i $!\" }\n"
		"$n = \"d\" x 200; for $i (1..%d) { mkdir($n) or die; chdir($n) or die } open F,\">end\"; print F \"e\"; close F\n"
		"E\n"
		"mkdir src; cp plant src/\n"
		"$A run --workspace src --on-success snapshot --result r -- perl plant; W=$(id_of r)\n"
		"$A workspace export $W w.tgz >/dev/null; $A workspace diff $W --json >/dev/null\n"
		"same $($A run --workspace-id $W -- stat -c %%h one) %d\n"
		"$A workspace rm $W; $A workspace gc >/dev/null; same \"$(ls home/state/layers home/state/trash | grep -v : | tr -d '\\n')\" ''\n",
		is_long() ? 60000 : 1000, is_long() ? 2000 : 40, is_long() ? 60001 : 1001);
	shell(280, script);
}

/* A gate that finds something names the path and never the value, and leaves the workspace for somebody to decide. */
Test(workspace_box, gate_refuses_and_names_the_path)
{
	shell(60,
		"mkdir src\n"
		"for how in keep snapshot; do\n"
		"$A run --workspace src --on-success $how --never '**/*.pem' --result n -- sh -c 'mkdir k; echo key >k/x.pem'\n"
		"same $(member n outcome) refused; grep -q '\"place\": \"k/x.pem\"' n; grep -q LEFT_BEHIND said 2>/dev/null || grep -q 'left_behind' n\n"
		"same \"$($A workspace diff $(id_of n) | grep pem)\" 'A  k/x.pem'\n"
		"$A run --workspace src --on-success $how --env DB_PASSWORD=correct-horse-battery --result s -- sh -c 'echo \"p=$DB_PASSWORD\" >conf'\n"
		"same $(member s outcome) refused; grep -q '\"place\": \"conf\"' s; ! grep -q correct-horse s\n"
		"done\n"
		"$A run --workspace src --on-success artifacts --artifact '**' --never '*.pem' --result a -- sh -c 'echo key >x.pem; echo r >r'\n"
		"same $(member a outcome) refused; [ ! -d \"$(member a results)/artifacts\" ]\n"
		"$A run --workspace src --on-success keep --never '*.pem' --result ok -- sh -c 'echo fine >x'; same $(member ok outcome) kept\n");
}

/* Artifacts and diagnostics come out with where they come from; the change itself is gone. */
Test(workspace_box, artifacts_and_diagnostics)
{
	shell(60,
		"mkdir src; echo s >src/s\n"
		"$A run --workspace src --on-success artifacts --artifact 'out/**' --result a -- sh -c 'mkdir out; echo report >out/r; echo junk >junk'\n"
		"R=$(member a results); same $(cat $R/artifacts/files/out/r) report; [ ! -e $R/artifacts/files/junk ]\n"
		"grep -q \"$(sha256sum <src/../$(realpath --relative-to=. $R)/artifacts/files/out/r | cut -d' ' -f1)\" a\n"
		"P=$(sed -n 's/.*\"plan_digest\": \"\\(.*\\)\".*/\\1/p' a | head -1); grep -q \"\\\"plan\\\":\\\"$P\\\"\" $R/artifacts/artifacts.json\n"
		"same \"$($A workspace ls | wc -l)\" 1\n"
		"B=$($A start --workspace src --on-failure diagnostics); $A exec --detach $B -- sh -c 'echo told; echo wrong >&2; echo x >x; exit 7' >c\n"
		"$A wait $B 1 || true; $A stop --as failure --json $B >d; $A rm $B\n"
		"R=$(sed -n 's/.*\"results\": *\"\\([^\"]*\\)\".*/\\1/p' d); J=$R/diagnostics.json\n"
		"grep -q '\"exit_code\":7' $J; grep -q 'told' $J; grep -q 'wrong' $J; grep -q '\"path\":\"x\"' $J; [ $(stat -c %s $J) -lt 1200000 ]\n"
		"same \"$($A workspace ls | wc -l)\" 1\n"
		"$A run --workspace src --on-success artifacts --artifact '*' --workspace-ttl 1s --result t -- sh -c 'echo t >t'\n"
		"sleep 1.1; $A workspace gc >/dev/null; [ ! -e \"$(member t results)\" ]; [ -e $J ]\n");
}

/* The journal says what has become of the workspace, by the digests that the diff of later shows. */
Test(workspace_box, journal_and_report_cite_the_change)
{
	shell(60,
		"mkdir src; echo '{\"version\":1,\"journal\":\"'$D'/journal\",\"task\":\"t-1\"}' >spec\n"
		"$A run --spec spec --workspace src --on-success keep --result r -- sh -c 'echo 1 >one'\n"
		"C=$(member r changes); [ ${#C} = 64 ]; grep -rq \"$C\" journal; $A workspace diff $(id_of r) --json | grep -q \"$C\"\n");
}

/* Archives are unpacked whole; copies leave their folder alone, and so do layers. */
Test(workspace_box, sources_and_modes)
{
	shell(60,
		"mkdir -p src/d; echo a >src/a; echo b >src/d/b; tar czf src.tgz -C src .; ln src/a src/h\n"
		"J() { echo '{\"version\":1,\"workspace\":{\"source\":{\"kind\":\"'$1'\"'$2'},\"mode\":\"'$3'\",\"on_success\":\"keep\"}}'; }\n"
		"J tar ',\"path\":\"'$D'/src.tgz\"' copy >tar; J dir ',\"path\":\"'$D'/src\"' copy >copy; J dir ',\"path\":\"'$D'/src\"' overlay >overlay; J empty '' overlay >empty\n"
		"for s in tar copy overlay empty; do\n"
		"$A run --spec $s --result r -- sh -c 'echo new >new; echo more >>a'; W=$(id_of r); same $(member r outcome) kept\n"
		"$A run --workspace-id $W -- sh -c 'test $(cat new) = new; test $(tail -1 a) = more'\n"
		"$A workspace diff $W | grep -q '  a$'; $A workspace diff $W | grep -qx 'A  new'; same $(cat src/a) a; done\n"
		"$A plan --spec tar --json | grep -q -e 'an archive is unpacked' -e 'that an overlay needs'\n"
		"W=$($A workspace create src:copy --no-overlay); $A run --workspace-id $W -- sh -c 'echo w >w; mv d e'\n"
		"$A run --workspace-id $W --on-failure discard -- sh -c 'rm w; exit 1' || true; $A run --workspace-id $W -- sh -c 'test $(cat w) = w; cat e/b'\n"
		"! $A plan --workspace src:direct || { $A run --workspace src:direct -- sh -c 'echo direct >made'; same $(cat src/made) direct; }\n"
		"fails 125 $A run --workspace src:direct --on-success discard -- true\n"
		"fails 125 $A run --workspace src --on-success artifacts -- true\n");
}

/* What this box has done is thrown away, what others had kept before is not. */
Test(workspace_box, discard_is_about_this_box)
{
	shell(60,
		"mkdir src; $A run --workspace src --on-success keep --result r -- sh -c 'echo kept >kept'; W=$(id_of r)\n"
		"! $A run --workspace-id $W --on-failure discard -- sh -c 'rm kept; echo bad >bad; exit 1'\n"
		"$A run --workspace-id $W --on-success discard -- sh -c 'test $(cat kept) = kept; test ! -e bad; echo 2 >2'\n"
		"same \"$($A run --workspace-id $W -- ls)\" kept\n");
}

/* One box at a time, as long as anything of it lives; a snapshot and a fork can be had meanwhile. */
Test(workspace_box, in_use_by_one_box)
{
	shell(90,
		"mkdir src; echo base >src/base; B=$($A start --workspace src --on-success keep)\n"
		"$A exec $B -- sh -c 'echo 1 >one'; W=$($A inspect $B | sed -n 's/.*\"workspace\": *\"\\([0-9a-f]*\\)\".*/\\1/p' | tail -1); [ ${#W} = 32 ]\n"
		"fails 125 $A run --workspace-id $W -- true\n"
		"$A exec --detach $B -- sh -c 'while :; do echo x >>count; done' >/dev/null\n"
		"S=$($A workspace snapshot $W --name one); F=$($A workspace fork $W)\n"
		"$A exec $B -- sh -c 'echo 2 >>one; rm base'\n"
		"same \"$($A run --from-snapshot one -- cat base one | tr '\\n' ' ')\" 'base 1 '\n"
		"same \"$($A run --workspace-id $F -- cat base one | tr '\\n' ' ')\" 'base 1 '\n"
		"$A stop $B; $A rm $B; same \"$($A run --workspace-id $W -- cat one | tr '\\n' ' ')\" '1 2 '\n");
}

/* A project of some thousand files: edited and built in the box, looked at, put back in part; git agrees. */
Test(workspace_box, real_project_round_trip)
{
	needs("git");
	shell(200,
		"command -v make && command -v cc || { echo skip; exit 0; }\n"
		"mkdir -p src/include; cd src; for i in $(seq 0 39); do mkdir include/d$i; for j in $(seq 0 49); do echo \"#define V_${i}_$j $j\" >include/d$i/h$j.h; done; done\n"
		"printf '#include \"d1/h2.h\"\\n#include \"d1/h3.h\"\\n#include <stdio.h>\\nint main(void) { printf(\"%%d\\\\n\", V_1_2); return 0; }\\n' >main.c\n"
		"printf 'prog: main.c\\n\\tcc -Iinclude -o prog main.c\\n' >Makefile; echo '*.o' >.gitignore\n"
		"git init -q .; git add .; git -c user.name=t -c user.email=t@t commit -qm one; cd ..\n"
		"$A run --workspace src --on-success keep --result r -- sh -ec 'sed -i s/V_1_2/V_1_3/ main.c; echo \"#define NEW 1\" >include/new.h; rm include/d0/h0.h; "
		"make >/dev/null 2>&1; test $(./prog) = 3; mkdir -p .git/hooks 2>/dev/null; echo evil >.git/hooks/pre-commit 2>/dev/null || true'\n"
		"W=$(id_of r); $A workspace diff $W >diff\n"
		"same \"$(grep -c '^[ADM]  ' diff)\" 4; for l in 'M  main.c' 'A  include/new.h' 'D  include/d0/h0.h'; do grep -qx \"$l\" diff; done; grep -q 'prog' diff\n"
		"$A workspace apply $W main.c 'include/**' >/dev/null\n"
		"same \"$(cd src; git status --porcelain | sort | tr '\\n' ';')\" ' D include/d0/h0.h; M main.c;?? include/new.h;'\n"
		"[ ! -e src/prog ]; grep -q V_1_3 src/main.c; [ ! -e src/.git/hooks/pre-commit ]\n");
}

/*
 * kill -9 of whoever has a part in it, at a random moment of a stop: after gc, the workspace has all that was written
 * before, can be used, and nothing of the box is left. With `discard` it has nothing of this box.
 */
static void kill_round(unsigned *seed, int round)
{
	static const char *const victims[] = { "$K", "$R", "$K $R", "$H" };
	const char *victim = victims[rand_r(seed) % 4];
	const char *how = rand_r(seed) % 3 ? "keep" : "snapshot";
	unsigned delay = rand_r(seed) % 60000;
	char script[2048];

	snprintf(script, sizeof(script),
		"rm -f go; W=$(cat W); $A run --workspace-id $W --on-success %s --on-failure %s --on-cancel %s -- sh -c 'echo %d >f%d; echo go; exec sleep 100' >go 2>/dev/null & H=$!\n"
		"for i in $(seq 400); do grep -qs go go && break; sleep 0.02; done; grep -q go go\n"
		"K=$($A ps --json | sed -n 's/.*\"pid\": *\\([0-9]*\\).*/\\1/p' | head -1); R=$(sed -n 's/process \\([0-9]*\\).*/\\1/p' home/state/workspaces/$W/lock)\n"
		"kill -TERM $H; sleep 0.%06u; kill -KILL %s 2>/dev/null || true; kill -KILL $H 2>/dev/null || true; wait $H || true\n"
		"for i in $(seq 300); do $A gc >/dev/null 2>&1 || true; [ -z \"$(ls home/run/boxes)\" ] && break; sleep 0.05; done; same \"$(ls home/run/boxes)\" ''\n"
		"for i in $(seq 100); do $A run --workspace-id $W -- sh -c 'for i in $(seq 0 %d); do test $(cat f$i) = $i || exit 9; done' && break; [ $i != 100 ]; sleep 0.1; done\n",
		how, how, how, round, round, delay, victim, round);
	cr_assert_eq(shell_try(60, script), 0, "round %d, kill of %s after %u us, %s: %s", round, victim, delay, how, output);
}

Test(workspace_box, T17_5_kill_at_any_moment_keeps_the_files)
{
	const char *given = getenv("ABOX_TEST_SEED");
	unsigned seed = given ? (unsigned)strtoul(given, NULL, 10) : (unsigned)time(NULL);
	int rounds = is_long() ? 200 : 20;

	printf("# seed %u\n", seed);
	fflush(stdout);
	shell(20, "mkdir src; $A run --workspace src --on-success keep --result r -- true; id_of r >W\n");
	for (int i = 0; i < rounds; i++)
		kill_round(&seed, i);
}

/* A box of which everything was killed at once: what was to be thrown away goes, a secret-bearing one stays to be decided. */
Test(workspace_box, gc_settles_what_nobody_has_settled)
{
	shell(90,
		"mkdir src; K() { P=$($A ps --json | sed -n 's/.*\"pid\": *\\([0-9]*\\).*/\\1/p' | head -1)\n"
		"W=$(ls -t home/state/workspaces | head -1); R=$(sed -n 's/process \\([0-9]*\\).*/\\1/p' home/state/workspaces/$W/lock); kill -KILL $P $R; }\n"
		"G() { for i in $(seq 200); do $A gc >g 2>&1 || true; [ ! -e home/run/boxes/$B/workspace ] && $A rm $B 2>/dev/null && break; sleep 0.05; done; }\n"
		"B=$($A start --workspace src --on-success keep); $A exec $B -- sh -c 'echo 1 >one'; K; G; same \"$(ls home/state/workspaces)\" ''\n"
		"B=$($A start --workspace src --on-failure keep); $A exec $B -- sh -c 'echo 1 >one'; K; G; same \"$(ls home/state/workspaces)\" $W\n"
		"same \"$($A run --workspace-id $W -- cat one)\" 1; $A workspace rm $W\n"
		"B=$($A start --workspace src --on-failure keep --env A_TOKEN=abcdefghijk); $A exec $B -- sh -c 'echo $A_TOKEN >one'; K; G\n"
		"same \"$(ls home/state/workspaces)\" $W; $A workspace diff $W | grep -qx 'A  one'\n");
}

/*
 * The recorder alone is killed: a box that was at work is a failure, since nobody has canceled it; one whose end had come is
 * settled as what it was.
 */
Test(workspace_box, a_killed_recorder_does_not_change_how_a_box_has_ended)
{
	shell(120,
		"mkdir src; recorder() { W=$(ls -t home/state/workspaces | head -1); R=$(sed -n 's/process \\([0-9]*\\).*/\\1/p' home/state/workspaces/$W/lock); }\n"
		"G() { for i in $(seq 200); do $A gc >g 2>&1 || true; [ ! -e home/run/boxes/$B/workspace ] && break; sleep 0.05; done; $A rm $B 2>/dev/null || true; }\n"
		"B=$($A start --workspace src --on-failure keep); $A exec $B -- sh -c 'echo 1 >one'; recorder; kill -KILL $R; G\n"
		"same \"$(ls home/state/workspaces)\" $W; same \"$($A run --workspace-id $W -- cat one)\" 1; $A workspace rm $W\n"
		"B=$($A start --workspace src --on-success keep --on-cancel keep); $A exec $B -- sh -c 'echo 1 >one'; recorder; kill -KILL $R; G\n"
		"same \"$(ls home/state/workspaces)\" ''\n"
		/* a command that does not listen holds the stop open until its grace is over */
		"B=$($A start --workspace src --on-success keep --on-failure discard)\n"
		"$A exec $B -- sh -c 'echo 1 >one; trap \"\" TERM; echo ready; while :; do sleep 1; done' >ready & for i in $(seq 200); do grep -q ready ready && break; sleep 0.05; done\n"
		"recorder; $A stop --as success $B >stopped 2>&1 & for i in $(seq 200); do grep -q stopping home/run/boxes/$B/state && break; sleep 0.02; done\n"
		"kill -KILL $R; wait; G; same \"$(ls home/state/workspaces)\" $W; same \"$($A run --workspace-id $W -- cat one)\" 1\n");
}

/*
 * A workspace with a limit of its own: what is left of it bounds every box, whatever the spec says; files and limit go on,
 * a fork has its own, and the plan names the mechanism, once.
 */
Test(workspace_box, limit_of_a_workspace_goes_on_with_it)
{
	shell(120,
		"W=$($A workspace create --size 12MiB --inodes 300); FILL='head -c 20000000 /dev/zero >$0; stat -c %s $0'\n"
		"once() { same $(grep -c \"\\\"name\\\": \\\"$1\\\"\" plan) 1; }\n"
		"$A plan --workspace-id $W --json >plan; once limits.disk; once limits.inodes\n"
		"grep -A9 '\"name\": \"limits.disk\"' plan >disk; grep -q '\"status\": \"enforced\"' disk; grep -q 'own limit' disk\n"
		"if [ $(id -u) = 0 ] && [ -x /usr/sbin/mkfs.ext4 ] && [ -b /dev/loop0 ]; then grep -q 'ext4 of its own' disk; else grep -q tmpfs disk; fi\n"
		"N=$($A run --workspace-id $W -- sh -c \"$FILL\" first 2>err); grep -q 'No space left' err; [ $N -gt 9000000 ] && [ $N -lt 13500000 ]\n"
		"$A run --workspace-id $W -- sh -c \"$FILL\" second >n 2>err || grep -q 'is full' err; N=$(cat n); [ ${N:-0} -lt 3000000 ]\n"
		"$A run --workspace-id $W -- rm -f first second 2>/dev/null || { $A workspace limit $W --size 14MiB; $A run --workspace-id $W -- rm -f first second; }\n"
		"$A workspace limit $W --size 12MiB --inodes 300; $A workspace diff $W | grep -q '^0 added, 0 modified, 0 deleted'\n"
		/* what is gone is free again, also where it lay in layers */
		"$A run --workspace-id $W -- sh -c 'echo keep >keep; head -c 8000000 /dev/zero >big'\n"
		"$A run --workspace-id $W -- sh -c 'test $(cat keep) = keep; head -c 3000000 /dev/zero >more; ! touch $(seq 400) 2>/dev/null; rm -f [0-9]*'\n"
		"F=$($A workspace fork $W --size 6MiB)\n"
		"N=$($A run --workspace-id $F -- sh -c \"test -e more; $FILL\" own 2>err); [ $N -gt 4000000 ] && [ $N -lt 7000000 ]\n"
		"same \"$($A run --workspace-id $W -- sh -c 'cat keep; ls')\" \"$(printf 'keep\\nbig\\nkeep\\nmore')\"\n"
		"! $A workspace limit $W --size 1MiB >said 2>&1 || exit 1; grep -q 'holds .* bytes' said; $A workspace limit $W\n"
		"! $A workspace inspect $W | grep limit_ || exit 1\n");
}

/* What cannot be bounded is said to be so, by name; where it was asked for, it is refused. */
Test(workspace_box, what_is_not_bounded_is_said)
{
	shell(60,
		"mkdir src; echo f >src/f\n"
		"for how in src:direct src:copy; do\n"
		"	$A plan --workspace $how --on-success keep --json >plan; same $(grep -c '\"name\": \"limits.disk\"' plan) 1\n"
		"	grep -A9 '\"name\": \"limits.disk\"' plan >disk; echo $how; cat disk\n"
		"	grep -q '\"status\": \"enforced\"' disk || grep -q 'nothing for /workspace' disk\n"
		"done\n"
		"$A plan --workspace src:direct --json >plan; grep -A9 '\"name\": \"limits.disk\"' plan | grep -q 'not enforced (default)'\n"
		"grep -A9 '\"name\": \"limits.disk\"' plan | grep -q 'written directly, without a quota'\n"
		"! $A plan --workspace src:direct --disk 5MiB --json >said 2>&1 || exit 1; grep -q 'limits.disk' said\n"
		"! $A workspace create src:direct --size 1MiB >said 2>&1 || exit 1; grep -q 'no layer that could be bounded' said\n");
}
