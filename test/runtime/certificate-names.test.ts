import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { parseAllowedNames, readAlternativeNames } from '#src/runtime/certificate-names.ts';
import { UsageError } from '#src/runtime/flags.ts';

describe('parseAllowedNames', () => {
  for (const [text, expected] of [
    ['sutler-jobs', 'DNS:sutler-jobs'],
    ['DNS:Jobs.Sutler.SVC', 'DNS:jobs.sutler.svc'],
    ['spiffe://cluster.local/ns/sutler/sa/jobs', 'URI:spiffe://cluster.local/ns/sutler/sa/jobs'],
    ['URI:urn:sutler:jobs', 'URI:urn:sutler:jobs'],
    ['10.0.0.7', 'IP:10.0.0.7'],
    ['IP:2001:DB8:0:0:0:0:0:1', 'IP:2001:db8::1'],
    ['::1', 'IP:::1'],
  ] as const) {
    it(`reads ${text} as ${expected}`, () =>
      assert.deepEqual(parseAllowedNames([text]), [expected]));
  }

  for (const text of ['*.sutler', 'URI:spiffe://x/*', 'IP:ten', 'URI:nothing', 'IP:1.2.3']) {
    it(`refuses ${text}`, () => assert.throws(() => parseAllowedNames([text]), UsageError));
  }
});

describe('readAlternativeNames', () => {
  for (const [text, expected] of [
    ['DNS:a, DNS:b.c', ['DNS:a', 'DNS:b.c']],
    ['IP Address:127.0.0.1, IP Address:0:0:0:0:0:0:0:1', ['IP:127.0.0.1', 'IP:::1']],
    ['URI:spiffe://cluster.local/ns/x/sa/y', ['URI:spiffe://cluster.local/ns/x/sa/y']],
    ['email:a@b, DirName:/CN=x, DNS:z', ['DNS:z']],
    // Node quotes a value that contains what looks like another entry.
    ['URI:"spiffe://evil, DNS:sutler-jobs"', []],
    ['URI:"spiffe://evil, DNS:sutler-jobs, DNS:c"', []],
    [String.raw`URI:"a\", DNS:sutler-jobs, DNS:c", DNS:d`, ['DNS:d']],
    ['DNS:"a, DNS:sutler-jobs", DNS:b', ['DNS:b']],
    ['DNS:Sutler-Jobs', ['DNS:sutler-jobs']],
    ['DNS:"broken', []],
    ['DNS:a"b, DNS:sutler-jobs', []],
    ['', []],
    [undefined, []],
  ] as const) {
    it(`finds ${JSON.stringify(expected)} in ${text ?? 'a certificate without any'}`, () =>
      assert.deepEqual(readAlternativeNames(text), expected));
  }
});
