// SPDX-License-Identifier: LGPL-2.1-or-later
// What egress passes on, a second reader of HTTP must take for the same: one request, the same method, target, fields, body
// and end. The second one is that of node (llhttp). Requests are mutations of a few good ones, the same in each run.
// Usage: node differential.js READ-REQUESTS [CASES]
'use strict';
process.removeAllListeners('warning');
const { spawnSync } = require('child_process');
const { HTTPParser, methods } = process.binding('http_parser');

const program = process.argv[2], count = Number(process.argv[3] || 20000);
let state = 20261130;
function random(n) {
	state = (Math.imul(state, 1103515245) + 12345) & 0x7fffffff;
	return (state >>> 8) % n;
}

const seeds = [
	'GET / HTTP/1.1\r\nHost: a.test\r\n\r\n',
	'GET /x?y=1 HTTP/1.1\r\nHost: a.test\r\nAccept: */*\r\nConnection: keep-alive, X\r\nX: 1\r\n\r\n',
	'POST /p HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5\r\n\r\nhello',
	'POST /p HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n',
	'POST /p HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nA\r\n0123456789\r\n0\r\nX-T: 1\r\n\r\n',
	'PUT http://a.test/p HTTP/1.1\r\nHost: a.test\r\nContent-Length: 0\r\n\r\n',
	'POST /p HTTP/1.0\r\nContent-Length: 2\r\n\r\nok',
	'GET /s HTTP/1.1\r\nHost: a.test\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\nabc',
];
const pieces = ['\r', '\n', '\r\n', ' ', '\t', ':', ',', ';', '0', '1', '5', 'a', 'F', 'x', '\0', '\x7f', '\x80', '\xff', '+', '-', '_', '#', '?', '%', '/',
	'chunked', 'identity', 'Content-Length: 5\r\n', 'Content-Length: 0\r\n', 'Transfer-Encoding: chunked\r\n', 'Transfer-Encoding: identity\r\n',
	'Transfer-Encoding:\tchunked\r\n', 'Connection: close\r\n', 'Host: b.test\r\n', 'Upgrade: h2c\r\n', '\r\n\r\n', '0\r\n\r\n', 'GET /z HTTP/1.1\r\n', 'HTTP/1.0', ' HTTP/1.1'];

function mutate() {
	let text = seeds[random(seeds.length)];
	for (let n = 1 + random(3); n > 0; n--) {
		const at = random(text.length + 1);
		switch (random(4)) {
		case 0: text = text.slice(0, at) + pieces[random(pieces.length)] + text.slice(at); break;
		case 1: text = text.slice(0, at) + text.slice(at + 1 + random(3)); break;
		case 2: text = text.slice(0, at) + pieces[random(pieces.length)] + text.slice(at + 1); break;
		case 3: {
			const lines = text.split('\r\n'), i = random(lines.length);
			lines.splice(random(lines.length), 0, lines[i]);
			text = lines.join('\r\n');
		}
		}
	}
	return Buffer.from(text, 'latin1');
}

function second(data) {
	const parser = new HTTPParser(), seen = { messages: 0, body: [], fields: [], done: 0 };
	parser.initialize(HTTPParser.REQUEST, {});
	parser[HTTPParser.kOnHeaders | 0] = (f) => { seen.fields.push(...f); };
	parser[HTTPParser.kOnHeadersComplete | 0] = (major, minor, fields, method, url) => {
		seen.messages++;
		seen.fields.push(...(fields || []));
		seen.method = typeof method === 'number' ? methods[method] : method;
		seen.url = url || seen.url;
		return 0;
	};
	parser[HTTPParser.kOnBody | 0] = (b, offset, length) => {
		seen.body.push(Buffer.from(offset === undefined ? b : b.slice(offset, offset + length)));
	};
	parser[HTTPParser.kOnMessageComplete | 0] = () => { seen.done++; };
	const result = parser.execute(data, 0, data.length);
	seen.error = result instanceof Error ? result.code : null;
	return seen;
}

const cases = [...seeds.map((s) => Buffer.from(s, 'latin1'))];
while (cases.length < count)
	cases.push(mutate());
const parts = [];
for (const data of cases) {
	const size = Buffer.alloc(4);
	size.writeUInt32LE(data.length);
	parts.push(size, data);
}
const run = spawnSync(program, { input: Buffer.concat(parts), maxBuffer: 1 << 30 });
if (run.status !== 0)
	throw new Error('the reader failed: ' + run.status + ' ' + run.stderr);
const lines = run.stdout.toString().trim().split('\n');
let taken = 0, compared = 0, wrong = 0;
const hex = (s) => Buffer.from(s, 'hex').toString('latin1');
for (let i = 0; i < cases.length; i++) {
	const ours = JSON.parse(lines[i]);
	if (i < seeds.length && !ours) {
		console.log('a good request is refused: ' + JSON.stringify(cases[i].toString('latin1')));
		wrong++;
	}
	if (!ours)
		continue;
	taken++;
	// Only what belongs to the request: what follows is the next one's.
	const theirs = second(cases[i].subarray(0, ours.used));
	const fields = ours.fields.map(hex).slice(0, ours.fields.length);
	const method = hex(ours.method), complaints = [];
	if (theirs.error) {
		// refusing more than we do is no danger
		continue;
	}
	compared++;
	if (theirs.messages !== 1 || theirs.done !== 1)
		complaints.push(`${theirs.messages} begun, ${theirs.done} done`);
	if (theirs.method !== method || theirs.url !== hex(ours.target))
		complaints.push(`${theirs.method} ${theirs.url} for ${method} ${hex(ours.target)}`);
	if (Buffer.concat(theirs.body).toString('hex') !== ours.body)
		complaints.push('another body');
	const names = theirs.fields.slice(0, fields.length);
	for (let k = 0; k < fields.length; k++)
		if (fields[k].trim() !== (names[k] === undefined ? '?' : names[k].trim()))
			complaints.push(`field ${JSON.stringify(names[k])} for ${JSON.stringify(fields[k])}`);
	if (complaints.length) {
		wrong++;
		if (wrong <= 10)
			console.log(JSON.stringify(cases[i].toString('latin1')) + ': ' + complaints.join('; '));
	}
}
console.log(`${cases.length} requests, ${taken} taken, ${compared} compared, ${wrong} read differently`);
process.exit(wrong || compared < cases.length / 50 ? 1 : 0);
